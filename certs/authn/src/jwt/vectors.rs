//! Tests of signatures with published vectors (RFC 7515 appendix A, RFC 7520 section 4), and with hostile variants of them.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Deserialize;
use serde_json::Value;

use super::{Algorithm, CompactToken, KeyChoice, TokenError, VerificationError, VerificationKeys};

#[derive(Deserialize)]
struct Vector {
    name: String,
    key: Value,
    token: String,
    accepted: bool,
}

/// The reason why a token is refused.
#[derive(Debug, PartialEq)]
enum Refusal {
    Malformed(TokenError),
    Unverified(VerificationError),
}

impl Vector {
    fn verify(&self, token: &str) -> Result<(), Refusal> {
        let set = serde_json::json!({ "keys": [self.key] }).to_string();
        let keys = VerificationKeys::from_jwks(set.as_bytes()).unwrap();
        let token = CompactToken::parse(token).map_err(Refusal::Malformed)?;
        keys.verify(&token, KeyChoice::ByName).map_err(Refusal::Unverified)
    }

    /// Header, payload and signature, encoded.
    fn parts(&self) -> [&str; 3] {
        let parts: Vec<&str> = self.token.split('.').collect();
        parts.try_into().unwrap()
    }

    fn signature(&self) -> Vec<u8> {
        URL_SAFE_NO_PAD.decode(self.parts()[2]).unwrap()
    }

    fn with_signature(&self, signature: &[u8]) -> String {
        let [header, payload, _] = self.parts();
        format!("{header}.{payload}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn with_header(&self, header: &str) -> String {
        let [_, payload, signature] = self.parts();
        format!("{}.{payload}.{signature}", URL_SAFE_NO_PAD.encode(header))
    }

    fn is_elliptic_curve(&self) -> bool {
        self.key["kty"] == "EC"
    }
}

fn vectors() -> Vec<Vector> {
    serde_json::from_str(include_str!("../../tests/data/jws_vectors.json")).unwrap()
}

fn accepted_vectors() -> impl Iterator<Item = Vector> {
    vectors().into_iter().filter(|vector| vector.accepted)
}

#[test]
fn public_key_signatures_of_the_rfcs_are_verified_and_all_others_refused() {
    assert_eq!(accepted_vectors().count(), 6);
    for vector in vectors() {
        let result = vector.verify(&vector.token);
        assert_eq!(result.is_ok(), vector.accepted, "{}: {result:?}", vector.name);
    }
}

#[test]
fn a_token_is_not_verified_by_the_key_of_another() {
    for vector in accepted_vectors() {
        for other in vectors().iter().filter(|other| other.key != vector.key) {
            assert!(other.verify(&vector.token).is_err(), "{} with the key of {}", vector.name, other.name);
        }
    }
}

#[test]
fn every_flipped_bit_of_a_signature_is_noticed() {
    for vector in accepted_vectors() {
        let signature = vector.signature();
        for bit in 0..8 * signature.len() {
            let mut flipped = signature.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let result = vector.verify(&vector.with_signature(&flipped));
            let expected = Err(Refusal::Unverified(VerificationError::WrongSignature));
            assert_eq!(result, expected, "{}, bit {bit}", vector.name);
        }
    }
}

#[test]
fn signatures_of_another_length_are_refused() {
    for vector in accepted_vectors() {
        let signature = vector.signature();
        let mut cases = vec![vec![0], signature[1..].to_vec(), signature[..signature.len() - 1].to_vec()];
        cases.push([&[0], &signature[..]].concat());
        cases.push([&signature[..], &[0]].concat());
        cases.push([&signature[..], &signature[..]].concat());
        for case in cases {
            assert!(vector.verify(&vector.with_signature(&case)).is_err(), "{}: {}", vector.name, case.len());
        }
    }
}

#[test]
fn other_encodings_of_a_signature_are_refused() {
    for vector in accepted_vectors() {
        let [header, payload, signature] = vector.parts();
        // The last character has unused bits, which must be zero, or the other character is another signature.
        let (rest, last) = signature.split_at(signature.len() - 1);
        let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let next = alphabet.as_bytes()[(alphabet.find(last).unwrap() + 1) % alphabet.len()];
        let mut cases = vec![
            format!("{signature}="),
            format!("{signature}=="),
            rest.to_owned(),
            format!("{signature}A"),
            format!("{signature} "),
            format!("{signature}\n"),
            format!("{rest}{}", char::from(next)),
        ];
        let standard = signature.replace('-', "+").replace('_', "/");
        if standard != signature {
            cases.push(standard);
        }
        for case in cases {
            let token = format!("{header}.{payload}.{case}");
            assert!(vector.verify(&token).is_err(), "{}: ...{}", vector.name, &case[case.len() - 4..]);
        }
    }
}

#[test]
fn a_key_verifies_only_with_its_own_algorithm() {
    for vector in accepted_vectors() {
        let own = URL_SAFE_NO_PAD.decode(vector.parts()[0]).unwrap();
        let own = serde_json::from_slice::<Value>(&own).unwrap()["alg"].as_str().unwrap().to_owned();
        for algorithm in Algorithm::ALL.into_iter().filter(|algorithm| algorithm.as_str() != own) {
            let result = vector.verify(&vector.with_header(&format!(r#"{{"alg":"{algorithm}"}}"#)));
            let is_same_family = !vector.is_elliptic_curve() && algorithm.rsa().is_some();
            let expected = match is_same_family {
                true => VerificationError::WrongSignature,
                false => VerificationError::NoSuchKey,
            };
            assert_eq!(result, Err(Refusal::Unverified(expected)), "{}: {algorithm}", vector.name);
        }
    }
}

#[test]
fn other_algorithms_are_unknown_in_any_spelling() {
    for vector in accepted_vectors() {
        for name in
            ["none", "None", "NONE", "nOnE", "", "HS256", "HS384", "HS512", "rs256", "EdDSA", "ES256K"]
        {
            let result = vector.verify(&vector.with_header(&format!(r#"{{"alg":"{name}"}}"#)));
            assert_eq!(result, Err(Refusal::Malformed(TokenError::Algorithm)), "{}: {name}", vector.name);
        }
    }
}

#[test]
fn ambiguous_headers_and_extensions_are_refused() {
    for vector in accepted_vectors() {
        for header in [
            r#"{"alg":"RS256","alg":"none"}"#,
            r#"{"alg":"none","alg":"RS256"}"#,
            r#"{"alg":"ES256","kid":"a","kid":"b"}"#,
            r#"{"alg":"RS256","crit":["exp"],"exp":1}"#,
            r#"{"alg":"RS256","crit":[]}"#,
            r#"{"alg":"RS256","crit":null}"#,
            r#"{"alg":"RS256","b64":false,"crit":["b64"]}"#,
            r#"{"alg":["RS256"]}"#,
            r#"{"alg":null}"#,
            r#"{"kid":"a"}"#,
            r#"["RS256"]"#,
            r#"["RS256",null]"#,
            r#"["RS256",null,null]"#,
            r#"{"alg":"RS256"} {}"#,
        ] {
            let result = vector.verify(&vector.with_header(header));
            assert!(matches!(result, Err(Refusal::Malformed(_))), "{}: {header}: {result:?}", vector.name);
        }
    }
}

#[test]
fn ecdsa_signatures_have_the_form_of_rfc_7518_only() {
    for vector in accepted_vectors().filter(Vector::is_elliptic_curve) {
        let signature = vector.signature();
        let (r, s) = signature.split_at(signature.len() / 2);
        let zeros = vec![0; r.len()];
        for (form, signature) in [
            ("DER", der(r, s)),
            ("swapped", [s, r].concat()),
            // CVE-2022-21449.
            ("zeros", [&zeros[..], &zeros[..]].concat()),
            ("r of zero", [&zeros[..], s].concat()),
            ("s of zero", [r, &zeros[..]].concat()),
        ] {
            assert!(vector.verify(&vector.with_signature(&signature)).is_err(), "{}: {form}", vector.name);
        }
    }
}

/// `SEQUENCE { INTEGER r, INTEGER s }`, the form of X.509.
fn der(r: &[u8], s: &[u8]) -> Vec<u8> {
    let mut integers = Vec::new();
    for number in [r, s] {
        let start = number.iter().position(|byte| *byte != 0).unwrap();
        let sign: &[u8] = if number[start] < 0x80 { &[] } else { &[0] };
        let number = [sign, &number[start..]].concat();
        integers.extend([2, u8::try_from(number.len()).unwrap()]);
        integers.extend(number);
    }
    let length = u8::try_from(integers.len()).unwrap();
    let header = if length < 0x80 { vec![0x30, length] } else { vec![0x30, 0x81, length] };
    [header, integers].concat()
}
