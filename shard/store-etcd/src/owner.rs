//! The owner of a prefix: a record beside the keys, which every commit compares.
//!
//! The record has the owner's name and a random number. A server does not use a prefix of another owner; and because every
//! transaction compares the record, none has an effect in a cluster that answers at the same address but is another one.

use std::path::Path;

use etcd_client::{Compare, CompareOp, GetOptions, PutOptions, Txn, TxnOp, TxnOpResponse};

use crate::client::Connection;
use crate::error::{EtcdError, cause};
use crate::keys::KeyLayout;

/// First line of the record.
const FORMAT: &str = "fairlead-store 1";

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
    /// The cluster's revision at that time.
    pub(crate) revision: u64,
}

impl Claim {
    /// The comparison that fails in any other cluster, and after another owner has taken the prefix.
    pub(crate) fn comparison(&self) -> Compare {
        Compare::value(self.key.clone(), CompareOp::Equal, self.record.clone())
    }
}

/// Reads the owner's record, or writes one if the prefix has no keys at all and there is no local copy yet.
///
/// # Errors
/// [`EtcdError::Occupied`] if the prefix belongs to another owner, or to none but has keys. [`EtcdError::Foreign`] if it is
/// empty although `copy` exists.
pub(crate) async fn claim(
    connection: &Connection,
    layout: &KeyLayout,
    owner: &str,
    copy: Option<&Path>,
) -> Result<Claim, EtcdError> {
    let occupied = |reason: String| EtcdError::Occupied {
        prefix: String::from_utf8_lossy(layout.prefix()).trim_end_matches('/').to_owned(),
        reason,
    };
    let any = GetOptions::new().with_prefix().with_limit(1).with_keys_only();
    let keys = connection.request(connection.kv().get(layout.prefix(), Some(any))).await?;
    let key = layout.owner();
    let is_empty = keys.kvs().is_empty();
    if let Some(copy) = copy.filter(|copy| is_empty && copy.exists()) {
        let reason = format!("it has no keys, but {} is a copy of them", copy.display());
        return Err(EtcdError::Foreign { endpoint: connection.endpoint().to_string(), reason });
    }
    let created = Compare::create_revision(key.clone(), CompareOp::Equal, 0);
    let record = new_record(owner)?;
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
    let Some((name, number)) = parse(&found) else {
        return Err(occupied("has an owner's record that this version cannot read".to_owned()));
    };
    if name != owner {
        return Err(occupied(format!("belongs to {name:?}, not to {owner:?}")));
    }
    let (cluster, revision) = (header.cluster_id(), header.revision());
    Ok(Claim { cluster, key, number, revision: u64::try_from(revision).unwrap_or(0), record: found })
}

fn new_record(owner: &str) -> Result<Vec<u8>, EtcdError> {
    let mut number = [0; 8];
    getrandom::fill(&mut number)
        .map_err(|error| EtcdError::Unreachable { cause: cause(format!("no random number: {error}")) })?;
    Ok(format!("{FORMAT}\n{owner}\n{:016x}\n", u64::from_be_bytes(number)).into_bytes())
}

fn parse(record: &[u8]) -> Option<(&str, u64)> {
    let mut lines = std::str::from_utf8(record).ok()?.lines();
    let (format, owner, number) = (lines.next()?, lines.next()?, lines.next()?);
    (format == FORMAT).then_some((owner, u64::from_str_radix(number, 16).ok()?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_record_has_a_name_and_a_number_of_its_own() {
        let (one, two) = (new_record("shard root").unwrap(), new_record("shard root").unwrap());
        assert_ne!(one, two);
        let (name, number) = parse(&one).unwrap();
        assert_eq!(name, "shard root");
        assert!(String::from_utf8(one.clone()).unwrap().contains(&format!("{number:016x}")));
        for record in [&b""[..], b"fairlead-store 2\na\n00\n", b"fairlead-store 1\na\n", b"\xff"] {
            assert_eq!(parse(record), None);
        }
    }
}
