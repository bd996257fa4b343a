//! Shards and the cache server, started with the flags of kcp's programs alone.

use std::path::{Path, PathBuf};

use fairlead_certs::{Client as Role, Kubeconfig as KubeconfigFile};
use fairlead_client::{
    Client, ClientOptions, Credentials, Endpoint, KeyMaterial, Kubeconfig, PatchType, Request, Token,
    TrustRoots, UnverifiedTls,
};
use fairlead_tests::harness::{Kubectl, Pki, Process, Program, binary, free_port, is_left_out, tool};
use http::{HeaderName, HeaderValue, Method};
use serde_json::{Value, json};

use crate::installation::{WORKSPACES, client, code, next, until, until_object, until_ready};

/// Shards in all logical clusters of all shards, at the cache server.
const CACHED_SHARDS: &str = "/services/cache/shards/*/clusters/*/apis/core.kcp.io/v1alpha1/shards";

/// A shard with a root directory of its own.
struct Shard {
    process: Process,
    kubeconfig: PathBuf,
}

impl Shard {
    /// Starts `program`, the shard's binary or a link to it, and waits until it is ready.
    async fn start(program: PathBuf, folder: &Path, name: &str, arguments: &[String]) -> Self {
        let port = free_port().unwrap();
        let root_directory = format!("--root-directory={name}");
        let fixed =
            ["start", &root_directory, "--bind-address=127.0.0.1", "--secure-port", &port.to_string()];
        let process = Program::at(program, name, folder)
            .args(fixed.map(str::to_owned))
            .args(arguments.iter().cloned())
            .start()
            .unwrap();
        let mut shard = Self { process, kubeconfig: folder.join(name).join("admin.kubeconfig") };
        shard.until_ready().await;
        shard
    }

    /// Waits for the kubeconfig, then for readiness, as kcp's launcher does.
    async fn until_ready(&mut self) {
        let kubeconfig = self.kubeconfig.clone();
        self.process
            .until(|| async {
                let client = try_client_of(&kubeconfig, "shard-base")?;
                client.get("/readyz").await.map(drop).map_err(|error| error.to_string())
            })
            .await
            .unwrap();
    }

    fn client(&self, context: &str) -> Client {
        try_client_of(&self.kubeconfig, context).unwrap()
    }
}

fn try_client_of(kubeconfig: &Path, context: &str) -> Result<Client, String> {
    let kubeconfig = Kubeconfig::load(kubeconfig).map_err(|error| error.to_string())?;
    let context = kubeconfig.resolve(Some(context)).map_err(|error| error.to_string())?;
    Client::from_context(&context, UnverifiedTls::Refuse, ClientOptions::default())
        .map_err(|error| error.to_string())
}

fn token_of(kubeconfig: &Path, user: &str) -> Vec<u8> {
    match Kubeconfig::load(kubeconfig).unwrap().user(user).unwrap().token {
        Some(KeyMaterial::Inline(token)) => token,
        other => panic!("{other:?}"),
    }
}

async fn names(client: &Client, path: &str) -> Vec<String> {
    let list: Value = client.get_json(path).await.unwrap();
    let items = list["items"].as_array().unwrap().iter();
    items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_needs_no_more_than_a_root_directory() {
    let folder = tempfile::tempdir().unwrap();
    let kcp = folder.path().join("kcp");
    std::os::unix::fs::symlink(binary("fairlead-shard").unwrap(), &kcp).unwrap();
    let arguments = ["--batteries-included=+user", "--embedded-etcd-client-port=2379", "--feature-gates="];
    let mut shard = Shard::start(kcp, folder.path(), "root", &arguments.map(str::to_owned)).await;
    assert!(shard.process.log().contains("accepted and without effect here: --embedded-etcd-client-port"));

    let admin = shard.client("root");
    let workspace = serde_json::json!({
        "apiVersion": "tenancy.kcp.io/v1alpha1",
        "kind": "Workspace",
        "metadata": {"name": "red"},
    });
    admin.create::<Value>(WORKSPACES, &workspace, &Default::default()).await.unwrap();
    until_ready(&admin, "red").await;
    for kubectl in Kubectl::found(&shard.kubeconfig, folder.path()).unwrap() {
        let listed = kubectl.ok("get workspaces -o name").await.unwrap();
        assert_eq!(listed, "workspace.tenancy.kcp.io/red\n", "{}", kubectl.version());
        let users = [
            ("root", "kcp-admin", "system:kcp:admin"),
            ("system:admin", "shard-admin", "system:masters"),
            ("user", "user", "system:authenticated"),
        ];
        for (context, user, group) in users {
            let identity = kubectl.ok(&format!("--context {context} auth whoami -o yaml")).await.unwrap();
            assert!(
                identity.contains(&format!("username: {user}\n")) && identity.contains(group),
                "{identity}"
            );
        }
    }

    let before = ["shard-admin", "kcp-admin"].map(|user| token_of(&shard.kubeconfig, user));
    assert!(shard.process.terminate().await.unwrap().success());
    shard.process.restart().await.unwrap();
    // The kubeconfig of the first start is still there, and its kcp-admin is not valid any more.
    shard.until_ready().await;
    let after = ["shard-admin", "kcp-admin"].map(|user| token_of(&shard.kubeconfig, user));
    assert!(before[0] == after[0] && before[1] != after[1]);
    assert_eq!(names(&shard.client("root"), WORKSPACES).await, ["red"]);
    assert!(shard.process.terminate().await.unwrap().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_embedded_cache_server_is_for_masters_only() {
    let folder = tempfile::tempdir().unwrap();
    let shard = Shard::start(binary("fairlead-shard").unwrap(), folder.path(), "root", &[]).await;
    let masters = shard.client("shard-base");
    until("the copy of the shard", || async {
        let copies = names(&masters, CACHED_SHARDS).await;
        if copies == ["root"] { Ok(()) } else { Err(copies) }
    })
    .await;
    masters.get("/services/cache/readyz").await.unwrap();
    let scoped_metrics = masters.get("/services/cache/shards/root/clusters/root/metrics").await;
    assert_eq!(code(&scoped_metrics), 501);
    assert_eq!(code(&shard.client("base").get(CACHED_SHARDS).await), 403);
    let authority = std::fs::read(folder.path().join("root/apiserver.crt")).unwrap();
    let anonymous = Credentials::new(TrustRoots::Pem(authority)).unwrap();
    let endpoint: Endpoint = masters.endpoint().clone();
    let anonymous = Client::new(endpoint, anonymous, ClientOptions::default());
    assert_eq!(code(&anonymous.get(CACHED_SHARDS).await), 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_shards_and_a_cache_server_are_started_by_flags() {
    let folder = tempfile::tempdir().unwrap();
    let pki = Pki::new(&folder.path().join("pki"), &["root", "beta"]).unwrap();
    let layout = pki.layout();
    let port = free_port().unwrap();
    let authorities = format!("--client-ca-file={}", layout.client_ca().display());
    let mut cache = Program::new("fairlead-cache-server", folder.path())
        .unwrap()
        .args(["--root-directory", "cache", "--bind-address=127.0.0.1", "--synthetic-delay=1ms"])
        .args([format!("--secure-port={port}"), authorities.clone()])
        .start()
        .unwrap();
    let certificate = folder.path().join("cache/apiserver.crt");
    let url = format!("https://localhost:{port}");
    cache
        .until(|| async {
            let authority = std::fs::read(&certificate).map_err(|error| error.to_string())?;
            let anonymous =
                Credentials::new(TrustRoots::Pem(authority)).map_err(|error| error.to_string())?;
            client(&url, anonymous).get("/readyz").await.map(drop).map_err(|error| error.to_string())
        })
        .await
        .unwrap();
    let cache_kubeconfig = folder.path().join("cache.kubeconfig");
    KubeconfigFile::builder()
        .cluster("cache", &url, &std::fs::read_to_string(&certificate).unwrap())
        .client(layout, &Role::Cache)
        .unwrap()
        .context("cache", "cache", &Role::Cache.user_name())
        .current("cache")
        .build()
        .unwrap()
        .write(&cache_kubeconfig)
        .unwrap();
    let cache_flag = format!("--cache-kubeconfig={}", cache_kubeconfig.display());
    let shard = binary("fairlead-shard").unwrap();
    let root_flags = [authorities.clone(), cache_flag.clone()];
    let root = Shard::start(shard.clone(), folder.path(), "root", &root_flags).await;
    let beta_flags = [
        authorities,
        cache_flag,
        "--shard-name=beta".to_owned(),
        format!("--root-shard-kubeconfig-file={}", root.kubeconfig.display()),
    ];
    let beta = Shard::start(shard, folder.path(), "beta", &beta_flags).await;
    let root_client = root.client("root");
    until("both shards in root", || async {
        let shards = names(&root_client, "/apis/core.kcp.io/v1alpha1/shards").await;
        if shards == ["beta", "root"] { Ok(()) } else { Err(shards) }
    })
    .await;
    let cached = try_client_of(&cache_kubeconfig, "cache").unwrap();
    until("the copies of both shards", || async {
        let shards = names(&cached, CACHED_SHARDS).await;
        if shards == ["beta", "root"] { Ok(()) } else { Err(shards) }
    })
    .await;
    assert_eq!(code(&beta.client("shard-base").get(CACHED_SHARDS).await), 404);
}

/// An etcd with one member, and its URL. It keeps its data when it is killed.
fn start_etcd(folder: &Path) -> (Process, String) {
    let [url, peers] = [(); 2].map(|()| format!("http://127.0.0.1:{}", free_port().unwrap()));
    let arguments = [
        ["--data-dir", "etcd-data"],
        ["--listen-client-urls", &url],
        ["--advertise-client-urls", &url],
        ["--listen-peer-urls", &peers],
        ["--initial-advertise-peer-urls", &peers],
        ["--initial-cluster", &format!("default={peers}")],
    ];
    let program = Program::at(tool("etcd").unwrap(), "etcd", folder);
    (program.args(arguments.concat().into_iter().map(str::to_owned)).start().unwrap(), url)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_on_etcd_goes_on_reading_while_etcd_is_away() {
    if is_left_out("etcd") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (mut etcd, url) = start_etcd(folder.path());
    let flags = [format!("--etcd-servers={url}"), "--etcd-prefix=/shards/root".to_owned()];
    let mut shard = Shard::start(binary("fairlead-shard").unwrap(), folder.path(), "root", &flags).await;
    let admin = shard.client("root");
    let create = async |name: &str| {
        let workspace = json!({
            "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": { "name": name },
        });
        admin.create::<Value>(WORKSPACES, &workspace, &Default::default()).await
    };
    create("red").await.unwrap();
    until_ready(&admin, "red").await;

    etcd.kill().await.unwrap();
    let refused = until("a refusal", || async {
        match create("green").await {
            Err(error) if error.code() == Some(503) => Ok(error),
            // Sent before the loss was noticed.
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    assert!(refused.retry_after().is_some(), "{refused}");
    assert_eq!(names(&admin, WORKSPACES).await, ["red"]);
    shard.client("shard-base").get("/readyz").await.unwrap();

    etcd.restart().await.unwrap();
    until("a write", || async {
        match create("green").await {
            Err(error) if !error.is_already_exists() => Err(error),
            _ => Ok(()),
        }
    })
    .await;
    until_ready(&admin, "green").await;
    assert!(shard.process.terminate().await.unwrap().success());

    std::fs::remove_file(folder.path().join("root/etcd-server/etcd-view.redb")).unwrap();
    shard.process.restart().await.unwrap();
    shard.until_ready().await;
    assert_eq!(names(&shard.client("root"), WORKSPACES).await, ["green", "red"], "read from etcd");
}

/// The initializer of workspaces of the type `slow` in root.
const INITIALIZING: &str = "/services/initializingworkspaces/root:slow/clusters";
const LOGICAL_CLUSTERS: &str = "/apis/core.kcp.io/v1alpha1/logicalclusters";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn virtual_workspaces_are_served_beside_their_shard() {
    let folder = tempfile::tempdir().unwrap();
    let pki = Pki::new(&folder.path().join("pki"), &["root"]).unwrap();
    let port = free_port().unwrap();
    let url = format!("https://localhost:{port}");
    let flags = [
        format!("--client-ca-file={}", pki.layout().client_ca().display()),
        "--run-virtual-workspaces=false".to_owned(),
        format!("--shard-virtual-workspace-url={url}"),
    ];
    let shard = Shard::start(binary("fairlead-shard").unwrap(), folder.path(), "root", &flags).await;
    let virtual_workspaces = start_virtual_workspaces(&pki, &shard, folder.path(), port).await;
    let root = shard.client("root");
    let slow = json!({
        "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": { "name": "slow" },
        "spec": { "initializer": true },
    });
    let types = "/apis/tenancy.kcp.io/v1alpha1/workspacetypes";
    root.create::<Value>(types, &slow, &Default::default()).await.unwrap();
    let published =
        until_object(&root, types, "slow", |slow| slow["status"]["virtualWorkspaces"].is_array()).await;
    let published = &published["status"]["virtualWorkspaces"][0]["url"];
    assert_eq!(*published, format!("{url}/services/initializingworkspaces/root:slow"));

    // kcp-admin's token, which the shard has created and reviews.
    let kubeconfig = folder.path().join("root/admin.kubeconfig");
    let token = String::from_utf8(token_of(&kubeconfig, "kcp-admin")).unwrap();
    let anonymous = || pki.anonymous().unwrap();
    let admin = client(&url, anonymous().with_token(Token::new(&token)).unwrap());
    let everywhere = format!("{INITIALIZING}/*{LOGICAL_CLUSTERS}");
    let mut watch = admin.watch(&format!("{everywhere}?watch=1")).await.unwrap();
    let late = json!({
        "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": { "name": "late" },
        "spec": { "type": { "name": "slow", "path": "root" } },
    });
    root.create::<Value>(WORKSPACES, &late, &Default::default()).await.unwrap();
    let (kind, waiting) = next(&mut watch).await;
    let cluster = waiting["metadata"]["annotations"]["kcp.io/cluster"].as_str().unwrap();
    assert_eq!((&*kind, &waiting["status"]["phase"]), ("ADDED", &json!("Initializing")));
    let content = format!("{INITIALIZING}/{cluster}/api/v1/namespaces");
    admin.get(&content).await.unwrap();

    let impersonation = [("impersonate-user", "kcp-admin"), ("impersonate-group", "system:masters")];
    let forged = [("x-remote-user", "kcp-admin"), ("x-remote-group", "system:masters")];
    let masters = shard.client("shard-base");
    let certified = |role: &Role| client(&url, pki.credentials(role).unwrap());
    let cases = [
        ("a token of kcp-admin", &admin, &[][..], 200),
        ("impersonation by kcp-admin", &admin, &impersonation, 403),
        ("no credential", &client(&url, anonymous()), &[], 403),
        ("forged headers", &client(&url, anonymous()), &forged, 403),
        ("impersonation without a credential", &client(&url, anonymous()), &impersonation, 403),
        ("a wrong token", &client(&url, anonymous().with_token(Token::new("wrong")).unwrap()), &[], 401),
        ("kcp-admin's certificate", &certified(&Role::Admin), &[], 200),
        ("a master's certificate", &certified(&Role::ShardAdmin), &[], 200),
        (
            "a master that impersonates a user",
            &certified(&Role::ShardAdmin),
            &[("impersonate-user", "bob")],
            403,
        ),
        ("a gateway", &certified(&Role::FrontProxy), &forged, 200),
        ("kcp-admin at the shard itself", &shard.client("base"), &[], 403),
        ("a master at the shard itself", &masters, &[], 200),
    ];
    for (case, client, headers, expected) in cases {
        let mut request = Request::new(Method::GET, &*everywhere);
        for (name, value) in headers {
            request = request.with_header(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let response = client.request(request).await;
        assert_eq!(code(&response), expected, "{case}: {response:?}");
    }

    let own = format!("{INITIALIZING}/{cluster}{LOGICAL_CLUSTERS}/cluster");
    let object: Value = admin.get_json(&own).await.unwrap();
    let initializers = object["status"]["initializers"].as_array().unwrap().iter();
    let others: Vec<_> = initializers.filter(|initializer| **initializer != "root:slow").collect();
    let patch = json!({ "status": { "initializers": others } });
    let status = format!("{own}/status");
    admin.patch::<Value>(&status, PatchType::Merge, &patch, &Default::default()).await.unwrap();
    until_ready(&root, "late").await;
    loop {
        let (kind, object) = next(&mut watch).await;
        if kind == "DELETED" {
            assert_eq!(object["metadata"]["annotations"]["kcp.io/cluster"], cluster);
            break;
        }
    }
    assert_eq!(code(&admin.get(&content).await), 403);
    drop(virtual_workspaces);
}

/// Starts the program for virtual workspaces with flags as kcp's launcher does, and waits until it is ready.
async fn start_virtual_workspaces(pki: &Pki, shard: &Shard, folder: &Path, port: u16) -> Process {
    let (layout, kubeconfig) = (pki.layout(), folder.join("virtual-workspaces.kubeconfig"));
    let shard_url = shard.client("base").endpoint().to_string();
    // The shard's serving certificate is self-signed.
    let authority = std::fs::read_to_string(folder.join("root/apiserver.crt")).unwrap();
    KubeconfigFile::builder()
        .cluster("shard", &shard_url, &authority)
        .client(layout, &Role::ShardAdmin)
        .unwrap()
        .context("shard", "shard", &Role::ShardAdmin.user_name())
        .current("shard")
        .build()
        .unwrap()
        .write(&kubeconfig)
        .unwrap();
    let files = pki.shard("root").unwrap();
    let mut process = Program::new("fairlead-virtual-workspaces", folder)
        .unwrap()
        .args(["--bind-address=127.0.0.1".to_owned(), format!("--secure-port={port}")])
        .args([
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--client-ca-file={}", layout.client_ca().display()),
            format!("--requestheader-client-ca-file={}", layout.requestheader_ca().display()),
            format!("--tls-cert-file={}", files.certificate.display()),
            format!("--tls-private-key-file={}", files.key.display()),
            "--authentication-skip-lookup".to_owned(),
            "--audit-log-path=audit.log".to_owned(),
        ])
        .start()
        .unwrap();
    process.until_ready(&pki.client(port, pki.anonymous().unwrap()).unwrap()).await.unwrap();
    assert!(
        process.log().contains("accepted and without effect here: --audit-log-path"),
        "{}",
        process.log()
    );
    process
}

#[tokio::test]
async fn a_wrong_command_line_ends_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    for (program, arguments, expected) in [
        ("fairlead-shard", &["start", "--cheese"][..], "unexpected argument '--cheese' found"),
        ("fairlead-shard", &["start", "--etcd-servers-overrides=/events#http://a:2379"], "one store"),
        ("fairlead-shard", &["start", "--shard-name=beta"], "--cache-kubeconfig is required"),
        ("fairlead-cache-server", &["--secure-port=1"], "--client-ca-file is required"),
        ("fairlead-virtual-workspaces", &["--secure-port=1"], "--kubeconfig is required"),
    ] {
        let output = tokio::process::Command::new(binary(program).unwrap())
            .args(arguments)
            .current_dir(folder.path())
            .output()
            .await
            .unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        assert!(error.contains(expected) && error.lines().count() == 2, "{arguments:?}: {error}");
    }
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}
