//! Rules about kubeconfigs: their files, credentials and authorities.

use std::path::Path;

use fairlead_client::{Endpoint, KeyMaterial, Kubeconfig, ResolvedContext, UnverifiedTls};

use crate::certificate::{Certificate, Usage, day};
use crate::linter::FileLinter;

/// Used part of a kubeconfig.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KubeconfigPart<'c> {
    /// Server and user of the named context if it exists, otherwise of the current one.
    Context(Option<&'c str>),
    /// The user; the server is ignored and may be missing.
    User,
}

impl FileLinter<'_> {
    /// Checks a kubeconfig. An empty path means that of the pod, which cannot be checked here.
    pub(crate) fn check_kubeconfig(&mut self, key: &str, file: &Path, part: KubeconfigPart<'_>) {
        let has_content =
            std::fs::metadata(file).is_ok_and(|metadata| metadata.is_file() && metadata.len() > 0);
        if !has_content || self.report_special_file(key, file, file) {
            return;
        }
        let shown = file.display();
        let context = match resolve(file, part) {
            Ok(context) => context,
            Err(reason) => {
                let message =
                    if reason.contains(&*shown.to_string()) { reason } else { format!("{shown}: {reason}") };
                return self.checker.fault(
                    key,
                    &message,
                    "`fairlead certs init` makes certificates and kubeconfigs",
                );
            }
        };
        let named: Vec<&Path> = context.files().collect();
        if named.into_iter().any(|named| self.report_special_file(key, file, named)) {
            return;
        }
        if !context.endpoint.is_tls() {
            let message = format!("{shown} names a server without TLS");
            self.checker.fault(key, &message, "use a URL that begins with https://");
        } else if context.cluster.insecure_skip_tls_verify {
            let message =
                format!("{shown} disables the verification of the server (insecure-skip-tls-verify)");
            self.checker.fault(key, &message, "name the server's authority as certificate-authority");
        } else if let Err(error) = context.credentials(UnverifiedTls::Refuse) {
            let message = format!("{shown}: {error}");
            self.checker.fault(key, &message, "its certificates and keys have to be complete and match");
        }
        if let Some(chain) = context.user.client_certificate.as_ref().and_then(read) {
            self.check_chain(key, &Certificate::all_in(&chain), Usage::Client);
        }
        let authorities = context.cluster.certificate_authority.as_ref().and_then(read).unwrap_or_default();
        let authorities = Certificate::all_in(&authorities);
        if let Some(last) = authorities.iter().max_by_key(|authority| authority.not_after)
            && last.not_after <= self.now
        {
            let message = format!(
                "{shown}: the server's authority {:?} has expired on {}",
                last.name,
                day(last.not_after)
            );
            self.checker.fault(key, &message, "add the certificate of a valid authority");
        }
    }

    /// Reports a file that is a device or FIFO, which may be endless or block, or is too large. Returns whether it did.
    fn report_special_file(&mut self, key: &str, kubeconfig: &Path, named: &Path) -> bool {
        let is_special_file = named.exists() && !fairlead_config::is_regular_file(named);
        if is_special_file {
            let message = format!(
                "{}: {} is not a regular file, or is too large",
                kubeconfig.display(),
                named.display()
            );
            self.checker.fault(key, &message, "name files with certificates, keys or tokens");
        }
        is_special_file
    }
}

fn resolve(file: &Path, part: KubeconfigPart<'_>) -> Result<ResolvedContext, String> {
    let kubeconfig = Kubeconfig::load(file).map_err(|error| error.to_string())?;
    let resolved = match part {
        KubeconfigPart::Context(Some(name)) => {
            kubeconfig.resolve(Some(name)).or_else(|_| kubeconfig.resolve(None))
        }
        KubeconfigPart::Context(None) => kubeconfig.resolve(None),
        KubeconfigPart::User => {
            let anywhere = Endpoint::parse("https://localhost").map_err(|error| error.to_string())?;
            kubeconfig.resolve_at(&anywhere)
        }
    };
    resolved.map_err(|error| error.to_string())
}

fn read(material: &KeyMaterial) -> Option<Vec<u8>> {
    match material {
        KeyMaterial::Inline(content) => Some(content.clone()),
        KeyMaterial::File(path) => fairlead_config::read_regular_file(path),
    }
}
