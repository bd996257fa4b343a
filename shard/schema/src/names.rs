//! The syntax of names, labels and qualified keys, with the messages of Kubernetes
//! (`k8s.io/apimachinery/pkg/util/validation`).
//!
//! Each check returns its findings; the list is empty for a valid name. A name can break several rules at once.

const LABEL_MAX: usize = 63;
const SUBDOMAIN_MAX: usize = 253;
const QUALIFIED_NAME_MAX: usize = 63;

/// The rule for the names of a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NameRule {
    /// RFC 1123 subdomain: most resources, all custom resources.
    #[default]
    Dns1123Subdomain,
    /// RFC 1123 label: namespaces.
    Dns1123Label,
    /// Any single segment of a path: RBAC, and custom resources that request it.
    PathSegment,
}

impl NameRule {
    /// The errors of a `metadata.name`.
    pub fn check_name(self, name: &str) -> Vec<String> {
        match self {
            Self::Dns1123Subdomain => dns1123_subdomain(name),
            Self::Dns1123Label => dns1123_label(name),
            Self::PathSegment => path_segment(name),
        }
    }

    /// The errors of a `metadata.generateName`. A suffix will be appended, so a trailing `-` is valid.
    pub fn check_prefix(self, prefix: &str) -> Vec<String> {
        match self {
            Self::PathSegment => path_segment_prefix(prefix),
            Self::Dns1123Subdomain | Self::Dns1123Label => {
                let masked = match prefix.strip_suffix('-') {
                    Some(rest) if !rest.is_empty() => format!("{rest}a"),
                    _ => prefix.to_owned(),
                };
                self.check_name(&masked)
            }
        }
    }
}

/// A lowercase RFC 1123 label.
pub fn dns1123_label(text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    check_length(text, LABEL_MAX, &mut findings);
    if !is_dns1123_label(text) {
        findings.push(with_examples(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
             and end with an alphanumeric character",
            "[a-z0-9]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "123-abc"],
        ));
    }
    findings
}

/// A lowercase RFC 1123 subdomain.
pub fn dns1123_subdomain(text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    check_length(text, SUBDOMAIN_MAX, &mut findings);
    if !text.split('.').all(is_dns1123_label) {
        findings.push(with_examples(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character",
            "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
            &["example.com"],
        ));
    }
    findings
}

/// An RFC 1035 label, which starts with a letter.
pub fn dns1035_label(text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    check_length(text, LABEL_MAX, &mut findings);
    if !(is_dns1123_label(text) && text.starts_with(|first: char| first.is_ascii_lowercase())) {
        findings.push(with_examples(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    findings
}

/// A segment of a URL path.
pub fn path_segment(text: &str) -> Vec<String> {
    if matches!(text, "." | "..") {
        return vec![format!("may not be '{text}'")];
    }
    path_segment_prefix(text)
}

/// The beginning of a segment of a URL path.
pub fn path_segment_prefix(text: &str) -> Vec<String> {
    let forbidden = ["/", "%"].into_iter().filter(|character| text.contains(character));
    forbidden.map(|character| format!("may not contain '{character}'")).collect()
}

/// The key of a label: a qualified name, which errors name otherwise.
pub fn label_key(text: &str) -> Vec<String> {
    let findings = qualified_name(text).into_iter();
    findings.map(|finding| finding.replacen("a qualified name", "a valid label key", 1)).collect()
}

/// A key of labels, annotations and the like: `[prefix/]name`.
pub fn qualified_name(text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                findings.push("prefix part must be non-empty".to_owned());
            } else {
                findings
                    .extend(dns1123_subdomain(prefix).iter().map(|finding| format!("prefix part {finding}")));
            }
            *name
        }
        _ => {
            let text = with_examples(
                &format!("a qualified name {QUALIFIED_NAME_TEXT}"),
                QUALIFIED_NAME_PATTERN,
                &["MyName", "my.name", "123-abc"],
            );
            return vec![format!(
                "{text} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        findings.push("name part must be non-empty".to_owned());
    } else if name.len() > QUALIFIED_NAME_MAX {
        findings.push(format!("name part must be no more than {QUALIFIED_NAME_MAX} bytes"));
    }
    if !is_qualified_name_part(name) {
        findings.push(with_examples(
            &format!("name part {QUALIFIED_NAME_TEXT}"),
            QUALIFIED_NAME_PATTERN,
            &["MyName", "my.name", "123-abc"],
        ));
    }
    findings
}

const QUALIFIED_NAME_TEXT: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
                                   with an alphanumeric character";
const QUALIFIED_NAME_PATTERN: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

/// The value of a label.
pub fn label_value(text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    check_length(text, LABEL_MAX, &mut findings);
    if !text.is_empty() && !is_qualified_name_part(text) {
        findings.push(with_examples(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character",
            "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
            &["MyValue", "my_value", "12345"],
        ));
    }
    findings
}

fn check_length(text: &str, max: usize, findings: &mut Vec<String>) {
    if text.len() > max {
        findings.push(format!("must be no more than {max} bytes"));
    }
}

fn is_dns1123_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    let inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    bytes.iter().all(|byte| inner(byte) || *byte == b'-')
        && bytes.first().is_some_and(inner)
        && bytes.last().is_some_and(inner)
}

fn is_qualified_name_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
}

fn with_examples(text: &str, pattern: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    let examples = examples.join(" or ");
    format!("{text} (e.g. {examples}regex used for validation is '{pattern}')")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_match_recordings() {
        assert_eq!(
            dns1123_subdomain("bad_Name"),
            [
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
              must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
              '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            ]
        );
        assert_eq!(
            qualified_name("a b"),
            [
                "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
              alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
              '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
            ]
        );
        assert_eq!(
            label_value("c d"),
            [
                "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
              must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', \
              regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
            ]
        );
    }

    #[test]
    fn names_follow_their_rule() {
        use NameRule::{Dns1123Label, Dns1123Subdomain, PathSegment};
        let long = "a".repeat(64);
        let longer = format!("{}a", "a.".repeat(127));
        let table = [
            (Dns1123Subdomain, "a.b-c.1", 0),
            (Dns1123Subdomain, long.as_str(), 0),
            (Dns1123Subdomain, longer.as_str(), 1),
            (Dns1123Subdomain, "", 1),
            (Dns1123Subdomain, "a..b", 1),
            (Dns1123Subdomain, "-a", 1),
            (Dns1123Label, "abc", 0),
            (Dns1123Label, "a.b", 1),
            (Dns1123Label, long.as_str(), 1),
            (PathSegment, "system:x@y Z", 0),
            (PathSegment, "..", 1),
            (PathSegment, "a/b%c", 2),
        ];
        for (rule, name, findings) in table {
            assert_eq!(rule.check_name(name).len(), findings, "{rule:?} {name}");
        }
    }

    #[test]
    fn a_prefix_may_end_in_a_hyphen() {
        assert!(NameRule::Dns1123Subdomain.check_prefix("web-").is_empty());
        assert!(!NameRule::Dns1123Subdomain.check_prefix("Web-").is_empty());
        assert!(!NameRule::Dns1123Subdomain.check_prefix("-").is_empty());
        assert!(NameRule::PathSegment.check_prefix("..").is_empty());
    }

    #[test]
    fn qualified_names_have_at_most_one_prefix() {
        let long = "a".repeat(64);
        let table = [
            ("a", 0),
            ("example.com/A_b.c", 0),
            ("/a", 1),
            ("a/", 2),
            ("A_/b", 1),
            ("a/b/c", 1),
            ("", 2),
            (long.as_str(), 1),
        ];
        for (name, findings) in table {
            assert_eq!(qualified_name(name).len(), findings, "{name}: {:?}", qualified_name(name));
        }
    }
}
