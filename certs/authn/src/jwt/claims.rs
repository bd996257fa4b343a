//! The claims of a verified token, and its validity period.

use std::time::{Duration, SystemTime};

use serde_json::{Map, Value};

use super::TokenError;

/// The payload of a token whose signature was verified.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Claims(pub(crate) Map<String, Value>);

/// Allowed difference between an issuer's clock and ours, for each of the times in a token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leeway {
    pub(crate) after_expiry: Duration,
    pub(crate) before_start: Duration,
    /// `None`: the time of issue is ignored.
    pub(crate) before_issue: Option<Duration>,
}

impl Claims {
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// A claim that must be text.
    pub(crate) fn text(&self, name: &str) -> Result<&str, TokenError> {
        match self.get(name) {
            None => Err(TokenError::claim(name, "is missing")),
            Some(Value::String(text)) => Ok(text),
            Some(_) => Err(TokenError::claim(name, "is not a string")),
        }
    }

    /// The audiences of the token.
    pub(crate) fn audiences(&self) -> Result<Vec<&str>, TokenError> {
        let wrong = || TokenError::claim("aud", "is neither a string nor a list of strings");
        match self.get("aud") {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::String(audience)) => Ok(vec![audience]),
            Some(Value::Array(list)) => {
                list.iter().map(|audience| audience.as_str().ok_or_else(wrong)).collect()
            }
            Some(_) => Err(wrong()),
        }
    }

    /// Checks the times of the token and returns the end of its validity; `None` means without end.
    pub(crate) fn check_times(
        &self,
        now: SystemTime,
        leeway: Leeway,
    ) -> Result<Option<SystemTime>, TokenError> {
        let lies_ahead =
            |time, leeway| now.checked_add(leeway).is_some_and(|latest: SystemTime| latest < time);
        if let Some(start) = self.time("nbf")?
            && lies_ahead(start, leeway.before_start)
        {
            return Err(TokenError::NotYetValid);
        }
        if let Some(before_issue) = leeway.before_issue
            && let Some(issued) = self.time("iat")?
            && lies_ahead(issued, before_issue)
        {
            return Err(TokenError::IssuedInFuture);
        }
        // A time too far away to be represented means without end.
        let end = self.time("exp")?.and_then(|end| end.checked_add(leeway.after_expiry));
        match end {
            Some(end) if end <= now => Err(TokenError::Expired),
            end => Ok(end),
        }
    }

    /// A NumericDate of RFC 7519: seconds since 1970, perhaps with a fraction.
    fn time(&self, name: &'static str) -> Result<Option<SystemTime>, TokenError> {
        let wrong = || TokenError::claim(name, "is not a time");
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
    fn tokens_are_valid_between_their_times_with_leeway() {
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
            (json!({ "exp": 990 }), Err(TokenError::Expired)),
            (json!({ "exp": 0 }), Err(TokenError::Expired)),
            (json!({ "exp": 1000.5 }), Ok(Some(at(1010) + Duration::from_millis(500)))),
            (json!({ "exp": 1000, "nbf": 1020 }), Ok(Some(at(1010)))),
            (json!({ "exp": 1000, "nbf": 1021 }), Err(TokenError::NotYetValid)),
            (json!({ "exp": "1000" }), Err(TokenError::claim("exp", "is not a time"))),
            (json!({ "exp": -1 }), Err(TokenError::claim("exp", "is not a time"))),
            (json!({ "exp": 1e300 }), Err(TokenError::claim("exp", "is not a time"))),
            (json!({ "nbf": true }), Err(TokenError::claim("nbf", "is not a time"))),
            (json!({ "iat": 1030 }), Ok(None)),
            (json!({ "iat": null }), Ok(None)),
            (json!({ "iat": 1031 }), Err(TokenError::IssuedInFuture)),
            (json!({ "iat": 1031, "nbf": 1021 }), Err(TokenError::NotYetValid)),
            (json!({ "iat": "990" }), Err(TokenError::claim("iat", "is not a time"))),
        ];
        for (payload, expected) in cases {
            assert_eq!(claims(payload.clone()).check_times(at(1000), leeway), expected, "{payload}");
        }
        let leeway = Leeway { before_issue: None, ..leeway };
        for issued in [json!(1031), json!("990")] {
            let claims = claims(json!({ "iat": issued, "exp": 1000 }));
            assert_eq!(claims.check_times(at(1000), leeway), Ok(Some(at(1010))), "{issued}");
        }
    }

    #[test]
    fn audiences_are_a_string_or_a_list() {
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
