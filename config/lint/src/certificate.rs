//! Parsed certificates, as far as the rules need them.

use std::net::{Ipv4Addr, Ipv6Addr};

use rustls::client::verify_server_name;
use rustls::server::ParsedCertificate;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// A certificate that could be read.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    der: CertificateDer<'static>,
    /// The common name, or the whole subject where there is none.
    pub(crate) name: String,
    /// The common name alone.
    pub(crate) common_name: Option<String>,
    /// SubjectPublicKeyInfo: the same for all certificates of a key.
    pub(crate) key: Vec<u8>,
    subject: Vec<u8>,
    issuer: Vec<u8>,
    /// Start of its validity, in seconds since 1970.
    pub(crate) not_before: i64,
    /// End of its validity, in seconds since 1970.
    pub(crate) not_after: i64,
    /// Whether it may sign other certificates.
    pub(crate) is_authority: bool,
    /// Extended key usages; `None` for any.
    usages: Option<Usages>,
}

#[derive(Clone, Copy, Debug)]
struct Usages {
    server: bool,
    client: bool,
}

/// Required usage of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Usage {
    /// Presented to clients.
    Server,
    /// Presented to servers.
    Client,
}

impl Certificate {
    /// All certificates of a PEM text. Invalid ones are skipped; [`fairlead_config::PemFault`] reports them.
    pub(crate) fn all_in(pem: &[u8]) -> Vec<Self> {
        CertificateDer::pem_slice_iter(pem).filter_map(|der| Self::of(der.ok()?)).collect()
    }

    fn of(der: CertificateDer<'static>) -> Option<Self> {
        let (_, parsed) = X509Certificate::from_der(&der).ok()?;
        let common_name =
            parsed.subject().iter_common_name().next().and_then(|name| name.as_str().ok()).map(str::to_owned);
        let usages = parsed.extended_key_usage().ok().flatten().map(|usage| Usages {
            server: usage.value.any || usage.value.server_auth,
            client: usage.value.any || usage.value.client_auth,
        });
        Some(Self {
            name: common_name.clone().unwrap_or_else(|| parsed.subject().to_string()),
            common_name,
            key: parsed.public_key().raw.to_vec(),
            subject: parsed.subject().as_raw().to_vec(),
            issuer: parsed.issuer().as_raw().to_vec(),
            not_before: parsed.validity().not_before.timestamp(),
            not_after: parsed.validity().not_after.timestamp(),
            is_authority: parsed.is_ca(),
            usages,
            der: der.clone(),
        })
    }

    /// The DER bytes.
    pub(crate) fn der(&self) -> CertificateDer<'static> {
        self.der.clone()
    }

    /// Whether it allows a usage.
    pub(crate) fn is_for(&self, usage: Usage) -> bool {
        self.usages.is_none_or(|usages| match usage {
            Usage::Server => usages.server,
            Usage::Client => usages.client,
        })
    }

    /// Whether its key signed the other certificate.
    pub(crate) fn signed(&self, other: &Self) -> bool {
        if self.subject != other.issuer || self.der == other.der {
            return false;
        }
        let (Ok((_, authority)), Ok((_, leaf))) =
            (X509Certificate::from_der(&self.der), X509Certificate::from_der(&other.der))
        else {
            return false;
        };
        leaf.verify_signature(Some(authority.public_key())).is_ok()
    }

    /// Whether it is the same authority, possibly renewed.
    pub(crate) fn is_same_authority(&self, other: &Self) -> bool {
        self.key == other.key && self.subject == other.subject
    }

    /// Whether it is valid for a server of this name; `*.example.com` stands for any one level below.
    pub(crate) fn is_named(&self, host: &str) -> bool {
        let host = host.trim_start_matches('[').trim_end_matches(']').replacen('*', "any", 1);
        let Ok(name) = ServerName::try_from(host) else { return false };
        ParsedCertificate::try_from(&self.der).is_ok_and(|parsed| verify_server_name(&parsed, &name).is_ok())
    }

    /// Its DNS names and addresses as text.
    pub(crate) fn names(&self) -> Vec<String> {
        let Ok((_, parsed)) = X509Certificate::from_der(&self.der) else { return Vec::new() };
        let Ok(Some(names)) = parsed.subject_alternative_name() else { return Vec::new() };
        let text = |name: &GeneralName<'_>| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            GeneralName::IPAddress([a, b, c, d]) => Some(Ipv4Addr::from([*a, *b, *c, *d]).to_string()),
            GeneralName::IPAddress(bytes) => {
                <[u8; 16]>::try_from(*bytes).ok().map(|bytes| Ipv6Addr::from(bytes).to_string())
            }
            _ => None,
        };
        names.value.general_names.iter().filter_map(text).collect()
    }

    /// Whether it signs the origin pulls of all customers of CloudFlare.
    pub(crate) fn is_shared_by_cloudflares_customers(&self) -> bool {
        self.is_authority && self.common_name.as_deref() == Some("origin-pull.cloudflare.net")
    }
}

/// A date in ISO 8601.
pub(crate) fn day(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds)
        .map_or_else(|_| "a date out of range".to_owned(), |time| time.strftime("%Y-%m-%d").to_string())
}
