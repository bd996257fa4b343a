//! Who sends a request, at the door that it came through.

use std::sync::Arc;
use std::time::SystemTime;

use fairlead_authn::{Identity, Observer, Outcome, WorkspaceAuthenticator, is_identity_header, shows_token};
use http::Uri;
use http::header::{HeaderMap, HeaderName};

use crate::explain::Steps;
use crate::listener::Connection;
use crate::request::{begins_alike, is_alike};

/// The group of shards, who may ask for picks.
pub(crate) const SHARDS: &str = "system:fairlead:shard";
/// The group of operators, who may see metrics and status.
pub(crate) const OPERATORS: &str = "system:kcp:admin";

/// What the gateway knows about a request's sender.
#[derive(Clone, Debug)]
pub(crate) enum Sender {
    /// Known here; asserted to the shard.
    Known(Arc<Identity>),
    /// Not judged here: the shard gets the request without an identity and judges what it carries.
    PassedOn,
}

/// The headers by which a backend wants to be told who asks, in lower case. A backend that is not named any gets
/// `X-Remote-User`, `X-Remote-Group` and `X-Remote-Extra-`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct AssertionNames {
    /// Once.
    pub(crate) user: HeaderName,
    /// Once per group.
    pub(crate) group: HeaderName,
    /// Of one header per value of an extra.
    pub(crate) extra_prefix: Box<str>,
}

impl AssertionNames {
    /// Whether the backend is told something by this header.
    pub(crate) fn include(&self, name: &HeaderName) -> bool {
        *name == self.user || *name == self.group || name.as_str().starts_with(&*self.extra_prefix)
    }
}

/// Headers beside `X-Remote-*` by which somebody behind the gateway, or the gateway itself at a door, believes who asks, or
/// from where. A client's own are removed wherever its request goes: what one backend does not read, the one that it asks in turn may.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Believed {
    /// In lower case.
    names: Vec<Box<str>>,
    /// How further ones begin, in lower case.
    prefixes: Vec<Box<str>>,
}

impl Believed {
    /// With one more header. The usual ones are removed in any case.
    pub(crate) fn name(&mut self, name: &str) {
        if !is_identity_header(name) {
            self.names.push(name.to_ascii_lowercase().into());
        }
    }

    /// With all that begin so. The empty beginning is that of every header, and of none here.
    pub(crate) fn prefix(&mut self, prefix: &str) {
        if !prefix.is_empty() && !is_identity_header(prefix) {
            self.prefixes.push(prefix.to_ascii_lowercase().into());
        }
    }

    /// With what a backend is told by.
    pub(crate) fn assertion(&mut self, names: &AssertionNames) {
        self.name(names.user.as_str());
        self.name(names.group.as_str());
        self.prefix(&names.extra_prefix);
    }

    /// With what others include.
    pub(crate) fn extend(&mut self, others: &Self) {
        for (own, theirs) in [(&mut self.names, &others.names), (&mut self.prefixes, &others.prefixes)] {
            let new: Vec<_> = theirs.iter().filter(|name| !own.contains(name)).cloned().collect();
            own.extend(new);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.prefixes.is_empty()
    }

    /// Whether a client that sent this header would say who it is, or where.
    pub(crate) fn include(&self, name: &HeaderName) -> bool {
        let name = name.as_str();
        self.names.iter().any(|wanted| is_alike(name, wanted))
            || self.prefixes.iter().any(|prefix| begins_alike(name, prefix))
    }
}

/// Which of kcp's ways of telling a backend who asks are wanted. Each is a hole, and off unless asked for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct KcpStamping {
    /// What the client's `Connection` header names goes after the gateway has said who asks, and may be that.
    pub(crate) nominations_last: bool,
    /// The client's own `X-Remote-Uid` goes on.
    pub(crate) keeps_uid: bool,
}

/// What happens to a request without a certificate that carries a token, where nobody judges tokens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Tokens {
    /// The shard judges it.
    PassOn,
    /// It is not accepted at this door.
    Refuse,
}

/// Nobody accepts the credential: 401. The reason is for logs only.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Rejected(String);

/// A workspace that trusts issuers of its own.
pub(crate) struct Home<'h> {
    /// Its authenticators.
    pub(crate) authenticator: &'h WorkspaceAuthenticator,
    /// The id of its logical cluster, the only place where identities of those issuers count.
    pub(crate) cluster: &'h str,
}

/// Judges a request. With a certificate that was judged before this costs two atomic loads. A request with neither
/// certificate nor anything to judge it by goes to the shard as it is: kcp's table of optional authentication.
///
/// # Errors
/// [`Rejected`] if there is a credential that somebody here should know, and nobody does.
pub(crate) async fn identify(
    connection: &Connection,
    headers: &HeaderMap,
    target: &Uri,
    home: Option<&Home<'_>>,
    steps: Option<&Steps>,
) -> Result<Sender, Rejected> {
    let observer = steps.map(|steps| steps as &dyn Observer);
    let policy = connection.door.policy.load();
    let presented = connection.credentials.is_presented();
    if !presented && !policy.credentials_needed && home.is_none() {
        return match policy.tokens {
            Tokens::Refuse if shows_token(headers) => {
                Err(Rejected(format!("tokens are not accepted at door {}", connection.door.name)))
            }
            _ => Ok(Sender::PassedOn),
        };
    }
    let now = SystemTime::now();
    let outcome = match home {
        None => policy.chain.authenticate_before(observer, &connection.credentials, headers, now).await,
        Some(Home { authenticator, cluster }) => {
            let (chain, credentials) = (&policy.chain, &connection.credentials);
            // Boxed, because few workspaces have any, and every request's task would have room for it.
            Box::pin(chain.authenticate_in(observer, credentials, headers, now, authenticator, cluster)).await
        }
    };
    match outcome {
        Outcome::Identified(identity) => Ok(Sender::Known(identity)),
        // Shards know service accounts and static tokens that nobody here does; where a certificate was shown, it has to
        // be good.
        Outcome::Rejected(rejection)
            if home.is_some()
                && !presented
                && !policy.credentials_needed
                && policy.tokens == Tokens::PassOn
                && rejection.is_unjudged() =>
        {
            Ok(Sender::PassedOn)
        }
        Outcome::Anonymous
            if policy.anonymous.as_ref().is_some_and(|anonymous| anonymous.admits(target.path())) =>
        {
            Ok(Sender::Known(Identity::anonymous()))
        }
        Outcome::Anonymous => Err(Rejected("no credential".to_owned())),
        Outcome::Rejected(rejection) => Err(Rejected(rejection.to_string())),
    }
}

impl Sender {
    /// Whether the sender has proved to be in a group.
    pub(crate) fn is_in(&self, group: &str) -> bool {
        match self {
            Self::Known(identity) => identity.user().groups.iter().any(|known| known == group),
            Self::PassedOn => false,
        }
    }
}
