//! The settings of ACME (RFC 8555), by which listeners obtain certificates.

use serde::{Deserialize, Serialize};

use crate::check::Checker;
use crate::setting::{plain_settings, settings};
use crate::units::Timespan;
use crate::values::{HttpsUrl, InputFile, OwnPath, SecretFile};

settings! {
    /// The ACME authority of listeners with tls.acme.
    pub struct AcmeConfig {
        /// Directory URL of the authority, such as https://acme-v02.api.letsencrypt.org/directory.
        directory_url ("directoryURL"): Option<HttpsUrl> = None;
        /// Whether you agree to the terms of service of the authority. Without it no certificate is requested.
        terms_agreed ("termsAgreed"): bool = false;
        /// Contact for notices of the authority, such as mailto:ops@example.com.
        contact ("contact"): Vec<String> = Vec::new();
        /// PEM bundle: authorities of the directory's own certificate; the system's if absent.
        ca_file ("caFile"): Option<InputFile> = None;
        /// External account binding, where the authority requires one.
        external_account ("externalAccount"): Option<ExternalAccountConfig> = None;
        /// Folder of the account key, certificates with their keys, and open challenges. Only its owner can read it. Gateways for the
        /// same names share it: one of them requests certificates, all of them respond to challenges.
        folder ("folder"): OwnPath = "acme".into();
        /// Address of the plain HTTP listener for http-01 challenges, which the authority sends to port 80 of each name. It serves
        /// nothing else.
        http_address ("httpAddress"): Option<std::net::SocketAddr> = None;
        /// Delay before a retry after a failure; doubled for each further one, up to a hundred times.
        retry_after ("retryAfter"): Timespan = Timespan::from_secs(60);
    }

    /// External account binding (RFC 8555, 7.3.4).
    pub struct ExternalAccountConfig {
        /// ID of the key at the authority.
        key_id ("keyID"): String = String::new();
        /// File with the key in base64url, as the authority issues it.
        key_file ("keyFile"): SecretFile = "external-account.key".into();
    }

    /// ACME challenge of a listener.
    pub struct ListenerAcmeConfig {
        /// tls-alpn-01 (the authority connects to this listener at port 443 of each name) or http-01 (it connects to
        /// acme.httpAddress).
        challenge ("challenge"): AcmeChallenge = AcmeChallenge::TlsAlpn01;
    }
}

/// Challenge type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AcmeChallenge {
    /// RFC 8555, 8.3.
    #[serde(rename = "http-01")]
    Http01,
    /// RFC 8737.
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn01,
}

plain_settings!(AcmeChallenge);

impl AcmeChallenge {
    /// The name in ACME.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http01 => "http-01",
            Self::TlsAlpn01 => "tls-alpn-01",
        }
    }
}

impl AcmeConfig {
    /// `used` has the challenges of all listeners with ACME.
    pub(crate) fn check(&self, used: &[AcmeChallenge], checker: &mut Checker) {
        checker.at_least("retryAfter", self.retry_after, Timespan::from_millis(1));
        if let Some(account) = &self.external_account
            && account.key_id.is_empty()
        {
            checker.fault("externalAccount.keyID", "the key has no ID", "the authority issues both");
        }
        for contact in &self.contact {
            if !contact.contains(':') {
                let message = format!("{contact:?} is not a URL");
                checker.fault("contact", &message, "such as mailto:ops@example.com");
            }
        }
        if used.is_empty() {
            return;
        }
        if self.directory_url.is_none() {
            let message = "listeners use ACME, but no authority is set";
            checker.fault("directoryURL", message, "such as https://acme-v02.api.letsencrypt.org/directory");
        }
        if !self.terms_agreed {
            let message = "the authority issues certificates only after agreement to its terms of service";
            checker.fault("termsAgreed", message, "read them, then set it to true");
        }
        if used.contains(&AcmeChallenge::Http01) && self.http_address.is_none() {
            let message = "a listener uses http-01, but no address is set";
            checker.fault("httpAddress", message, "such as \"[::]:80\"");
        }
    }
}
