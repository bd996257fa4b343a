//! The installation that uses a prefix.
//!
//! The owner's record has a name that servers of other installations have, too, such as that of the shard `root`. So a prefix
//! also has the marks of its installation: texts of which all replicas of a server have at least one in common, and servers of
//! other installations have none. They are kept beside the owner's record, because they change when authorities are renewed.

use std::collections::BTreeSet;

use etcd_client::{Compare, CompareOp, Txn, TxnOp};

use crate::client::Connection;
use crate::error::EtcdError;
use crate::keys::KeyLayout;
use crate::owner::Claim;

/// Times that the marks are read again because another server has written them meanwhile.
const ATTEMPTS: usize = 8;

/// Refuses the prefix of another installation. The first server of a prefix leaves its marks; later ones replace them, so that
/// authorities can be renewed one after another.
///
/// Cost: one read when a store is opened, and one transaction when the marks differ.
///
/// # Errors
/// [`EtcdError::Occupied`] if the prefix has marks, and none of them is among `marks`. Without marks nothing is checked.
pub(crate) async fn check_installation(
    connection: &Connection,
    claim: &Claim,
    layout: &KeyLayout,
    marks: &BTreeSet<String>,
) -> Result<(), EtcdError> {
    if marks.is_empty() {
        return Ok(());
    }
    let key = layout.installation();
    for _ in 0..ATTEMPTS {
        let found = connection.request(connection.kv().get(key.clone(), None)).await?;
        let kv = found.kvs().first();
        if let Some(kv) = kv {
            let text = String::from_utf8_lossy(kv.value());
            let recorded: BTreeSet<String> = text.lines().map(str::to_owned).collect();
            if recorded.is_disjoint(marks) {
                let key = String::from_utf8_lossy(&key);
                let reason = format!(
                    "is used by another installation, none of whose authorities this server has (if they were replaced, delete \
                     the key {key})"
                );
                return Err(EtcdError::Occupied { prefix: layout.prefix_name(), reason });
            }
            if recorded == *marks {
                return Ok(());
            }
        }
        let modified = kv.map_or(0, etcd_client::KeyValue::mod_revision);
        let unchanged = Compare::mod_revision(key.clone(), CompareOp::Equal, modified);
        let text: String = marks.iter().map(|mark| format!("{mark}\n")).collect();
        let put = TxnOp::put(key.clone(), text, None);
        let txn = Txn::new().when([claim.comparison(), unchanged]).and_then([put]);
        match connection.request(connection.kv().txn(txn)).await {
            Ok(written) if written.succeeded() => return Ok(()),
            // Another server was faster, perhaps one of another installation.
            Ok(_) => {}
            // Such as without space in etcd, where reads have to go on. The next start writes the marks.
            Err(error) => {
                tracing::warn!(%error, "the marks of the installation were not written");
                return Ok(());
            }
        }
    }
    tracing::warn!("the marks of the installation were not written: others write them all the time");
    Ok(())
}
