//! The owner of a prefix: a record beside the keys, which every commit compares.
//!
//! The record has the owner's name and a random number. A server does not use a prefix of another owner; and because every
//! transaction compares the record, none has an effect in a cluster that answers at the same address but is another one.

use std::path::Path;

use etcd_client::{Compare, CompareOp, GetOptions, PutOptions, Txn, TxnOp, TxnOpResponse};
use fairlead_store::Revision;

use crate::client::Connection;
use crate::error::{EtcdError, cause};
use crate::keys::KeyLayout;
use crate::offset::Offset;

/// First line of the record of a prefix that a server began.
const ORIGINAL: &str = "fairlead-store 1";
/// First line if the prefix was filled from another store. The [`Offset`] is the last line, so a version that does not know it
/// must not use the prefix.
const COPY: &str = "fairlead-store 2";
/// First line while it is being filled.
const INCOMPLETE_COPY: &str = "fairlead-store 2 incomplete";

/// The prefix as its owner found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// The cluster's identifier.
    pub(crate) cluster: u64,
    /// The key and the value of the record.
    pub(crate) key: Vec<u8>,
    pub(crate) record: Vec<u8>,
    /// The random number of the record.
    pub(crate) number: u64,
    /// The distance of the store's revisions from those of the cluster.
    pub(crate) offset: Offset,
    /// The revision at that time.
    pub(crate) revision: Revision,
}

impl Claim {
    /// The comparison that fails in any other cluster, and after another owner has taken the prefix.
    pub(crate) fn comparison(&self) -> Compare {
        Compare::value(self.key.clone(), CompareOp::Equal, self.record.clone())
    }
}

/// The content of an owner's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnerRecord {
    pub(crate) owner: String,
    /// Differs from that of every other record.
    pub(crate) number: u64,
    pub(crate) content: PrefixContent,
}

/// The origin of the keys of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PrefixContent {
    /// A server began the prefix.
    Original,
    /// They were copied from another store.
    Copy(Offset),
    /// They are being copied, or the copy was broken off.
    IncompleteCopy(Offset),
}

impl PrefixContent {
    fn offset(self) -> Offset {
        match self {
            Self::Original => Offset::default(),
            Self::Copy(offset) | Self::IncompleteCopy(offset) => offset,
        }
    }
}

/// The use of an incomplete copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IncompleteCopy {
    /// It is refused.
    Refuse,
    /// It is opened, to verify it.
    Accept,
}

/// Reads the owner's record, or writes one if the prefix has no keys at all and there is no local copy yet.
///
/// # Errors
/// [`EtcdError::Occupied`] if the prefix belongs to another owner, or to none but has keys, or lies below a prefix with an owner.
/// [`EtcdError::Incomplete`] if it is being filled.
/// [`EtcdError::Foreign`] if it is empty although `copy` exists.
pub(crate) async fn claim(
    connection: &Connection,
    layout: &KeyLayout,
    owner: &str,
    copy: Option<&Path>,
    incomplete: IncompleteCopy,
) -> Result<Claim, EtcdError> {
    let occupied = |reason: String| EtcdError::Occupied { prefix: layout.prefix_name(), reason };
    let any = GetOptions::new().with_prefix().with_limit(1).with_keys_only();
    let keys = connection.request(connection.kv().get(layout.prefix(), Some(any))).await?;
    let key = layout.owner();
    let is_empty = keys.kvs().is_empty();
    if let Some(copy) = copy.filter(|copy| is_empty && copy.exists()) {
        let reason = format!("it has no keys, but {} is a copy of them", copy.display());
        return Err(EtcdError::Foreign { endpoint: connection.endpoint().to_string(), reason });
    }
    if is_empty {
        refuse_nested(connection, layout).await?;
    }
    let created = Compare::create_revision(key.clone(), CompareOp::Equal, 0);
    let record = OwnerRecord::new(owner, PrefixContent::Original)?.encode();
    let write =
        if is_empty { vec![TxnOp::put(key.clone(), record.clone(), None::<PutOptions>)] } else { Vec::new() };
    let read = [TxnOp::get(key.clone(), None)];
    let txn = Txn::new().when([created]).and_then(write).or_else(read);
    let response = connection.request(connection.kv().txn(txn)).await?;
    let header = response.header().ok_or_else(|| connection.malformed())?;
    let found = match (response.succeeded(), is_empty) {
        (true, true) => record,
        (true, false) => {
            return Err(occupied("has keys that no Fairlead server has written".to_owned()));
        }
        (false, _) => match response.op_responses().first() {
            Some(TxnOpResponse::Get(get)) => {
                get.kvs().first().map(|kv| kv.value().to_vec()).unwrap_or_default()
            }
            _ => return Err(connection.malformed()),
        },
    };
    let Some(OwnerRecord { owner: name, number, content }) = OwnerRecord::parse(&found) else {
        return Err(occupied("has an owner's record that this version cannot read".to_owned()));
    };
    if name != owner {
        return Err(occupied(format!("belongs to {name:?}, not to {owner:?}")));
    }
    if matches!(content, PrefixContent::IncompleteCopy(_)) && incomplete == IncompleteCopy::Refuse {
        return Err(EtcdError::Incomplete { prefix: layout.prefix_name() });
    }
    let offset = content.offset();
    let (cluster, revision) = (header.cluster_id(), offset.to_store(header.revision()));
    Ok(Claim { cluster, key, number, offset, revision, record: found })
}

/// Refuses a prefix below that of another owner, whose server would take the keys for its own. One above it is not empty, and so
/// refused anyway.
///
/// # Errors
/// [`EtcdError::Occupied`].
pub(crate) async fn refuse_nested(connection: &Connection, layout: &KeyLayout) -> Result<(), EtcdError> {
    for outer in layout.outer_owners() {
        let found = match connection.request(connection.kv().get(outer.clone(), None)).await {
            Ok(found) => found,
            // The rights of a user may end at its own prefix.
            Err(EtcdError::Denied { .. }) => continue,
            Err(error) => return Err(error),
        };
        if !found.kvs().is_empty() {
            let outer = String::from_utf8_lossy(&outer);
            let reason = format!("lies below the prefix of another server, whose owner's record is {outer}");
            return Err(EtcdError::Occupied { prefix: layout.prefix_name(), reason });
        }
    }
    Ok(())
}

/// Reads the owner's record of a prefix; `None` if it has none.
///
/// # Errors
/// [`EtcdError::Occupied`] if the record cannot be read.
pub(crate) async fn read(
    connection: &Connection,
    layout: &KeyLayout,
) -> Result<Option<OwnerRecord>, EtcdError> {
    let mut found = connection.request(connection.kv().get(layout.owner(), None)).await?;
    let Some(record) = found.take_kvs().into_iter().next() else { return Ok(None) };
    let unreadable = || EtcdError::Occupied {
        prefix: layout.prefix_name(),
        reason: "has an owner's record that this version cannot read".to_owned(),
    };
    OwnerRecord::parse(record.value()).map(Some).ok_or_else(unreadable)
}

impl OwnerRecord {
    /// A record with a new number.
    pub(crate) fn new(owner: &str, content: PrefixContent) -> Result<Self, EtcdError> {
        let mut number = [0; 8];
        getrandom::fill(&mut number)
            .map_err(|error| EtcdError::Unreachable { cause: cause(format!("no random number: {error}")) })?;
        Ok(Self { owner: owner.to_owned(), number: u64::from_be_bytes(number), content })
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let Self { owner, number, content } = self;
        let text = match content {
            PrefixContent::Original => format!("{ORIGINAL}\n{owner}\n{number:016x}\n"),
            PrefixContent::Copy(offset) => format!("{COPY}\n{owner}\n{number:016x}\n{}\n", offset.0),
            PrefixContent::IncompleteCopy(offset) => {
                format!("{INCOMPLETE_COPY}\n{owner}\n{number:016x}\n{}\n", offset.0)
            }
        };
        text.into_bytes()
    }

    fn parse(record: &[u8]) -> Option<Self> {
        let mut lines = std::str::from_utf8(record).ok()?.lines();
        let (format, owner, number) = (lines.next()?, lines.next()?, lines.next()?);
        let number = u64::from_str_radix(number, 16).ok()?;
        let mut offset = || Some(Offset(lines.next()?.parse().ok()?));
        let content = match format {
            ORIGINAL => PrefixContent::Original,
            COPY => PrefixContent::Copy(offset()?),
            INCOMPLETE_COPY => PrefixContent::IncompleteCopy(offset()?),
            _ => return None,
        };
        Some(Self { owner: owner.to_owned(), number, content })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_record_has_a_name_a_number_of_its_own_and_the_distance_of_a_copy() {
        let offset = Offset(1_000_000_007);
        let all =
            [PrefixContent::Original, PrefixContent::Copy(offset), PrefixContent::IncompleteCopy(offset)];
        for content in all {
            let record = OwnerRecord::new("shard root", content).unwrap();
            assert_ne!(record, OwnerRecord::new("shard root", content).unwrap());
            assert_eq!(OwnerRecord::parse(&record.encode()), Some(record));
        }
    }

    #[test]
    fn a_record_of_an_earlier_version_has_no_distance_and_one_of_a_newer_version_cannot_be_read() {
        let record = OwnerRecord::parse(b"fairlead-store 1\nshard root\n00000000000000ff\n").unwrap();
        assert_eq!((record.number, record.content.offset()), (255, Offset(0)));
        for record in [
            &b""[..],
            b"fairlead-store 3\na\n00\n7\n",
            b"fairlead-store 2\na\n00\n",
            b"fairlead-store 2\na\n00\n-1\n",
            b"fairlead-store 1\na\n",
            b"\xff",
        ] {
            assert_eq!(OwnerRecord::parse(record), None, "{}", record.escape_ascii());
        }
    }
}
