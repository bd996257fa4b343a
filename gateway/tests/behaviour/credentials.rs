//! Every file with certificates, keys, tokens or settings of a listener's authentication: a change takes effect at once, and an
//! unusable file changes nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use fairlead_config::{InputFile, ListenerConfig, NamedCertificateConfig, SecretFile, WebhookConfig};
use http::Method;
use serde_json::{Value, json};

use crate::issuer::server::{Reply, Server};
use crate::issuer::signing::{Signer, pem};
use crate::pki::{Authority, Leaf};
use crate::world::{Choices, Http2, World, connect, request};

const PATH: &str = "/clusters/root:org/api";

/// A credential that a client presents.
enum Credential {
    Certificate(Leaf),
    /// A proxy's certificate; the request names the user in X-Remote-User.
    Proxy(Leaf),
    Token(String),
}

/// A file whose first content admits one of two clients, and whose second content admits the other.
struct File {
    what: &'static str,
    configure: fn(&mut ListenerConfig, PathBuf),
    contents: [String; 2],
    clients: [Credential; 2],
}

impl Credential {
    /// The user header that the shard received, or the status code of an error.
    async fn outcome(&self, world: &World) -> String {
        let (certificate, header) = match self {
            Self::Certificate(leaf) => (Some(leaf), None),
            Self::Proxy(leaf) => (Some(leaf), Some(("x-remote-user", "behind-a-proxy".to_owned()))),
            Self::Token(token) => (None, Some(("authorization", format!("Bearer {token}")))),
        };
        let headers: Vec<_> = header.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let client = world.http2(certificate).await;
        let answer = client.send(request(Method::GET, PATH, &headers, "")).await;
        match answer.status {
            200 => answer.echoed("x-remote-user").pop().unwrap_or_else(|| "nobody".to_owned()),
            code => code.to_string(),
        }
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn of_tokens() -> File {
    File {
        what: "static tokens",
        configure: |listener, file| listener.authentication.token_file = Some(SecretFile::from(file)),
        contents: ["one,ann,1\n", "two,ann,1\n"].map(str::to_owned),
        clients: ["one", "two"].map(|token| Credential::Token(token.to_owned())),
    }
}

fn of_client_authorities() -> File {
    let authorities = ["one", "two"].map(Authority::new);
    File {
        what: "authorities of clients",
        configure: |listener, file| listener.client_ca = Some(InputFile::from(file)),
        clients: [0, 1].map(|at| Credential::Certificate(authorities[at].client("ann", &[]))),
        contents: authorities.map(|authority| authority.pem),
    }
}

fn of_proxy_authorities() -> File {
    let authorities = ["one", "two"].map(Authority::new);
    File {
        what: "authorities of proxies",
        configure: |listener, file| {
            listener.authentication.request_header.client_ca = Some(InputFile::from(file))
        },
        clients: [0, 1].map(|at| Credential::Proxy(authorities[at].client("a-proxy", &[]))),
        contents: authorities.map(|authority| authority.pem),
    }
}

fn of_service_account_keys() -> File {
    let signers = [(); 2].map(|()| Signer::elliptic_curve("P-256", ""));
    let claims = json!({
        "iss": "https://kcp.default.svc", "aud": ["https://kcp.default.svc"], "exp": now() + 600, "jti": "j",
        "sub": "system:serviceaccount:default:robot",
        "kubernetes.io": {
            "clusterName": "root", "namespace": "default", "serviceaccount": {"name": "robot", "uid": "u"},
        },
    });
    File {
        what: "keys of service accounts",
        configure: |listener, file| {
            listener.authentication.service_accounts.key_files = vec![InputFile::from(file)];
            listener.authentication.service_accounts.lookup = false;
        },
        clients: [0, 1].map(|at| Credential::Token(signers[at].sign(&claims))),
        contents: signers.map(|signer| pem("PUBLIC KEY", &signer.public_der())),
    }
}

/// The configuration names one issuer, then the other.
fn of_structured_configuration(servers: &[Server; 2]) -> File {
    let signers = [(); 2].map(|()| Signer::elliptic_curve("P-256", "k"));
    let mut contents = Vec::new();
    let mut clients = Vec::new();
    for (server, signer) in servers.iter().zip(&signers) {
        let (document, keys) = (
            json!({"issuer": server.url(), "jwks_uri": format!("{}/keys", server.url())}),
            json!({"keys": [signer.jwk()]}),
        );
        server.answer(move |path, _| match path {
            "/.well-known/openid-configuration" => Reply::Json(document.to_string()),
            _ => Reply::Json(keys.to_string()),
        });
        let configuration = json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
            "jwt": [{
                "issuer": {
                    "url": server.url(), "audiences": ["client"],
                    "certificateAuthority": server.certificate_authority,
                },
                "claimMappings": {"username": {"claim": "sub", "prefix": "oidc:"}},
            }],
        });
        contents.push(configuration.to_string());
        let claims = json!({"iss": server.url(), "aud": "client", "sub": "ann", "exp": now() + 600});
        clients.push(Credential::Token(signer.sign(&claims)));
    }
    File {
        what: "structured configuration",
        configure: |listener, file| listener.authentication.configuration = Some(InputFile::from(file)),
        contents: contents.try_into().unwrap(),
        clients: clients.try_into().ok().unwrap(),
    }
}

/// The kubeconfig names one service, then the other; each accepts a token of its own.
fn of_webhook(servers: &[Server; 2], directory: &Path) -> File {
    let contents = [0, 1].map(|at| {
        let server = &servers[at];
        server.answer(move |_, body| {
            let question: Value = serde_json::from_slice(body).unwrap();
            let known = question["spec"]["token"] == format!("of-{at}");
            let status = json!({"authenticated": known, "user": {"username": "ann"}});
            let review = json!({
                "apiVersion": "authentication.k8s.io/v1beta1", "kind": "TokenReview", "status": status,
            });
            Reply::Json(review.to_string())
        });
        let authority = directory.join(format!("webhook-{at}.crt"));
        fs::write(&authority, &server.certificate_authority).unwrap();
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "s", "user": "u"}}],
            "clusters": [{"name": "s", "cluster": {
                "server": format!("{}/review", server.url()), "certificate-authority": authority,
            }}],
            "users": [{"name": "u", "user": {}}],
        });
        kubeconfig.to_string()
    });
    File {
        what: "kubeconfig of a webhook",
        configure: |listener, file| {
            let webhook = WebhookConfig { kubeconfig: SecretFile::from(file), ..WebhookConfig::default() };
            listener.authentication.webhook = Some(webhook);
        },
        contents,
        clients: [0, 1].map(|at| Credential::Token(format!("of-{at}"))),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_authentication_file_of_a_listener_takes_effect_when_it_changes() {
    let directory = tempfile::tempdir().unwrap();
    let issuers = [Server::start().await, Server::start().await];
    let webhooks = [Server::start().await, Server::start().await];
    for file in [
        of_tokens(),
        of_client_authorities(),
        of_proxy_authorities(),
        of_service_account_keys(),
        of_structured_configuration(&issuers),
        of_webhook(&webhooks, directory.path()),
    ] {
        let File { what, configure, contents: [first, second], clients: [one, two] } = file;
        let mut world = World::with(Choices { stopped: true, ..Choices::default() }).await;
        let path = world.directory.path().join("the-file");
        fs::write(&path, first).unwrap();
        configure(&mut world.config.listeners[0], path.clone());
        world.start().await;
        let outcomes = async || (one.outcome(&world).await, two.outcome(&world).await);
        let (known, unknown) = outcomes().await;
        assert!(known.starts_with("x-remote-user: ") && unknown == "401", "{what}: {known}, {unknown}");
        for content in [second.as_str(), "neither\u{0} this nor that: ["] {
            fs::write(&path, content).unwrap();
            world.environment.reloads.check_now();
            let (unknown, now_known) = outcomes().await;
            assert_eq!((unknown.as_str(), &now_known), ("401", &known), "{what}: {content}");
        }
        let failures = world.environment.reloads.failures();
        assert_eq!(failures.len(), 1, "{what}: {failures:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_for_a_server_name_is_served_as_soon_as_it_changes() {
    let mut world = World::with(Choices { stopped: true, ..Choices::default() }).await;
    let [first, second] = ["first", "second"].map(Authority::new);
    let (certificate, private_key) = first.server().write(world.directory.path(), "named");
    world.config.listeners[0].tls.server_names = vec![NamedCertificateConfig {
        certificate: InputFile::from(certificate),
        private_key: SecretFile::from(private_key),
        names: vec!["localhost".to_owned()],
    }];
    world.start().await;
    let is_trusted = async |authority: &Authority| {
        let Ok(stream) = connect(world.address, authority, None, b"h2").await else { return false };
        Http2::over(stream).await.get("/livez").await.status == 200
    };
    assert_eq!((is_trusted(&first).await, is_trusted(&second).await), (true, false));
    second.server().write(world.directory.path(), "named");
    world.environment.reloads.check_now();
    assert_eq!((is_trusted(&first).await, is_trusted(&second).await), (false, true));
    fs::write(world.directory.path().join("named.crt"), "nothing").unwrap();
    world.environment.reloads.check_now();
    assert_eq!((is_trusted(&first).await, is_trusted(&second).await), (false, true));
}
