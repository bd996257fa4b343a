//! Certificates that doors get from an authority by themselves (ACME, RFC 8555), as settings.

use serde::{Deserialize, Serialize};

use crate::check::Checker;
use crate::setting::{plain_settings, settings};
use crate::units::Timespan;
use crate::values::{HttpsUrl, InputFile, OwnPath, SecretFile};

settings! {
    /// Whom doors with tls.acme get their certificates from.
    pub struct AcmeConfig {
        /// The authority's directory, such as https://acme-v02.api.letsencrypt.org/directory.
        directory_url ("directoryURL"): Option<HttpsUrl> = None;
        /// Whether you agree to the authority's terms of service; without it nothing is asked.
        terms_agreed ("termsAgreed"): bool = false;
        /// Where the authority may tell you of trouble, such as mailto:ops@example.com.
        contact ("contact"): Vec<String> = Vec::new();
        /// PEM bundle: authorities of the directory's own certificate; the system's if absent.
        ca_file ("caFile"): Option<InputFile> = None;
        /// The account with the authority that yours there is tied to, where it wants that.
        external_account ("externalAccount"): Option<ExternalAccountConfig> = None;
        /// Folder with the account's key, certificates with their keys, and what is open with the authority. Only its owner can
        /// read it. Gateways that answer for the same names share it; one of them asks, all of them answer.
        folder ("folder"): OwnPath = "acme".into();
        /// Where the authority's requests over plain HTTP are answered (http-01), which it sends to port 80 of each name.
        /// Nothing else is served there.
        http_address ("httpAddress"): Option<std::net::SocketAddr> = None;
        /// How long after a failure another try is made; twice as long after each further one, up to a hundred times.
        retry_after ("retryAfter"): Timespan = Timespan::from_secs(60);
    }

    /// An account with the authority outside of ACME.
    pub struct ExternalAccountConfig {
        /// What the authority calls the key.
        key_id ("keyID"): String = String::new();
        /// File with the key, in base64url as the authority gives it out.
        key_file ("keyFile"): SecretFile = "external-account.key".into();
    }

    /// How a door shows that its names are its own.
    pub struct ListenerAcmeConfig {
        /// tls-alpn-01, answered at the door itself, which the authority reaches at port 443 of each name, or http-01, answered
        /// at acme.httpAddress.
        challenge ("challenge"): AcmeChallenge = AcmeChallenge::TlsAlpn01;
    }
}

/// How a name is shown to be one's own.
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
    /// As ACME calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http01 => "http-01",
            Self::TlsAlpn01 => "tls-alpn-01",
        }
    }
}

impl AcmeConfig {
    /// `used` is how the doors that use this show their names.
    pub(crate) fn check(&self, used: &[AcmeChallenge], checker: &mut Checker) {
        checker.at_least("retryAfter", self.retry_after, Timespan::from_millis(1));
        if let Some(account) = &self.external_account
            && account.key_id.is_empty()
        {
            checker.fault("externalAccount.keyID", "the key has no name", "the authority gives out both");
        }
        for contact in &self.contact {
            if !contact.contains(':') {
                let message = format!("{contact:?} is no URL");
                checker.fault("contact", &message, "such as mailto:ops@example.com");
            }
        }
        if used.is_empty() {
            return;
        }
        if self.directory_url.is_none() {
            let message = "doors are to get certificates, and no authority is named";
            checker.fault("directoryURL", message, "such as https://acme-v02.api.letsencrypt.org/directory");
        }
        if !self.terms_agreed {
            let message = "the authority gives certificates only to those who agree to its terms of service";
            checker.fault("termsAgreed", message, "read them, then set it to true");
        }
        if used.contains(&AcmeChallenge::Http01) && self.http_address.is_none() {
            let message = "a door answers by http-01, and there is no address for it";
            checker.fault("httpAddress", message, "such as \"[::]:80\"");
        }
    }
}
