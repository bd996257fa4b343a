//! Identity headers: their names in requests to backends, and the headers that clients must not set.

use fairlead_authn::is_identity_header;
use http::header::HeaderName;

use crate::request::headers::{has_header_prefix, is_same_header};

/// Names of the headers that carry the identity to a backend, in lower case. The default is
/// `X-Remote-User`, `X-Remote-Group` and `X-Remote-Extra-`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct IdentityHeaderNames {
    /// Header for the user name, sent once.
    pub(crate) user: HeaderName,
    /// Header for groups, sent once per group.
    pub(crate) group: HeaderName,
    /// Prefix of the headers for extras; one header per value.
    pub(crate) extra_prefix: Box<str>,
}

impl IdentityHeaderNames {
    /// Whether this header carries the identity.
    pub(crate) fn contains(&self, name: &HeaderName) -> bool {
        *name == self.user || *name == self.group || name.as_str().starts_with(&*self.extra_prefix)
    }
}

/// Headers beside `X-Remote-*` that a backend, or the gateway itself at a listener, trusts for the identity or address of a
/// client. The gateway strips them from client requests to every target: a backend that ignores such a header may forward it to
/// one that trusts it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct TrustedIdentityHeaders {
    /// Names, in lower case.
    names: Vec<Box<str>>,
    /// Prefixes of names, in lower case.
    prefixes: Vec<Box<str>>,
}

impl TrustedIdentityHeaders {
    /// Adds a header name. `X-Remote-*` are stripped in any case and are not added.
    pub(crate) fn add_name(&mut self, name: &str) {
        if !is_identity_header(name) {
            self.names.push(name.to_ascii_lowercase().into());
        }
    }

    /// Adds a prefix. An empty prefix would match every header and is ignored.
    pub(crate) fn add_prefix(&mut self, prefix: &str) {
        if !prefix.is_empty() && !is_identity_header(prefix) {
            self.prefixes.push(prefix.to_ascii_lowercase().into());
        }
    }

    /// Adds the identity headers of a backend.
    pub(crate) fn add_backend(&mut self, names: &IdentityHeaderNames) {
        self.add_name(names.user.as_str());
        self.add_name(names.group.as_str());
        self.add_prefix(&names.extra_prefix);
    }

    /// Adds the headers of another set.
    pub(crate) fn extend(&mut self, others: &Self) {
        for (own, theirs) in [(&mut self.names, &others.names), (&mut self.prefixes, &others.prefixes)] {
            let new: Vec<_> = theirs.iter().filter(|name| !own.contains(name)).cloned().collect();
            own.extend(new);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.prefixes.is_empty()
    }

    /// Whether the set has this header, by exact name or by prefix.
    pub(crate) fn contains(&self, name: &HeaderName) -> bool {
        let name = name.as_str();
        self.names.iter().any(|wanted| is_same_header(name, wanted))
            || self.prefixes.iter().any(|prefix| has_header_prefix(name, prefix))
    }
}

/// kcp's insecure treatment of identity headers. Off unless the configuration enables it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct KcpIdentityHeaders {
    /// The fields that the client's `Connection` header nominates are removed after the gateway has set the identity headers, so
    /// they may be among the removed ones.
    pub(crate) nominations_last: bool,
    /// The client's own `X-Remote-Uid` is forwarded.
    pub(crate) keeps_uid: bool,
}
