//! Random numbers: a fast generator for sampling, a secure one for identifiers.

/// True with the probability `share`. Costs some nanoseconds. The generator is predictable, so it must not be used for
/// security.
pub(crate) fn sample(share: f64) -> bool {
    fastrand::f64() < share
}

/// Secure random bytes for identifiers; never all zero.
pub(crate) fn random_id<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // The system's generator can fail only before it has been initialised; the fast one replaces it then.
    if getrandom::fill(&mut bytes).is_err() || bytes == [0; N] {
        for byte in &mut bytes {
            *byte = fastrand::u8(1..);
        }
    }
    bytes
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
