//! Authentication by identity headers of trusted proxies.

use std::{collections::BTreeMap, sync::Arc, time::SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use thiserror::Error;

use crate::{
    AuthenticationMethod, Authenticator, ConnectionCredentials, CredentialKind, Identity, Reason,
    RequestCredentials, SharedAuthorities, UserInfo, Verdict, VerdictFuture, connection::RequestHeaderTrust,
};

/// Takes the identity from request headers on connections whose certificate is of the request-header CA and has an allowed
/// common name. On all other connections the headers are ignored.
#[derive(Clone, Debug)]
pub struct RequestHeaderAuthenticator {
    authorities: SharedAuthorities,
    allowed_names: Vec<String>,
    names: RequestHeaderNames,
}

/// Names of the identity headers (`--requestheader-*-headers`). Of several names for one attribute, the first header that
/// is present is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeaderNames {
    /// The user's name.
    pub user: Vec<HeaderName>,
    /// The user's UID. Empty by default: no component of kcp sends it, so it would be forged.
    pub uid: Vec<HeaderName>,
    /// Groups, one per value. The headers of all names are used.
    pub group: Vec<HeaderName>,
    /// Prefixes of headers with extras, in lower case; the rest of the name is the key.
    pub extra_prefix: Vec<String>,
}

/// A configured name that HTTP does not allow; the operator has to correct it.
#[derive(Debug, Error)]
#[error("{name:?} is not a header name")]
pub struct InvalidHeaderName {
    name: String,
    #[source]
    source: http::header::InvalidHeaderName,
}

impl Default for RequestHeaderNames {
    fn default() -> Self {
        Self {
            user: vec![HeaderName::from_static("x-remote-user")],
            uid: Vec::new(),
            group: vec![HeaderName::from_static("x-remote-group")],
            extra_prefix: vec!["x-remote-extra-".to_owned()],
        }
    }
}

impl RequestHeaderAuthenticator {
    /// Trusts proxies whose common name is in `allowed_names`. If the list is empty, all certificates of the request-header CA
    /// are trusted, as in Kubernetes.
    #[must_use]
    pub fn new<S: Into<String>>(
        authorities: SharedAuthorities,
        allowed_names: impl IntoIterator<Item = S>,
        names: RequestHeaderNames,
    ) -> Self {
        Self { authorities, allowed_names: allowed_names.into_iter().map(Into::into).collect(), names }
    }

    fn evaluate(&self, request: &RequestCredentials<'_>) -> Verdict {
        let Some(evaluation) = request.connection.evaluation(&self.authorities.load(), request.now) else {
            return Verdict::NoOpinion;
        };
        let common_name = match &evaluation.request_header {
            RequestHeaderTrust::Trusted(common_name) => common_name,
            // A certificate of another authority is not invalid: another authenticator is for it.
            RequestHeaderTrust::Foreign => return Verdict::NoOpinion,
            RequestHeaderTrust::Invalid(problem) => {
                return Verdict::Declined(Reason::Certificate(Arc::clone(problem)));
            }
        };
        if !self.allowed_names.is_empty() && !self.allowed_names.iter().any(|name| **name == **common_name) {
            return Verdict::Declined(Reason::NotAllowedToAssert(Arc::clone(common_name)));
        }
        match self.names.user_info(request.headers) {
            Ok(Some(user)) => {
                Verdict::Accepted(Arc::new(Identity::new(user, AuthenticationMethod::RequestHeader, None)))
            }
            Ok(None) => Verdict::NoOpinion,
            Err(reason) => Verdict::Refused(reason),
        }
    }
}

impl Authenticator for RequestHeaderAuthenticator {
    fn name(&self) -> &'static str {
        "request header"
    }

    fn credential_kind(&self) -> CredentialKind {
        CredentialKind::Certificate
    }

    /// A proxy has a certificate of the request-header CA, also if its name may not assert identities: a listener for tokens alone
    /// has such a certificate.
    fn is_proxy(&self, connection: &ConnectionCredentials, now: SystemTime) -> bool {
        let evaluation = connection.evaluation(&self.authorities.load(), now);
        evaluation.is_some_and(|one| matches!(one.request_header, RequestHeaderTrust::Trusted(_)))
    }

    /// Allocates once per name, group and extra.
    fn authenticate<'a>(&'a self, request: &RequestCredentials<'a>) -> VerdictFuture<'a> {
        VerdictFuture::Ready(self.evaluate(request))
    }
}

impl RequestHeaderNames {
    /// The configured names of each attribute, in any case.
    ///
    /// # Errors
    /// The first text that is no header name.
    pub fn parse(
        user: &[String],
        uid: &[String],
        group: &[String],
        extra_prefix: &[String],
    ) -> Result<Self, InvalidHeaderName> {
        let names = |texts: &[String]| {
            let parse = |text: &String| {
                HeaderName::try_from(text).map_err(|source| InvalidHeaderName { name: text.clone(), source })
            };
            texts.iter().map(parse).collect::<Result<Vec<_>, _>>()
        };
        Ok(Self {
            user: names(user)?,
            uid: names(uid)?,
            group: names(group)?,
            extra_prefix: extra_prefix.iter().map(|prefix| prefix.to_ascii_lowercase()).collect(),
        })
    }

    fn user_info(&self, headers: &HeaderMap) -> Result<Option<UserInfo>, Reason> {
        let Some(name) = single(headers, &self.user)? else {
            return Ok(None);
        };
        let mut groups = Vec::new();
        for header in &self.group {
            for value in headers.get_all(header) {
                let group = text(header, value)?;
                if !group.is_empty() {
                    groups.push(group.to_owned());
                }
            }
        }
        Ok(Some(UserInfo {
            name: name.to_owned(),
            uid: single(headers, &self.uid)?.map(str::to_owned),
            groups,
            extra: self.extra(headers)?,
        }))
    }

    fn extra(&self, headers: &HeaderMap) -> Result<BTreeMap<String, Vec<String>>, Reason> {
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (header, value) in headers {
            // Header names are lower case in a header map, so keys are.
            let rest =
                self.extra_prefix.iter().find_map(|prefix| header.as_str().strip_prefix(prefix.as_str()));
            let Some(key) = rest else { continue };
            if key.is_empty() {
                return Err(Reason::MalformedHeader(header.clone()));
            }
            extra.entry(decode(key)).or_default().push(text(header, value)?.to_owned());
        }
        Ok(extra)
    }
}

/// The value of the first header that is present and not empty. A repeated header is an error: choosing one of two users
/// could let a client become another user.
fn single<'a>(headers: &'a HeaderMap, names: &[HeaderName]) -> Result<Option<&'a str>, Reason> {
    for name in names {
        let mut values = headers.get_all(name).iter();
        let Some(value) = values.next() else { continue };
        if values.next().is_some() {
            return Err(Reason::RepeatedHeader(name.clone()));
        }
        let value = text(name, value)?;
        if !value.is_empty() {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

fn text<'a>(name: &HeaderName, value: &'a HeaderValue) -> Result<&'a str, Reason> {
    std::str::from_utf8(value.as_bytes()).map_err(|_| Reason::MalformedHeader(name.clone()))
}

/// Decodes `%XX`. As in Kubernetes, a key that cannot be decoded is used unchanged.
fn decode(key: &str) -> String {
    let bytes = key.as_bytes();
    let hexadecimal = |index: usize| bytes.get(index).is_some_and(u8::is_ascii_hexdigit);
    let well_formed = (0..bytes.len())
        .filter(|index| bytes[*index] == b'%')
        .all(|index| hexadecimal(index + 1) && hexadecimal(index + 2));
    match percent_decode_str(key).decode_utf8() {
        Ok(decoded) if well_formed => decoded.into_owned(),
        _ => key.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&str, &[u8])]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::try_from(*name).unwrap(), HeaderValue::from_bytes(value).unwrap());
        }
        headers
    }

    fn read(lines: &[(&str, &[u8])]) -> Result<Option<UserInfo>, Reason> {
        RequestHeaderNames::default().user_info(&headers(lines))
    }

    #[test]
    fn users_groups_and_extras_are_read() {
        let user = read(&[
            ("X-Remote-User", "änn".as_bytes()),
            ("X-Remote-Group", b"one"),
            ("x-remote-group", b"two,three"),
            ("X-Remote-Group", b""),
            ("X-Remote-Uid", b"ignored"),
            ("X-Remote-Extra-Authentication.kcp.io%2fScopes", b"cluster:a"),
            ("X-Remote-Extra-Authentication.kcp.io%2Fscopes", b"cluster:b"),
            ("X-Remote-Extra-100%", b"kept as it is"),
            ("X-Remote-Extras", b"no extra"),
        ]);
        let expected = UserInfo {
            name: "änn".to_owned(),
            uid: None,
            groups: vec!["one".to_owned(), "two,three".to_owned()],
            extra: BTreeMap::from([
                ("100%".to_owned(), vec!["kept as it is".to_owned()]),
                (
                    "authentication.kcp.io/scopes".to_owned(),
                    vec!["cluster:a".to_owned(), "cluster:b".to_owned()],
                ),
            ]),
        };
        assert_eq!(user, Ok(Some(expected)));
    }

    #[test]
    fn groups_without_a_user_are_ignored() {
        assert_eq!(read(&[("X-Remote-Group", b"system:masters")]), Ok(None));
        assert_eq!(read(&[("X-Remote-User", b""), ("X-Remote-Group", b"system:masters")]), Ok(None));
    }

    #[test]
    fn ambiguous_headers_are_refused() {
        let name = HeaderName::from_static;
        type Lines<'a> = &'a [(&'a str, &'a [u8])];
        let cases: [(Lines<'_>, Reason); 5] = [
            (
                &[("x-remote-user", b"a"), ("X-Remote-User", b"b")],
                Reason::RepeatedHeader(name("x-remote-user")),
            ),
            (
                &[("x-remote-user", b"a"), ("x-remote-user", b"a")],
                Reason::RepeatedHeader(name("x-remote-user")),
            ),
            (&[("x-remote-user", b"\xff")], Reason::MalformedHeader(name("x-remote-user"))),
            (
                &[("x-remote-user", b"a"), ("x-remote-group", b"\xff")],
                Reason::MalformedHeader(name("x-remote-group")),
            ),
            (
                &[("x-remote-user", b"a"), ("x-remote-extra-", b"x")],
                Reason::MalformedHeader(name("x-remote-extra-")),
            ),
        ];
        for (lines, expected) in cases {
            assert_eq!(read(lines), Err(expected), "{lines:?}");
        }
    }

    #[test]
    fn header_names_are_configurable() {
        let names = RequestHeaderNames {
            user: vec![HeaderName::from_static("x-first"), HeaderName::from_static("x-second")],
            uid: vec![HeaderName::from_static("x-remote-uid")],
            group: vec![HeaderName::from_static("x-team"), HeaderName::from_static("x-role")],
            extra_prefix: vec!["x-more-".to_owned()],
        };
        let user = names.user_info(&headers(&[
            ("x-second", b"ann"),
            ("x-remote-user", b"forged"),
            ("x-remote-uid", b"7"),
            ("x-role", b"r"),
            ("x-team", b"t"),
            ("x-more-k", b"v"),
        ]));
        let expected = UserInfo {
            name: "ann".to_owned(),
            uid: Some("7".to_owned()),
            groups: vec!["t".to_owned(), "r".to_owned()],
            extra: BTreeMap::from([("k".to_owned(), vec!["v".to_owned()])]),
        };
        assert_eq!(user, Ok(Some(expected)));
    }
}
