//! A PKI directory after a first run, after further runs, and after damage.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "tests")]

mod accidents;
mod issuing;
mod upkeep;

use std::{
    collections::{BTreeMap, HashSet},
    fs::{self, File, OpenOptions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use fairlead_certs::{
    Action, Authority, Client, Error, FORMAT, Host, Inventory, Item, Layout, Plan, Reason, Renewal, Report,
    Server, Usage,
};
use rustls::{
    RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    crypto::{CryptoProvider, aws_lc_rs::default_provider},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    server::WebPkiClientVerifier,
};
use x509_parser::{
    extensions::{GeneralName, ParsedExtension},
    prelude::{FromDer, X509Certificate},
};

const DAY: Duration = Duration::from_secs(86_400);

/// A PKI of two shards below a temporary directory, at a fixed point in time.
struct Pki {
    _directory: tempfile::TempDir,
    layout: Layout,
    plan: Plan,
    start: SystemTime,
}

impl Pki {
    fn planned() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::new(directory.path().join("state").join("pki"));
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        Self { _directory: directory, layout, plan: plan(&["kcp.example.com"]), start }
    }

    fn issued() -> Self {
        let pki = Self::planned();
        pki.apply_after(0);
        pki
    }

    fn try_apply_after(&self, days: u32) -> Result<Report, Error> {
        self.plan.apply(&self.layout, self.start + DAY * days, Renewal::WhenDue)
    }

    fn apply_after(&self, days: u32) -> Report {
        self.try_apply_after(days).unwrap()
    }

    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        contents(self.layout.directory())
    }

    fn gateway(&self) -> fairlead_certs::CertificateFiles {
        self.layout.serving_cert(&Server::Gateway)
    }

    fn admin(&self) -> fairlead_certs::CertificateFiles {
        self.layout.client_cert(&Client::Admin)
    }

    fn authority_key(&self, authority: Authority) -> PathBuf {
        self.layout.directory().join("authorities").join(format!("{authority}.key"))
    }
}

fn plan(hosts: &[&str]) -> Plan {
    Plan::for_inventory(&Inventory::parse(["root", "alpha"], hosts).unwrap())
}

fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(contents(&path));
        } else {
            files.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    files
}

fn certificate(path: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(path).unwrap()
}

fn reasons(report: &Report) -> BTreeMap<String, (Action, Reason)> {
    report
        .rows
        .iter()
        .filter(|row| row.action != Action::Unchanged)
        .map(|row| (row.name.clone(), (row.action, row.reason)))
        .collect()
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(default_provider())
}

fn roots(bundle: &Path) -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_file_iter(bundle).unwrap() {
        roots.add(root.unwrap()).unwrap();
    }
    Arc::new(roots)
}

fn is_server(leaf: &Path, bundle: &Path, name: &str, at: SystemTime) -> bool {
    let verifier = WebPkiServerVerifier::builder_with_provider(roots(bundle), provider()).build().unwrap();
    let now = UnixTime::since_unix_epoch(at.duration_since(SystemTime::UNIX_EPOCH).unwrap());
    let name = ServerName::try_from(name.to_owned()).unwrap();
    verifier.verify_server_cert(&certificate(leaf), &[], &name, &[], now).is_ok()
}

fn is_client(leaf: &Path, bundle: &Path, at: SystemTime) -> bool {
    let verifier = WebPkiClientVerifier::builder_with_provider(roots(bundle), provider()).build().unwrap();
    let now = UnixTime::since_unix_epoch(at.duration_since(SystemTime::UNIX_EPOCH).unwrap());
    verifier.verify_client_cert(&certificate(leaf), &[], now).is_ok()
}
