//! Shards and the cache server, started with the flags of kcp's programs alone.

use std::path::{Path, PathBuf};

use fairlead_certs::{Client as Role, Kubeconfig as KubeconfigFile};
use fairlead_client::{
    Client, ClientOptions, Credentials, Endpoint, KeyMaterial, Kubeconfig, TrustRoots, UnverifiedTls,
};
use fairlead_tests::harness::{Kubectl, Pki, Process, Program, binary, free_port};
use serde_json::Value;

use crate::installation::{WORKSPACES, client, code, until, until_ready};

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

#[tokio::test]
async fn a_wrong_command_line_ends_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    for (program, arguments, expected) in [
        ("fairlead-shard", &["start", "--cheese"][..], "unexpected argument '--cheese' found"),
        ("fairlead-shard", &["start", "--etcd-servers=http://localhost:2379"], "etcd comes later"),
        ("fairlead-shard", &["start", "--shard-name=beta"], "--cache-kubeconfig is required"),
        ("fairlead-cache-server", &["--secure-port=1"], "--client-ca-file is required"),
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
