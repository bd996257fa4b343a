//! Generates keys and signs certificates: ECDSA on P-256, which every client supports and which costs a server a tenth of
//! RSA.

use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType, SerialNumber, date_time_ymd,
};

use crate::{Authority, Error, Host, Leaf, Usage, plan::AUTHORITY_LIFETIME};

/// Time by which the validity of certificates begins in the past, for peers whose clock is behind.
const CLOCK_SKEW_SECONDS: i64 = 5 * 60;

pub(crate) fn generate_key(item: &impl ToString) -> Result<KeyPair, Error> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(Error::issue(item))
}

/// A self-signed certificate for an authority that may sign leaves only.
pub(crate) fn sign_authority(
    authority: Authority,
    key: &KeyPair,
    now: Timestamp,
) -> Result<(Certificate, Timestamp), Error> {
    let not_after = now.checked_add(AUTHORITY_LIFETIME).map_err(|_| Error::Clock)?;
    let mut params = params(authority.common_name(), None, now, not_after)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = params.self_signed(key).map_err(Error::issue(&authority))?;
    Ok((certificate, not_after))
}

pub(crate) fn sign_leaf(
    leaf: &Leaf,
    key: &KeyPair,
    issuer: &Issuer<'_, &KeyPair>,
    now: Timestamp,
    not_after: Timestamp,
) -> Result<Certificate, Error> {
    let mut params = params(&leaf.common_name, leaf.organization.as_deref(), now, not_after)?;
    // Explicit, because rcgen writes the subject key identifier only then; strict verifiers require it.
    params.is_ca = IsCa::ExplicitNoCa;
    // No key encipherment: that is for RSA key exchange.
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![match leaf.usage {
        Usage::Serving(_) => ExtendedKeyUsagePurpose::ServerAuth,
        Usage::Client(_) => ExtendedKeyUsagePurpose::ClientAuth,
    }];
    params.subject_alt_names =
        leaf.hosts.iter().map(alternative_name).collect::<Result<_, _>>().map_err(Error::issue(leaf))?;
    params.signed_by(key, issuer).map_err(Error::issue(leaf))
}

/// A serving certificate that is signed with its own key.
pub(crate) fn sign_self(
    item: &impl ToString,
    hosts: &[Host],
    key: &KeyPair,
    now: Timestamp,
    lifetime: Duration,
) -> Result<Certificate, Error> {
    let not_after = now.checked_add(lifetime).map_err(|_| Error::Clock)?;
    let mut params = params("fairlead", None, now, not_after)?;
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.subject_alt_names =
        hosts.iter().map(alternative_name).collect::<Result<_, _>>().map_err(Error::issue(item))?;
    params.self_signed(key).map_err(Error::issue(item))
}

/// A serving certificate and the authority that has signed it, as one PEM text. The authority signs nothing else.
pub(crate) fn sign_chain(
    item: &impl ToString,
    hosts: &[Host],
    key: &KeyPair,
    now: Timestamp,
    lifetime: Duration,
) -> Result<String, Error> {
    let not_after = now.checked_add(lifetime).map_err(|_| Error::Clock)?;
    let authority_key = generate_key(item)?;
    let mut authority = params("fairlead-ca", None, now, not_after)?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority_pem = authority.self_signed(&authority_key).map_err(Error::issue(item))?.pem();
    let issuer = Issuer::new(authority, &authority_key);
    let mut leaf = params("fairlead", None, now, not_after)?;
    leaf.is_ca = IsCa::ExplicitNoCa;
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    leaf.subject_alt_names =
        hosts.iter().map(alternative_name).collect::<Result<_, _>>().map_err(Error::issue(item))?;
    let signed = leaf.signed_by(key, &issuer).map_err(Error::issue(item))?;
    Ok(format!("{}{authority_pem}", signed.pem()))
}

fn params(
    common_name: &str,
    organization: Option<&str>,
    now: Timestamp,
    not_after: Timestamp,
) -> Result<CertificateParams, Error> {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, common_name);
    if let Some(organization) = organization {
        subject.push(DnType::OrganizationName, organization);
    }
    let mut params = CertificateParams::default();
    params.distinguished_name = subject;
    params.serial_number = Some(random_serial()?);
    params.use_authority_key_identifier_extension = true;
    // rcgen uses the `time` crate, which no other crate here uses, so its dates are computed from the epoch.
    let date = |seconds: i64| {
        let seconds = u64::try_from(seconds).map_err(|_| Error::Clock)?;
        Ok::<_, Error>(date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds))
    };
    params.not_before = date(now.as_second() - CLOCK_SKEW_SECONDS)?;
    params.not_after = date(not_after.as_second())?;
    Ok(params)
}

fn alternative_name(host: &Host) -> Result<SanType, rcgen::Error> {
    Ok(match host {
        Host::Name(name) => SanType::DnsName(name.as_str().try_into()?),
        Host::Address(address) => SanType::IpAddress(*address),
    })
}

/// A serial number of 126 random bits. The first byte is between 0x40 and 0x7f, so that the number is positive (RFC 5280)
/// and has a fixed length.
fn random_serial() -> Result<SerialNumber, Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(Error::Random)?;
    bytes[0] = bytes[0] & 0x3f | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}
