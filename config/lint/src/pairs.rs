//! Rules about certificates with their keys.

use std::path::Path;
use std::sync::Arc;

use fairlead_config::PemFault;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::sign::CertifiedKey;
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;

use crate::certificate::{Certificate, Usage, day};
use crate::linter::FileLinter;

/// Time before the expiry of a certificate from which it is a finding.
const SOON: i64 = 14 * 86_400;

impl FileLinter<'_> {
    /// Checks a certificate and its key, at settings `certificate` and `privateKey` below `key`. Returns the leaf.
    pub(crate) fn check_key_pair(
        &mut self,
        key: &str,
        certificate: &Path,
        private_key: &Path,
        usage: Usage,
    ) -> Option<Certificate> {
        let (at, key_at) = (below(key, "certificate"), below(key, "privateKey"));
        let chain = self.read(&at, certificate);
        if let Some(fault) = PemFault::first_in(private_key) {
            self.checker.fault(&key_at, &fault.to_string(), "replace it with a complete file");
        } else if let (Some(chain), Ok(secret)) = (&chain, PrivateKeyDer::from_pem_file(private_key)) {
            self.check_key(&key_at, chain, &secret, certificate, private_key);
        }
        let chain = chain?;
        self.check_chain(&at, &chain, usage);
        chain.into_iter().next()
    }

    /// Checks a certificate chain, which may be in another file, such as a kubeconfig.
    pub(crate) fn check_chain(&mut self, at: &str, chain: &[Certificate], usage: Usage) {
        let Some(leaf) = chain.first() else { return };
        self.check_validity(at, leaf);
        if leaf.is_authority && chain.len() > 1 {
            let message = format!("the first certificate, {:?}, is that of an authority", leaf.name);
            self.checker.fault(
                at,
                &message,
                "put the certificate of the server or client first, then its intermediates",
            );
        }
        if !leaf.is_for(usage) {
            let (message, hint) = match usage {
                Usage::Server => ("is not for servers", "issue it with the extended key usage serverAuth"),
                Usage::Client => ("is not for clients", "issue it with the extended key usage clientAuth"),
            };
            self.checker.fault(at, &format!("{:?} {message}", leaf.name), hint);
        }
        for intermediate in chain.iter().skip(1).filter(|one| one.not_after < leaf.not_after) {
            let message = format!(
                "the intermediate {:?} expires on {}, before {:?}, which it signed, on {}",
                intermediate.name,
                day(intermediate.not_after),
                leaf.name,
                day(leaf.not_after)
            );
            self.checker.fault(at, &message, "add the renewed intermediate certificate");
        }
        self.record_leaf(leaf.clone());
    }

    fn check_validity(&mut self, at: &str, leaf: &Certificate) {
        let (name, now) = (&leaf.name, self.now);
        if leaf.not_before > now {
            let message = format!("{name:?} is valid only from {}", day(leaf.not_before));
            self.checker.fault(at, &message, "check the clock of this machine, or wait");
        }
        let left = leaf.not_after - now;
        // Certificates with a lifetime of days are renewed automatically and need no early warning.
        let soon = SOON.min((leaf.not_after - leaf.not_before) / 4);
        if left <= 0 {
            let message = format!("{name:?} has expired on {}", day(leaf.not_after));
            self.checker.fault(at, &message, "renew it");
        } else if left <= soon {
            let message = format!("{name:?} expires on {}, in {} days", day(leaf.not_after), left / 86_400);
            self.checker.fault(at, &message, "renew it now");
        }
    }

    /// Checks that a key is usable and matches its certificate: otherwise the process would not start.
    fn check_key(
        &mut self,
        key_at: &str,
        chain: &[Certificate],
        secret: &PrivateKeyDer<'static>,
        certificate: &Path,
        private_key: &Path,
    ) {
        let Ok(signing) = any_supported_type(secret) else {
            let message = format!("{} is not a private key of a supported kind", private_key.display());
            return self.checker.fault(key_at, &message, "RSA, ECDSA or Ed25519, as PKCS #8, #1 or SEC 1");
        };
        let chain = chain.iter().map(Certificate::der).collect();
        let pair = CertifiedKey::new(chain, Arc::clone(&signing));
        if matches!(pair.keys_match(), Err(rustls::Error::InconsistentKeys(_))) {
            let message = format!("{} is not the key of {}", private_key.display(), certificate.display());
            self.checker.fault(key_at, &message, "a certificate and its key belong together");
        }
    }
}

/// A key below another one.
pub(crate) fn below(prefix: &str, key: &str) -> String {
    if prefix.is_empty() { key.to_owned() } else { format!("{prefix}.{key}") }
}
