//! Flags of the listener that several programs have.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use super::{FlagError, GivenFlags, values};
use crate::shared::{ConnectionLimits, NamedCertificateConfig, ServerTlsConfig, ServingConfig};
use crate::values::TlsVersion;

/// TLS versions that Go supports and that are insecure.
const OLDER_VERSIONS: [&str; 2] = ["VersionTLS10", "VersionTLS11"];

/// The certificate and key to create at the start if they do not exist, because none were named.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SelfSignedFiles {
    /// PEM file of the certificate.
    pub certificate: PathBuf,
    /// PEM file of its key.
    pub private_key: PathBuf,
}

impl GivenFlags {
    /// The listener, and the files of a self-signed certificate below `directory` if no other is named.
    ///
    /// # Errors
    /// [`FlagError`] for a port that is none, or a certificate without its key.
    pub fn serving(
        &self,
        default_port: u16,
        directory: &Path,
    ) -> Result<(ServingConfig, Option<SelfSignedFiles>), FlagError> {
        let ip = self.text("bind-address").and_then(values::address);
        let ip = ip.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
        // As in Go: the unspecified address of either family means all addresses of both.
        let ip = if ip.is_unspecified() { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { ip };
        let port = self.number("secure-port").unwrap_or(default_port.into());
        let port =
            u16::try_from(port).map_err(|_| FlagError::value("secure-port", &port.to_string(), "port"))?;
        let (certificate, private_key, created) =
            match (self.path("tls-cert-file"), self.path("tls-private-key-file")) {
                (Some(certificate), Some(key)) => (certificate, key, None),
                (None, None) => {
                    let files = SelfSignedFiles {
                        certificate: directory.join("apiserver.crt"),
                        private_key: directory.join("apiserver.key"),
                    };
                    (files.certificate.clone(), files.private_key.clone(), Some(files))
                }
                (Some(_), None) => return Err(FlagError::Alone("tls-cert-file", "tls-private-key-file")),
                (None, Some(_)) => return Err(FlagError::Alone("tls-private-key-file", "tls-cert-file")),
            };
        let serving = ServingConfig {
            address: SocketAddr::new(ip, port),
            certificate: certificate.into(),
            private_key: private_key.into(),
        };
        Ok((serving, created))
    }

    /// The limits of connections, with the number of streams of the flag if it is given, at most 1000.
    pub fn connection_limits(&self, default: ConnectionLimits) -> ConnectionLimits {
        let given = self.number("http2-max-streams-per-connection").filter(|streams| *streams > 0);
        let streams = given.map(|streams| streams.min(1000) as u32);
        let max_streams_per_connection = streams.unwrap_or(default.max_streams_per_connection);
        ConnectionLimits { max_streams_per_connection, ..default }
    }

    /// TLS versions, cipher suites and further certificates.
    ///
    /// # Errors
    /// [`FlagError::Value`] names the flag.
    pub fn tls(&self) -> Result<ServerTlsConfig, FlagError> {
        let minimum_version = match self.text("tls-min-version") {
            None | Some("VersionTLS12") => TlsVersion::Tls12,
            Some(older) if OLDER_VERSIONS.contains(&older) => TlsVersion::Tls12,
            Some("VersionTLS13") => TlsVersion::Tls13,
            Some(other) => {
                return Err(FlagError::value("tls-min-version", other, "version such as VersionTLS12"));
            }
        };
        let mut server_names = Vec::new();
        for text in self.repeated("tls-sni-cert-key") {
            let (files, names) = text.split_once(':').unwrap_or((text, ""));
            let Some((certificate, private_key)) = files.split_once(',') else {
                return Err(FlagError::value("tls-sni-cert-key", text, "pair such as cert.pem,key.pem:name"));
            };
            let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
            server_names.push(NamedCertificateConfig {
                certificate: certificate.into(),
                private_key: private_key.into(),
                names: names.map(str::to_owned).collect(),
            });
        }
        Ok(ServerTlsConfig {
            minimum_version,
            cipher_suites: self.list("tls-cipher-suites"),
            http2: !self.switch("disable-http2-serving", false),
            server_names,
        })
    }

    /// The sentence about a TLS version that is older than those spoken here.
    pub fn older_tls_version(&self) -> Option<String> {
        let version = self.text("tls-min-version").filter(|version| OLDER_VERSIONS.contains(version))?;
        Some(format!("--tls-min-version={version}: the oldest version spoken here is TLS 1.2"))
    }
}
