//! Test against Pebble, the test authority of the Let's Encrypt project: `make pebble`.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::process::Stdio;

use fairlead_config::AcmeChallenge;
use serde_json::json;
use tokio::process::Command;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{PATH, Site, metrics};
use crate::world::{Http2, connect};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the program pebble: make pebble"]
async fn pebble_gives_certificates_by_both_challenges() {
    let program = std::env::var("PEBBLE").expect("PEBBLE has to name the program pebble");
    for challenge in [AcmeChallenge::TlsAlpn01, AcmeChallenge::Http01] {
        let site = Site::new().await;
        let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let (listen, manage, listener) = (free(), free(), free());
        let directory = site.world.directory.path();
        let (certificate, key) = site.world.serving_ca.server().write(directory, "pebble");
        let config = directory.join("pebble.json");
        let text = json!({"pebble": {
            "listenAddress": listen.to_string(), "managementListenAddress": manage.to_string(),
            "certificate": certificate, "privateKey": key, "httpPort": site.http, "tlsPort": listener.port(),
            "ocspResponderURL": "", "externalAccountBindingRequired": false,
        }});
        fs::write(&config, text.to_string()).unwrap();
        let _pebble = Command::new(&program)
            .arg("-config")
            .arg(&config)
            .env("PEBBLE_VA_NOSLEEP", "1")
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("PEBBLE cannot be run");
        // The gateway retries until Pebble has started, and when Pebble refuses a good nonce, which it does now and then.
        let gateway = site
            .gateway(challenge, |config| {
                config.acme.directory_url = Some(format!("https://{listen}/dir").parse().unwrap());
                config.listeners[0].serving.address = listener;
            })
            .await;
        let is_pebbles = |leaf: &[u8]| {
            let (_, leaf) = X509Certificate::from_der(leaf).unwrap();
            leaf.issuer().to_string().contains("Pebble")
        };
        let presented = async { while !is_pebbles(&site.leaf(&gateway).await) {} };
        tokio::time::timeout(std::time::Duration::from_secs(120), presented)
            .await
            .expect("there is no certificate");
        let success = "fairlead_gateway_acme_attempts_total{listener=\"internal\",result=\"success\"} 1";
        assert!(metrics(&gateway).contains(success));
        // The other listener is not affected.
        let user = site.world.user();
        let other = connect(gateway.gateway.listeners[1].1, &site.world.serving_ca, Some(&user), b"h2").await;
        assert_eq!(Http2::over(other.unwrap()).await.get(PATH).await.status, 200);
        println!("pebble: a certificate by {}", challenge.name());
        gateway.end().await;
    }
}
