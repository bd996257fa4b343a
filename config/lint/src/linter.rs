//! Checks of the files of a configuration, and the rules that compare several of them.

use std::path::Path;

use fairlead_config::{Checker, PemFault, read_regular_file};

use crate::certificate::{Certificate, day};

/// Checks the files of one configuration and records their certificates.
pub(crate) struct FileLinter<'c> {
    /// Seconds since 1970.
    pub(crate) now: i64,
    pub(crate) checker: &'c mut Checker,
    bundles: Vec<Bundle>,
    leaves: Vec<Certificate>,
}

/// Authorities that a setting names.
pub(crate) struct Bundle {
    /// The setting, with its whole path.
    pub(crate) key: String,
    pub(crate) usage: AuthorityUse,
    pub(crate) authorities: Vec<Certificate>,
}

/// Use of the certificates of an authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuthorityUse {
    /// The certificates authenticate users.
    Identity,
    /// The certificates authenticate proxies, whose identity headers are trusted.
    Proxy,
    /// The certificates authenticate transport only.
    Transport,
    /// The certificates authenticate servers.
    Server,
}

impl<'c> FileLinter<'c> {
    pub(crate) fn new(now: i64, checker: &'c mut Checker) -> Self {
        Self { now, checker, bundles: Vec::new(), leaves: Vec::new() }
    }

    /// The certificates of a PEM file. `None`, with a finding, if there are none. Unreadable files have a finding of another rule.
    pub(crate) fn read(&mut self, key: &str, file: &Path) -> Option<Vec<Certificate>> {
        let pem = read_regular_file(file).filter(|pem| !pem.is_empty())?;
        if let Some(fault) = PemFault::first_in(file) {
            self.checker.fault(key, &fault.to_string(), "replace it with a complete file");
            return None;
        }
        let certificates = Certificate::all_in(&pem);
        if certificates.is_empty() {
            let message = format!("{} holds no certificate", file.display());
            self.checker.fault(key, &message, "name a PEM file with certificates");
            return None;
        }
        Some(certificates)
    }

    /// The text of a file, if it can be read.
    pub(crate) fn text(&self, file: &Path) -> Option<String> {
        String::from_utf8(read_regular_file(file)?).ok()
    }

    /// Records a certificate that peers verify.
    pub(crate) fn record_leaf(&mut self, leaf: Certificate) {
        self.leaves.push(leaf);
    }

    /// Records authorities.
    pub(crate) fn record_bundle(&mut self, bundle: Bundle) {
        self.bundles.push(bundle);
    }

    /// Runs the rules that compare several files.
    pub(crate) fn compare_files(&mut self) {
        self.find_overlaps();
        self.find_short_lived_authorities();
    }

    /// Finds authorities with two uses: a certificate that was issued for one use is valid for the other, too.
    fn find_overlaps(&mut self) {
        let mut faults = Vec::new();
        let kinds = [
            (AuthorityUse::Transport, AuthorityUse::Identity),
            (AuthorityUse::Transport, AuthorityUse::Proxy),
            (AuthorityUse::Proxy, AuthorityUse::Identity),
        ];
        for (one, other) in kinds {
            for bundle in self.bundles.iter().filter(|bundle| bundle.usage == one) {
                for twin in self.bundles.iter().filter(|bundle| bundle.usage == other) {
                    let shared = bundle
                        .authorities
                        .iter()
                        .find(|authority| twin.authorities.iter().any(|also| also.key == authority.key));
                    if let Some(shared) = shared {
                        faults.push((bundle.key.clone(), overlap(one, other, &shared.name, &twin.key)));
                    }
                }
            }
        }
        for (key, (message, hint)) in faults {
            self.checker.fault(&key, &message, hint);
        }
    }

    /// Finds authorities that expire before certificates that they signed.
    fn find_short_lived_authorities(&mut self) {
        let mut reported: Vec<(&[u8], &[u8])> = Vec::new();
        let mut faults = Vec::new();
        for bundle in &self.bundles {
            for authority in bundle.authorities.iter().filter(|authority| authority.not_after > self.now) {
                let successors = bundle.authorities.iter().filter(|other| other.is_same_authority(authority));
                let ends = successors.map(|other| other.not_after).max().unwrap_or(authority.not_after);
                for leaf in &self.leaves {
                    let pair = (authority.key.as_slice(), leaf.key.as_slice());
                    if leaf.not_after > ends && !reported.contains(&pair) && authority.signed(leaf) {
                        reported.push(pair);
                        let message = format!(
                            "authority {:?} expires on {}, before {:?}, which needs it until {}",
                            authority.name,
                            day(ends),
                            leaf.name,
                            day(leaf.not_after)
                        );
                        faults.push((bundle.key.clone(), message));
                    }
                }
            }
        }
        for (key, message) in faults {
            let hint = "renew the authority, and put both its certificates into the bundle for a while";
            self.checker.fault(&key, &message, hint);
        }
    }
}

fn overlap(
    one: AuthorityUse,
    other: AuthorityUse,
    authority: &str,
    elsewhere: &str,
) -> (String, &'static str) {
    let message = match (one, other) {
        (AuthorityUse::Transport, AuthorityUse::Proxy) => format!(
            "authority {authority:?} also authenticates front proxies ({elsewhere}): transport peers could assert \
             any identity"
        ),
        (AuthorityUse::Transport, _) => format!(
            "authority {authority:?} also authenticates users ({elsewhere}): transport peers would be users there"
        ),
        _ => format!(
            "authority {authority:?} also authenticates users ({elsewhere}): a user whose certificate has the name of a proxy \
             could assert any identity"
        ),
    };
    let hint = match one {
        AuthorityUse::Transport => "use an authority that only signs certificates for origin pulls",
        _ => "use an authority that only signs certificates of front proxies",
    };
    (message, hint)
}
