//! The data types of reads: revisions, records, ranges and pages.

use std::fmt;

use bytes::Bytes;

/// The number of a commit. One counter serves the whole store; 0 means that nothing has been committed yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, formatter)
    }
}

/// A key with its value and the revisions of both.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    /// The key.
    pub key: Bytes,
    /// The value.
    pub value: Bytes,
    /// The commit that created the key (after its last deletion).
    pub created: Revision,
    /// The commit that wrote this value.
    pub modified: Revision,
}

impl Record {
    /// Borrows the record.
    pub fn as_ref(&self) -> RecordRef<'_> {
        RecordRef { key: &self.key, value: &self.value, created: self.created, modified: self.modified }
    }
}

/// A record that borrows from the store; valid only while it is visited.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RecordRef<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// The commit that created the key (after its last deletion).
    pub created: Revision,
    /// The commit that wrote this value.
    pub modified: Revision,
}

impl RecordRef<'_> {
    /// Copies key and value (one allocation each).
    pub fn to_record(&self) -> Record {
        Record {
            key: Bytes::copy_from_slice(self.key),
            value: Bytes::copy_from_slice(self.value),
            created: self.created,
            modified: self.modified,
        }
    }
}

// Values hold secrets of tenants: Debug output may end in logs, so it shows only their length.
impl fmt::Debug for Record {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.as_ref(), formatter)
    }
}

impl fmt::Debug for RecordRef<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Record")
            .field("key", &format_args!("\"{}\"", self.key.escape_ascii()))
            .field("value", &format_args!("{} bytes", self.value.len()))
            .field("created", &self.created.0)
            .field("modified", &self.modified.0)
            .finish()
    }
}

/// The keys from `start` (included) to `end` (excluded); without `end`, to the last key.
#[derive(Clone, PartialEq, Eq)]
pub struct Range {
    /// The first key of the range.
    pub start: Bytes,
    /// The first key after the range; `None`: no bound.
    pub end: Option<Bytes>,
}

impl Range {
    /// Every key.
    pub fn all() -> Self {
        Self { start: Bytes::new(), end: None }
    }

    /// The keys from `start` (included) to `end` (excluded).
    pub fn between(start: impl Into<Bytes>, end: impl Into<Bytes>) -> Self {
        Self { start: start.into(), end: Some(end.into()) }
    }

    /// The keys that begin with `prefix`. The prefix is taken literally: end it with the separator of the key layout.
    pub fn prefix(prefix: impl Into<Bytes>) -> Self {
        let start: Bytes = prefix.into();
        // The least byte string above every string with this prefix; a prefix of only 0xff bytes has none.
        let end = start.iter().rposition(|byte| *byte != 0xff).map(|last| {
            let mut end = start[..=last].to_vec();
            end[last] += 1;
            Bytes::from(end)
        });
        Self { start, end }
    }

    /// The part of this range after `key`: the next page begins there.
    pub fn after(&self, key: &[u8]) -> Self {
        let mut start = Vec::with_capacity(key.len() + 1);
        start.extend_from_slice(key);
        start.push(0);
        let start = if start.as_slice() > &self.start[..] { Bytes::from(start) } else { self.start.clone() };
        Self { start, end: self.end.clone() }
    }

    /// Whether `key` lies in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= &self.start[..] && self.end.as_ref().is_none_or(|end| key < &end[..])
    }

    /// Whether no key can lie in the range.
    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }
}

impl fmt::Debug for Range {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "[\"{}\", ", self.start.escape_ascii())?;
        match &self.end {
            Some(end) => write!(formatter, "\"{}\")", end.escape_ascii()),
            None => formatter.write_str("..)"),
        }
    }
}

/// A part of a range, read at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The records, in key order.
    pub records: Vec<Record>,
    /// The revision at which the page was read; the next page is read at the same one.
    pub revision: Revision,
    /// Whether the range holds further records after the last one of this page.
    pub has_more: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_range_holds_exactly_the_keys_with_that_prefix() {
        let keys: [&[u8]; 8] = [b"", b"a", b"a/", b"a/b", b"a0", b"b", b"\xff", b"\xff\xff\x01"];
        for prefix in keys {
            let range = Range::prefix(Bytes::from_static(prefix));
            for key in keys {
                assert_eq!(range.contains(key), key.starts_with(prefix), "{prefix:?} {key:?}");
            }
        }
    }

    #[test]
    fn the_rest_of_a_range_begins_right_behind_a_key() {
        let range = Range::between("b", "d");
        let rest = range.after(b"bb");
        assert!(!rest.contains(b"bb"));
        assert!(rest.contains(b"bb\0"));
        assert!(!rest.contains(b"d"));
        assert_eq!(range.after(b"a"), range, "a key before the range leaves all of it");
        assert!(range.after(b"d").is_empty());
    }

    #[test]
    fn debug_output_shows_no_values() {
        let record =
            Record { key: "k".into(), value: "hush".into(), created: Revision(1), modified: Revision(2) };
        let shown = format!("{record:?}");
        assert!(!shown.contains("hush"), "{shown}");
        assert!(shown.contains("4 bytes"), "{shown}");
    }
}
