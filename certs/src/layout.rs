//! The paths of the files in a PKI directory.
//!
//! ```text
//! format                          the version of this layout, one number
//! authorities/<ca>.key            keys of the authorities; no server needs this folder
//! trust/<ca>.crt                  trust bundles; the first certificate signs, others may follow
//! service-accounts/sa.{key,pub}   signs and verifies service-account tokens; sa.pub may hold more keys
//! serving/<server>.{crt,key}      gateway, cache, shard-<name>, issuer
//! clients/<user>.{crt,key}        kcp-admin, shard-admin, kcp-front-proxy, ...
//! ```
//!
//! Folders have mode 0700, keys 0600, other files 0644. A file is replaced by renaming a complete one over it, the key of a
//! pair first. A server that reloads a pair whose key does not match keeps the old pair until the next change: the
//! certificate follows.

use std::path::{Path, PathBuf};

use crate::{Authority, Client, Server};

/// The version of the layout that this program reads and writes.
pub const FORMAT: u32 = 1;

/// The paths of one PKI directory. Does no I/O.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    directory: PathBuf,
}

/// A certificate (with its intermediates, if any) and its private key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate chain, leaf first.
    pub certificate: PathBuf,
    /// The private key, PKCS #8.
    pub key: PathBuf,
}

/// The key pair of service-account tokens, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAccountKeyFiles {
    /// The private key that signs tokens, PKCS #8.
    pub signing_key: PathBuf,
    /// One or more public keys that verify tokens.
    pub verification_keys: PathBuf,
}

impl Layout {
    /// The layout of a directory, which need not exist.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    /// The PKI directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The serving certificate of a server.
    #[must_use]
    pub fn serving_cert(&self, server: &Server) -> CertificateFiles {
        self.pair(SERVING, &server.file_stem())
    }

    /// The certificate of a client.
    #[must_use]
    pub fn client_cert(&self, client: &Client) -> CertificateFiles {
        self.pair(CLIENTS, &client.user_name())
    }

    /// The trust bundle for serving certificates.
    #[must_use]
    pub fn serving_ca(&self) -> PathBuf {
        self.trust(Authority::Serving)
    }

    /// The trust bundle for client certificates.
    #[must_use]
    pub fn client_ca(&self) -> PathBuf {
        self.trust(Authority::Client)
    }

    /// The trust bundle for clients that may assert identities in request headers.
    #[must_use]
    pub fn requestheader_ca(&self) -> PathBuf {
        self.trust(Authority::RequestHeader)
    }

    /// The trust bundle of an authority.
    #[must_use]
    pub fn trust(&self, authority: Authority) -> PathBuf {
        self.directory.join(TRUST).join(format!("{authority}.crt"))
    }

    /// The keys of service-account tokens.
    #[must_use]
    pub fn service_account_keys(&self) -> ServiceAccountKeyFiles {
        let folder = self.directory.join(SERVICE_ACCOUNTS);
        ServiceAccountKeyFiles {
            signing_key: folder.join("sa.key"),
            verification_keys: folder.join("sa.pub"),
        }
    }

    pub(crate) fn authority_key(&self, authority: Authority) -> PathBuf {
        self.directory.join(AUTHORITIES).join(format!("{authority}.key"))
    }

    pub(crate) fn format(&self) -> PathBuf {
        self.directory.join("format")
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.directory.join(".lock")
    }

    pub(crate) fn folders(&self) -> impl Iterator<Item = PathBuf> + '_ {
        [AUTHORITIES, TRUST, SERVICE_ACCOUNTS, SERVING, CLIENTS]
            .into_iter()
            .map(|name| self.directory.join(name))
    }

    fn pair(&self, folder: &str, stem: &str) -> CertificateFiles {
        let folder = self.directory.join(folder);
        CertificateFiles {
            certificate: folder.join(format!("{stem}.crt")),
            key: folder.join(format!("{stem}.key")),
        }
    }
}

const AUTHORITIES: &str = "authorities";
const TRUST: &str = "trust";
const SERVICE_ACCOUNTS: &str = "service-accounts";
const SERVING: &str = "serving";
const CLIENTS: &str = "clients";
