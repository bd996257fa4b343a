//! The revision at which a store begins that is made of the records of another one.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::record::Revision;

/// Revisions per second since 1970: no store makes as many commits. At this rate 2^53, up to which numbers in JSON are exact, is
/// reached in the year 4824.
const REVISIONS_PER_SECOND: u128 = 100_000;

/// The distance if the clock is behind the source.
const LEAST_DISTANCE: u64 = 1_000_000_000;

/// The revision of a store that is made at `now` of a store or backup at revision `source`.
///
/// The source may have gone on, and other stores may have been made of it. A client that has seen their revisions must not take
/// those of the new store for a continuation, so the new store begins beyond all of them. Its first revision grows with the
/// clock, faster than any store commits: so each one begins beyond whatever those before it have reached by then. This holds
/// while the clocks of the machines do not go back between two restores.
pub fn restored_revision(source: Revision, now: SystemTime) -> Revision {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let by_clock = since.as_micros() * REVISIONS_PER_SECOND / 1_000_000;
    let by_clock = u64::try_from(by_clock).unwrap_or(u64::MAX);
    // Not ahead of the clock otherwise: a restore after this one would begin below.
    Revision(if by_clock > source.0 { by_clock } else { source.0.saturating_add(LEAST_DISTANCE) })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn restored(source: u64, after: Duration) -> u64 {
        restored_revision(Revision(source), UNIX_EPOCH + Duration::from_secs(NOW) + after).0
    }

    #[test]
    fn a_store_made_later_begins_beyond_the_commits_of_one_made_before() {
        // More than a store can commit in that time.
        for (after, commits) in [
            (Duration::from_millis(1), 90),
            (Duration::from_secs(1), 90_000),
            (Duration::from_secs(86_400), 86_400 * 90_000),
        ] {
            for source in [0, 7, 1 << 40] {
                let first = restored(source, Duration::ZERO);
                assert!(restored(source, after) > first + commits, "{source}, {after:?}");
                // One that was made of the first is beyond it, too.
                assert!(restored(first + commits, after) > first + commits, "{source}, {after:?}");
            }
        }
    }

    #[test]
    fn a_store_made_of_a_restored_one_is_not_ahead_of_later_restores() {
        let first = restored(7, Duration::ZERO);
        let copied = restored(first, Duration::from_millis(1));
        assert!(first < copied && copied < restored(7, Duration::from_millis(2)));
    }

    #[test]
    fn every_store_is_far_beyond_its_source_and_its_revisions_are_exact_in_json() {
        for source in [0, 1_000_000_000, 200_000_000_000_000] {
            let at = restored(source, Duration::ZERO);
            assert!(at >= source + LEAST_DISTANCE && at < 1 << 53, "{source}: {at}");
            let without_clock = restored_revision(Revision(source), UNIX_EPOCH - Duration::from_secs(1));
            assert_eq!(without_clock.0, source + LEAST_DISTANCE);
        }
        let in_the_year_4800 = Duration::from_secs((4_800 - 2_027) * 31_556_952);
        assert!(restored(0, in_the_year_4800) < 1 << 53);
    }
}
