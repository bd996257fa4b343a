//! The path of a request, without the prefix that the host removes.

use std::borrow::Cow;

use http::Method;
use percent_encoding::percent_decode_str;

use crate::resource::Verb;

/// A path split at `/`, each segment decoded once.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RequestPath<'a> {
    segments: Vec<Cow<'a, str>>,
    has_trailing_slash: bool,
}

impl<'a> RequestPath<'a> {
    /// Splits, then decodes, so that an encoded slash is found in its segment and refused.
    ///
    /// # Errors
    /// [`PathError`] on escapes that are not UTF-8, control characters, encoded slashes, and `.` or `..`
    /// segments: none of them may get into a storage key.
    pub fn parse(path: &'a str) -> Result<Self, PathError> {
        let trimmed = path.strip_prefix('/').unwrap_or(path);
        let has_trailing_slash = trimmed.ends_with('/');
        let mut segments = Vec::with_capacity(8);
        for raw in trimmed.strip_suffix('/').unwrap_or(trimmed).split('/') {
            if raw.is_empty() {
                if trimmed.is_empty() || trimmed == "/" {
                    break;
                }
                return Err(PathError);
            }
            let segment = percent_decode_str(raw).decode_utf8().map_err(|_| PathError)?;
            let harmful = |byte: u8| byte.is_ascii_control() || byte == b'/';
            if matches!(&*segment, "." | "..") || segment.bytes().any(harmful) {
                return Err(PathError);
            }
            segments.push(segment);
        }
        Ok(Self { segments, has_trailing_slash })
    }

    /// The decoded segments.
    pub fn segments(&self) -> &[Cow<'a, str>] {
        &self.segments
    }

    /// The path without its first segments.
    #[must_use]
    pub fn skip(mut self, count: usize) -> Self {
        self.segments.drain(..count.min(self.segments.len()));
        self
    }

    /// The decoded path, for messages and non-resource rules.
    pub fn text(&self) -> String {
        let mut text = String::from("/");
        text.push_str(&self.segments.join("/"));
        if self.has_trailing_slash && !self.segments.is_empty() {
            text.push('/');
        }
        text
    }

    /// The kind of request that path and method name. `watch` comes from the query.
    pub fn request(&self, method: &Method, watch: bool) -> RequestKind {
        let words: Vec<&str> = self.segments.iter().map(|segment| &**segment).collect();
        let (group, version, rest) = match words.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return RequestKind::NonResource,
        };
        // The deprecated form of watches.
        let (watch, rest) = match rest {
            ["watch", _, ..] if method != Method::GET => return RequestKind::UnknownMethod,
            ["watch", rest @ ..] if !rest.is_empty() => (true, rest),
            _ => (watch, rest),
        };
        let (namespace, rest) = match rest {
            [] => return RequestKind::NonResource,
            ["namespaces", _] | ["namespaces", _, "status" | "finalize"] if group.is_empty() => (None, rest),
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
            _ => (None, rest),
        };
        let (resource, name, subresource) = match rest {
            [resource] => (*resource, None, None),
            [resource, name] => (*resource, Some(*name), None),
            [resource, name, subresource] => (*resource, Some(*name), Some(*subresource)),
            _ => return RequestKind::NonResource,
        };
        let (resource, identity) = match resource.split_once(':') {
            Some((resource, identity)) => (resource, Some(identity.to_owned())),
            None => (resource, None),
        };
        let verb = match (method.as_str(), name) {
            ("GET", Some(_)) if !watch => Verb::Get,
            ("GET", _) => {
                if watch {
                    Verb::Watch
                } else {
                    Verb::List
                }
            }
            ("POST", _) => Verb::Create,
            ("PUT", _) => Verb::Update,
            ("PATCH", _) => Verb::Patch,
            ("DELETE", Some(_)) => Verb::Delete,
            ("DELETE", None) => Verb::DeleteCollection,
            _ => return RequestKind::UnknownMethod,
        };
        RequestKind::Resource(ResourcePath {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: resource.to_owned(),
            identity,
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
            subresource: subresource.map(str::to_owned),
            verb,
        })
    }
}

/// The kind of request that a path names.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RequestKind {
    /// A resource request.
    Resource(ResourcePath),
    /// Discovery, OpenAPI, health, or an unknown path.
    NonResource,
    /// A resource path with a method that has no verb.
    UnknownMethod,
}

/// The parts of a resource request's path.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ResourcePath {
    /// The API group, empty for core.
    pub group: String,
    /// The version.
    pub version: String,
    /// The plural name.
    pub resource: String,
    /// The identity hash after a colon, which selects one origin.
    pub identity: Option<String>,
    /// The namespace.
    pub namespace: Option<String>,
    /// The object's name.
    pub name: Option<String>,
    /// The subresource.
    pub subresource: Option<String>,
    /// The requested verb.
    pub verb: Verb,
}

/// A malformed path; a client error.
#[derive(Debug, thiserror::Error)]
#[error("the request path is malformed")]
pub struct PathError;

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(method: Method, path: &str, watch: bool) -> Option<ResourcePath> {
        match RequestPath::parse(path).unwrap().request(&method, watch) {
            RequestKind::Resource(resource) => Some(resource),
            RequestKind::NonResource | RequestKind::UnknownMethod => None,
        }
    }

    #[test]
    fn resource_paths() {
        for (method, path, watch, expected) in [
            (Method::GET, "/api/v1/namespaces", false, "list /namespaces"),
            (Method::GET, "/api/v1/namespaces/a", false, "get /namespaces/a"),
            (Method::PUT, "/api/v1/namespaces/a/finalize", false, "update /namespaces/a/finalize"),
            (Method::GET, "/api/v1/namespaces/a/configmaps", true, "watch a/configmaps"),
            (Method::GET, "/api/v1/watch/namespaces/a/configmaps", false, "watch a/configmaps"),
            (Method::GET, "/apis/g.io/v1/watch/things/x", false, "watch /things/x"),
            (Method::GET, "/apis/g.io/v1/watch", false, "list /watch"),
            (Method::DELETE, "/api/v1/namespaces/a/configmaps", false, "deletecollection a/configmaps"),
            (Method::POST, "/apis/g.io/v1/namespaces/n/clusters", false, "create n/clusters"),
            (Method::PATCH, "/apis/g.io/v1/things/x/status", false, "patch /things/x/status"),
            (Method::GET, "/apis/g.io/v1/things:abc", false, "list /things:abc"),
            (
                Method::GET,
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Aadmin",
                false,
                "get /clusterroles/system:admin",
            ),
        ] {
            let found = resource(method, path, watch).unwrap();
            let mut text =
                format!("{} {}/{}", found.verb, found.namespace.unwrap_or_default(), found.resource);
            for (separator, part) in [(":", found.identity), ("/", found.name), ("/", found.subresource)] {
                if let Some(part) = part {
                    text.push_str(separator);
                    text.push_str(&part);
                }
            }
            assert_eq!(text, expected, "{path}");
        }
    }

    #[test]
    fn other_paths() {
        for path in
            ["/", "", "/api", "/api/v1", "/apis", "/apis/g", "/apis/g/v1", "/version", "/apis/g/v1/a/b/c/d"]
        {
            assert_eq!(
                RequestPath::parse(path).unwrap().request(&Method::GET, false),
                RequestKind::NonResource,
                "{path}"
            );
        }
    }

    #[test]
    fn a_path_of_watches_changes_nothing() {
        let path = RequestPath::parse("/api/v1/watch/namespaces/a/configmaps").unwrap();
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            assert_eq!(path.request(&method, false), RequestKind::UnknownMethod, "{method}");
        }
    }

    #[test]
    fn harmful_paths_are_refused() {
        for path in ["/api/v1/../x", "/a//b", "/api/%2e%2e/x", "/a/%2Fb", "/a/%00", "/a/%ff", "/a/b%0a"] {
            assert!(RequestPath::parse(path).is_err(), "{path}");
        }
    }
}
