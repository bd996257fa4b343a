use std::os::unix::fs::PermissionsExt;

use fairlead_client::{
    Client, ClientOptions, Cluster, Context, CredentialsError, Endpoint, KeyMaterial, Kubeconfig,
    KubeconfigError, UnverifiedTls, User,
};

use crate::support::{Pki, Server};

const EXAMPLE: &str = r#"
apiVersion: v1
kind: Config
preferences: {}
current-context: root
clusters:
- name: one
  cluster:
    server: https://localhost:6443/clusters/root
    certificate-authority: ca.crt
    tls-server-name: kcp.test
    x-unknown: {keep: [1, "true", 2.50]}
contexts:
- name: root
  context: {cluster: one, user: admin, namespace: default, extensions: [{name: e, extension: {x: 1}}]}
- {name: anonymous, context: {cluster: one, user: ""}}
- {name: dangling, context: {cluster: nowhere, user: admin}}
users:
- name: admin
  user:
    client-certificate: admin.crt
    client-key: admin.key
- name: bearer
  user: {token: s3cret, tokenFile: ""}
- name: helper
  user: {exec: {command: kubelogin}}
extensions: []
"#;

#[test]
fn a_context_resolves_to_its_cluster_and_user() {
    let config = Kubeconfig::parse(EXAMPLE).unwrap();
    let resolved = config.resolve(None).unwrap();
    assert_eq!(resolved.name, "root");
    assert_eq!(resolved.endpoint.to_string(), "https://localhost:6443/clusters/root");
    assert_eq!(resolved.namespace.as_deref(), Some("default"));
    assert_eq!(resolved.cluster.tls_server_name.as_deref(), Some("kcp.test"));
    assert_eq!(config.context_names().collect::<Vec<_>>(), ["root", "anonymous", "dangling"]);
    assert_eq!(config.resolve(Some("anonymous")).unwrap().user, User::default());
    for (context, message) in [
        ("dangling", "the kubeconfig has no cluster named \"nowhere\""),
        ("nothing", "the kubeconfig has no context named \"nothing\""),
    ] {
        assert_eq!(config.resolve(Some(context)).unwrap_err().to_string(), message);
    }
    let empty = Kubeconfig::parse("").unwrap();
    assert!(matches!(empty.resolve(None), Err(KubeconfigError::NoCurrentContext)));
}

#[test]
fn credentials_without_a_server_apply_to_any_server() {
    let shard = Endpoint::parse("https://shard-1.test:6443").unwrap();
    for server in ["{}", "{server: ''}", "{server: not a url}", "{server: 'https://elsewhere.test'}"] {
        let text = format!(
            "current-context: base\nclusters: [{{name: base, cluster: {server}}}]\n\
             contexts: [{{name: base, context: {{cluster: base, user: admin}}}}]\n\
             users: [{{name: admin, user: {{token: s3cret}}}}]\n"
        );
        let resolved = Kubeconfig::parse(&text).unwrap().resolve_at(&shard).unwrap();
        assert_eq!(resolved.endpoint, shard, "{server}");
        assert!(resolved.user.token.is_some(), "{server}");
    }
}

#[tokio::test]
async fn files_are_found_beside_the_kubeconfig_and_read_again_on_demand() {
    let pki = Pki::new();
    let mut server = Server::with(&pki, "kcp.test", crate::support::Protocols::Both).await;
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &[u8]| std::fs::write(directory.path().join(name), content).unwrap();
    write("ca.crt", &pki.ca_pem());
    let rotate = || {
        let (chain, key) = pki.client("admin");
        write("admin.crt", chain.as_bytes());
        write("admin.key", key.as_bytes());
    };
    rotate();
    write("config", EXAMPLE.replace("6443", &server.port.to_string()).as_bytes());

    let context = Kubeconfig::load(&directory.path().join("config")).unwrap().resolve(None).unwrap();
    assert_eq!(context.files().count(), 3);
    let client = Client::from_context(&context, UnverifiedTls::Refuse, ClientOptions::default()).unwrap();
    assert!(!client.set_credentials(context.credentials(UnverifiedTls::Refuse).unwrap()));
    rotate();
    assert!(client.set_credentials(context.credentials(UnverifiedTls::Refuse).unwrap()));
    let request = tokio::spawn(async move { client.get("/api").await });
    let call = server.expect("GET", "/clusters/root/api").await;
    assert!(call.client_certificate.is_some());
    call.reply(200, "");
    request.await.unwrap().unwrap();
}

#[test]
fn inline_data_takes_precedence_over_files_and_is_decoded() {
    let text = r#"
current-context: c
clusters: [{name: c, cluster: {server: "https://a", certificate-authority: ca.crt, certificate-authority-data: "YWJj
  ZGVm"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {token: inline, tokenFile: file}}]
"#;
    let resolved = Kubeconfig::parse(text).unwrap().resolve(None).unwrap();
    assert_eq!(resolved.cluster.certificate_authority, Some(KeyMaterial::Inline(b"abcdef".to_vec())));
    // For tokens it is the other way round, as in kubectl.
    assert_eq!(resolved.user.token, Some(KeyMaterial::File("file".into())));
}

#[test]
fn unsupported_kubeconfig_fields_are_rejected() {
    let context = |cluster: &str, user: &str| {
        let text = format!(
            "{{current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
             clusters: [{{name: c, cluster: {{{cluster}}}}}], users: [{{name: u, user: {{{user}}}}}]}}"
        );
        Kubeconfig::parse(&text).unwrap().resolve(None).unwrap()
    };
    let insecure = context("server: 'https://a', insecure-skip-tls-verify: true", "");
    let error = insecure.credentials(UnverifiedTls::Refuse).unwrap_err();
    assert!(matches!(error, CredentialsError::UnverifiedTls(_)), "{error}");
    assert!(insecure.credentials(UnverifiedTls::Allow).is_ok());

    let server = "server: 'http://a'";
    for (cluster, user, message) in [
        (server, "exec: {command: x}", "a user with an exec credential plugin is not supported"),
        (server, "username: a, password: b", "a user with a password is not supported"),
        ("server: 'http://a', proxy-url: 'socks5://b'", "", "a cluster behind a proxy-url is not supported"),
        (
            server,
            "client-certificate: x",
            "the client key is not usable: it is missing: a client certificate and its key belong together",
        ),
    ] {
        let error = context(cluster, user).credentials(UnverifiedTls::Refuse).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    assert!(context(server, "").credentials(UnverifiedTls::Refuse).is_ok());
}

#[test]
fn errors_name_the_position_and_never_quote_secrets() {
    let wrong = |text: &str| match Kubeconfig::parse(text) {
        Err(error) => error.to_string(),
        Ok(config) => config.resolve(None).unwrap_err().to_string(),
    };
    let users = |user: &str| {
        format!(
            "current-context: c\nclusters: [{{name: c, cluster: {{server: 'https://a'}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nusers:\n- name: u\n  user: {user}\n"
        )
    };
    for (text, message) in [
        (users("{token: 5550123}"), "kubeconfig: user \"u\": token must be a string"),
        (
            users("{client-key-data: hunter2hunter2!}"),
            "kubeconfig: user \"u\": client-key-data must be base64",
        ),
        (users("5550123"), "kubeconfig: user \"u\": user must be a mapping"),
        (
            "current-context: c\ncontexts: [{name: c, context: {cluster: ''}}]".into(),
            "the kubeconfig has no cluster named \"\"",
        ),
        ("[5550123]".into(), "kubeconfig is not a kubeconfig: it is not a mapping"),
    ] {
        assert_eq!(wrong(&text), message);
    }
    let broken = wrong("users:\n- name: u\n  user: {token: 5550123");
    assert!(broken.contains("not valid YAML at line") && !broken.contains("5550123"), "{broken}");
    let shown = format!("{:?}", Kubeconfig::parse(EXAMPLE).unwrap().user("bearer").unwrap());
    assert!(!shown.contains("s3cret"), "{shown}");
}

#[test]
fn an_edit_keeps_unknown_fields() {
    let mut config = Kubeconfig::parse(EXAMPLE).unwrap();
    config.copy_cluster("one", "current", "https://localhost:6443/clusters/root:org").unwrap();
    config.copy_context("root", "current").unwrap();
    let context = Context { cluster: "current".into(), user: "admin".into(), namespace: None };
    config.set_context("current", &context);
    config.set_current_context("current");
    config.remove_context("dangling");
    let again = Kubeconfig::parse(&config.to_yaml().unwrap()).unwrap();
    let resolved = again.resolve(None).unwrap();
    assert_eq!(resolved.endpoint.prefix(), "/clusters/root:org");
    assert_eq!(resolved.cluster.tls_server_name.as_deref(), Some("kcp.test"));
    assert_eq!(again.context_names().collect::<Vec<_>>(), ["root", "anonymous", "current"]);
    let yaml: serde_json::Value = serde_saphyr::from_str(&again.to_yaml().unwrap()).unwrap();
    for cluster in yaml["clusters"].as_array().unwrap() {
        assert_eq!(cluster["cluster"]["x-unknown"], serde_json::json!({"keep": [1, "true", 2.5]}));
    }
    assert_eq!(yaml["contexts"][2]["context"]["extensions"][0]["name"], "e");
    assert_eq!(yaml["users"][2]["user"]["exec"]["command"], "kubelogin");
}

#[test]
fn a_new_file_is_written_for_its_owner_only_and_reads_back() {
    let directory = tempfile::tempdir().unwrap();
    let (path, link) = (directory.path().join("config"), directory.path().join("link"));
    let mut config = Kubeconfig::empty();
    let ca = Some(KeyMaterial::Inline(b"pem".to_vec()));
    let cluster = Cluster { server: "https://a:1".into(), certificate_authority: ca, ..Cluster::default() };
    let user = User { token: Some(KeyMaterial::Inline(b"true".to_vec())), ..User::default() };
    config.set_cluster("c", &cluster);
    config.set_user("u", &user);
    config.set_context("x", &Context { cluster: "c".into(), user: "u".into(), namespace: None });
    config.set_current_context("x");
    config.save(&path).unwrap();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    config.save(&link).unwrap();
    assert!(link.is_symlink());
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2, "no draft is left behind");
    let resolved = Kubeconfig::load(&link).unwrap().resolve(None).unwrap();
    assert_eq!((resolved.cluster, resolved.user), (cluster, user));
}
