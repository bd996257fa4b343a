//! Identity headers: the names under which a backend is told the authenticated user, and those that clients must not set.

use fairlead_authn::is_identity_header;
use http::header::HeaderName;

use crate::request::headers::{begins_alike, is_alike};

/// The headers by which a backend wants to be told who asks, in lower case. A backend that is not named any gets
/// `X-Remote-User`, `X-Remote-Group` and `X-Remote-Extra-`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct IdentityHeaderNames {
    /// Once.
    pub(crate) user: HeaderName,
    /// Once per group.
    pub(crate) group: HeaderName,
    /// Of one header per value of an extra.
    pub(crate) extra_prefix: Box<str>,
}

impl IdentityHeaderNames {
    /// Whether the backend is told something by this header.
    pub(crate) fn include(&self, name: &HeaderName) -> bool {
        *name == self.user || *name == self.group || name.as_str().starts_with(&*self.extra_prefix)
    }
}

/// Headers beside `X-Remote-*` by which somebody behind the gateway, or the gateway itself at a listener, believes who asks, or
/// from where. A client's own are removed wherever its request goes: what one backend does not read, the one that it asks in turn may.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct TrustedIdentityHeaders {
    /// In lower case.
    names: Vec<Box<str>>,
    /// How further ones begin, in lower case.
    prefixes: Vec<Box<str>>,
}

impl TrustedIdentityHeaders {
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
    pub(crate) fn assertion(&mut self, names: &IdentityHeaderNames) {
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
