//! What a verified token claims, and until when.

use std::time::{Duration, SystemTime};

use serde_json::{Map, Value};

use super::TokenFault;

/// The payload of a token whose signature was verified.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Claims(pub(crate) Map<String, Value>);

/// How far an issuer's clock may be from ours, for each of the times that a token names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leeway {
    pub(crate) after_expiry: Duration,
    pub(crate) before_start: Duration,
    /// `None`: whatever it says about when it was issued, if anything, is not looked at.
    pub(crate) before_issue: Option<Duration>,
}

impl Claims {
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// A claim that must be text.
    pub(crate) fn text(&self, name: &str) -> Result<&str, TokenFault> {
        match self.get(name) {
            None => Err(TokenFault::claim(name, "is missing")),
            Some(Value::String(text)) => Ok(text),
            Some(_) => Err(TokenFault::claim(name, "is not a string")),
        }
    }

    /// Those for whom the token is meant.
    pub(crate) fn audiences(&self) -> Result<Vec<&str>, TokenFault> {
        let wrong = || TokenFault::claim("aud", "is neither a string nor a list of strings");
        match self.get("aud") {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::String(audience)) => Ok(vec![audience]),
            Some(Value::Array(list)) => {
                list.iter().map(|audience| audience.as_str().ok_or_else(wrong)).collect()
            }
            Some(_) => Err(wrong()),
        }
    }

    /// Whether it is the time of this token, and until when it will be; `None` means for ever.
    pub(crate) fn in_force(&self, now: SystemTime, leeway: Leeway) -> Result<Option<SystemTime>, TokenFault> {
        let lies_ahead =
            |time, leeway| now.checked_add(leeway).is_some_and(|latest: SystemTime| latest < time);
        if let Some(start) = self.time("nbf")?
            && lies_ahead(start, leeway.before_start)
        {
            return Err(TokenFault::NotYetValid);
        }
        if let Some(before_issue) = leeway.before_issue
            && let Some(issued) = self.time("iat")?
            && lies_ahead(issued, before_issue)
        {
            return Err(TokenFault::IssuedInFuture);
        }
        // A time too far away to be expressed is for ever.
        let end = self.time("exp")?.and_then(|end| end.checked_add(leeway.after_expiry));
        match end {
            Some(end) if end <= now => Err(TokenFault::Expired),
            end => Ok(end),
        }
    }

    /// A NumericDate of RFC 7519: seconds since 1970, perhaps with a fraction.
    fn time(&self, name: &'static str) -> Result<Option<SystemTime>, TokenFault> {
        let wrong = || TokenFault::claim(name, "is not a time");
        let seconds = match self.get(name) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Number(number)) => number.as_f64().ok_or_else(wrong)?,
            Some(_) => return Err(wrong()),
        };
        let since = Duration::try_from_secs_f64(seconds).map_err(|_| wrong())?;
        SystemTime::UNIX_EPOCH.checked_add(since).ok_or_else(wrong).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claims(value: Value) -> Claims {
        Claims(value.as_object().unwrap().clone())
    }

    #[test]
    fn time_has_two_ends_and_some_leeway() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let leeway = Leeway {
            after_expiry: Duration::from_secs(10),
            before_start: Duration::from_secs(20),
            before_issue: Some(Duration::from_secs(30)),
        };
        let cases = [
            (json!({}), Ok(None)),
            (json!({ "exp": null }), Ok(None)),
            (json!({ "exp": 1000 }), Ok(Some(at(1010)))),
            (json!({ "exp": 991 }), Ok(Some(at(1001)))),
            (json!({ "exp": 990 }), Err(TokenFault::Expired)),
            (json!({ "exp": 0 }), Err(TokenFault::Expired)),
            (json!({ "exp": 1000.5 }), Ok(Some(at(1010) + Duration::from_millis(500)))),
            (json!({ "exp": 1000, "nbf": 1020 }), Ok(Some(at(1010)))),
            (json!({ "exp": 1000, "nbf": 1021 }), Err(TokenFault::NotYetValid)),
            (json!({ "exp": "1000" }), Err(TokenFault::claim("exp", "is not a time"))),
            (json!({ "exp": -1 }), Err(TokenFault::claim("exp", "is not a time"))),
            (json!({ "exp": 1e300 }), Err(TokenFault::claim("exp", "is not a time"))),
            (json!({ "nbf": true }), Err(TokenFault::claim("nbf", "is not a time"))),
            (json!({ "iat": 1030 }), Ok(None)),
            (json!({ "iat": null }), Ok(None)),
            (json!({ "iat": 1031 }), Err(TokenFault::IssuedInFuture)),
            (json!({ "iat": 1031, "nbf": 1021 }), Err(TokenFault::NotYetValid)),
            (json!({ "iat": "990" }), Err(TokenFault::claim("iat", "is not a time"))),
        ];
        for (payload, expected) in cases {
            assert_eq!(claims(payload.clone()).in_force(at(1000), leeway), expected, "{payload}");
        }
        let leeway = Leeway { before_issue: None, ..leeway };
        for issued in [json!(1031), json!("990")] {
            let claims = claims(json!({ "iat": issued, "exp": 1000 }));
            assert_eq!(claims.in_force(at(1000), leeway), Ok(Some(at(1010))), "{issued}");
        }
    }

    #[test]
    fn audiences_are_one_or_many() {
        for (payload, expected) in [
            (json!({}), Ok(vec![])),
            (json!({ "aud": "a" }), Ok(vec!["a"])),
            (json!({ "aud": ["a", "b"] }), Ok(vec!["a", "b"])),
            (json!({ "aud": ["a", 1] }), Err(())),
            (json!({ "aud": {} }), Err(())),
        ] {
            let claims = claims(payload.clone());
            assert_eq!(claims.audiences().map_err(drop), expected, "{payload}");
        }
    }
}
