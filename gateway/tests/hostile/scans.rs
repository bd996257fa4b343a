//! TLS scanners against a listener: `make tls-scan`. tests/TLS.md has the accepted findings with their reasons.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use fairlead_config::{GatewayConfig, TlsVersion};
use rcgen::{KeyPair, PKCS_RSA_SHA256, RsaKeySize};
use tokio::process::Command;
use tokio::time::timeout;

use crate::world::{Choices, SecondGateway, World};

/// For one script.
const PATIENCE: Duration = Duration::from_secs(600);

/// A gateway with a listener as one at the edge is, and a certificate on this key as the world gives them out.
async fn edge(version: TlsVersion, key: KeyPair) -> (World, SecondGateway) {
    let world = World::with(Choices { stopped: true, ..Choices::default() }).await;
    world.serving_ca.public_server("localhost", key).write(world.directory.path(), "tls");
    let gateway = world.start_second_gateway(|config: &mut GatewayConfig| {
        let listener = &mut config.listeners[0];
        listener.client_ca = None;
        listener.placement_endpoint = false;
        listener.tls.minimum_version = version;
    });
    gateway.gateway.ready().await;
    (world, gateway)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the program sslyze: make tls-scan"]
async fn sslyze_reports_compliance_with_mozillas_profiles() {
    let program = std::env::var("SSLYZE").expect("SSLYZE has to name the program sslyze");
    for (profile, version) in [("intermediate", TlsVersion::Tls12), ("modern", TlsVersion::Tls13)] {
        let (world, gateway) = edge(version, KeyPair::generate().unwrap()).await;
        let output = Command::new(&program)
            .args(["--certinfo", &format!("--mozilla_config={profile}"), "--certinfo_ca_file"])
            .arg(world.directory.path().join("serving-ca.crt"))
            .arg(format!("localhost:{}", gateway.address.port()))
            .output()
            .await
            .expect("SSLYZE cannot be run");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("OK - Compliant"), "{profile}:\n{text}");
        println!("sslyze, {profile}: compliant");
    }
}

/// The exceptions of TLS.md by script: the number of conversations that may fail, as a maximum where they are random; `None` if the
/// script is not run.
fn exceptions() -> BTreeMap<String, Option<usize>> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/TLS.md");
    let text = std::fs::read_to_string(file).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `test-tls13-"));
    let parse = |row: &str| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let failing = match cells[1] {
            "not run" => None,
            count => Some(count.parse().unwrap_or_else(|_| panic!("{row}"))),
        };
        (cells[0].trim_end_matches('`').to_owned(), failing)
    };
    rows.map(parse).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs tlsfuzzer: make tls-scan"]
async fn tlsfuzzer_reports_documented_exceptions_only() {
    let folder = std::env::var("TLSFUZZER").expect("TLSFUZZER has to name tlsfuzzer's folder");
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let rsa = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
    let (_world, gateway) = edge(TlsVersion::Tls12, rsa).await;
    let port = gateway.address.port().to_string();
    let mut known = exceptions();
    let mut scripts: Vec<_> = std::fs::read_dir(Path::new(&folder).join("scripts"))
        .unwrap()
        .filter_map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            Some(name.strip_prefix("test-tls13-")?.strip_suffix(".py")?.to_owned())
        })
        .collect();
    scripts.sort();
    assert!(scripts.len() > 40, "{folder} is not tlsfuzzer's");
    let (mut passed, mut allowed, mut wrong) = (0, 0, Vec::new());
    for script in scripts {
        let most = match known.remove(&script) {
            Some(None) => continue,
            Some(Some(most)) => most,
            None => 0,
        };
        let running = Command::new(&python)
            .arg(format!("scripts/test-tls13-{script}.py"))
            .args(["-h", "127.0.0.1", "-p", &port])
            .current_dir(&folder)
            .env("PYTHONPATH", ".")
            .kill_on_drop(true)
            .output();
        let output =
            timeout(PATIENCE, running).await.expect("a script does not end").expect("it cannot be run");
        let text = String::from_utf8_lossy(&output.stdout);
        let count = |what: &str| -> Option<usize> {
            text.lines().rev().find_map(|line| line.strip_prefix(what))?.trim().parse().ok()
        };
        let (Some(good), Some(bad)) = (count("PASS:"), count("FAIL:")) else {
            wrong.push(format!("{script} says nothing: {}", String::from_utf8_lossy(&output.stderr)));
            continue;
        };
        println!("{script}: {good} pass, {bad} fail");
        (passed, allowed) = (passed + good, allowed + bad);
        if bad > most {
            wrong.push(format!("{script}: {bad} fail, {most} may"));
        }
    }
    assert!(known.is_empty(), "there are no such scripts: {known:?}");
    assert!(wrong.is_empty(), "{wrong:#?}");
    println!("tlsfuzzer: {passed} conversations pass, {allowed} fail as written down");
}
