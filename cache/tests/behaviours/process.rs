use std::io::Read as _;
use std::process::{Command, Stdio};

use crate::support::Pki;

/// The program with a configuration in `pki`'s folder.
fn program(pki: &Pki, port: u16) -> Command {
    let config = format!(
        "serving: {{address: \"127.0.0.1:{port}\", certificate: tls.crt, privateKey: tls.key}}\n\
         clientCA: ca.crt\n\
         store: {{path: store.redb}}\n"
    );
    std::fs::write(pki.file("cache.yaml"), config).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fairlead-cache-server"));
    command.arg("--config").arg(pki.file("cache.yaml")).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

#[test]
fn a_damaged_store_is_left_alone_and_explained() {
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
fn a_taken_port_is_explained() {
    let pki = Pki::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let output = program(&pki, taken.local_addr().unwrap().port()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("cannot listen on") && text.contains("hint: something else listens"), "{text}");
}

#[test]
fn the_program_serves_until_it_is_asked_to_end() {
    let pki = Pki::new();
    let mut child = program(&pki, 0).spawn().unwrap();
    let mut log = Vec::new();
    let mut stderr = child.stderr.take().unwrap();
    // The line that says where it listens is the event to wait for.
    while !String::from_utf8_lossy(&log).contains("serving") {
        let mut byte = [0];
        assert_ne!(stderr.read(&mut byte).unwrap(), 0, "{}", String::from_utf8_lossy(&log));
        log.push(byte[0]);
    }
    // The shell's own: a small Debian has no program of that name.
    let kill = format!("kill -TERM {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    assert!(child.wait().unwrap().success());
    assert!(pki.dir().join("store.redb").exists());
}
