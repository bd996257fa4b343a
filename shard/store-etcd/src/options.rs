//! Options: the cluster, the prefix, the owner, limits and times.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use fairlead_store::{Limits, ReplicaOptions};

use crate::error::EtcdError;

/// Bytes of a request that are not keys or values: framing, comparisons of keys, the owner's record. Enough for commits of
/// 127 mutations with expectations and keys of 300 bytes.
const REQUEST_OVERHEAD: usize = 96 * 1024;

/// Options of an [`EtcdStore`](crate::EtcdStore).
#[derive(Clone)]
pub struct EtcdOptions {
    /// URLs of the members, `http://` or `https://`, without a user. One is used at a time; the first one is chosen at random.
    pub endpoints: Vec<String>,
    /// Certificates, for `https://`.
    pub tls: TlsFiles,
    /// The user, if the cluster requires one.
    pub user: Option<EtcdUser>,
    /// The prefix of all keys in etcd, without a slash at its end. Default `/registry`.
    pub prefix: String,
    /// Keys that begin with this and a slash get `prefix` in its place; other keys go below a folder of the prefix.
    /// Default `/registry`.
    pub root: String,
    /// The owner of the prefix: a name that is the same in all replicas of a server and differs from all other servers.
    pub owner: String,
    /// Marks of the installation, each in one line, such as digests of its authorities: all replicas of a server have one in
    /// common, and servers of other installations have none of them. A prefix with other marks is refused. Default none, which
    /// checks nothing.
    pub installation: BTreeSet<String>,
    /// The name of this replica of the server, by which the leader is known. Default `replica`.
    pub replica: String,
    /// The file of the local copy; `None`: in memory.
    pub view: Option<PathBuf>,
    /// Memory limits of the local copy.
    pub view_options: ReplicaOptions,
    /// etcd's `--max-txn-ops`. Default 128.
    pub max_operations: usize,
    /// etcd's `--max-request-bytes`. Default 1.5 MiB.
    pub max_request_bytes: usize,
    /// Time limits.
    pub timing: Timing,
}

impl Default for EtcdOptions {
    fn default() -> Self {
        Self {
            endpoints: Vec::new(),
            tls: TlsFiles::default(),
            user: None,
            prefix: "/registry".to_owned(),
            root: "/registry".to_owned(),
            owner: "default".to_owned(),
            installation: BTreeSet::new(),
            replica: "replica".to_owned(),
            view: None,
            view_options: ReplicaOptions::default(),
            max_operations: 128,
            max_request_bytes: 1536 * 1024,
            timing: Timing::default(),
        }
    }
}

impl EtcdOptions {
    /// The largest commit: one operation and some bytes of a request are needed for the owner's record and for framing.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            mutations: self.max_operations.saturating_sub(1),
            bytes: self.max_request_bytes.saturating_sub(REQUEST_OVERHEAD),
        }
    }

    pub(crate) fn check(&self) -> Result<(), EtcdError> {
        if self.owner.is_empty() || self.owner.chars().any(char::is_control) {
            let reason = "the owner needs a name without control characters".to_owned();
            return Err(EtcdError::Options { reason });
        }
        if self.replica.is_empty() || self.replica.chars().any(char::is_control) {
            let reason = "the replica needs a name without control characters".to_owned();
            return Err(EtcdError::Options { reason });
        }
        self.check_source()
    }

    /// As [`check`](Self::check) where the owner does not matter.
    pub(crate) fn check_source(&self) -> Result<(), EtcdError> {
        let fail = |reason: &str| Err(EtcdError::Options { reason: reason.to_owned() });
        let is_secure = |url: &String| url.starts_with("https://");
        if self.endpoints.is_empty() {
            return fail("no endpoint is given");
        }
        if self.endpoints.iter().any(|url| url.contains('@')) {
            // It may have a password, so it is not shown.
            return fail("an endpoint has a user: the user and its password are settings of their own");
        }
        if let Some(url) = self.endpoints.iter().find(|url| !url.starts_with("http://") && !is_secure(url)) {
            return fail(&format!("{url} begins neither with http:// nor with https://"));
        }
        if self.endpoints.iter().any(|url| has_more_than_a_host(url)) {
            // A query may have a token, so it is not shown.
            return fail(
                "an endpoint has a path, a query or a fragment: it is only a scheme, a host and a port",
            );
        }
        if self.tls.is_given() && !self.endpoints.iter().all(is_secure) {
            return fail("certificates are given, but not every endpoint begins with https://");
        }
        if self.tls.certificate.is_some() != self.tls.key.is_some() {
            return fail("a client certificate needs its private key, and a private key its certificate");
        }
        if !self.prefix.starts_with('/') || self.prefix.ends_with('/') {
            return fail("the prefix must begin with a slash and must not end with one");
        }
        if self.limits().mutations == 0 || self.limits().bytes == 0 {
            return fail("the limits of etcd leave no room for a commit");
        }
        Ok(())
    }
}

/// Whether a URL has parts that no request would use. A slash at the end changes nothing.
fn has_more_than_a_host(url: &str) -> bool {
    let (_, rest) = url.split_once("://").unwrap_or(("", url));
    rest.strip_suffix('/').unwrap_or(rest).contains(['/', '?', '#'])
}

impl fmt::Debug for EtcdOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("EtcdOptions")
            .field("endpoints", &self.endpoints)
            .field("prefix", &self.prefix)
            .field("owner", &self.owner)
            .field("view", &self.view)
            .finish_non_exhaustive()
    }
}

/// PEM files for TLS. They are read when a connection is made, so that renewed ones are used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Authorities of the members' certificates; `None`: those of the system.
    pub authorities: Option<PathBuf>,
    /// The client's certificate.
    pub certificate: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
}

/// A user of etcd. The file is read when a connection is made, so that a new password is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdUser {
    /// The name.
    pub name: String,
    /// The file with the password on its first line.
    pub password_file: PathBuf,
}

impl TlsFiles {
    fn is_given(&self) -> bool {
        self.authorities.is_some() || self.certificate.is_some() || self.key.is_some()
    }
}

/// Time limits of an [`EtcdStore`](crate::EtcdStore).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long `open` looks for a member of the cluster. Filling the copy may take longer. Default 30 s.
    pub open: Duration,
    /// How long a commit waits for a connection while there is none, such as during the election of a leader. Default 2 s.
    pub patience: Duration,
    /// How long one request may take before the connection counts as lost. Default 5 s.
    pub request: Duration,
    /// How long a commit with an unknown outcome waits for the feed to show it. Default 3 s.
    pub resolution: Duration,
    /// How often the member is asked for a linearizable read, and how long that may take. Default 2 s.
    pub heartbeat: Duration,
    /// How often the barrier is written again. Shows that the watch still delivers, and how far it is: a quiet store on an etcd
    /// that it shares would fall behind the compaction of the others. Default 60 s.
    pub barrier: Duration,
    /// How often the local copy is made durable. Default 30 s.
    pub checkpoint: Duration,
    /// The time to live of the leader's lease, in whole seconds: how long a leader that has died is not replaced. etcd grants at
    /// least one and a half of its election timeouts. Default 2 s.
    pub lease: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            open: Duration::from_secs(30),
            patience: Duration::from_secs(2),
            request: Duration::from_secs(5),
            resolution: Duration::from_secs(3),
            heartbeat: Duration::from_secs(2),
            barrier: Duration::from_secs(60),
            checkpoint: Duration::from_secs(30),
            lease: Duration::from_secs(2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_contradict_each_other_are_refused() {
        type Change = fn(&mut EtcdOptions);
        let cases: [(Change, &str); 13] = [
            (|options| options.endpoints.clear(), "no endpoint"),
            (|options| options.endpoints = vec!["127.0.0.1:2379".to_owned()], "neither with http://"),
            (
                |options| options.endpoints.push("http://root:hush@etcd:2379".to_owned()),
                "settings of their own",
            ),
            (|options| options.endpoints.push("http://etcd:2379/shards".to_owned()), "a path"),
            (|options| options.endpoints.push("http://etcd:2379/?token=hush".to_owned()), "a query"),
            (|options| options.endpoints.push("http://etcd:2379#hush".to_owned()), "a fragment"),
            (|options| options.tls.authorities = Some("ca.crt".into()), "not every endpoint"),
            (
                |options| {
                    options.endpoints = vec!["https://etcd:2379".to_owned()];
                    options.tls.certificate = Some("tls.crt".into());
                },
                "private key",
            ),
            (|options| options.prefix = "registry".to_owned(), "prefix"),
            (|options| options.prefix = "/registry/".to_owned(), "prefix"),
            (|options| options.owner = "a\nb".to_owned(), "owner"),
            (|options| options.replica = String::new(), "replica"),
            (|options| options.max_operations = 1, "no room"),
        ];
        let good =
            EtcdOptions { endpoints: vec!["http://127.0.0.1:2379".to_owned()], ..EtcdOptions::default() };
        assert!(good.check().is_ok());
        let with_slash = EtcdOptions { endpoints: vec!["http://[::1]:2379/".to_owned()], ..good.clone() };
        assert!(with_slash.check().is_ok());
        for (change, reason) in cases {
            let mut options = good.clone();
            change(&mut options);
            let refused = options.check().map_err(|error| error.to_string());
            assert!(refused.as_ref().is_err_and(|error| error.contains(reason)), "{refused:?}: {reason}");
            assert!(!format!("{refused:?}").contains("hush"));
        }
    }
}
