use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};

/// A certificate authority for one test.
pub struct Pki {
    ca: CertifiedIssuer<'static, KeyPair>,
}

impl Pki {
    pub fn new() -> Self {
        let mut params = named("test ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Self { ca: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap() }
    }

    pub fn ca_pem(&self) -> Vec<u8> {
        self.ca.pem().into_bytes()
    }

    /// Certificate and key of a server with this DNS name.
    pub fn server(&self, dns_name: &str) -> (String, String) {
        let mut params = CertificateParams::new(vec![dns_name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, dns_name);
        self.issue(params)
    }

    /// Certificate and key of a client with this common name.
    pub fn client(&self, common_name: &str) -> (String, String) {
        self.issue(named(common_name))
    }

    fn issue(&self, params: CertificateParams) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.ca).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

fn named(common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}
