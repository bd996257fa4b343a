//! Rules about bundles of authorities.

use std::path::Path;

use crate::certificate::day;
use crate::linter::{AuthorityUse, Bundle, FileLinter};

impl FileLinter<'_> {
    /// Checks the bundle of the setting `key`, which has its whole path.
    pub(crate) fn check_bundle(&mut self, key: &str, file: &Path, usage: AuthorityUse) {
        let Some(certificates) = self.read(key, file) else { return };
        let (now, shown) = (self.now, file.display());
        if certificates.iter().all(|certificate| certificate.not_after <= now) {
            let ends = certificates.iter().map(|certificate| certificate.not_after).max().unwrap_or(now);
            let message = format!("all authorities in {shown} have expired, the last one on {}", day(ends));
            self.checker.fault(key, &message, "add the certificate of a valid authority");
            return;
        }
        for certificate in &certificates {
            let renewed = certificates
                .iter()
                .any(|other| other.is_same_authority(certificate) && other.not_after > certificate.not_after);
            if certificate.not_after <= now && !renewed {
                let message =
                    format!("authority {:?} has expired on {}", certificate.name, day(certificate.not_after));
                self.checker.fault(key, &message, "remove it: it is not valid any more");
            }
            if certificate.not_before > now {
                let message = format!(
                    "authority {:?} is valid only from {}",
                    certificate.name,
                    day(certificate.not_before)
                );
                self.checker.fault(key, &message, "check the clock of this machine, or wait");
            }
            if !certificate.is_authority {
                let message = format!("{:?} in {shown} is not an authority", certificate.name);
                self.checker.fault(key, &message, "set the file of the authority that signed it");
            }
        }
        if let Some(shared) = certificates.iter().find(|one| one.is_shared_by_cloudflares_customers()) {
            let (message, hint) = match usage {
                AuthorityUse::Transport => (
                    format!(
                        "every customer of CloudFlare can send requests with a certificate of {:?}",
                        shared.name
                    ),
                    "upload a certificate of your own for your zone or host name, and name its authority",
                ),
                _ => (
                    format!(
                        "{:?} is shared by all customers of CloudFlare and must not authenticate users",
                        shared.name
                    ),
                    "use it only in tls.transportClientCA",
                ),
            };
            self.checker.fault(key, &message, hint);
        }
        let authorities = certificates.into_iter().filter(|certificate| certificate.is_authority).collect();
        self.record_bundle(Bundle { key: key.to_owned(), usage, authorities });
    }
}
