//! `format.dns1123Label()` and its relatives: named formats with a validation.

use base64::Engine as _;

use super::{Timestamp, is_request_uri};

/// A named format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedFormat(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Dns1123Label,
    Dns1123Subdomain,
    Dns1035Label,
    QualifiedName,
    Dns1123LabelPrefix,
    Dns1123SubdomainPrefix,
    Dns1035LabelPrefix,
    LabelValue,
    Uri,
    Uuid,
    Byte,
    Date,
    DateTime,
}

/// Names in expressions, and the length of the pattern by which a validation is charged.
const FORMATS: [(&str, Kind, u64); 13] = [
    ("dns1123Label", Kind::Dns1123Label, 30),
    ("dns1123Subdomain", Kind::Dns1123Subdomain, 60),
    ("dns1035Label", Kind::Dns1035Label, 30),
    ("qualifiedName", Kind::QualifiedName, 60),
    ("dns1123LabelPrefix", Kind::Dns1123LabelPrefix, 30),
    ("dns1123SubdomainPrefix", Kind::Dns1123SubdomainPrefix, 60),
    ("dns1035LabelPrefix", Kind::Dns1035LabelPrefix, 30),
    ("labelValue", Kind::LabelValue, 40),
    ("uri", Kind::Uri, 1_103),
    ("uuid", Kind::Uuid, 70),
    ("byte", Kind::Byte, 84),
    ("date", Kind::Date, 71),
    ("datetime", Kind::DateTime, 71),
];

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const QUALIFIED_NAME: &str = "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

const MAX_LABEL: usize = 63;
const MAX_SUBDOMAIN: usize = 253;

impl NamedFormat {
    pub(super) const LABEL: Self = Self(Kind::Dns1123Label);
    pub(super) const SUBDOMAIN: Self = Self(Kind::Dns1123Subdomain);

    /// The format of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        FORMATS.iter().find(|(known, ..)| *known == name).map(|(_, kind, _)| Self(*kind))
    }

    /// The length of the pattern by which a validation is charged.
    pub(crate) fn pattern_length(self) -> u64 {
        FORMATS.iter().find(|(_, kind, _)| *kind == self.0).map_or(0, |(.., length)| *length)
    }

    /// The faults of a text; none if it has the format.
    #[must_use]
    pub fn faults(self, text: &str) -> Vec<String> {
        match self.0 {
            Kind::Dns1123Label => dns_label(text, false),
            Kind::Dns1123LabelPrefix => dns_label(text, true),
            Kind::Dns1123Subdomain => dns_subdomain(text, false),
            Kind::Dns1123SubdomainPrefix => dns_subdomain(text, true),
            Kind::Dns1035Label => dns_1035_label(text, false),
            Kind::Dns1035LabelPrefix => dns_1035_label(text, true),
            Kind::QualifiedName => qualified_name(text),
            Kind::LabelValue => label_value(text),
            Kind::Uri => is_request_uri(text).err().into_iter().collect(),
            Kind::Uuid => fault_unless(is_uuid(text), "does not match the UUID format"),
            Kind::Byte => fault_unless(is_base64(text), "invalid base64"),
            Kind::Date => fault_unless(Timestamp::parse_date(text).is_some(), "invalid date"),
            Kind::DateTime => fault_unless(is_date_time(text), "invalid datetime"),
        }
    }
}

fn fault_unless(is_valid: bool, fault: &str) -> Vec<String> {
    if is_valid { Vec::new() } else { vec![fault.to_owned()] }
}

fn too_long(limit: usize) -> String {
    format!("must be no more than {limit} bytes")
}

/// Prefixes may end with `-`: it is masked before the check.
fn without_dash(text: &str, is_prefix: bool) -> String {
    let masked = text.len().checked_sub(2).filter(|_| is_prefix && text.ends_with('-'));
    match masked.and_then(|end| text.get(..end)) {
        Some(head) => format!("{head}a"),
        None => text.to_owned(),
    }
}

fn is_label(text: &str) -> bool {
    let is_alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(is_alphanumeric)
        && bytes.last().is_some_and(is_alphanumeric)
        && bytes.iter().all(|byte| is_alphanumeric(byte) || *byte == b'-')
}

fn dns_label(text: &str, is_prefix: bool) -> Vec<String> {
    let text = without_dash(text, is_prefix);
    let mut faults = Vec::new();
    if text.len() > MAX_LABEL {
        faults.push(too_long(MAX_LABEL));
    }
    if !is_label(&text) {
        // A text that is a subdomain only lacks what labels lack: dots.
        let has_dots = dns_subdomain(&text, false).is_empty();
        faults.push(if has_dots { "must not contain dots".to_owned() } else { LABEL.to_owned() });
    }
    faults
}

fn dns_subdomain(text: &str, is_prefix: bool) -> Vec<String> {
    let text = without_dash(text, is_prefix);
    let mut faults = Vec::new();
    if text.len() > MAX_SUBDOMAIN {
        faults.push(too_long(MAX_SUBDOMAIN));
    }
    if !text.split('.').all(is_label) {
        faults.push(SUBDOMAIN.to_owned());
    }
    faults
}

fn dns_1035_label(text: &str, is_prefix: bool) -> Vec<String> {
    let text = without_dash(text, is_prefix);
    let mut faults = Vec::new();
    if text.len() > MAX_LABEL {
        faults.push(too_long(MAX_LABEL));
    }
    if !is_label(&text) || !text.starts_with(|first: char| first.is_ascii_lowercase()) {
        faults.push(LABEL_1035.to_owned());
    }
    faults
}

fn is_qualified(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

fn qualified_name(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                faults.push("prefix part must be non-empty".to_owned());
            } else {
                faults.extend(
                    dns_subdomain(prefix, false).into_iter().map(|fault| format!("prefix part {fault}")),
                );
            }
            name
        }
        _ => return vec![QUALIFIED_NAME.to_owned()],
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else if name.len() > MAX_LABEL {
        faults.push(format!("name part {}", too_long(MAX_LABEL)));
    }
    if !is_qualified(name) {
        faults.push(format!("name part {QUALIFIED}"));
    }
    faults
}

fn label_value(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if text.len() > MAX_LABEL {
        faults.push(too_long(MAX_LABEL));
    }
    if !text.is_empty() && !is_qualified(text) {
        faults.push(LABEL_VALUE.to_owned());
    }
    faults
}

/// Hyphens between the groups are optional.
fn is_uuid(text: &str) -> bool {
    let mut rest = text;
    for (index, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if index > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let Some((group, behind)) = rest.split_at_checked(length) else {
            return false;
        };
        if !group.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return false;
        }
        rest = behind;
    }
    rest.is_empty()
}

fn is_base64(text: &str) -> bool {
    !text.is_empty() && base64::engine::general_purpose::STANDARD.decode(text).is_ok()
}

/// A date, `T`, a time with fractions of any length, and a time zone, in upper or lower case.
fn is_date_time(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else {
        return false;
    };
    let Some((clock, rest)) = time.split_at_checked(8) else {
        return false;
    };
    let fields: Vec<&str> = clock.split(':').collect();
    let [hours, minutes, seconds] = fields.as_slice() else {
        return false;
    };
    let is_below = |text: &str, limit: &str| {
        text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit()) && text <= limit
    };
    // The pattern of Kubernetes allows any character as the point of the fraction.
    let mut characters = rest.chars();
    let fraction = characters.next().map(|_| characters.as_str()).unwrap_or("");
    let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
    let is_zone = |zone: &str| {
        zone == "z"
            || zone.strip_prefix(['+', '-']).is_some_and(|zone| {
                zone.len() == 5
                    && zone
                        .bytes()
                        .enumerate()
                        .all(|(i, b)| if i == 2 { b == b':' } else { b.is_ascii_digit() })
            })
    };
    Timestamp::parse_date(date).is_some()
        && is_below(hours, "23")
        && is_below(minutes, "59")
        && is_below(seconds, "59")
        && (is_zone(rest) || (digits > 0 && is_zone(&fraction[digits..])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_named_formats() {
        let cases = [
            ("dns1123Label", "my-name", true),
            ("dns1123Label", "my.name", false),
            ("dns1123Label", "My", false),
            ("dns1123LabelPrefix", "my-prefix-", true),
            ("dns1123Subdomain", "a.b-c.d", true),
            ("dns1123Subdomain", "a..b", false),
            ("dns1035Label", "1a", false),
            ("qualifiedName", "example.com/Name_1", true),
            ("qualifiedName", "/x", false),
            ("qualifiedName", "a/b/c", false),
            ("labelValue", "", true),
            ("labelValue", "-", false),
            ("uri", "http://example.com", true),
            ("uri", "example.com", false),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000", true),
            ("uuid", "123e4567e89b12d3a456426614174000", true),
            ("uuid", "x", false),
            ("byte", "aGVsbG8=", true),
            ("byte", "aGVsbG8", false),
            ("date", "2021-01-01", true),
            ("date", "2021-02-30", false),
            ("datetime", "2021-01-01T00:00:00Z", true),
            ("datetime", "2021-01-01T00:00:00", false),
        ];
        for (name, text, is_valid) in cases {
            let faults = NamedFormat::named(name).unwrap().faults(text);
            assert_eq!(faults.is_empty(), is_valid, "{name} {text}: {faults:?}");
        }
    }
}
