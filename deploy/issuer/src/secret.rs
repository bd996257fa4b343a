//! Random secrets and user codes.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// The random number generator of the system has failed. Another attempt may succeed.
#[derive(Debug, thiserror::Error)]
#[error("the system has no random numbers: {0}")]
pub(crate) struct RandomnessError(String);

/// 256 random bits, as text for URLs: 43 characters.
pub(crate) fn secret() -> Result<String, RandomnessError> {
    let mut bytes = [0; 32];
    fill(&mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// Whether a text has the form of a [`secret`], or of a digest in the same notation.
pub(crate) fn is_secret(text: &str) -> bool {
    text.len() == 43 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// Eight distinguishable letters without vowels (RFC 8628 6.1): 34 bits.
pub(crate) fn user_code() -> Result<String, RandomnessError> {
    const LETTERS: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";
    let mut code = String::with_capacity(8);
    while code.len() < 8 {
        let mut byte = [0];
        fill(&mut byte)?;
        // 240 is the largest multiple of 20 in a byte, so all letters are equally likely.
        if byte[0] < 240 {
            code.push(char::from(LETTERS[usize::from(byte[0] % 20)]));
        }
    }
    Ok(code)
}

fn fill(bytes: &mut [u8]) -> Result<(), RandomnessError> {
    getrandom::fill(bytes).map_err(|error| RandomnessError(error.to_string()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn secrets_have_a_form() {
        let one = secret().unwrap();
        assert!(is_secret(&one) && one != secret().unwrap());
        assert!(!is_secret("") && !is_secret(&"a".repeat(42)) && !is_secret(&"%".repeat(43)));
        let code = user_code().unwrap();
        assert!(
            code.len() == 8 && code.bytes().all(|byte| b"BCDFGHJKLMNPQRSTVWXZ".contains(&byte)),
            "{code}"
        );
    }
}
