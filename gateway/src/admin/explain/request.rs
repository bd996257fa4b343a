//! Parameters of Explain: the request to be explained.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use fairlead_process::{Drain, PeerChain};
use http::header::{AUTHORIZATION, HeaderName, HeaderValue, InvalidHeaderName, InvalidHeaderValue, UPGRADE};
use http::request::Parts;
use http::{Method, Request, Version};
use percent_encoding::percent_decode_str;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde::Deserialize;

use crate::policy::connection::Connection;
use crate::policy::listener::Listener;

/// The request to be explained. Credentials are accepted in a body only, because URLs are logged.
#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ExplainRequest {
    /// The path with its query.
    path: String,
    method: Option<String>,
    /// Name of the listener; the listener of the Explain request by default.
    pub(super) listener: Option<String>,
    /// Host of the request.
    host: Option<String>,
    /// Server name of the TLS handshake (SNI).
    server_name: Option<String>,
    /// Peer address of the connection; that of the Explain request by default.
    pub(super) peer: Option<IpAddr>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    token: Option<String>,
    /// Certificate chain in PEM, leaf first.
    pub(super) certificate: Option<String>,
}

/// The parameters are invalid.
#[derive(Debug, thiserror::Error)]
pub(super) enum InvalidExplainRequest {
    #[error("invalid body: {0}")]
    Json(#[from] serde_json::Error),
    #[error(
        "unknown query parameter {0:?}; known are path, method, listener, host, serverName and peer; credentials are sent by POST, in the body"
    )]
    Parameter(String),
    #[error("peer {0:?} is not an IP address")]
    Peer(String),
    #[error("the path is missing: add ?path=/clusters/...")]
    NoPath,
    #[error("invalid request target: {0}")]
    Target(#[from] http::Error),
    #[error("invalid header name: {0}")]
    HeaderName(#[from] InvalidHeaderName),
    #[error("invalid header value: {0}")]
    HeaderValue(#[from] InvalidHeaderValue),
    #[error("the certificate is not PEM: {0}")]
    Certificate(rustls_pki_types::pem::Error),
    #[error("the PEM text contains no certificate")]
    NoCertificate,
}

impl ExplainRequest {
    pub(super) fn from_body(body: &[u8]) -> Result<Self, InvalidExplainRequest> {
        Ok(serde_json::from_slice(body)?)
    }

    pub(super) fn from_query(query: &str) -> Result<Self, InvalidExplainRequest> {
        let mut request = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_decode_str(&value.replace('+', " ")).decode_utf8_lossy().into_owned();
            match name {
                "path" => request.path = value,
                "method" => request.method = Some(value),
                "listener" => request.listener = Some(value),
                "host" => request.host = Some(value),
                "serverName" => request.server_name = Some(value),
                "peer" => request.peer = Some(value.parse().map_err(|_| InvalidExplainRequest::Peer(value))?),
                other => return Err(InvalidExplainRequest::Parameter(other.to_owned())),
            }
        }
        Ok(request)
    }

    /// The head of the request as a listener would receive it.
    pub(super) fn head(&self, listener: &Listener) -> Result<Parts, InvalidExplainRequest> {
        if self.path.is_empty() {
            return Err(InvalidExplainRequest::NoPath);
        }
        let default_host;
        let host = match &self.host {
            Some(host) => host,
            None => {
                default_host =
                    listener.policy.load().request_filter.any_host().unwrap_or("localhost").to_owned();
                &default_host
            }
        };
        let target = format!("https://{host}{}", self.path);
        let method = Method::from_bytes(self.method.as_deref().unwrap_or("GET").as_bytes());
        let method = method.map_err(http::Error::from)?;
        let (mut head, ()) = Request::builder().method(method).uri(target).body(())?.into_parts();
        for (name, value) in &self.headers {
            head.headers.append(HeaderName::try_from(name)?, HeaderValue::from_str(value)?);
        }
        if let Some(token) = &self.token {
            let mut value = HeaderValue::from_str(&format!("Bearer {}", token.trim()))?;
            value.set_sensitive(true);
            head.headers.insert(AUTHORIZATION, value);
        }
        // Only HTTP/1.1 has upgrades.
        head.version = Version::HTTP_2;
        if head.headers.contains_key(UPGRADE) {
            head.version = Version::HTTP_11;
            head.headers.insert(http::header::HOST, HeaderValue::from_str(host)?);
        }
        Ok(head)
    }

    /// The connection that would carry the request.
    pub(super) fn connection(
        &self,
        listener: &Arc<Listener>,
        drain: Drain,
        peer: IpAddr,
    ) -> Result<Connection, InvalidExplainRequest> {
        let chain = match &self.certificate {
            Some(pem) => {
                let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
                let chain = chain.map_err(InvalidExplainRequest::Certificate)?;
                if chain.is_empty() {
                    return Err(InvalidExplainRequest::NoCertificate);
                }
                Some(chain.into())
            }
            None => None,
        };
        let peer = SocketAddr::new(peer, 0);
        Ok(Connection::new(
            0,
            (Arc::clone(listener), &listener.connection_policy.load()),
            drain,
            peer,
            &PeerChain(chain),
            self.server_name.as_deref(),
        ))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_secret_in_a_url_is_refused() {
        for (query, expected) in [
            ("path=/clusters/root%3Aorg/api%3Fwatch=1&listener=edge", Ok("/clusters/root:org/api?watch=1")),
            ("path=/a+b", Ok("/a b")),
            ("path=/a&token=s3cret", Err("token")),
            ("path=/a&certificate=x", Err("certificate")),
            ("path=/a&peer=nowhere", Err("nowhere")),
        ] {
            match (ExplainRequest::from_query(query), expected) {
                (Ok(request), Ok(path)) => assert_eq!(request.path, path, "{query}"),
                (Err(error), Err(word)) => {
                    let message = error.to_string();
                    assert!(
                        message.contains(&format!("{word:?}")) && !message.contains("s3cret"),
                        "{query}: {message}"
                    );
                }
                (found, _) => panic!("{query}: {}", found.is_ok()),
            }
        }
    }
}
