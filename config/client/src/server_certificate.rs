//! Verification of server certificates that are certificate authorities themselves.
//!
//! `openssl req -x509` makes a certificate with `CA:TRUE` that users both serve and trust. Kubernetes' clients accept
//! it, webpki does not: it refuses an authority as an end entity. A second look at what webpki refused accepts, as Go's
//! `crypto/x509` does,
//!
//! - a certificate that is itself one of the trusted ones, whoever signed it, and
//! - an authority that a trusted certificate signed directly.
//!
//! Name, dates and purpose are checked in both cases. The holder of an authority's key could sign itself a certificate
//! that webpki accepts for the same names, so that the second look gives it no power.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use x509_parser::certificate::X509Certificate;
use x509_parser::oid_registry::{OID_PKCS1_SHA1WITHRSA, OID_SHA1_WITH_RSA};
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;

/// webpki's verification, and the second look.
#[derive(Debug)]
pub(crate) struct ServerCertificateVerifier {
    webpki: Arc<WebPkiServerVerifier>,
    trusted: Vec<CertificateDer<'static>>,
}

impl ServerCertificateVerifier {
    /// Trusts these certificates. `None`: webpki can use none of them.
    pub(crate) fn new(trusted: Vec<CertificateDer<'static>>, provider: Arc<CryptoProvider>) -> Option<Self> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(trusted.iter().cloned());
        let webpki = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().ok()?;
        Some(Self { webpki, trusted })
    }

    /// Whether the certificate is trusted although webpki knows no path to it. Names and dates of it are not checked.
    fn is_trusted(
        &self,
        presented: &CertificateDer<'_>,
        parsed: &X509Certificate<'_>,
        now: ASN1Time,
    ) -> bool {
        self.trusted.iter().any(|trusted| trusted.as_ref() == presented.as_ref())
            || parsed.is_ca() && self.trusted.iter().any(|trusted| has_signed(trusted, parsed, now))
    }
}

/// Whether a trusted certificate is an authority that signed this one for use by servers.
fn has_signed(trusted: &CertificateDer<'_>, signed: &X509Certificate<'_>, now: ASN1Time) -> bool {
    let Some(issuer) = parse(trusted) else { return false };
    let may_sign = match issuer.key_usage() {
        Ok(usage) => usage.is_none_or(|usage| usage.value.key_cert_sign()),
        Err(_) => false,
    };
    let algorithm = &signed.signature_algorithm.algorithm;
    let is_weak = *algorithm == OID_PKCS1_SHA1WITHRSA || *algorithm == OID_SHA1_WITH_RSA;
    issuer.subject().as_raw() == signed.issuer().as_raw()
        && issuer.is_ca()
        && may_sign
        && issuer.validity().is_valid_at(now)
        && is_for_servers(&issuer)
        // Restricted names are left to webpki, which checks them for end entities only.
        && matches!(issuer.name_constraints(), Ok(None))
        && !is_weak
        && signed.verify_signature(Some(issuer.public_key())).is_ok()
}

/// Whether the extended key usage, if there is one, includes TLS servers.
fn is_for_servers(certificate: &X509Certificate<'_>) -> bool {
    match certificate.extended_key_usage() {
        Ok(usage) => usage.is_none_or(|usage| usage.value.any || usage.value.server_auth),
        Err(_) => false,
    }
}

fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    match X509Certificate::from_der(certificate.as_ref()) {
        Ok(([], parsed)) => Some(parsed),
        _ => None,
    }
}

impl ServerCertVerifier for ServerCertificateVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let refusal = match self.webpki.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        ) {
            Ok(verified) => return Ok(verified),
            // An authority as an end entity has no error of its own; the second look does not depend on the reason.
            Err(
                refusal @ Error::InvalidCertificate(
                    CertificateError::Other(_) | CertificateError::UnknownIssuer,
                ),
            ) => refusal,
            Err(refusal) => return Err(refusal),
        };
        let time = i64::try_from(now.as_secs()).ok().and_then(|now| ASN1Time::from_timestamp(now).ok());
        let (Some(time), Some(parsed)) = (time, parse(end_entity)) else { return Err(refusal) };
        if !self.is_trusted(end_entity, &parsed, time) {
            return Err(refusal);
        }
        if time < parsed.validity().not_before {
            return Err(CertificateError::NotValidYet.into());
        }
        if time > parsed.validity().not_after {
            return Err(CertificateError::Expired.into());
        }
        if !is_for_servers(&parsed) {
            return Err(CertificateError::InvalidPurpose.into());
        }
        verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose,
        GeneralSubtree, IsCa, KeyPair, KeyUsagePurpose, NameConstraints, date_time_ymd,
    };
    use std::time::Duration;

    use super::*;

    type Change = fn(&mut CertificateParams);
    type Authority = CertifiedIssuer<'static, KeyPair>;
    type Der<'d> = &'d CertificateDer<'static>;

    const NAME: &str = "hook.example";

    /// An authority for `hook.example`, valid from 2020 to 2030, with changes.
    fn params(common_name: &str, change: impl FnOnce(&mut CertificateParams)) -> CertificateParams {
        let mut params = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2030, 1, 1);
        change(&mut params);
        params
    }

    fn authority(change: impl FnOnce(&mut CertificateParams)) -> Authority {
        CertifiedIssuer::self_signed(params("authority", change), KeyPair::generate().unwrap()).unwrap()
    }

    fn signed(authority: &Authority, change: impl FnOnce(&mut CertificateParams)) -> Certificate {
        params("signed", change).signed_by(&KeyPair::generate().unwrap(), authority).unwrap()
    }

    /// `None` for an accepted certificate, otherwise the error.
    fn refusal(trusted: &[Der<'_>], presented: Der<'_>, name: &str, year: u64) -> Option<Error> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let trusted = trusted.iter().copied().cloned().collect();
        let verifier = ServerCertificateVerifier::new(trusted, provider).unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs((year - 1970) * 31_557_600 + 15_000_000));
        verifier.verify_server_cert(presented, &[], &name, &[], now).err()
    }

    #[test]
    fn an_authority_that_is_trusted_itself_serves_its_names() {
        let own = authority(|_| {});
        assert_eq!(refusal(&[own.der()], own.der(), NAME, 2025), None);
        let unrelated = authority(|_| {});
        assert_eq!(refusal(&[unrelated.der(), own.der()], own.der(), NAME, 2025), None);
        for (purpose, is_accepted) in [
            (ExtendedKeyUsagePurpose::ServerAuth, true),
            (ExtendedKeyUsagePurpose::Any, true),
            (ExtendedKeyUsagePurpose::ClientAuth, false),
        ] {
            let own = authority(|params| params.extended_key_usages = vec![purpose]);
            assert_eq!(refusal(&[own.der()], own.der(), NAME, 2025).is_none(), is_accepted);
        }
    }

    #[test]
    fn any_certificate_is_accepted_if_it_is_trusted_itself() {
        let leaf = signed(&authority(|_| {}), |params| params.is_ca = IsCa::NoCa);
        assert_eq!(refusal(&[leaf.der()], leaf.der(), NAME, 2025), None);
        assert!(refusal(&[leaf.der()], leaf.der(), "other.example", 2025).is_some());
    }

    #[test]
    fn names_dates_and_the_whole_certificate_are_compared() {
        let key = KeyPair::generate().unwrap();
        let issue =
            |change: fn(&mut CertificateParams)| params("authority", change).self_signed(&key).unwrap();
        let own = issue(|_| {});
        // A certificate of the same name and key is another certificate, until its key has signed it.
        let renewed = issue(|params| params.not_after = date_time_ymd(2040, 1, 1));
        let unnamed = issue(|params| params.subject_alt_names.clear());
        let stranger = authority(|_| {});
        let below = signed(&stranger, |_| {});
        let leaf = signed(&stranger, |params| params.is_ca = IsCa::NoCa);
        for (trusted, presented, name, year) in [
            (own.der(), own.der(), "other.example", 2025),
            (own.der(), own.der(), "authority", 2025),
            (unnamed.der(), unnamed.der(), "authority", 2025),
            (own.der(), own.der(), NAME, 2019),
            (own.der(), own.der(), NAME, 2031),
            (own.der(), renewed.der(), NAME, 2031),
            (own.der(), stranger.der(), NAME, 2025),
            (own.der(), below.der(), NAME, 2025),
            (own.der(), leaf.der(), NAME, 2025),
        ] {
            let refusal = refusal(&[trusted], presented, name, year);
            assert!(refusal.is_some(), "{name} in {year}: {refusal:?}");
        }
        assert_eq!(refusal(&[own.der()], renewed.der(), NAME, 2025), None);
    }

    #[test]
    fn an_authority_that_a_trusted_one_signed_serves_its_names() {
        let root = authority(|_| {});
        let accepted = signed(&root, |_| {});
        assert_eq!(refusal(&[root.der()], accepted.der(), NAME, 2025), None);
        assert!(refusal(&[root.der()], accepted.der(), "other.example", 2025).is_some());
        assert!(refusal(&[root.der()], accepted.der(), NAME, 2031).is_some());
        assert!(refusal(&[root.der()], accepted.der(), NAME, 2019).is_some());
        let expired = signed(&root, |params| params.not_after = date_time_ymd(2022, 1, 1));
        assert!(refusal(&[root.der()], expired.der(), NAME, 2025).is_some());
        let client = signed(&root, |params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        });
        assert!(refusal(&[root.der()], client.der(), NAME, 2025).is_some());
    }

    #[test]
    fn authorities_signed_by_a_certificate_that_may_not_sign_them_are_refused() {
        let changes: [(&str, Change); 5] = [
            ("no authority", |params| params.is_ca = IsCa::ExplicitNoCa),
            ("no key usage", |params| params.key_usages = vec![KeyUsagePurpose::DigitalSignature]),
            ("expired", |params| params.not_after = date_time_ymd(2022, 1, 1)),
            ("for clients", |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]),
            ("restricted names", |params| {
                params.name_constraints = Some(NameConstraints {
                    permitted_subtrees: vec![GeneralSubtree::DnsName("example".to_owned())],
                    excluded_subtrees: vec![],
                });
            }),
        ];
        for (fault, change) in changes {
            let root = authority(change);
            assert!(refusal(&[root.der()], signed(&root, |_| {}).der(), NAME, 2025).is_some(), "{fault}");
        }
        // The name of the issuer alone proves nothing.
        let (root, namesake) = (authority(|_| {}), authority(|_| {}));
        assert!(refusal(&[root.der()], signed(&namesake, |_| {}).der(), NAME, 2025).is_some());
    }
}
