//! Makes a directory match a plan.
//!
//! After a crash at any moment, the next run completes the directory: an authority's key is on disk before its certificate
//! and a leaf's key before the leaf, and a missing or mismatched half is created again.

use std::{
    path::Path,
    time::{Duration, SystemTime},
};

use jiff::Timestamp;
use rcgen::{Issuer, KeyPair};
use rustls_pki_types::CertificateDer;

use crate::{
    Action, Authority, Error, FORMAT, Item, Layout, Leaf, Plan, Renewal, Report, Row, Step,
    decide::{authority_subject, decide, leaf_expiry},
    files::{
        FormatFile, Lock, Secrecy, check_format, create_private_folder, read_if_present, replace,
        restrict_to_owner, sync_folder,
    },
    issue::{generate_key, sign_authority, sign_leaf},
    observe::{AuthorityState, LeafState, ObservedState, ServiceAccountKeyState, State},
};

/// Time before the expiry of an authority from which the report warns of it.
const AUTHORITY_WARNING: Duration = Duration::from_secs(365 * 86_400);

impl Plan {
    /// The steps that [`Plan::apply`] would take.
    pub fn observe(&self, layout: &Layout, now: SystemTime, renewal: Renewal) -> Result<Vec<Step>, Error> {
        let now = timestamp(now)?;
        check_format(layout)?;
        Ok(decide(self, &ObservedState::read(self, layout)?, now, renewal))
    }

    /// Issues missing items, renews those that need it and keeps the others. Only one process at a time may apply a plan to a
    /// directory. Files that are not in the plan are kept.
    pub fn apply(&self, layout: &Layout, now: SystemTime, renewal: Renewal) -> Result<Report, Error> {
        let now = timestamp(now)?;
        create_private_folder(layout.directory())?;
        let _lock = Lock::take(layout)?;
        if check_format(layout)? == FormatFile::Absent {
            replace(&layout.format(), &format!("{FORMAT}\n"), Secrecy::Public)?;
        }
        let mut notes = Vec::new();
        for folder in layout.folders() {
            create_private_folder(&folder)?;
            note_if_restricted(&folder, &mut notes)?;
        }

        let observed = ObservedState::read(self, layout)?;
        let steps = decide(self, &observed, now, renewal);
        refuse_unless_signable(&steps, &observed, layout)?;

        let mut signers = Vec::with_capacity(Authority::ALL.len());
        let mut rows = Vec::with_capacity(steps.len());
        for (step, state) in steps.into_iter().zip(observed.states) {
            let (facts, key_path) = match (&step.item, state) {
                (Item::Authority(authority), State::Authority(state)) => {
                    let signer = Signer::establish(*authority, *state, step.action, layout, now)?;
                    let facts = signer.facts();
                    signers.push(signer);
                    (facts, layout.authority_key(*authority))
                }
                (Item::ServiceAccountKey, State::ServiceAccountKey(state)) => {
                    establish_service_account_key(state, layout)?;
                    (Facts::of_key_pair(), layout.service_account_keys().signing_key)
                }
                (Item::Leaf(leaf), State::Leaf(state)) => {
                    let facts = match (step.action, state) {
                        (Action::Unchanged, LeafState::Present(facts)) => {
                            Facts::of_leaf(leaf, facts.not_after)
                        }
                        _ => Facts::of_leaf(leaf, issue_leaf(leaf, &signers, layout, now)?),
                    };
                    (facts, leaf.files(layout).key)
                }
                // `ObservedState::read` returns the states of these items in this order.
                (Item::Authority(_) | Item::ServiceAccountKey | Item::Leaf(_), _) => continue,
            };
            note_if_restricted(&key_path, &mut notes)?;
            rows.push(Row {
                name: step.item.to_string(),
                file: step.item.file(layout),
                subject: facts.subject,
                signer: facts.signer,
                expires: facts.expires,
                action: step.action,
                reason: step.reason,
            });
        }
        for folder in layout.folders() {
            sync_folder(&folder)?;
        }
        sync_folder(layout.directory())?;

        notes.extend(signers.iter().filter_map(|signer| signer.warning(now)));
        Ok(Report { directory: layout.directory().to_owned(), rows, notes })
    }
}

/// Details of an item for the report.
struct Facts {
    subject: String,
    signer: Option<Authority>,
    expires: Option<Timestamp>,
}

impl Facts {
    fn of_leaf(leaf: &Leaf, expires: Timestamp) -> Self {
        Self { subject: leaf.subject(), signer: Some(leaf.signer), expires: Some(expires) }
    }

    fn of_key_pair() -> Self {
        Self { subject: String::new(), signer: None, expires: None }
    }
}

/// An authority after its step.
struct Signer {
    authority: Authority,
    subject: String,
    not_after: Timestamp,
    certificate: CertificateDer<'static>,
    key: Option<KeyPair>,
}

impl Signer {
    fn establish(
        authority: Authority,
        state: AuthorityState,
        action: Action,
        layout: &Layout,
        now: Timestamp,
    ) -> Result<Self, Error> {
        if let (Action::Unchanged, Some(certificate)) = (action, state.certificate) {
            return Ok(Self {
                authority,
                subject: certificate.subject,
                not_after: certificate.not_after,
                certificate: certificate.der,
                key: state.key,
            });
        }
        let key = match state.key {
            Some(key) => key,
            None => {
                let key = generate_key(&authority)?;
                let path = layout.authority_key(authority);
                replace(&path, &key.serialize_pem(), Secrecy::Secret)?;
                sync_folder_of(&path)?;
                key
            }
        };
        let (certificate, not_after) = sign_authority(authority, &key, now)?;
        let path = layout.trust(authority);
        // Further certificates of the bundle stay trusted.
        let others =
            read_if_present(&path)?.map(|bundle| after_first_certificate(&bundle)).unwrap_or_default();
        replace(&path, &format!("{}{others}", certificate.pem()), Secrecy::Public)?;
        sync_folder_of(&path)?;
        Ok(Self {
            authority,
            subject: authority_subject(authority),
            not_after,
            certificate: certificate.der().clone(),
            key: Some(key),
        })
    }

    fn facts(&self) -> Facts {
        Facts { subject: self.subject.clone(), signer: None, expires: Some(self.not_after) }
    }

    fn warning(&self, now: Timestamp) -> Option<String> {
        let left = self.not_after.duration_since(now);
        (left < AUTHORITY_WARNING.try_into().ok()?).then(|| {
            format!(
                "{} expires in {} days, and with it all certificates that it has signed: plan its rotation",
                self.authority,
                left.as_hours() / 24
            )
        })
    }
}

fn issue_leaf(leaf: &Leaf, signers: &[Signer], layout: &Layout, now: Timestamp) -> Result<Timestamp, Error> {
    let signer = signers.iter().find(|signer| signer.authority == leaf.signer);
    let Some((signer, signing_key)) = signer.and_then(|signer| Some((signer, signer.key.as_ref()?))) else {
        return Err(key_missing(leaf, layout));
    };
    let issuer = Issuer::from_ca_cert_der(&signer.certificate, signing_key).map_err(Error::issue(leaf))?;
    let key = generate_key(leaf)?;
    let not_after = leaf_expiry(now, Some(signer.not_after));
    let certificate = sign_leaf(leaf, &key, &issuer, now, not_after)?;
    let files = leaf.files(layout);
    replace(&files.key, &key.serialize_pem(), Secrecy::Secret)?;
    replace(&files.certificate, &certificate.pem(), Secrecy::Public)?;
    Ok(not_after)
}

fn establish_service_account_key(state: ServiceAccountKeyState, layout: &Layout) -> Result<(), Error> {
    let files = layout.service_account_keys();
    let key = match state {
        ServiceAccountKeyState { signing_key: Some(_), is_published: true } => return Ok(()),
        ServiceAccountKeyState { signing_key: Some(key), is_published: false } => key,
        ServiceAccountKeyState { signing_key: None, .. } => {
            let key = generate_key(&Item::ServiceAccountKey)?;
            replace(&files.signing_key, &key.serialize_pem(), Secrecy::Secret)?;
            sync_folder_of(&files.signing_key)?;
            key
        }
    };
    // Keys that verify older tokens follow the key that signs new ones.
    let older = read_if_present(&files.verification_keys)?.unwrap_or_default();
    replace(&files.verification_keys, &format!("{}{older}", key.public_key_pem()), Secrecy::Public)
}

/// Checks, before anything is written, that all required authority keys are available.
fn refuse_unless_signable(steps: &[Step], observed: &ObservedState, layout: &Layout) -> Result<(), Error> {
    for step in steps.iter().filter(|step| step.action != Action::Unchanged) {
        let authority = match &step.item {
            Item::Authority(authority) => *authority,
            Item::Leaf(leaf) => leaf.signer,
            Item::ServiceAccountKey => continue,
        };
        let kept_elsewhere = |state: &AuthorityState| state.certificate.is_some() && state.key.is_none();
        if observed.authority(authority).is_some_and(kept_elsewhere) {
            let path = layout.authority_key(authority);
            return Err(Error::AuthorityKeyMissing { item: step.item.to_string(), authority, path });
        }
    }
    Ok(())
}

fn key_missing(leaf: &Leaf, layout: &Layout) -> Error {
    let path = layout.authority_key(leaf.signer);
    Error::AuthorityKeyMissing { item: leaf.to_string(), authority: leaf.signer, path }
}

fn after_first_certificate(bundle: &str) -> String {
    const END: &str = "-----END CERTIFICATE-----";
    bundle.split_once(END).map(|(_, rest)| rest.trim_start().to_owned()).unwrap_or_default()
}

fn note_if_restricted(path: &Path, notes: &mut Vec<String>) -> Result<(), Error> {
    if restrict_to_owner(path)? {
        notes.push(format!("{}: permissions of the group and of others were removed", path.display()));
    }
    Ok(())
}

fn sync_folder_of(path: &Path) -> Result<(), Error> {
    path.parent().map_or(Ok(()), sync_folder)
}

fn timestamp(now: SystemTime) -> Result<Timestamp, Error> {
    let now = Timestamp::try_from(now).map_err(|_| Error::Clock)?;
    // Certificates have a resolution of seconds.
    Timestamp::from_second(now.as_second()).map_err(|_| Error::Clock)
}
