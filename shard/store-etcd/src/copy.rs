//! Fills a prefix from another store, and opens a prefix as the source of a copy.
//!
//! While a prefix is being filled, its owner's record says so, and no server opens it. Each commit of the source that last
//! modified a record becomes a transaction, in their order, so clients see the same order of revisions. The revisions continue
//! above those of the source ([`Offset`](crate::offset)). Then the store is opened as a server opens it, and compared with its
//! source; only after that the record is completed. If anything fails, the prefix is emptied again.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use etcd_client::{Compare, CompareOp, DeleteOptions, GetOptions, PutOptions, Txn, TxnOp, TxnOpResponse};
use fairlead_store::{
    ContentDigest, Mutation, Range, ReadError, Revision, Store, has_commits_after, restored_revision,
};
use tokio::time::Instant;

use crate::client::Connection;
use crate::error::{EtcdError, cause};
use crate::keys::KeyLayout;
use crate::offset::Offset;
use crate::options::EtcdOptions;
use crate::owner::{self, Claim, IncompleteCopy, OwnerRecord, PrefixContent};
use crate::store::EtcdStore;
use crate::transaction::{Outcome, outcome, request_bytes, transaction};

/// The pause after every endpoint has failed.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(200);

/// A completed copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopySummary {
    /// The content, which is that of the source.
    pub digest: ContentDigest,
    /// The revision of the new store; all earlier ones count as compacted.
    pub revision: Revision,
}

/// The error of filling a prefix, which is as it was before: unless etcd was lost, it is empty.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// etcd cannot be used.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// The prefix is in use, or was.
    #[error("the prefix {prefix} in etcd has keys already")]
    Exists {
        /// The prefix.
        prefix: String,
    },
    /// Another copy into the prefix runs, or was broken off and could not be removed because etcd was lost.
    #[error("the prefix {prefix} in etcd is the target of another copy, which runs or was broken off")]
    Incomplete {
        /// The prefix.
        prefix: String,
    },
    /// The source cannot be read.
    #[error("the source cannot be read: {0}")]
    Source(#[from] ReadError),
    /// The server of the source still runs.
    #[error("the source was changed while it was copied")]
    Changed,
    /// A record exceeds the limits of etcd. Nothing was written.
    #[error("{key:?} has {bytes} bytes, and etcd accepts {limit}")]
    TooLarge {
        /// The key.
        key: String,
        /// Bytes of the key and its value.
        bytes: usize,
        /// The limit of a commit.
        limit: usize,
    },
    /// Another program has written into the prefix.
    #[error("another program has changed the prefix {prefix} in etcd meanwhile")]
    Interfered {
        /// The prefix.
        prefix: String,
    },
    /// The copy differs from its source.
    #[error("the copy in the prefix {prefix} in etcd is not as its source")]
    Unsound {
        /// The prefix.
        prefix: String,
    },
}

impl EtcdStore {
    /// Fills the prefix, which must be empty, with the records of a store that no server uses, and verifies the result. It belongs
    /// to [`EtcdOptions::owner`] then.
    ///
    /// Takes one transaction for each commit that last modified a record, and reads both stores. Needs some 50 bytes of memory for
    /// each record, besides its key, and as much in addition as the local copy.
    ///
    /// # Errors
    /// [`CopyError`]. The prefix is emptied again, unless etcd has been lost.
    pub async fn copy_from(options: EtcdOptions, source: Arc<dyn Store>) -> Result<CopySummary, CopyError> {
        options.check()?;
        let at = source.revision();
        let plan = Plan::of(&*source, at, options.limits().bytes)?;
        let layout = KeyLayout::new(&options.prefix, &options.root);
        let connection = connect(&options, &layout).await?;
        let target = Target::begin(connection, layout, options, at).await?;
        match target.copy(&plan, &source, at).await {
            Ok(summary) => Ok(summary),
            Err(error) => {
                target.abandon().await;
                Err(error)
            }
        }
    }

    /// Opens the store of a prefix, whichever server owns it, as the source of a copy. Returns the owner, too.
    ///
    /// # Errors
    /// [`EtcdError::Empty`], [`EtcdError::Incomplete`] and [`EtcdError::InUse`], besides those of [`open`](Self::open).
    pub async fn open_source(options: EtcdOptions) -> Result<(Self, String), EtcdError> {
        options.check_source()?;
        let layout = KeyLayout::new(&options.prefix, &options.root);
        let connection = connect(&options, &layout).await?;
        let Some(OwnerRecord { owner, content, .. }) = owner::read(&connection, &layout).await? else {
            return Err(EtcdError::Empty { prefix: layout.prefix_name() });
        };
        if matches!(content, PrefixContent::IncompleteCopy(_)) {
            return Err(EtcdError::Incomplete { prefix: layout.prefix_name() });
        }
        if has_leader(&connection, &layout).await? {
            return Err(EtcdError::InUse { prefix: layout.prefix_name() });
        }
        let store = Self::open(EtcdOptions { owner: owner.clone(), ..options }).await?;
        Ok((store, owner))
    }
}

/// Whether a server keeps a key of ours alive by a lease.
async fn has_leader(connection: &Connection, layout: &KeyLayout) -> Result<bool, EtcdError> {
    let reads = layout
        .own_ranges()
        .map(|(start, end)| TxnOp::get(start, Some(GetOptions::new().with_range(end).with_keys_only())));
    let response = connection.request(connection.kv().txn(Txn::new().and_then(reads))).await?;
    let is_leased = |found: &TxnOpResponse| match found {
        TxnOpResponse::Get(get) => get.kvs().iter().any(|kv| kv.lease() != 0),
        _ => false,
    };
    Ok(response.op_responses().iter().any(is_leased))
}

/// A connection to the first member that answers.
async fn connect(options: &EtcdOptions, layout: &KeyLayout) -> Result<Connection, EtcdError> {
    let deadline = Instant::now() + options.timing.open;
    loop {
        let mut last = EtcdError::Unreachable { cause: cause("no endpoint is given") };
        for endpoint in &options.endpoints {
            let attempt = async {
                let connection = Connection::new(options, endpoint).await?;
                connection.request(connection.kv().get(layout.owner(), None)).await?;
                Ok(connection)
            };
            match attempt.await {
                Ok(connection) => return Ok(connection),
                Err(error) => last = error,
            }
        }
        if !last.may_pass() || Instant::now() >= deadline {
            return Err(last);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The keys of a source in the order of their last modification.
struct Plan(Vec<(Revision, Bytes)>);

impl Plan {
    fn of(source: &dyn Store, at: Revision, limit: usize) -> Result<Self, CopyError> {
        let (mut keys, mut too_large) = (Vec::new(), None);
        source.scan(&Range::all(), Some(at), &mut |record| {
            let bytes = record.key.len() + record.value.len();
            if bytes > limit {
                let key = String::from_utf8_lossy(record.key).into_owned();
                too_large = Some(CopyError::TooLarge { key, bytes, limit });
                return ControlFlow::Break(());
            }
            keys.push((record.modified, Bytes::copy_from_slice(record.key)));
            ControlFlow::Continue(())
        })?;
        // Keys of one commit stay in their own order, in which a commit that is too large is divided.
        keys.sort_unstable();
        too_large.map_or(Ok(Self(keys)), Err)
    }

    /// The keys of each commit.
    fn commits(&self) -> impl Iterator<Item = &[(Revision, Bytes)]> {
        self.0.chunk_by(|one, other| one.0 == other.0)
    }
}

/// The prefix that is being filled.
struct Target {
    connection: Connection,
    layout: KeyLayout,
    options: EtcdOptions,
    claim: Claim,
    /// Replaces the record of `claim` in the end.
    complete: OwnerRecord,
}

impl Target {
    /// Marks an empty prefix as an incomplete copy.
    async fn begin(
        connection: Connection,
        layout: KeyLayout,
        options: EtcdOptions,
        source: Revision,
    ) -> Result<Self, CopyError> {
        let any = GetOptions::new().with_prefix().with_limit(1).with_keys_only();
        let found = connection.request(connection.kv().get(layout.prefix(), Some(any))).await?;
        let header = found.header().ok_or_else(|| connection.malformed())?;
        if !found.kvs().is_empty() {
            let prefix = layout.prefix_name();
            let record = owner::read(&connection, &layout).await?;
            let is_incomplete =
                record.is_some_and(|record| matches!(record.content, PrefixContent::IncompleteCopy(_)));
            return Err(if is_incomplete {
                CopyError::Incomplete { prefix }
            } else {
                CopyError::Exists { prefix }
            });
        }
        owner::refuse_nested(&connection, &layout).await?;
        let begin = restored_revision(source, SystemTime::now());
        let offset = Offset::beyond(begin, header.revision());
        let record = OwnerRecord::new(&options.owner, PrefixContent::IncompleteCopy(offset))?;
        let complete = OwnerRecord { content: PrefixContent::Copy(offset), ..record.clone() };
        let claim = Claim {
            cluster: header.cluster_id(),
            key: layout.owner(),
            record: record.encode(),
            number: record.number,
            offset,
            revision: offset.to_store(header.revision()),
        };
        let absent = Compare::create_revision(claim.key.clone(), CompareOp::Equal, 0);
        let write = TxnOp::put(claim.key.clone(), claim.record.clone(), None::<PutOptions>);
        let written = Txn::new().when([absent]).and_then([write]);
        if !connection.request(connection.kv().txn(written)).await?.succeeded() {
            return Err(CopyError::Exists { prefix: layout.prefix_name() });
        }
        Ok(Self { connection, layout, options, claim, complete })
    }

    async fn copy(
        &self,
        plan: &Plan,
        source: &Arc<dyn Store>,
        at: Revision,
    ) -> Result<CopySummary, CopyError> {
        for commit in plan.commits() {
            let mut mutations = Vec::new();
            for (modified, key) in commit {
                let record = source.get(key)?.filter(|record| record.modified == *modified);
                mutations.push(Mutation::put(key.clone(), record.ok_or(CopyError::Changed)?.value));
                if !self.fits(&mutations) {
                    let last = mutations.split_off(mutations.len() - 1);
                    self.write(&mutations).await?;
                    mutations = last;
                }
            }
            self.write(&mutations).await?;
        }
        let digest = self.verify(source, at).await?;
        self.finish(digest).await
    }

    fn fits(&self, mutations: &[Mutation]) -> bool {
        // A single record was measured before.
        mutations.len() == 1
            || (self.options.limits().check(mutations).is_ok()
                && request_bytes(mutations, &self.layout, &self.claim) <= self.options.max_request_bytes)
    }

    /// Without a repetition: a lost transaction may still be executed later, after others.
    async fn write(&self, mutations: &[Mutation]) -> Result<(), CopyError> {
        let sent = transaction(mutations, &self.layout, &self.claim);
        let response = self.connection.request(self.connection.kv().txn(sent)).await?;
        match outcome(mutations, &self.claim, &response) {
            Outcome::Committed(_) => Ok(()),
            _ => Err(self.interfered()),
        }
    }

    /// Opens the store as a server does, and compares it with its source.
    async fn verify(&self, source: &Arc<dyn Store>, at: Revision) -> Result<ContentDigest, CopyError> {
        let store = EtcdStore::open_with(self.options.clone(), IncompleteCopy::Accept).await?;
        let expected = ContentDigest::of(&**source, at)?;
        let found = ContentDigest::of(&store, store.revision());
        store.close().await;
        if has_commits_after(&**source, at).await {
            return Err(CopyError::Changed);
        }
        if found.is_ok_and(|found| found == expected) {
            return Ok(expected);
        }
        Err(CopyError::Unsound { prefix: self.layout.prefix_name() })
    }

    /// From now on a server may open the prefix.
    async fn finish(&self, digest: ContentDigest) -> Result<CopySummary, CopyError> {
        let write = TxnOp::put(self.claim.key.clone(), self.complete.encode(), None::<PutOptions>);
        let completed = Txn::new().when([self.claim.comparison()]).and_then([write]);
        let response = self.connection.request(self.connection.kv().txn(completed)).await?;
        match response.header() {
            Some(header) if response.succeeded() => {
                Ok(CopySummary { digest, revision: self.claim.offset.to_store(header.revision()) })
            }
            _ => Err(self.interfered()),
        }
    }

    fn interfered(&self) -> CopyError {
        CopyError::Interfered { prefix: self.layout.prefix_name() }
    }

    /// Empties the prefix if it still has our record.
    async fn abandon(&self) {
        let all = TxnOp::delete(self.layout.prefix(), Some(DeleteOptions::new().with_prefix()));
        let emptied = Txn::new().when([self.claim.comparison()]).and_then([all]);
        if let Err(error) = self.connection.request(self.connection.kv().txn(emptied)).await {
            tracing::warn!(%error, prefix = self.layout.prefix_name(), "the incomplete copy is still in etcd");
        }
    }
}
