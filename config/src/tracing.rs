//! The settings of traces.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::check::Checker;
use crate::setting::{plain_settings, settings};
use crate::units::{Fraction, Timespan, UnitError, as_text};
use crate::values::InputFile;

settings! {
    /// Traces of requests: W3C trace context, and spans by OTLP. Without sample and collector the trace context of clients is
    /// passed on unchanged.
    pub struct TracingConfig {
        /// Share of requests that are traced, of those without a decision of their client: 0.01 is one in a hundred.
        sample ("sample"): Fraction = Fraction::NONE;
        /// The collector of spans (OTLP over HTTP, as JSON), such as http://localhost:4318; it may have a path in
        /// place of /v1/traces. Unset: traces only appear in requests to shards and in the access log.
        otlp_endpoint ("otlpEndpoint"): Option<CollectorUrl> = None;
        /// PEM bundle: authorities of a collector's certificate; the system's if unset. Read when tracing is set up.
        server_ca ("serverCA"): Option<InputFile> = None;
        /// Service name of spans.
        service_name ("serviceName"): String = "fairlead-gateway".to_owned();
        /// Size of the queue of spans. Spans beyond it are dropped and counted.
        queue ("queue"): usize = 4096;
        /// Interval in which batches of spans are sent.
        interval ("interval"): Timespan = Timespan::from_secs(2);
    }
}

/// An address of a collector: `http://host[:port][/path]`, or with https.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorUrl {
    server: String,
    path: String,
}

impl CollectorUrl {
    /// Scheme, host and port.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Path of requests with spans.
    pub fn path(&self) -> &str {
        if self.path.is_empty() { "/v1/traces" } else { &self.path }
    }
}

impl FromStr for CollectorUrl {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let malformed = || UnitError::new(text, "the URL of a collector such as \"http://localhost:4318\"");
        let (scheme, rest) = text.split_once("://").ok_or_else(malformed)?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"?#@\"\\".contains(&byte);
        let host = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                port.parse::<u16>().map_err(|_| malformed())?;
                host
            }
            _ => authority,
        };
        if !matches!(scheme, "http" | "https") || host.is_empty() || !rest.bytes().all(is_plain) {
            return Err(malformed());
        }
        let path = path.trim_end_matches('/').to_owned();
        Ok(Self { server: format!("{scheme}://{authority}"), path })
    }
}

impl fmt::Display for CollectorUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.server, self.path)
    }
}

/// Use of a client's trace context at a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TraceContextPolicy {
    /// The request continues the trace of its client, which decides on sampling.
    Continue,
    /// The request begins a new trace; the trace context of the client is dropped.
    Restart,
}

as_text!(CollectorUrl);
plain_settings!(CollectorUrl, TraceContextPolicy);

impl TracingConfig {
    pub(crate) fn check(&self, checker: &mut Checker) {
        checker.at_least("queue", self.queue, 16);
        checker.at_least("interval", self.interval, Timespan::from_millis(10));
        if self.service_name.is_empty() {
            checker.fault("serviceName", "the service name is empty", "such as fairlead-gateway");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_collectors() {
        for (text, expected) in [
            ("http://localhost:4318", Some(("http://localhost:4318", "/v1/traces"))),
            ("https://otel.example.com/", Some(("https://otel.example.com", "/v1/traces"))),
            ("http://[::1]:4318/otlp/v1/traces", Some(("http://[::1]:4318", "/otlp/v1/traces"))),
            ("localhost:4318", None),
            ("grpc://localhost:4317", None),
            ("http://", None),
            ("http://:4318", None),
            ("http://h:port", None),
            ("http://user@h", None),
            ("http://h/a b", None),
            ("http://h/?x", None),
        ] {
            let read = text.parse::<CollectorUrl>().ok();
            let read = read.as_ref().map(|url| (url.server(), url.path()));
            assert_eq!(read, expected, "{text}");
        }
    }
}
