#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;

use fairlead_config::TlsVersion;

use super::*;

const NEEDED: [&str; 2] = ["--mapping-file=m.yaml", "--shards-kubeconfig=s.kubeconfig"];

fn parse(arguments: &[&str]) -> Result<FrontProxyFlags, FlagError> {
    let arguments = NEEDED.iter().chain(arguments).map(|argument| (*argument).to_owned());
    match FrontProxyFlags::parse(arguments)? {
        Parsed::Flags(flags) => Ok(*flags),
        other => panic!("{other:?}"),
    }
}

fn config(arguments: &[&str]) -> GatewayConfig {
    parse(arguments).unwrap().config
}

#[test]
fn the_harness_command_line_is_understood() {
    let flags = parse(&[
        "--bind-address=127.0.0.1",
        "--root-directory=/w/.kcp-front-proxy",
        "--root-kubeconfig=/w/.kcp/root.kubeconfig",
        "--client-ca-file=/w/.kcp/client-ca.crt",
        "--requestheader-client-ca-file=/w/.kcp/requestheader-ca.crt",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-allowed-names=kcp-front-proxy,kcp-mounts-proxy",
        "--tls-cert-file=/w/apiserver.crt",
        "--tls-private-key-file=/w/apiserver.key",
        "--secure-port=6443",
        "--v=4",
        "--feature-gates=WorkspaceMounts=true,CacheAPIs=true,WorkspaceAuthentication=true,LogicalClusterMigration=true",
    ])
    .unwrap();
    assert_eq!(flags.warnings, [""; 0]);
    assert_eq!(flags.self_signed, None);
    let config = flags.config;
    let listener = &config.listeners[0];
    assert_eq!(listener.serving.address.to_string(), "127.0.0.1:6443");
    assert_eq!(listener.client_ca.as_deref(), Some(Path::new("/w/.kcp/client-ca.crt")));
    let headers = &listener.authentication.request_header;
    assert_eq!(headers.allowed_names, ["kcp-front-proxy", "kcp-mounts-proxy"]);
    assert_eq!(headers.username_headers, ["X-Remote-User"]);
    assert!(listener.authentication.workspaces);
    assert!(listener.authentication.drop_groups.contains(&"system:masters".to_owned()));
    assert_eq!(config.index.root_shard_kubeconfig.to_str(), Some("/w/.kcp/root.kubeconfig"));
    assert_eq!(config.log.level, "info,fairlead_gateway=debug");
}

#[test]
fn flags_are_written_as_go_programs_take_them() {
    let listener = |arguments: &[&str]| config(arguments).listeners.remove(0);
    for arguments in [&["--secure-port", "7443"][..], &["--secure_port=1", "--secure-port=7443"]] {
        assert_eq!(listener(arguments).serving.address.port(), 7443, "{arguments:?}");
    }
    for (arguments, http2) in [
        (&["--disable-http2-serving"][..], false),
        (&["--disable-http2-serving=false"], true),
        (&["--disable-http2-serving=F", "--disable-http2-serving=t"], false),
        (&[], true),
    ] {
        assert_eq!(listener(arguments).tls.http2, http2, "{arguments:?}");
    }
    for arguments in [&["-v", "6"][..], &["-v=6"], &["-v6"], &["--v", "6"]] {
        assert_eq!(config(arguments).log.level, "debug,fairlead_gateway=trace", "{arguments:?}");
    }
    let drop = |argument| listener(&[argument]).authentication.drop_groups;
    assert_eq!(drop("--authentication-drop-groups=a,b:*"), ["a", "b:*"]);
    assert_eq!(drop(r#"--authentication-drop-groups="a,b:*""#), ["a", "b:*"], "as the operator writes it");
    assert_eq!(drop("--authentication-drop-groups="), [""; 0], "as an internal proxy wants it");
    let keys = listener(&["--service-account-key-file=a", "--service-account-key-file=b,c"]);
    let keys = keys.authentication.service_accounts;
    assert_eq!(keys.key_files, [InputFile::from("a"), InputFile::from("b,c")]);
    assert_eq!(keys.issuers, ["https://kcp.default.svc"]);
    assert_eq!(listener(&[]).serving.address.to_string(), "[::]:443");
}

#[test]
fn without_a_certificate_one_is_made_in_the_certificate_directory() {
    for (arguments, expected) in [
        (&[][..], ".kcp/apiserver.crt"),
        (&["--root-directory=/r"], "/r/apiserver.crt"),
        (&["--root-directory=/r", "--cert-dir=c"], "/r/c/apiserver.crt"),
        (&["--root-directory=/r", "--cert-dir=/c"], "/c/apiserver.crt"),
    ] {
        let flags = parse(arguments).unwrap();
        assert_eq!(flags.self_signed.unwrap().certificate.to_str(), Some(expected), "{arguments:?}");
        assert_eq!(flags.config.listeners[0].serving.certificate.to_str(), Some(expected));
    }
}

#[test]
fn kcp_behaviours_are_selected_by_name() {
    use KcpBehaviour::{Retries, UnavailableBody, Unreachable};
    assert_eq!(config(&[]).kcp_compatibility, []);
    let named = config(&["--kcp-compatibility=unreachable,retries", "--kcp-compatibility=unavailableBody"])
        .kcp_compatibility;
    assert_eq!(named, [Unreachable, Retries, UnavailableBody]);
}

/// The operator writes the list as one quoted value.
#[test]
fn quoted_groups_are_several_or_with_kcp_compatibility_one() {
    let quoted = |flag: &str| format!("--authentication-{flag}-groups=\"system:masters,system:kcp:x:*\"");
    let (drop, pass_on) = (quoted("drop"), quoted("pass-on"));
    for (kcp_compatibility, expected) in [
        ("", &["system:masters", "system:kcp:x:*"][..]),
        ("quotedGroups", &["system:masters,system:kcp:x:*"]),
    ] {
        let config = config(&[&drop, &pass_on, &format!("--kcp-compatibility={kcp_compatibility}")]);
        let authentication = &config.listeners[0].authentication;
        assert_eq!(authentication.drop_groups, expected, "{kcp_compatibility}");
        assert_eq!(authentication.pass_on_groups, expected, "{kcp_compatibility}");
    }
}

#[test]
fn flags_without_effect_are_named_once() {
    let flags =
        parse(&["--profiler-address=localhost:1", "--vmodule=a=4", "--service-account-jwks-uri=x"]).unwrap();
    let expected = "accepted and without effect here: --profiler-address, --vmodule";
    assert_eq!(flags.warnings, [expected]);
    assert_eq!(parse(&["--feature-gates=NoSuchGate=true"]).unwrap().warnings, [""; 0]);
    for (version, warning) in [
        ("VersionTLS10", Some("--tls-min-version=VersionTLS10: the oldest version spoken here is TLS 1.2")),
        ("VersionTLS11", Some("--tls-min-version=VersionTLS11: the oldest version spoken here is TLS 1.2")),
        ("VersionTLS12", None),
    ] {
        let flags = parse(&[&format!("--tls-min-version={version}")]).unwrap();
        assert_eq!(flags.config.listeners[0].tls.minimum_version, TlsVersion::Tls12);
        assert_eq!(flags.warnings, warning.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn wrong_command_lines_are_refused_in_one_sentence() {
    for (arguments, expected) in [
        (&["--no-such-flag"][..], "unexpected argument '--no-such-flag' found"),
        (&["--secure-port=x"], r#"--secure-port: "x" is no whole number"#),
        (&["--secure-port=x", "--secure-port=443"], r#"--secure-port: "x" is no whole number"#),
        (&["--secure-port="], r#"--secure-port: "" is no whole number"#),
        (&["--secure-port=70000"], r#"--secure-port: "70000" is no port"#),
        (&["--v=-1"], r#"--v: "-1" is no level such as 4"#),
        (&["--log-flush-frequency=abc"], r#"--log-flush-frequency: "abc" is no duration such as 30s"#),
        (&["--log-flush-frequency=5"], r#"--log-flush-frequency: "5" is no duration such as 30s"#),
        (
            &["--service-account-max-token-expiration=abc"],
            r#"--service-account-max-token-expiration: "abc" is no duration such as 30s"#,
        ),
        (
            &["--authentication-token-webhook-cache-ttl=abc"],
            r#"--authentication-token-webhook-cache-ttl: "abc" is no duration such as 30s"#,
        ),
        (
            &["--log-text-info-buffer-size=lots"],
            r#"--log-text-info-buffer-size: "lots" is no size such as 512Ki"#,
        ),
        (&["--permit-port-sharing=x"], r#"--permit-port-sharing: "x" is no true or false"#),
        (&["--permit-port-sharing="], r#"--permit-port-sharing: "" is no true or false"#),
        (&["--vmodule=foo=abc"], r#"--vmodule: "foo=abc" is no list such as pattern=4"#),
        (
            &["--tls-curve-preferences=foo"],
            r#"--tls-curve-preferences: "foo" is no list of numbers such as 23,29"#,
        ),
        (&["--oidc-required-claim=a"], r#"--oidc-required-claim: "a" is no pair such as key=value"#),
        (
            &["--feature-gates=WorkspaceAuthentication=maybe"],
            r#"--feature-gates: "WorkspaceAuthentication=maybe" is no list such as Name=true,Other=false"#,
        ),
        (
            &["--cors-allowed-origins=//fine,["],
            r#"--cors-allowed-origins: "[" is not a regular expression: unclosed character class"#,
        ),
        (
            &["--config=x"],
            "--mapping-file beside --config: settings come from flags or from a file, not from both",
        ),
        (&["--bind-address=kcp"], r#"--bind-address: "kcp" is no IP address"#),
        (&["--service-account-lookup=maybe"], r#"--service-account-lookup: "maybe" is no true or false"#),
        (&["--oidc-issuer-url=https://x"], "--oidc-issuer-url needs --oidc-client-id"),
        (&["--tls-cert-file=x"], "--tls-cert-file needs --tls-private-key-file"),
        (&["--feature-gates=A"], r#"--feature-gates: "A" is no list such as Name=true,Other=false"#),
        (
            &["--kcp-compatibility=retries,slow"],
            r#"--kcp-compatibility: "slow" is no behaviour such as unreachable"#,
        ),
        (&["--as-kcp=retries"], "--as-kcp is now --kcp-compatibility"),
        (&["--tls-min-version=SSL"], r#"--tls-min-version: "SSL" is no version such as VersionTLS12"#),
    ] {
        assert_eq!(parse(arguments).unwrap_err().to_string(), expected, "{arguments:?}");
    }
    for (arguments, expected) in [
        (&[][..], "--mapping-file is required"),
        (&["--config"], "a value is required for '--config <FILE>' but none was supplied"),
        (&["--config", "--v=4"], "a value is required for '--config <FILE>' but none was supplied"),
        (&["--config="], "--config names no file"),
        (
            &["--config=x", "--v=4"],
            "--v beside --config: settings come from flags or from a file, not from both",
        ),
        (&["--config=x", "--nonsense"], "unexpected argument '--nonsense' found"),
    ] {
        let error = FrontProxyFlags::parse(arguments.iter().map(|argument| (*argument).to_owned()));
        assert_eq!(error.unwrap_err().to_string(), expected, "{arguments:?}");
    }
}

#[test]
fn a_file_takes_the_place_of_all_flags() {
    for (arguments, expected) in [
        (&["--config", "g.yaml"][..], "g.yaml"),
        (&["--config=g.yaml"], "g.yaml"),
        (&["--config=f.yaml", "--config=g.yaml"], "g.yaml"),
    ] {
        let parsed = FrontProxyFlags::parse(arguments.iter().map(|argument| (*argument).to_owned()));
        assert!(matches!(parsed, Ok(Parsed::File(file)) if file == Path::new(expected)), "{arguments:?}");
    }
    for (flag, shown) in [
        ("--help", "--config <FILE>"),
        ("--help", "older ones mean VersionTLS12"),
        ("--help", "where index.snapshot is kept"),
        ("--version", env!("CARGO_PKG_VERSION")),
    ] {
        for arguments in [&[flag][..], &["--config=g.yaml", flag]] {
            let parsed = FrontProxyFlags::parse(arguments.iter().map(|argument| (*argument).to_owned()));
            assert!(matches!(parsed, Ok(Parsed::Text(text)) if text.contains(shown)), "{arguments:?}");
        }
    }
}

#[test]
fn the_index_is_kept_in_the_root_directory_that_is_named() {
    for (arguments, expected) in [
        (&[][..], None),
        (&["--root-directory="], None),
        (&["--root-directory=/r"], Some("/r/index.snapshot")),
        (&["--root-directory=r", "--cert-dir=/c"], Some("r/index.snapshot")),
    ] {
        let snapshot = config(arguments).index.snapshot;
        assert_eq!(snapshot.as_deref(), expected.map(Path::new), "{arguments:?}");
    }
}

#[test]
fn the_drain_is_announced_unless_kcp_behaviour_is_selected() {
    for (arguments, delay) in
        [(&[][..], "3s"), (&["--kcp-compatibility=retries"], "3s"), (&["--kcp-compatibility=drain"], "0s")]
    {
        let drain = config(arguments).drain;
        assert_eq!((drain.delay.to_string(), drain.window.to_string()), (delay.to_owned(), "1m".to_owned()));
    }
}

#[test]
fn values_that_are_valid_in_go_are_accepted() {
    for argument in [
        "--log-flush-frequency=-5s",
        "--authentication-token-webhook-cache-ttl=1h30m",
        "--permit-port-sharing=T",
        "--vmodule=foo=2,bar*=4",
        "--vmodule=",
        "--tls-curve-preferences=23,0x1d",
        "--http2-max-streams-per-connection=-1",
        "--log-json-info-buffer-size=1Mi",
        "--bind-address=",
        "--feature-gates=NoSuchGate=F,,",
        "--cors-allowed-origins=^https://.*$",
    ] {
        assert!(parse(&[argument]).is_ok(), "{argument}");
    }
    let workspaces = |gates: &[&str]| config(gates).listeners.remove(0).authentication.workspaces;
    let (on, off) =
        ("--feature-gates=A=f,WorkspaceAuthentication=T", "--feature-gates=WorkspaceAuthentication=0");
    assert!(workspaces(&[off, on]) && !workspaces(&[on, off]));
    let oidc = ["--oidc-issuer-url=https://i", "--oidc-client-id=c", "--oidc-required-claim=a=b,c=d"];
    let claims = config(&oidc).listeners[0].authentication.oidc.clone().unwrap().required_claims;
    assert_eq!(claims, BTreeMap::from([("a".to_owned(), "b,c=d".to_owned())]), "one claim, as in Kubernetes");
}

#[test]
fn every_flag_of_the_recorded_program_is_known() {
    let recorded =
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/kcp/flags/kcp-front-proxy.tsv"));
    let names: Vec<&str> = recorded.lines().collect();
    assert!(names.len() > 50, "only {} flags are recorded", names.len());
    let unknown: Vec<&str> = names
        .into_iter()
        .filter(|name| *name != "help" && !FLAGS.flags().any(|flag| flag.name == *name))
        .collect();
    assert_eq!(unknown, [""; 0]);
}
