//! The parameters of a request, from its query or its form.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// Maximum number of parameters.
const MAX_PARAMETERS: usize = 32;

/// Parameters, each at most once (RFC 6749 3.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Form(Vec<(String, String)>);

/// A malformed form: an error of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FormError {
    #[error("a parameter is not text")]
    Encoding,
    #[error("a parameter occurs twice")]
    Twice,
    #[error("there are too many parameters")]
    TooMany,
}

impl Form {
    /// Parses `application/x-www-form-urlencoded`.
    pub(crate) fn parse(text: &str) -> Result<Self, FormError> {
        let mut form = Self::default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (key, value) = (decoded(key)?, decoded(value)?);
            if form.0.len() >= MAX_PARAMETERS {
                return Err(FormError::TooMany);
            }
            if form.0.iter().any(|(known, _)| *known == key) {
                return Err(FormError::Twice);
            }
            form.0.push((key, value));
        }
        Ok(form)
    }

    /// The value of a parameter. An empty value counts as absent (RFC 6749 3.1).
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(known, value)| known == key && !value.is_empty())
            .map(|(_, value)| value.as_str())
    }

    /// All parameters.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

fn decoded(text: &str) -> Result<String, FormError> {
    let text = if text.contains('+') { Cow::Owned(text.replace('+', " ")) } else { Cow::Borrowed(text) };
    match percent_decode_str(&text).decode_utf8() {
        Ok(text) if !text.contains('\0') => Ok(text.into_owned()),
        _ => Err(FormError::Encoding),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_parsed() {
        let form = Form::parse("a=1&b=x+y%2Bz&c&d=&&e=%C3%A4").map(|form| form.0);
        let pairs = [("a", "1"), ("b", "x y+z"), ("c", ""), ("d", ""), ("e", "ä")];
        assert_eq!(form, Ok(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec()));
        assert_eq!(Form::parse("d="), Ok(Form(vec![("d".to_owned(), String::new())])));
        assert_eq!(Form::parse("d=").ok().and_then(|form| form.get("d").map(str::to_owned)), None);
        for (text, error) in [
            ("a=1&a=2", FormError::Twice),
            ("a=%FF", FormError::Encoding),
            ("a=%00", FormError::Encoding),
            (&(0..33).map(|index| format!("k{index}=v&")).collect::<String>(), FormError::TooMany),
        ] {
            assert_eq!(Form::parse(text), Err(error), "{text}");
        }
    }
}
