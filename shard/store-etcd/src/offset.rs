//! The distance between the revisions of etcd and those of the store.
//!
//! The revisions of etcd cannot be chosen. A prefix that was filled from another store continues above the revisions of that
//! one, which clients know: so its owner's record names a distance. Every revision from etcd becomes one of the store here, and
//! back.

use fairlead_store::Revision;

/// The distance; 0 unless the prefix was filled from another store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offset(pub(crate) u64);

impl Offset {
    /// The distance with which the next commit of an etcd at `present` has a revision above `begin`.
    pub(crate) fn beyond(begin: Revision, present: i64) -> Self {
        Self(begin.0.saturating_sub(number(present)))
    }

    /// A revision of etcd, which is never negative, as one of the store.
    pub(crate) fn to_store(self, revision: i64) -> Revision {
        Revision(self.0.saturating_add(number(revision)))
    }

    /// A revision of the store as one of etcd; 0 if it is before the first one.
    pub(crate) fn to_etcd(self, revision: Revision) -> i64 {
        i64::try_from(revision.0.saturating_sub(self.0)).unwrap_or(i64::MAX)
    }
}

fn number(revision: i64) -> u64 {
    u64::try_from(revision).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_of_the_store_continue_above_those_of_its_source() {
        for (begin, present) in [(0, 1), (1_000_000_007, 1), (1_000_000_007, 5_000), (3, 5_000)] {
            let offset = Offset::beyond(Revision(begin), present);
            let next = offset.to_store(present + 1);
            assert!(next > Revision(begin), "{begin} {present}: {next}");
            assert_eq!(offset.to_etcd(next), present + 1);
        }
    }

    #[test]
    fn a_revision_of_the_source_is_none_of_etcd() {
        let offset = Offset(1000);
        assert_eq!([0, 999, 1000, 1001].map(|at| offset.to_etcd(Revision(at))), [0, 0, 0, 1]);
        assert_eq!(Offset::default().to_etcd(Revision(u64::MAX)), i64::MAX);
        assert_eq!(Offset(u64::MAX).to_store(7), Revision(u64::MAX));
    }
}
