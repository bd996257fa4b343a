//! Random numbers: a fast generator for sampling and load balancing, a secure one for identifiers.

use std::cell::Cell;

/// True with the probability `share`. Costs some nanoseconds. The generator is predictable, so it must not be used for
/// security.
pub(crate) fn sample(share: f64) -> bool {
    if share >= 1.0 {
        return true;
    }
    // 53 bits, the size of a floating-point number's fraction.
    share > 0.0 && ((cheap() >> 11) as f64) < share * (1_u64 << 53) as f64
}

/// Secure random bytes for identifiers; never all zero.
pub(crate) fn random_id<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // The system's generator can fail only before it has been initialised; the fast one replaces it then.
    if getrandom::fill(&mut bytes).is_err() || bytes == [0; N] {
        for byte in &mut bytes {
            *byte = (cheap() >> 32) as u8 | 1;
        }
    }
    bytes
}

/// SplitMix64 (Steele, Lea, Flood 2014), seeded once per thread.
fn cheap() -> u64 {
    thread_local! {
        static STATE: Cell<Option<u64>> = const { Cell::new(None) };
    }
    let state = STATE.get().unwrap_or_else(|| {
        let mut seed = [0; 8];
        // Without a seed all threads generate the same numbers, which does no harm.
        let _ = getrandom::fill(&mut seed);
        u64::from_ne_bytes(seed)
    });
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    STATE.set(Some(state));
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_have_the_requested_share() {
        for (share, least, most) in
            [(0.0, 0, 0), (0.01, 700, 1300), (0.5, 49_000, 51_000), (1.0, 100_000, 100_000)]
        {
            let drawn = (0..100_000).filter(|_| sample(share)).count();
            assert!((least..=most).contains(&drawn), "{share}: {drawn}");
        }
        assert_ne!(random_id::<16>(), random_id::<16>());
    }
}
