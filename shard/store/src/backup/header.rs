//! The header of a backup.

use std::io::Read;

use super::FORMAT;
use super::error::BackupError;
use crate::record::Revision;

const MAGIC: [u8; 8] = *b"fairlead";

/// Bytes before the header: magic, format version, length.
const BEGIN_BYTES: usize = 16;

/// A longer header was written by no version of this program.
const MAX_HEADER_BYTES: usize = 64 << 10;

/// The highest revision of a backup: twice it is still a revision of a store.
const MAX_REVISION: u64 = 1 << 62;

const WHOLE: u8 = 0;
const PART: u8 = 1;

/// The origin of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupHeader {
    /// The part of the store that it has.
    pub content: BackupContent,
    /// The name of the server with the store.
    pub source: String,
    /// A record by which the store is recognised; `None` if it has none.
    pub anchor: Option<Anchor>,
    /// The revision at which all records were read.
    pub revision: Revision,
    /// The time when it was begun, in seconds since 1970.
    pub created: u64,
}

/// The part of a store that a backup has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackupContent {
    /// All records.
    Whole,
    /// The records of a part.
    Part {
        /// The name of the part, for people.
        name: String,
    },
}

/// A record that exists as long as the store, with a value that no other store has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// Its key.
    pub key: String,
    /// A text that its value has in this store and in no other one.
    pub text: String,
}

impl Anchor {
    /// Whether the value of the record is that of this store.
    pub fn is_in(&self, value: &[u8]) -> bool {
        let text = self.text.as_bytes();
        !text.is_empty() && value.windows(text.len()).any(|window| window == text)
    }
}

impl BackupHeader {
    /// All bytes before the frames.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut fields = Vec::new();
        fields.extend(self.revision.0.to_le_bytes());
        fields.extend(self.created.to_le_bytes());
        let (kind, part) = match &self.content {
            BackupContent::Whole => (WHOLE, ""),
            BackupContent::Part { name } => (PART, name.as_str()),
        };
        fields.push(kind);
        let (key, text) =
            self.anchor.as_ref().map_or(("", ""), |anchor| (anchor.key.as_str(), anchor.text.as_str()));
        for text in [part, &self.source, key, text] {
            push_text(&mut fields, text);
        }
        let mut bytes = Vec::with_capacity(BEGIN_BYTES + fields.len());
        bytes.extend(MAGIC);
        bytes.extend(FORMAT.to_le_bytes());
        bytes.extend((fields.len() as u32).to_le_bytes());
        bytes.extend(fields);
        bytes
    }

    /// Reads the header and leaves the input at the frames. Returns its bytes, too, for the checksum.
    ///
    /// The version is checked first: all else may differ in a newer format.
    pub(super) fn read(input: &mut impl Read) -> Result<(Self, Vec<u8>), BackupError> {
        let mut bytes = vec![0; BEGIN_BYTES];
        let begun = fill(input, &mut bytes)?;
        if begun < MAGIC.len() || bytes[..MAGIC.len()] != MAGIC {
            return Err(BackupError::Foreign);
        }
        if begun < BEGIN_BYTES {
            return Err(BackupError::Cut { records: 0 });
        }
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let (format, length) = (number(8), number(12) as usize);
        if format > FORMAT {
            return Err(BackupError::NewerFormat { found: format, supported: FORMAT });
        }
        let malformed = || BackupError::Altered { detail: "its header is malformed".to_owned() };
        if format == 0 || length > MAX_HEADER_BYTES {
            return Err(malformed());
        }
        bytes.resize(BEGIN_BYTES + length, 0);
        if fill(input, &mut bytes[BEGIN_BYTES..])? < length {
            return Err(BackupError::Cut { records: 0 });
        }
        let header = Fields(&bytes[BEGIN_BYTES..]).header();
        let header = header.filter(|header| header.revision.0 <= MAX_REVISION).ok_or_else(malformed)?;
        Ok((header, bytes))
    }
}

fn push_text(fields: &mut Vec<u8>, text: &str) {
    // Names and keys are far shorter.
    let text = &text.as_bytes()[..text.len().min(usize::from(u16::MAX) / 8)];
    fields.extend((text.len() as u16).to_le_bytes());
    fields.extend(text);
}

/// The fields of a header that have not been decoded.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn header(mut self) -> Option<BackupHeader> {
        let revision = Revision(self.number()?);
        let created = self.number()?;
        let kind = self.take(1)?[0];
        let (part, source, key, text) = (self.text()?, self.text()?, self.text()?, self.text()?);
        let content = match kind {
            WHOLE => BackupContent::Whole,
            PART => BackupContent::Part { name: part },
            _ => return None,
        };
        let anchor = (!key.is_empty()).then_some(Anchor { key, text });
        self.0.is_empty().then_some(BackupHeader { content, source, anchor, revision, created })
    }

    fn take(&mut self, count: usize) -> Option<&[u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn text(&mut self) -> Option<String> {
        let length = u16::from_le_bytes(self.take(2)?.try_into().ok()?);
        String::from_utf8(self.take(usize::from(length))?.to_vec()).ok()
    }
}

/// Reads until the buffer is full or the input ends; returns the number of bytes.
pub(super) fn fill(input: &mut impl Read, buffer: &mut [u8]) -> Result<usize, BackupError> {
    let mut read = 0;
    while read < buffer.len() {
        match input.read(&mut buffer[read..]) {
            Ok(0) => break,
            Ok(count) => read += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(BackupError::Io(error)),
        }
    }
    Ok(read)
}
