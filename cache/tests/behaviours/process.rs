use std::io::Read as _;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use fairlead_cache::MASTERS;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::support::{Pki, collection};

/// Command of the program, with a configuration in the folder of `pki`.
fn program(pki: &Pki, port: u16) -> Command {
    program_with(pki, port, "")
}

/// [`program`] with additional settings.
fn program_with(pki: &Pki, port: u16, settings: &str) -> Command {
    let config = format!(
        "serving: {{address: \"127.0.0.1:{port}\", certificate: tls.crt, privateKey: tls.key}}\n\
         clientCA: ca.crt\n\
         store: {{path: store.redb}}\n\
         {settings}"
    );
    std::fs::write(pki.file("cache.yaml"), config).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fairlead-cache-server"));
    command.arg("--config").arg(pki.file("cache.yaml")).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// Starts the program. Returns once it serves, with its address.
fn start(mut command: Command) -> (Child, SocketAddr) {
    let mut child = command.spawn().unwrap();
    let (mut log, mut stderr) = (Vec::new(), child.stderr.take().unwrap());
    // The log line with the address is the event to wait for.
    while !String::from_utf8_lossy(&log).contains("serving") || !log.ends_with(b"\n") {
        let mut byte = [0];
        assert_ne!(stderr.read(&mut byte).unwrap(), 0, "{}", String::from_utf8_lossy(&log));
        log.push(byte[0]);
    }
    child.stderr = Some(stderr);
    let log = String::from_utf8(log).unwrap();
    let (_, port) = log.rsplit_once("127.0.0.1:").unwrap();
    let port: String = port.chars().take_while(char::is_ascii_digit).collect();
    (child, ([127, 0, 0, 1], port.parse().unwrap()).into())
}

#[test]
fn a_damaged_store_is_not_changed_and_reported() {
    let pki = Pki::new();
    let damaged = b"this is no store at all".to_vec();
    std::fs::write(pki.file("store.redb"), &damaged).unwrap();
    let output = program(&pki, 0).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() == 2 && lines[0].contains("store.redb") && lines[1].contains("hint:"), "{text}");
    assert_eq!(std::fs::read(pki.file("store.redb")).unwrap(), damaged);
}

#[test]
fn a_port_in_use_is_reported() {
    let pki = Pki::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let output = program(&pki, taken.local_addr().unwrap().port()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("cannot listen on") && text.contains("hint: another process listens"), "{text}");
}

#[test]
fn the_program_serves_until_a_signal() {
    let pki = Pki::new();
    let (mut child, _) = start(program(&pki, 0));
    // The shell's builtin, because a minimal Debian has no program `kill`.
    let kill = format!("kill -TERM {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    assert!(child.wait().unwrap().success());
    assert!(pki.dir().join("store.redb").exists());
}

#[tokio::test]
async fn the_program_accepts_proxy_protocol_and_limits_slow_bodies() {
    let pki = Pki::new();
    std::fs::write(pki.file("balancers"), "127.0.0.0/8\n").unwrap();
    let settings =
        "peers: {allow: balancers, proxyProtocol: true}\nslowClients: {requestBodyTimeout: 100ms}\n";
    let (mut child, address) = start(program_with(&pki, 0, settings));
    let mut tls = (**pki.client_certificate("shard", &[MASTERS]).tls_config()).clone();
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    let tls = TlsConnector::from(Arc::new(tls));
    let connect = async |preamble: &[u8]| {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(preamble).await?;
        tls.connect("localhost".try_into().unwrap(), stream).await
    };
    assert!(connect(b"").await.is_err());
    let mut stream = connect(b"PROXY TCP4 203.0.113.9 192.0.2.1 4660 443\r\n").await.unwrap();
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{{",
        collection("s1", "root", "core.kcp.io/v1alpha1/shards")
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    let read = timeout(Duration::from_secs(60), stream.read_to_end(&mut response)).await;
    // The connection may be closed with or without close_notify.
    let _ = read.expect("the body timeout did not apply");
    let response = String::from_utf8(response).unwrap();
    assert!(response.starts_with("HTTP/1.1 408 ") && response.contains("\"kind\":\"Status\""), "{response}");
    child.kill().unwrap();
    child.wait().unwrap();
}
