//! Reads and parses the files of a PKI directory. Decisions are in `decide`.

use std::{collections::BTreeSet, net::IpAddr, path::Path};

use jiff::Timestamp;
use rcgen::{KeyPair, PublicKeyData};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use x509_parser::{
    certificate::X509Certificate,
    extensions::GeneralName,
    prelude::{FromDer, X509Name},
    x509::SubjectPublicKeyInfo,
};

use crate::{Authority, Error, Host, Item, Layout, Leaf, Plan, files::read_if_present};

/// The state of every item of a plan, in the plan's order.
pub(crate) struct ObservedState {
    pub(crate) states: Vec<State>,
}

pub(crate) enum State {
    Authority(Box<AuthorityState>),
    ServiceAccountKey(ServiceAccountKeyState),
    Leaf(LeafState),
}

pub(crate) struct AuthorityState {
    pub(crate) authority: Authority,
    pub(crate) certificate: Option<AuthorityCertificate>,
    /// `None` if it does not exist or is stored elsewhere.
    pub(crate) key: Option<KeyPair>,
}

pub(crate) struct AuthorityCertificate {
    pub(crate) der: CertificateDer<'static>,
    pub(crate) subject: String,
    pub(crate) not_before: Timestamp,
    pub(crate) not_after: Timestamp,
}

pub(crate) struct ServiceAccountKeyState {
    pub(crate) signing_key: Option<KeyPair>,
    /// Whether the file of public keys contains that of `signing_key`.
    pub(crate) is_published: bool,
}

pub(crate) enum LeafState {
    Absent,
    /// One of the two files is missing or malformed.
    Damaged,
    Present(Box<LeafFacts>),
}

/// The contents of a leaf certificate that a plan determines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeafFacts {
    pub(crate) common_names: Vec<String>,
    pub(crate) organizations: Vec<String>,
    /// `None` if it has alternative names of other types.
    pub(crate) hosts: Option<BTreeSet<Host>>,
    pub(crate) server_auth: bool,
    pub(crate) client_auth: bool,
    pub(crate) not_before: Timestamp,
    pub(crate) not_after: Timestamp,
    pub(crate) issuer: String,
    /// Whether the public key of the present authority verifies the signature.
    pub(crate) signed_by_authority: bool,
    /// Whether the private key in the other file matches.
    pub(crate) key_matches: bool,
}

impl ObservedState {
    /// Reads the existing files of a plan. A damaged leaf is a state; a damaged authority or service-account key is an error,
    /// because these must not be replaced automatically.
    pub(crate) fn read(plan: &Plan, layout: &Layout) -> Result<Self, Error> {
        let mut states: Vec<State> = Vec::with_capacity(plan.items().len());
        for item in plan.items() {
            let state = match item {
                Item::Authority(authority) => {
                    State::Authority(Box::new(AuthorityState::read(*authority, layout)?))
                }
                Item::ServiceAccountKey => State::ServiceAccountKey(ServiceAccountKeyState::read(layout)?),
                Item::Leaf(leaf) => {
                    let signer = states.iter().find_map(|state| match state {
                        State::Authority(signer) if signer.authority == leaf.signer => signer.public_key(),
                        _ => None,
                    });
                    State::Leaf(LeafState::read(leaf, layout, signer.as_deref())?)
                }
            };
            states.push(state);
        }
        Ok(Self { states })
    }

    pub(crate) fn authority(&self, wanted: Authority) -> Option<&AuthorityState> {
        self.states.iter().find_map(|state| match state {
            State::Authority(state) if state.authority == wanted => Some(&**state),
            _ => None,
        })
    }
}

impl AuthorityState {
    fn read(authority: Authority, layout: &Layout) -> Result<Self, Error> {
        let (path, key_path) = (layout.trust(authority), layout.authority_key(authority));
        let certificate =
            read_if_present(&path)?.map(|pem| AuthorityCertificate::parse(&pem, &path)).transpose()?;
        let key = read_key(&key_path)?;
        let state = Self { authority, certificate, key };
        if let (Some(certificate), Some(key)) = (&state.certificate, &state.key)
            && certificate.public_key() != Some(key.subject_public_key_info())
        {
            return Err(Error::Damaged {
                path: key_path,
                problem: "does not belong to the authority's certificate",
            });
        }
        Ok(state)
    }

    /// The public key, DER. If only the private key exists, the certificate was lost; it can be issued again, and everything
    /// signed with the key stays valid.
    fn public_key(&self) -> Option<Vec<u8>> {
        match (&self.certificate, &self.key) {
            (Some(certificate), _) => certificate.public_key(),
            (None, key) => key.as_ref().map(PublicKeyData::subject_public_key_info),
        }
    }
}

impl AuthorityCertificate {
    fn parse(pem: &str, path: &Path) -> Result<Self, Error> {
        let damaged = |problem| Error::Damaged { path: path.to_owned(), problem };
        let der =
            CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|_| damaged("holds no certificate"))?;
        let facts = {
            let (_, certificate) =
                X509Certificate::from_der(&der).map_err(|_| damaged("holds no readable certificate"))?;
            if !certificate.is_ca() {
                return Err(damaged("is not the certificate of an authority"));
            }
            let (not_before, not_after) =
                validity(&certificate).ok_or_else(|| damaged("has no usable dates"))?;
            (certificate.subject().to_string(), not_before, not_after)
        };
        let (subject, not_before, not_after) = facts;
        Ok(Self { der: der.into_owned(), subject, not_before, not_after })
    }

    fn public_key(&self) -> Option<Vec<u8>> {
        X509Certificate::from_der(&self.der)
            .ok()
            .map(|(_, certificate)| certificate.public_key().raw.to_vec())
    }
}

impl ServiceAccountKeyState {
    fn read(layout: &Layout) -> Result<Self, Error> {
        let files = layout.service_account_keys();
        let signing_key = read_key(&files.signing_key)?;
        let public = read_if_present(&files.verification_keys)?;
        if let (None, Some(_)) = (&signing_key, &public) {
            // A new key would silently invalidate every token in use.
            return Err(Error::Damaged {
                path: files.signing_key,
                problem: "is missing beside its public key",
            });
        }
        let is_published = match (&signing_key, &public) {
            (Some(key), Some(text)) => {
                without_whitespace(text).contains(&without_whitespace(&key.public_key_pem()))
            }
            _ => false,
        };
        Ok(Self { signing_key, is_published })
    }
}

impl LeafState {
    fn read(leaf: &Leaf, layout: &Layout, signer_public_key: Option<&[u8]>) -> Result<Self, Error> {
        let files = leaf.files(layout);
        let (certificate, key) = (read_if_present(&files.certificate)?, read_if_present(&files.key)?);
        Ok(match (certificate, key) {
            (None, None) => Self::Absent,
            (Some(certificate), Some(key)) => match LeafFacts::parse(&certificate, &key, signer_public_key) {
                Some(facts) => Self::Present(Box::new(facts)),
                None => Self::Damaged,
            },
            (Some(_), None) | (None, Some(_)) => Self::Damaged,
        })
    }
}

impl LeafFacts {
    fn parse(pem: &str, key: &str, signer_public_key: Option<&[u8]>) -> Option<Self> {
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
        let (_, certificate) = X509Certificate::from_der(&der).ok()?;
        let key = KeyPair::from_pem(key).ok()?;
        let (not_before, not_after) = validity(&certificate)?;
        let usage = certificate.extended_key_usage().ok()?.map(|extension| extension.value);
        let signer = signer_public_key.and_then(|der| SubjectPublicKeyInfo::from_der(der).ok());
        Some(Self {
            common_names: texts(certificate.subject().iter_common_name())?,
            organizations: texts(certificate.subject().iter_organization())?,
            hosts: hosts(&certificate),
            server_auth: usage.is_some_and(|usage| usage.server_auth),
            client_auth: usage.is_some_and(|usage| usage.client_auth),
            not_before,
            not_after,
            issuer: name(certificate.issuer()),
            signed_by_authority: signer
                .is_some_and(|(_, signer)| certificate.verify_signature(Some(&signer)).is_ok()),
            key_matches: certificate.public_key().raw == key.subject_public_key_info(),
        })
    }
}

fn name(name: &X509Name<'_>) -> String {
    name.to_string()
}

fn read_key(path: &Path) -> Result<Option<KeyPair>, Error> {
    read_if_present(path)?
        .map(|pem| {
            KeyPair::from_pem(&pem).map_err(|_| Error::Damaged {
                path: path.to_owned(),
                problem: "holds no readable private key",
            })
        })
        .transpose()
}

fn validity(certificate: &X509Certificate<'_>) -> Option<(Timestamp, Timestamp)> {
    let validity = certificate.validity();
    let timestamp = |time: x509_parser::time::ASN1Time| Timestamp::from_second(time.timestamp()).ok();
    Some((timestamp(validity.not_before)?, timestamp(validity.not_after)?))
}

fn texts<'a>(
    attributes: impl Iterator<Item = &'a x509_parser::x509::AttributeTypeAndValue<'a>>,
) -> Option<Vec<String>> {
    attributes.map(|attribute| attribute.as_str().ok().map(str::to_owned)).collect()
}

fn hosts(certificate: &X509Certificate<'_>) -> Option<BTreeSet<Host>> {
    let Some(extension) = certificate.subject_alternative_name().ok()? else {
        return Some(BTreeSet::new());
    };
    extension.value.general_names.iter().map(host).collect()
}

fn host(name: &GeneralName<'_>) -> Option<Host> {
    match name {
        GeneralName::DNSName(name) => Some(Host::Name((*name).to_owned())),
        GeneralName::IPAddress(bytes) => {
            let address = match bytes.len() {
                4 => IpAddr::from(<[u8; 4]>::try_from(*bytes).ok()?),
                _ => IpAddr::from(<[u8; 16]>::try_from(*bytes).ok()?),
            };
            Some(Host::Address(address))
        }
        _ => None,
    }
}

/// PEM text without whitespace, which differs between writers.
fn without_whitespace(pem: &str) -> String {
    pem.split_ascii_whitespace().collect()
}
