//! The election of the replica that leads: a key below the prefix, with a lease that its holder keeps alive.
//!
//! A candidate creates the key, if it does not exist, with a new lease. The holder renews the lease four times in its
//! time to live. When the holder dies, etcd removes the key as soon as the lease has expired; when it resigns, it removes
//! the key itself. The watch of the feed delivers that to the candidates, so they neither poll nor open a watch of
//! their own.
//!
//! The holder counts its term from the moment at which it has sent the last renewal that was answered, and ends it an
//! eighth of the time to live before the lease can expire. It measures by its monotonic clock. So, unless a clock runs wrong
//! or the process stands still, its term is over before another one begins. The fence of its commits does not depend on
//! that.
//!
//! etcd grants no time to live below one and a half of its election timeouts, rounded up to seconds: 2 s with its default of
//! 1 s. A new leader of etcd gives every lease its whole time to live again and one election timeout more.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{Compare, CompareOp, Error, PutOptions, Txn, TxnOp};
use fairlead_store::{Cause, Election, Revision, Term, TermEnd};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::client::Connection;
use crate::error::{EtcdError, cause, message_of};
use crate::keys::KeyLayout;
use crate::link::{Link, connected};
use crate::options::EtcdOptions;
use crate::owner::Claim;

/// The pause after a campaign or a renewal has failed.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a candidate waits for a connection before it looks whether the store is closed.
const WAIT: Duration = Duration::from_secs(3600);

/// The state of the leader's key, as it was last seen.
#[derive(Clone, Debug, Default)]
struct LeaderKey {
    /// The revision of the change that was seen last.
    revision: Revision,
    /// The value; `None`: the key does not exist.
    value: Option<Vec<u8>>,
}

/// The state of the leader's key, which the feed and the election update.
#[derive(Clone, Default)]
pub(crate) struct LeaderKeyState(Arc<watch::Sender<LeaderKey>>);

impl LeaderKeyState {
    /// Takes over the state at a revision, unless a later one is known.
    pub(crate) fn update(&self, revision: Revision, value: Option<&[u8]>) {
        self.0.send_if_modified(|known| {
            let is_newer = known.revision < revision;
            if is_newer {
                (known.revision, known.value) = (revision, value.map(<[u8]>::to_vec));
            }
            is_newer
        });
    }
}

/// The election of one replica.
#[derive(Clone)]
pub(crate) struct EtcdElection {
    pub(crate) options: Arc<EtcdOptions>,
    pub(crate) layout: Arc<KeyLayout>,
    pub(crate) claim: Arc<Claim>,
    pub(crate) link: watch::Receiver<Link>,
    pub(crate) leader: LeaderKeyState,
    /// The last revision of the local copy.
    pub(crate) copied: watch::Receiver<Revision>,
    /// The name of the replica, and a random number: a replica that was started again is another candidate.
    pub(crate) value: Arc<[u8]>,
}

/// The value of the leader's key for a replica.
pub(crate) fn candidate(replica: &str) -> Result<Arc<[u8]>, EtcdError> {
    let mut random = [0; 8];
    getrandom::fill(&mut random)
        .map_err(|error| EtcdError::Unreachable { cause: cause(format!("no random number: {error}")) })?;
    Ok(format!("{replica}\n{:016x}\n", u64::from_be_bytes(random)).into_bytes().into())
}

fn name_of(value: &[u8]) -> Option<Arc<str>> {
    Some(std::str::from_utf8(value).ok()?.lines().next()?.into())
}

/// A lease of etcd.
struct Lease {
    id: i64,
    time_to_live: Duration,
    /// The last renewal that was answered was sent at this time.
    renewed: Instant,
}

impl Lease {
    /// From this time on, the term is over here.
    fn deadline(&self) -> Instant {
        self.renewed + self.time_to_live * 7 / 8
    }

    fn next_renewal(&self) -> Instant {
        self.renewed + self.time_to_live / 4
    }
}

/// The outcome of one attempt to lead.
enum Attempt {
    Won(Term, Lease),
    /// Another replica leads since this revision.
    Occupied(Revision),
}

/// Ends a term that was won but not returned, because the campaign was dropped.
struct UnclaimedTerm(Option<Term>);

impl UnclaimedTerm {
    fn claim(mut self) -> Option<Term> {
        self.0.take()
    }
}

impl Drop for UnclaimedTerm {
    fn drop(&mut self) {
        if let Some(term) = self.0.take() {
            term.end(TermEnd::Resigned);
        }
    }
}

#[async_trait]
impl Election for EtcdElection {
    async fn campaign(&self) -> Term {
        loop {
            let mut link = self.link.clone();
            let connected = connected(&mut link, None, WAIT, Instant::now() + WAIT).await;
            let Ok((connection, number)) = connected else {
                if self.is_closed() {
                    return std::future::pending().await;
                }
                continue;
            };
            match self.attempt(&connection).await {
                Ok(Attempt::Won(term, lease)) => {
                    let unclaimed = UnclaimedTerm(Some(term.clone()));
                    tokio::spawn(self.clone().hold(term.clone(), lease));
                    tokio::select! {
                        () = self.until_current(&term) => {}
                        _ = term.ended() => continue,
                    }
                    if let Some(term) = unclaimed.claim() {
                        return term;
                    }
                }
                Ok(Attempt::Occupied(since)) => {
                    let mut leader = self.leader.0.subscribe();
                    // A change that the watch had no chance to deliver is found on the next connection.
                    tokio::select! {
                        _ = leader.wait_for(|key| key.value.is_none() && key.revision > since) => {}
                        () = changed(&mut link, number) => {}
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "the election on etcd is repeated");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn resign(&self, term: &Term) {
        term.end(TermEnd::Resigned);
        let Some(connection) = self.last_connection().await else { return };
        let key = self.layout.leader();
        let at = self.claim.offset.to_etcd(term.revision());
        let is_own = Compare::mod_revision(key.clone(), CompareOp::Equal, at);
        let removal = Txn::new().when([self.claim.comparison(), is_own]).and_then([TxnOp::delete(key, None)]);
        if let Err(error) = connection.request(connection.kv().txn(removal)).await {
            tracing::debug!(%error, "the leader's key was not removed: its lease has to expire");
        }
    }

    fn leader(&self) -> Option<Arc<str>> {
        name_of(self.leader.0.borrow().value.as_deref()?)
    }
}

impl EtcdElection {
    /// Whether another replica is known to lead.
    pub(crate) fn is_led_elsewhere(&self) -> bool {
        self.leader.0.borrow().value.as_deref().is_some_and(|value| value != &*self.value)
    }

    /// The connection, once there is one. A copy that has failed needs none any more to resign.
    async fn last_connection(&self) -> Option<Arc<Connection>> {
        let patience = self.options.timing.patience;
        let mut link = self.link.clone();
        match connected(&mut link, None, patience, Instant::now() + patience).await {
            Ok((connection, _)) => Some(connection),
            Err(_) => link.borrow().connection(),
        }
    }

    fn is_closed(&self) -> bool {
        self.link.has_changed().is_err() || matches!(&*self.link.borrow(), Link::Failed { .. })
    }

    /// Creates the leader's key, or takes over that of a lost term of this replica whose lease has not expired yet.
    async fn attempt(&self, connection: &Connection) -> Result<Attempt, EtcdError> {
        let key = self.layout.leader();
        let found = connection.request(connection.kv().get(key.clone(), None)).await?;
        let mut expected = 0;
        if let Some(kv) = found.kvs().first() {
            let since = self.claim.offset.to_store(kv.mod_revision());
            self.leader.update(since, Some(kv.value()));
            if kv.value() != &*self.value {
                return Ok(Attempt::Occupied(since));
            }
            expected = kv.mod_revision();
        }
        let mut leases = connection.lease();
        let renewed = Instant::now();
        let seconds = self.options.timing.lease.as_millis().div_ceil(1000);
        let grant = leases.grant(i64::try_from(seconds).unwrap_or(i64::MAX), None);
        let granted = connection.request(grant).await?;
        let time_to_live = Duration::from_secs(u64::try_from(granted.ttl()).unwrap_or(0));
        let lease = Lease { id: granted.id(), time_to_live, renewed };
        let is_unchanged = Compare::mod_revision(key.clone(), CompareOp::Equal, expected);
        let put = TxnOp::put(key, &*self.value, Some(PutOptions::new().with_lease(lease.id)));
        let txn = Txn::new().when([self.claim.comparison(), is_unchanged]).and_then([put]);
        let written = connection.request(connection.kv().txn(txn)).await;
        match written {
            Ok(response) if response.succeeded() => {
                let revision = response.header().ok_or_else(|| connection.malformed())?.revision();
                let revision = self.claim.offset.to_store(revision);
                self.leader.update(revision, Some(&self.value));
                Ok(Attempt::Won(Term::new(revision), lease))
            }
            // Another replica was faster, or the prefix has another owner: the next attempt shows it.
            Ok(_) => {
                revoke(connection, &lease).await;
                let cause = cause("the leader's key has changed meanwhile");
                Err(EtcdError::Unreachable { cause })
            }
            Err(error) => {
                revoke(connection, &lease).await;
                Err(error)
            }
        }
    }

    /// Waits until the local copy has everything that was committed before a term, whichever connection delivers it. Does not end
    /// if the copy has failed.
    async fn until_current(&self, term: &Term) {
        let mut copied = self.copied.clone();
        if copied.wait_for(|copied| *copied >= term.revision()).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Keeps the lease of a term alive until the term has ended.
    async fn hold(self, term: Term, mut lease: Lease) {
        let lost = tokio::select! {
            _ = term.ended() => None,
            lost = self.renew(&mut lease) => Some(lost),
            replaced = self.replaced(&term) => Some(replaced),
        };
        if let Some(lost) = lost {
            term.end(TermEnd::Lost(lost));
        }
        let connection = self.link.borrow().connection();
        if let Some(connection) = connection {
            revoke(&connection, &lease).await;
        }
    }

    /// Renews a lease until it can have expired; returns the reason.
    async fn renew(&self, lease: &mut Lease) -> Cause {
        let mut link = self.link.clone();
        let mut failure: Option<String> = None;
        loop {
            let deadline = lease.deadline();
            let next = if failure.is_some() { Instant::now() + PAUSE } else { lease.next_renewal() };
            tokio::time::sleep_until(next.min(deadline)).await;
            if self.is_closed() {
                return cause("the store is closed");
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
            else {
                let reason = failure.as_deref().unwrap_or("it does not answer");
                return cause(format!("etcd has not renewed the lease of the leader in time: {reason}"));
            };
            let connection = match connected(&mut link, None, left, deadline).await {
                Ok((connection, _)) => connection,
                Err(cause) => {
                    failure = Some(cause.to_string());
                    continue;
                }
            };
            let sent = Instant::now();
            match tokio::time::timeout_at(deadline, connection.lease().keep_alive(lease.id)).await {
                Ok(Ok(_)) => (lease.renewed, failure) = (sent, None),
                Ok(Err(Error::LeaseKeepAliveError(_))) => {
                    return cause("the lease of the leader has expired");
                }
                Ok(Err(error)) => failure = Some(message_of(&error)),
                Err(_) => {}
            }
        }
    }

    /// Returns when the leader's key was removed or replaced.
    async fn replaced(&self, term: &Term) -> Cause {
        let mut leader = self.leader.0.subscribe();
        match leader.wait_for(|key| key.revision > term.revision()).await {
            Ok(key) => match key.value.as_deref().and_then(name_of) {
                Some(name) => cause(format!("{name} leads")),
                None => cause("the leader's key was removed"),
            },
            Err(_) => cause("the store is closed"),
        }
    }
}

/// Returns when a connection is not in use any more.
async fn changed(link: &mut watch::Receiver<Link>, connection: u64) {
    let is_other = |link: &Link| !matches!(link, Link::Connected { number, .. } if *number == connection);
    // An error says that the store is closed.
    let _ = link.wait_for(is_other).await;
}

/// Ends a lease, and removes the leader's key if it has this lease. Without an answer, the lease has to expire.
async fn revoke(connection: &Connection, lease: &Lease) {
    if let Err(error) = connection.request(connection.lease().revoke(lease.id)).await {
        tracing::debug!(%error, "a lease was not revoked");
    }
}

#[cfg(test)]
mod tests {
    use fairlead_store::{Origin, ReplicaOptions, ReplicaWriter};
    use futures_util::FutureExt as _;

    use super::*;
    use crate::link::Loss;

    #[tokio::test]
    async fn a_term_begins_when_the_copy_has_passed_it_also_if_the_connection_is_lost_before() {
        let origin = Origin { cluster: 1, part: 2 };
        let (replica, mut writer) = ReplicaWriter::open(None, origin, ReplicaOptions::default()).unwrap();
        let (_link, lost) = watch::channel(Link::Lost(Loss::new(cause("lost"))));
        let claim = Claim {
            cluster: 1,
            key: Vec::new(),
            record: Vec::new(),
            number: 2,
            offset: Default::default(),
            revision: Revision(0),
        };
        let election = EtcdElection {
            options: Arc::default(),
            layout: Arc::new(KeyLayout::new("/registry", "/registry")),
            claim: Arc::new(claim),
            link: lost,
            leader: LeaderKeyState::default(),
            copied: replica.latest_revision(),
            value: candidate("one").unwrap(),
        };
        let term = Term::new(Revision(7));
        assert!(election.until_current(&term).now_or_never().is_none());
        writer.set_position(Revision(6)).unwrap();
        assert!(election.until_current(&term).now_or_never().is_none());
        writer.set_position(Revision(7)).unwrap();
        assert!(election.until_current(&term).now_or_never().is_some());
    }
}
