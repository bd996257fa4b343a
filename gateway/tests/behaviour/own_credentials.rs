//! A shard with its own settings: other authorities for its certificate and for client certificates, and another name in its
//! certificate.

use std::fs;

use fairlead_config::{InputFile, SecretFile, ShardUpstreamConfig};
use serde_json::json;

use crate::pki::Authority;
use crate::shard::Shard;
use crate::world::{Choices, World, logical_cluster};

const ID: &str = "0wn0000000000001";
const PATH: &str = "/clusters/root:own/api";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_may_have_authorities_credentials_and_a_name_of_its_own() {
    let mut world = World::with(Choices { stopped: true, ..Choices::default() }).await;
    let [serving, successor, clients] =
        ["own serving", "own serving successor", "own clients"].map(Authority::new);
    let tls = serving.server_named("own.shards").server_config(&[&clients]);
    let own = Shard::start("own", tls).await;
    own.state.put("logicalclusters", ID, logical_cluster(ID, Some("own")));
    world.register("own", &own.url());
    world.put_workspace("root", "own", json!({"cluster": ID}), "Ready");

    let directory = world.directory.path();
    let authorities = directory.join("own-serving-ca.crt");
    fs::write(&authorities, &serving.pem).unwrap();
    let (certificate, private_key) = clients.client("kcp-front-proxy", &[]).write(directory, "own-proxy");
    let (reader, reader_key) =
        clients.client("shard-admin", &["system:masters"]).write(directory, "own-reader");
    let kubeconfig = directory.join("own.kubeconfig");
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "s", "user": "u"}}],
        "clusters": [{"name": "s", "cluster": {
            "server": "https://nowhere.invalid", "certificate-authority": authorities,
            "tls-server-name": "own.shards",
        }}],
        "users": [{"name": "u", "user": {"client-certificate": reader, "client-key": reader_key}}],
    });
    fs::write(&kubeconfig, text.to_string()).unwrap();
    world.config.upstream.shards = vec![ShardUpstreamConfig {
        name: "own".to_owned(),
        certificate: Some(InputFile::from(certificate)),
        private_key: Some(SecretFile::from(private_key)),
        server_ca: Some(InputFile::from(authorities.clone())),
        server_name: Some("own.shards".to_owned()),
        kubeconfig: Some(SecretFile::from(kubeconfig)),
    }];
    world.start().await;

    let user = world.user();
    for path in [PATH, "/clusters/root:org/api", PATH] {
        let answer = world.get(Some(&user), path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
    }

    // The shard's authority is replaced. Its new certificate is trusted once the file with the authorities has changed.
    own.state.set_tls(successor.server_named("own.shards").server_config(&[&clients]));
    own.state.cut_connections();
    assert_eq!(world.get(Some(&user), PATH).await.status, 503);
    fs::write(&authorities, &successor.pem).unwrap();
    world.environment.reloads.check_now();
    assert_eq!(world.get(Some(&user), PATH).await.status, 200);
    assert_eq!(world.get(Some(&user), "/clusters/root:org/api").await.status, 200);
}
