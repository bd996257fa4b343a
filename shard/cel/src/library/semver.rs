//! `semver()`: versions as in Semantic Versioning 2.0.

use std::cmp::Ordering;

/// A version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SemanticVersion {
    /// Major version.
    pub major: u64,
    /// Minor version.
    pub minor: u64,
    /// Patch version.
    pub patch: u64,
    pre_release: Vec<Identifier>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Identifier {
    Number(u64),
    Text(Box<str>),
}

impl SemanticVersion {
    /// Reads a version with its three numbers.
    ///
    /// # Errors
    /// If the text is no version.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("Version string empty".to_owned());
        }
        let mut parts = text.splitn(3, '.');
        let (Some(major), Some(minor), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
            return Err("No Major.Minor.Patch elements found".to_owned());
        };
        let (rest, build) = match rest.split_once('+') {
            Some((rest, build)) => (rest, Some(build)),
            None => (rest, None),
        };
        let (patch, pre_release) = match rest.split_once('-') {
            Some((patch, pre_release)) => (patch, Some(pre_release)),
            None => (rest, None),
        };
        let version = Self {
            major: number(major, "Major", "major")?,
            minor: number(minor, "Minor", "minor")?,
            patch: number(patch, "Patch", "patch")?,
            pre_release: pre_release
                .map_or(Ok(Vec::new()), |text| text.split('.').map(identifier).collect())?,
        };
        for part in build.into_iter().flat_map(|build| build.split('.')) {
            if part.is_empty() {
                return Err("Build meta data is empty".to_owned());
            }
            if !is_alphanumeric(part) {
                return Err(format!("Invalid character(s) found in build meta data {part:?}"));
            }
        }
        Ok(version)
    }

    /// Reads a version that may begin with `v`, lack numbers, or have leading zeros.
    ///
    /// # Errors
    /// If the text is no version.
    pub fn parse_normalized(text: &str) -> Result<Self, String> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(without_leading_zeros).collect();
        if parts.len() < 3 {
            if parts.last().is_some_and(|part| part.contains(['+', '-'])) {
                return Err("short version cannot contain PreRelease/Build meta data".to_owned());
            }
            parts.resize(3, "0".to_owned());
        }
        Self::parse(&parts.join("."))
    }

    /// The bytes of its text and of its parts.
    pub(crate) fn size(&self) -> usize {
        let sizes = self.pre_release.iter().map(|identifier| match identifier {
            Identifier::Number(_) => 24,
            Identifier::Text(text) => text.len() + 24,
        });
        sizes.sum()
    }

    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        let numbers = |version: &Self| (version.major, version.minor, version.patch);
        numbers(self).cmp(&numbers(other)).then_with(|| {
            match (self.pre_release.is_empty(), other.pre_release.is_empty()) {
                (true, true) => Ordering::Equal,
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                (false, false) => {
                    let pairs = self.pre_release.iter().zip(&other.pre_release);
                    let differences = pairs.map(|(mine, theirs)| mine.compare(theirs));
                    let first = differences.fold(Ordering::Equal, Ordering::then);
                    first.then(self.pre_release.len().cmp(&other.pre_release.len()))
                }
            }
        })
    }
}

impl Identifier {
    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => a.cmp(b),
            (Self::Number(_), Self::Text(_)) => Ordering::Less,
            (Self::Text(_), Self::Number(_)) => Ordering::Greater,
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
        }
    }
}

fn without_leading_zeros(part: &str) -> String {
    if part.len() < 2 {
        return part.to_owned();
    }
    let trimmed = part.trim_start_matches('0');
    if trimmed.starts_with(|first: char| first.is_ascii_digit()) {
        trimmed.to_owned()
    } else {
        format!("0{trimmed}")
    }
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_alphanumeric(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn number(text: &str, title: &str, name: &str) -> Result<u64, String> {
    if !is_number(text) {
        return Err(format!("Invalid character(s) found in {name} number {text:?}"));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(format!("{title} number must not contain leading zeroes {text:?}"));
    }
    text.parse().map_err(|_| {
        let fault = if text.is_empty() { "invalid syntax" } else { "value out of range" };
        format!("strconv.ParseUint: parsing {text:?}: {fault}")
    })
}

fn identifier(text: &str) -> Result<Identifier, String> {
    if text.is_empty() {
        return Err("Prerelease is empty".to_owned());
    }
    if is_number(text) {
        if text.len() > 1 && text.starts_with('0') {
            return Err(format!("Numeric PreRelease version must not contain leading zeroes {text:?}"));
        }
        let parsed = text.parse().map(Identifier::Number);
        return parsed.map_err(|_| format!("strconv.ParseUint: parsing {text:?}: value out of range"));
    }
    if !is_alphanumeric(text) {
        return Err(format!("Invalid character(s) found in prerelease {text:?}"));
    }
    Ok(Identifier::Text(text.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered() {
        let ascending = [
            "0.9.9",
            "1.0.0-alpha",
            "1.0.0-alpha.1",
            "1.0.0-alpha.beta",
            "1.0.0-beta.2",
            "1.0.0-beta.11",
            "1.0.0-rc.1",
            "1.0.0",
            "1.0.1",
            "1.10.0",
        ];
        for pair in ascending.windows(2) {
            let [low, high] = [pair[0], pair[1]].map(|text| SemanticVersion::parse(text).unwrap());
            assert_eq!(low.compare(&high), Ordering::Less, "{pair:?}");
        }
        let equal = ["1.0.0+a", "1.0.0+b"].map(|text| SemanticVersion::parse(text).unwrap());
        assert_eq!(equal[0].compare(&equal[1]), Ordering::Equal);
    }

    #[test]
    fn versions_are_normalized_on_request() {
        for text in ["v1.2.3", "1.2", "01.2.3", "1", "v1.02"] {
            assert!(SemanticVersion::parse(text).is_err(), "{text}");
            assert!(SemanticVersion::parse_normalized(text).is_ok(), "{text}");
        }
        for text in ["", "1.2.3-", "1.2.3-01", "1.2.3+", "1.2-a", "a.b.c", "1.2.3-é"] {
            assert!(SemanticVersion::parse(text).is_err(), "{text}");
        }
    }
}
