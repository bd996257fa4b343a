//! Every file that the gateway reads is written again, and is damaged and mended.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::SECOND;
use crate::installation::Installation;

/// Files by what is made of them, as metrics and `/readyz` name it.
const OF_BOTH: &[(&str, &[&str])] = &[
    ("serving certificate of listener internal", &["tls.crt", "tls.key"]),
    (
        "credentials of listener internal",
        &["client-ca.crt", "proxies-ca.crt", "tokens.csv", "webhook.kubeconfig", "accounts.pub"],
    ),
    ("kubeconfig of the root shard", &["root-shard.kubeconfig", "shard-admin.crt", "serving-ca.crt"]),
    ("kubeconfig of the shards", &["shards.kubeconfig", "shard-admin.key"]),
];
const OUR_OWN: &[(&str, &[&str])] = &[
    ("configuration", &["gateway.yaml"]),
    ("credential for shards", &["front-proxy.crt", "front-proxy.key", "serving-ca.crt"]),
    ("credentials of listener internal", &["authentication.yaml"]),
];
const KCP_COMPATIBILITY: &[(&str, &[&str])] = &[
    ("mapping file", &["mapping.yaml", "front-proxy.crt", "front-proxy.key", "serving-ca.crt"]),
    ("credentials of listener internal", &["issuer-ca.crt"]),
    ("kubeconfig 1 of a peer", &["alpha.kubeconfig"]),
];

/// Requests after each change.
const MORE: u64 = SECOND / 10;

fn files(installation: &Installation) -> impl Iterator<Item = (&'static str, &'static str)> {
    let others = if installation.has_mapping_file() { KCP_COMPATIBILITY } else { OUR_OWN };
    let all = OF_BOTH.iter().chain(others);
    all.flat_map(|(what, names)| names.iter().map(|name| (*what, *name)))
}

pub fn written_again(installation: &Installation) -> BoxFuture<'_, ()> {
    async move {
        for (what, name) in files(installation) {
            let file = installation.file(name);
            let text = std::fs::read_to_string(&file).unwrap();
            std::fs::write(&file, format!("{text}\n")).unwrap();
            installation.reload(what).await;
            installation.load.goes_on_for(MORE).await;
        }
    }
    .boxed()
}

pub fn damaged_and_mended(installation: &Installation) -> BoxFuture<'_, ()> {
    async move {
        for (what, name) in files(installation) {
            let file = installation.file(name);
            let text = std::fs::read_to_string(&file).unwrap();
            for damaged in ["no such thing as is wanted here", &text[..text.len() / 2]] {
                std::fs::write(&file, damaged).unwrap();
                installation.fail_to_reload(what).await;
                let readiness = installation.readiness().await;
                assert!(readiness.contains(what), "{name}: {readiness}");
                installation.load.goes_on_for(MORE).await;
            }
            std::fs::write(&file, &text).unwrap();
            installation.reload(what).await;
            let readiness = installation.readiness().await;
            assert!(!readiness.contains(what), "{name}: {readiness}");
        }
    }
    .boxed()
}
