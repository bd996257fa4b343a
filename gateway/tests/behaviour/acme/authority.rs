//! A certificate authority for RFC 8555, which demands a signature and a fresh nonce of every message. It validates names on
//! ports of this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_lc_rs::hmac;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType, IsCa, Issuer, KeyPair,
};
use rustls_pki_types::CertificateSigningRequestDer;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::validate;
use crate::pki;

/// The running authority.
pub struct Authority {
    /// The issuer of its certificates.
    pub root: pki::Authority,
    pub state: Arc<State>,
}

pub struct State {
    base: String,
    issuer: Issuer<'static, KeyPair>,
    /// The current behaviour.
    pub behaviour: Mutex<Behaviour>,
    /// The ports at which names are validated. Validations wait until they are set.
    pub ports: watch::Sender<Option<Ports>>,
    /// Counts of the requests so far.
    pub requests: watch::Sender<AuthorityRequests>,
    nonces: Mutex<BTreeSet<String>>,
    accounts: Mutex<Vec<Value>>,
    orders: Mutex<Vec<Order>>,
}

#[derive(Clone)]
pub struct Behaviour {
    /// The lifetime of certificates.
    pub lifetime: Duration,
    pub failure: Failure,
    /// The suggested renewal window, in seconds from now, if there is one.
    pub window: Option<(i64, i64)>,
    /// The key ID and the key of the only external account, if external accounts are required.
    pub external_account: Option<(String, Vec<u8>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    None,
    /// Every order fails with an internal error.
    Down,
    /// Every challenge fails.
    FailedChallenges,
    /// Certificates are for another key than that of the request.
    WrongKey,
}

#[derive(Clone, Copy, Debug)]
pub struct Ports {
    pub http: u16,
    pub tls: u16,
}

#[derive(Clone, Debug, Default)]
pub struct AuthorityRequests {
    pub accounts: usize,
    pub orders: usize,
    pub replacing: usize,
    pub refused: usize,
    pub issued: usize,
    /// Messages with an unknown nonce.
    pub stale: usize,
    /// The contact of the last account.
    pub contact: Value,
}

struct Order {
    names: Vec<String>,
    /// The thumbprint of the account's key.
    thumbprint: String,
    tokens: Vec<String>,
    /// The validation result of each name; `None` before the validation.
    found: Vec<Option<Result<(), String>>>,
    replaces: Option<String>,
    certificate: Option<String>,
}

/// The verified payload of a POST request, and its account.
struct PostRequest {
    payload: Value,
    jwk: Value,
    account: Option<usize>,
}

impl Authority {
    /// Starts the authority. Its own TLS certificate is signed by `serving`.
    pub async fn start(serving: &pki::Authority) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "public authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        let state = Arc::new(State {
            base: format!("https://{address}"),
            issuer: Issuer::new(params, key),
            behaviour: Mutex::new(Behaviour {
                lifetime: Duration::from_secs(90 * 86_400),
                failure: Failure::None,
                window: None,
                external_account: None,
            }),
            ports: watch::Sender::new(None),
            requests: watch::Sender::default(),
            nonces: Mutex::default(),
            accounts: Mutex::default(),
            orders: Mutex::default(),
        });
        let tls = TlsAcceptor::from(serving.server().public_server_config());
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, state) = (tls.clone(), Arc::clone(&shared));
                tokio::spawn(async move {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    let service = service_fn(move |request| {
                        let state = Arc::clone(&state);
                        async move { Ok::<_, Infallible>(state.answer(request).await) }
                    });
                    let server = auto::Builder::new(TokioExecutor::new());
                    // Clients may close the connection at any time.
                    let _ = server.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { root: pki::Authority::trusted_only(&pem), state }
    }

    pub fn directory(&self) -> String {
        format!("{}/directory", self.state.base)
    }
}

impl State {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let path = head.uri.path().to_owned();
        let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let answer = match (head.method, segments.as_slice()) {
            (Method::GET, ["directory"]) => self.directory(),
            (Method::HEAD | Method::GET, ["nonce"]) => Ok(Response::default()),
            (Method::GET, ["renewal", _]) => self.renewal(),
            (Method::POST, segments) => match self.verify(&path, &body) {
                Ok(posted) => self.post(segments, &posted),
                Err(problem) => Err(problem),
            },
            _ => Err(("malformed", "unknown resource".to_owned())),
        };
        let mut response = answer.unwrap_or_else(|(kind, detail)| {
            let code = if kind == "serverInternal" { 500 } else { 400 };
            reply(code, json!({"type": format!("urn:ietf:params:acme:error:{kind}"), "detail": detail}))
        });
        let nonce = random();
        response.headers_mut().insert("replay-nonce", nonce.parse().unwrap());
        self.nonces.lock().insert(nonce);
        response
    }

    fn directory(&self) -> Answer {
        let url = |path: &str| format!("{}/{path}", self.base);
        Ok(reply(
            200,
            json!({
                "newNonce": url("nonce"), "newAccount": url("new-account"), "newOrder": url("new-order"),
                "revokeCert": url("revoke"), "keyChange": url("key"), "renewalInfo": url("renewal"),
            }),
        ))
    }

    fn renewal(&self) -> Answer {
        let Some((begin, end)) = self.behaviour.lock().window else {
            return Err(("malformed", "no renewal window".to_owned()));
        };
        let at = |seconds| (jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds)).to_string();
        let mut reply = reply(200, json!({"suggestedWindow": {"start": at(begin), "end": at(end)}}));
        reply.headers_mut().insert("retry-after", "3600".parse().unwrap());
        Ok(reply)
    }

    /// RFC 8555, 6.2: verifies the signature, that the nonce is from this authority, and the URL.
    fn verify(&self, path: &str, body: &[u8]) -> Result<PostRequest, Problem> {
        let malformed = |what: &str| ("malformed", what.to_owned());
        let message: Value = serde_json::from_slice(body).map_err(|_| malformed("not JSON"))?;
        let part = |name: &str| message[name].as_str().ok_or_else(|| malformed(name));
        let (protected, payload) = (part("protected")?, part("payload")?);
        let header: Value =
            serde_json::from_slice(&decode(protected)?).map_err(|_| malformed("protected"))?;
        if header["alg"] != "ES256" || header["url"] != format!("{}{path}", self.base) {
            return Err(malformed("another algorithm or URL"));
        }
        let nonce = header["nonce"].as_str().unwrap_or_default();
        if !self.nonces.lock().remove(nonce) {
            self.requests.send_modify(|requests| requests.stale += 1);
            return Err(("badNonce", "unknown nonce".to_owned()));
        }
        let account = header["kid"].as_str().and_then(|kid| kid.rsplit('/').next()?.parse::<usize>().ok());
        let jwk = match account {
            Some(number) => {
                self.accounts.lock().get(number).cloned().ok_or(("accountDoesNotExist", String::new()))?
            }
            None => header["jwk"].clone(),
        };
        let point = [&[4][..], &coordinate(&jwk, "x")?, &coordinate(&jwk, "y")?].concat();
        let signed = format!("{protected}.{payload}");
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
            .verify(signed.as_bytes(), &decode(part("signature")?)?)
            .map_err(|_| malformed("the signature is invalid"))?;
        let payload = match payload {
            "" => Value::Null,
            text => serde_json::from_slice(&decode(text)?).map_err(|_| malformed("payload"))?,
        };
        Ok(PostRequest { payload, jwk, account })
    }

    fn post(self: &Arc<Self>, path: &[&str], posted: &PostRequest) -> Answer {
        if let ["new-account"] = path {
            return self.new_account(posted);
        }
        if posted.account.is_none() {
            return Err(("unauthorized", "no account".to_owned()));
        }
        let number = |text: &str| text.parse::<usize>().map_err(|_| ("malformed", "no number".to_owned()));
        match path {
            ["new-order"] => self.new_order(posted),
            ["order", order] => Ok(reply(200, self.order(number(order)?))),
            ["authorization", order, name] => {
                Ok(reply(200, self.authorization(number(order)?, number(name)?)))
            }
            ["challenge", order, name, kind] => {
                let (order, name, kind) = (number(order)?, number(name)?, (*kind).to_owned());
                let challenge = self.challenge(order, name, &kind);
                tokio::spawn(Arc::clone(self).validate_name(order, name, kind));
                Ok(reply(200, challenge))
            }
            ["finalize", order] => self.finalize(number(order)?, posted),
            ["certificate", order] => {
                let text = self.orders.lock()[number(order)?].certificate.clone().unwrap();
                Ok(Response::new(Full::new(text.into())))
            }
            _ => Err(("malformed", "unknown resource".to_owned())),
        }
    }

    fn new_account(&self, posted: &PostRequest) -> Answer {
        if posted.payload["termsOfServiceAgreed"] != true {
            return Err(("userActionRequired", "the terms of service have to be agreed to".to_owned()));
        }
        if let Some((id, key)) = &self.behaviour.lock().external_account {
            let binding = &posted.payload["externalAccountBinding"];
            let part = |name: &str| binding[name].as_str().unwrap_or_default();
            let header: Value = serde_json::from_slice(&decode(part("protected"))?).unwrap_or_default();
            let key = hmac::Key::new(hmac::HMAC_SHA256, key);
            let signed = format!("{}.{}", part("protected"), part("payload"));
            let bound: Value = serde_json::from_slice(&decode(part("payload"))?).unwrap_or_default();
            let is_good = header["kid"] == id.as_str()
                && bound == posted.jwk
                && hmac::verify(&key, signed.as_bytes(), &decode(part("signature"))?).is_ok();
            if !is_good {
                return Err((
                    "externalAccountRequired",
                    "the external account binding is missing or invalid".to_owned(),
                ));
            }
        }
        let mut accounts = self.accounts.lock();
        accounts.push(posted.jwk.clone());
        self.requests.send_modify(|requests| {
            requests.accounts += 1;
            requests.contact = posted.payload["contact"].clone();
        });
        Ok(at(
            reply(201, json!({"status": "valid"})),
            format!("{}/account/{}", self.base, accounts.len() - 1),
        ))
    }

    fn new_order(&self, posted: &PostRequest) -> Answer {
        self.requests.send_modify(|requests| requests.orders += 1);
        if self.behaviour.lock().failure == Failure::Down {
            return Err(("serverInternal", "temporarily unavailable".to_owned()));
        }
        let identifiers = posted.payload["identifiers"].as_array().cloned().unwrap_or_default();
        let names: Vec<_> = identifiers.iter().map(|one| one["value"].as_str().unwrap().to_owned()).collect();
        let replaces = posted.payload["replaces"].as_str().map(str::to_owned);
        if replaces.is_some() {
            self.requests.send_modify(|requests| requests.replacing += 1);
        }
        let mut orders = self.orders.lock();
        orders.push(Order {
            tokens: names.iter().map(|_| random()).collect(),
            found: vec![None; names.len()],
            names,
            thumbprint: thumbprint(&posted.jwk),
            replaces,
            certificate: None,
        });
        let number = orders.len() - 1;
        drop(orders);
        Ok(at(reply(201, self.order(number)), format!("{}/order/{number}", self.base)))
    }

    fn order(&self, number: usize) -> Value {
        let order = &self.orders.lock()[number];
        let url = |path: String| format!("{}/{path}", self.base);
        let status = match (&order.certificate, order.found.iter().flatten().any(Result::is_err)) {
            (Some(_), _) => "valid",
            (None, true) => "invalid",
            (None, false) if order.found.iter().all(Option::is_some) => "ready",
            _ => "pending",
        };
        let authorizations: Vec<_> =
            (0..order.names.len()).map(|name| url(format!("authorization/{number}/{name}"))).collect();
        let mut answer = json!({
            "status": status,
            "identifiers": order.names.iter().map(|name| identifier(name)).collect::<Vec<_>>(),
            "authorizations": authorizations,
            "finalize": url(format!("finalize/{number}")),
        });
        if order.certificate.is_some() {
            answer["certificate"] = json!(url(format!("certificate/{number}")));
        }
        if let Some(replaces) = &order.replaces {
            answer["replaces"] = json!(replaces);
        }
        answer
    }

    fn authorization(&self, order: usize, name: usize) -> Value {
        let challenges = ["http-01", "tls-alpn-01"].map(|kind| self.challenge(order, name, kind));
        let order = &self.orders.lock()[order];
        json!({
            "identifier": identifier(&order.names[name]), "status": status(order.found[name].as_ref(), "pending"),
            "challenges": challenges,
        })
    }

    fn challenge(&self, number: usize, name: usize, kind: &str) -> Value {
        let order = &self.orders.lock()[number];
        let found = order.found[name].as_ref();
        let mut answer = json!({
            "type": kind, "token": order.tokens[name], "status": status(found, "pending"),
            "url": format!("{}/challenge/{number}/{name}/{kind}", self.base),
        });
        if let Some(Err(why)) = found {
            answer["error"] = json!({"type": "urn:ietf:params:acme:error:unauthorized", "detail": why});
        }
        answer
    }

    /// Validates that the server of the name has the account's key.
    async fn validate_name(self: Arc<Self>, number: usize, place: usize, kind: String) {
        let (name, token, thumbprint) = {
            let order = &self.orders.lock()[number];
            (order.names[place].clone(), order.tokens[place].clone(), order.thumbprint.clone())
        };
        let mut ports = self.ports.subscribe();
        let ports = (*ports.wait_for(Option::is_some).await.unwrap()).unwrap();
        let proof = format!("{token}.{thumbprint}");
        let found = match kind.as_str() {
            "http-01" => validate::http(ports.http, &name, &token, &proof).await,
            _ => validate::tls(ports.tls, &name, &Sha256::digest(proof.as_bytes())).await,
        };
        let found = match self.behaviour.lock().failure {
            Failure::FailedChallenges => Err("every challenge fails".to_owned()),
            _ => found,
        };
        if found.is_err() {
            self.requests.send_modify(|requests| requests.refused += 1);
        }
        self.orders.lock()[number].found[place] = Some(found);
    }

    fn finalize(&self, number: usize, posted: &PostRequest) -> Answer {
        let names = self.orders.lock()[number].names.clone();
        if self.order(number)["status"] != "ready" {
            return Err(("orderNotReady", String::new()));
        }
        let request = decode(posted.payload["csr"].as_str().unwrap_or_default())?;
        let request = CertificateSigningRequestParams::from_der(&CertificateSigningRequestDer::from(request));
        let mut request = request.map_err(|error| ("badCSR", error.to_string()))?;
        let asked: Vec<String> = request
            .params
            .subject_alt_names
            .iter()
            .map(|name| match name {
                rcgen::SanType::DnsName(name) => name.as_str().to_owned(),
                other => format!("{other:?}"),
            })
            .collect();
        if asked != names {
            return Err(("badCSR", format!("{asked:?} is not {names:?}")));
        }
        let behaviour = self.behaviour.lock().clone();
        let now = SystemTime::now();
        request.params.not_before = now.into();
        request.params.not_after = (now + behaviour.lifetime).into();
        request.params.use_authority_key_identifier_extension = true;
        request.params.serial_number = Some(Sha256::digest(random())[..8].to_vec().into());
        let leaf = match behaviour.failure {
            Failure::WrongKey => {
                request.params.signed_by(&KeyPair::generate().unwrap(), &self.issuer).unwrap()
            }
            _ => request.signed_by(&self.issuer).unwrap(),
        };
        self.orders.lock()[number].certificate = Some(leaf.pem());
        self.requests.send_modify(|requests| requests.issued += 1);
        Ok(reply(200, self.order(number)))
    }
}

type Problem = (&'static str, String);
type Answer = Result<Response<Full<Bytes>>, Problem>;

fn reply(code: u16, body: Value) -> Response<Full<Bytes>> {
    let builder = Response::builder().status(code).header("content-type", "application/json");
    builder.body(Full::new(body.to_string().into())).unwrap()
}

fn at(mut response: Response<Full<Bytes>>, location: String) -> Response<Full<Bytes>> {
    response.headers_mut().insert("location", location.parse().unwrap());
    response
}

fn status(found: Option<&Result<(), String>>, open: &'static str) -> &'static str {
    match found {
        None => open,
        Some(Ok(())) => "valid",
        Some(Err(_)) => "invalid",
    }
}

fn identifier(name: &str) -> Value {
    json!({"type": "dns", "value": name})
}

fn decode(text: &str) -> Result<Vec<u8>, Problem> {
    BASE64.decode(text).map_err(|_| ("malformed", "not base64url".to_owned()))
}

fn coordinate(jwk: &Value, name: &str) -> Result<Vec<u8>, Problem> {
    decode(jwk[name].as_str().unwrap_or_default())
}

/// The thumbprint of a key by RFC 7638.
fn thumbprint(jwk: &Value) -> String {
    let members: BTreeMap<&str, &Value> = ["crv", "kty", "x", "y"].map(|name| (name, &jwk[name])).into();
    BASE64.encode(Sha256::digest(serde_json::to_string(&members).unwrap()))
}

fn random() -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).unwrap();
    BASE64.encode(bytes)
}
