#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use super::*;
use crate::audit::{AuditLogPath, AuditMode};
use crate::authorization::AuthorizerKind;
use crate::flags::{CacheArguments, CacheFlags};

fn parse(arguments: &[&str]) -> Result<ShardFlags, FlagError> {
    match ShardFlags::parse("1", arguments.iter().map(|argument| (*argument).to_owned()))? {
        ShardArguments::Flags(flags) => Ok(*flags),
        other => panic!("{other:?}"),
    }
}

fn config(arguments: &[&str]) -> ShardConfig {
    parse(arguments).unwrap().config
}

fn cache(arguments: &[&str]) -> Result<CacheFlags, FlagError> {
    match CacheFlags::parse("1", arguments.iter().map(|argument| (*argument).to_owned()))? {
        CacheArguments::Flags(flags) => Ok(*flags),
        other => panic!("{other:?}"),
    }
}

/// The command line of the second shard of kcp's sharded launcher.
const LAUNCHED: &[&str] = &[
    "--run-virtual-workspaces=true",
    "--feature-gates=WorkspaceMounts=true,CacheAPIs=true,WorkspaceAuthentication=true,LogicalClusterMigration=true",
    "--shard-name=shard-1",
    "--embedded-etcd-client-port=2381",
    "--embedded-etcd-peer-port=2382",
    "--root-shard-kubeconfig-file=/w/.kcp-0/admin.kubeconfig",
    "--root-directory=/w/.kcp-1",
    "--client-ca-file=/w/.kcp/client-ca.crt",
    "--requestheader-client-ca-file=/w/.kcp/requestheader-ca.crt",
    "--requestheader-username-headers=X-Remote-User",
    "--requestheader-group-headers=X-Remote-Group",
    "--requestheader-extra-headers-prefix=X-Remote-Extra-",
    "--service-account-key-file=/w/.kcp/service-account.crt",
    "--service-account-private-key-file=/w/.kcp/service-account.key",
    "--service-account-signing-key-file=/w/.kcp/service-account.key",
    "--audit-log-path",
    "/w/.kcp/audit-1.log",
    "--shard-external-url=https://127.0.0.1:6443",
    "--tls-cert-file=/w/.kcp-1/apiserver.crt",
    "--tls-private-key-file=/w/.kcp-1/apiserver.key",
    "--secure-port=6445",
    "--logical-cluster-admin-kubeconfig=/w/.kcp/logical-cluster-admin.kubeconfig",
    "--external-logical-cluster-admin-kubeconfig=/w/.kcp/external-logical-cluster-admin.kubeconfig",
    "--shard-client-cert-file=/w/.kcp-1/shard-client-cert.crt",
    "--shard-client-key-file=/w/.kcp-1/shard-client-cert.key",
    "--shard-virtual-workspace-ca-file=/w/.kcp/serving-ca.crt",
    "--mount-proxy-client-cert-file=/w/.kcp/mounts-proxy.crt",
    "--mount-proxy-client-key-file=/w/.kcp/mounts-proxy.key",
    "--cache-kubeconfig=/w/.kcp-cache/cache.kubeconfig",
    "--root-directory",
    "/w/.kcp-1",
    "--bind-address=127.0.0.1",
    "--token-auth-file",
    "/w/.kcp-1/auth-tokens.csv",
    "--audit-log-maxsize",
    "1024",
    "--audit-log-mode=batch",
    "--audit-log-batch-max-wait=1s",
    "--audit-log-batch-max-size=1000",
    "--audit-log-batch-buffer-size=10000",
    "--audit-log-batch-throttle-burst=15",
    "--audit-log-batch-throttle-enable=true",
    "--audit-log-batch-throttle-qps=10",
    "--audit-policy-file",
    "/w/.kcp-1/audit-policy.yaml",
];

#[test]
fn the_command_line_of_kcps_launcher_is_understood() {
    let ShardFlags { config, root_directory, self_signed, service_account_key, warnings } =
        parse(LAUNCHED).unwrap();
    assert_eq!(config.name.as_str(), "shard-1");
    assert_eq!(config.serving.address.to_string(), "127.0.0.1:6445");
    assert_eq!(config.base_url().as_str(), "https://127.0.0.1:6445");
    assert_eq!(config.effective_external_url().as_str(), "https://127.0.0.1:6443");
    assert_eq!(config.store.path.to_str(), Some("/w/.kcp-1/etcd-server/store.redb"));
    assert_eq!(config.trust.request_header_allowed_names, [""; 0]);
    assert!(!config.virtual_workspaces_for_masters_only);
    assert!(config.authentication.workspaces && config.authentication.anonymous);
    let access = config.admin_access.unwrap();
    assert_eq!(access.kubeconfig.to_str(), Some("/w/.kcp-1/admin.kubeconfig"));
    assert_eq!(access.token_hash.to_str(), Some("/w/.kcp-1/.admin-token-store"));
    let audit = config.audit.unwrap();
    assert_eq!(audit.log_path, Some(AuditLogPath::File("/w/.kcp/audit-1.log".into())));
    assert_eq!((audit.log_mode, audit.log_max_size), (AuditMode::Batch, 1024));
    assert_eq!((audit.batch.max_size, audit.batch.throttle_qps), (1000, 10.0));
    assert_eq!(config.service_accounts.key_files.len(), 1);
    assert_eq!(root_directory, Path::new("/w/.kcp-1"));
    assert_eq!((self_signed, service_account_key), (None, None));
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].contains("--embedded-etcd-client-port"));
    assert_eq!(warnings[1], "gates without effect here: CacheAPIs, LogicalClusterMigration, WorkspaceMounts");
}

#[test]
fn virtual_workspaces_beside_the_shard_leave_those_of_the_shard_to_masters() {
    let arguments =
        ["--run-virtual-workspaces=false", "--shard-virtual-workspace-url=https://127.0.0.1:7444"];
    let ShardFlags { config, warnings, .. } = parse(&arguments).unwrap();
    assert!(config.virtual_workspaces_for_masters_only);
    assert_eq!(config.effective_virtual_workspace_url().as_str(), "https://127.0.0.1:7444");
    assert_eq!(warnings, [""; 0]);
}

#[test]
fn files_without_a_flag_are_in_the_root_directory() {
    let flags = parse(&["--root-directory=/r", "--secure-port", "7443", "--bind-address=127.0.0.1"]).unwrap();
    let config = flags.config;
    assert_eq!(flags.self_signed.unwrap().certificate.to_str(), Some("/r/apiserver.crt"));
    assert_eq!(flags.service_account_key.as_deref(), Some(Path::new("/r/sa.key")));
    assert_eq!(config.service_accounts.signing_key.as_deref(), Some(Path::new("/r/sa.key")));
    assert_eq!(config.serving.certificate.to_str(), Some("/r/apiserver.crt"));
    let default = parse(&[]).unwrap();
    assert_eq!(default.root_directory, Path::new(".kcp"));
    assert_eq!(default.config.base_url().as_str(), "https://localhost:6443");
    assert_eq!(default.config.store.path.to_str(), Some(".kcp/etcd-server/store.redb"));
    assert_eq!(default.warnings, [""; 0]);
    assert_eq!(default.config.audit, None);
    let policy = parse(&["--audit-policy-file=p.yaml"]).unwrap();
    assert_eq!(policy.config.audit, None);
    let message =
        "--audit-policy-file records nothing without --audit-log-path or --audit-webhook-config-file";
    assert_eq!(policy.warnings, [message]);
    let elsewhere = super::tests::config(&["--root-directory=/r", "--kubeconfig-path=k", "--cert-dir=c"]);
    assert_eq!(elsewhere.admin_access.unwrap().kubeconfig.to_str(), Some("k"));
    assert_eq!(elsewhere.serving.private_key.to_str(), Some("c/apiserver.key"));
}

#[test]
fn batteries_are_a_list_or_changes_of_the_default() {
    use Battery::{Admin, MetricsViewer, User, WorkspaceTypes};
    for (value, expected) in [
        ("admin", Ok(vec![Admin])),
        ("", Ok(vec![])),
        ("+user", Ok(vec![Admin, WorkspaceTypes, User])),
        ("-workspace-types,+metrics-viewer", Ok(vec![Admin, MetricsViewer])),
        ("+admin", Ok(vec![WorkspaceTypes, Admin])),
        ("admin,+user", Err("--batteries-included must all be prefixed with + or - or none")),
        ("cheese", Err("unknown battery: cheese")),
        ("user", Err("battery user enabled which requires admin as well")),
        ("-admin,+user", Err("battery user enabled which requires admin as well")),
    ] {
        let parsed = parse(&[&format!("--batteries-included={value}")]);
        let batteries = parsed.map(|flags| flags.config.batteries).map_err(|error| error.to_string());
        assert_eq!(batteries, expected.map_err(str::to_owned), "{value:?}");
    }
    assert_eq!(config(&["--batteries-included=workspace-types"]).admin_access, None);
}

#[test]
fn each_setting_has_its_flag() {
    let config = config(&[
        "--authorization-order=Webhook,RBAC",
        "--authorization-webhook-config-file=w",
        "--authorization-webhook-version=v1",
        "--authorization-always-allow-paths=/healthz,/x/*",
        "--logical-cluster-total-object-limit=15",
        "--logical-cluster-object-count-scan-interval=1s",
        "--event-ttl=5m",
        "--home-workspaces-home-creator-groups=team-1,team-2",
        "--anonymous-auth=false",
        "--service-account-key-file=a",
        "--service-account-key-file=b,c",
        "--service-account-private-key-file=p",
        "--service-account-max-token-expiration=1h",
        "--etcd-servers=embedded",
        "--etcd-compaction-interval=0",
        "--shard-base-url=https://shard.example.com:6443",
        "--tls-min-version=VersionTLS13",
        "--shutdown-delay-duration=3s",
        "--feature-gates=",
        "--feature-gates=NoSuchGate=true",
        "--feature-gates=WorkspaceAuthentication=true",
    ]);
    assert_eq!(config.authorization.order, [AuthorizerKind::Webhook, AuthorizerKind::Rbac]);
    assert_eq!(config.authorization.always_allow_paths, ["/healthz", "/x/*"]);
    let webhook = config.authorization.webhook.as_ref().unwrap();
    assert_eq!((webhook.kubeconfig.to_str(), webhook.authorized_ttl), (Some("w"), Timespan::from_secs(300)));
    assert_eq!(config.object_limits.total, Some(15));
    assert_eq!(config.object_limits.scan_interval, Timespan::from_secs(1));
    assert_eq!(config.event_ttl, Timespan::from_secs(300));
    assert_eq!(config.home_workspaces.creator_groups, ["team-1", "team-2"]);
    assert!(!config.authentication.anonymous && config.authentication.workspaces);
    let keys: Vec<_> = config.service_accounts.key_files.iter().filter_map(|file| file.to_str()).collect();
    assert_eq!(keys, ["a", "b,c"]);
    assert_eq!(config.service_accounts.signing_key.as_deref(), Some(Path::new("p")));
    assert_eq!(config.service_accounts.max_validity, Some(Timespan::from_secs(3600)));
    assert_eq!(config.store.compaction_interval, NEVER);
    assert_eq!(config.base_url().authority(), "shard.example.com:6443");
    assert_eq!(config.drain.delay, Timespan::from_secs(3));
}

#[test]
fn an_etcd_takes_the_place_of_the_embedded_store() {
    let given = [
        "--root-directory=/w",
        "--etcd-servers=https://one:2379,https://two:2379",
        "--etcd-servers=three:2379",
        "--etcd-prefix=shards/root/",
        "--replica-name=root-1",
        "--etcd-cafile=/e/ca.crt",
        "--etcd-certfile=/e/tls.crt",
        "--etcd-keyfile=/e/tls.key",
    ];
    assert_eq!(config(&given).replica_name.as_deref(), Some("root-1"));
    let store = config(&given).store;
    assert_eq!(store.etcd.endpoints, ["https://one:2379", "https://two:2379", "http://three:2379"]);
    assert_eq!(store.etcd.prefix, "/shards/root");
    assert_eq!(store.etcd.ca.as_deref(), Some(Path::new("/e/ca.crt")));
    assert_eq!(store.etcd.certificate.as_deref(), Some(Path::new("/e/tls.crt")));
    assert_eq!(store.etcd.private_key.as_deref(), Some(Path::new("/e/tls.key")));
    assert_eq!(store.path.to_str(), Some("/w/etcd-server/etcd-view.redb"));
    let embedded = config(&["--root-directory=/w", "--etcd-servers=embedded", "--etcd-prefix=/x"]);
    assert_eq!(embedded.store.etcd, EtcdConfig::default());
    assert_eq!(embedded.store.path.to_str(), Some("/w/etcd-server/store.redb"));
}

#[test]
fn wrong_command_lines_are_refused_in_one_sentence() {
    for (arguments, expected) in [
        (&["--no-such-flag"][..], "unexpected argument '--no-such-flag' found"),
        (&["--shard-name=beta"], "--cache-kubeconfig is required for non-root shards"),
        (
            &["--etcd-servers=https://127.0.0.1:2379", "--etcd-certfile=tls.crt"],
            "store.etcd.privateKey: a certificate and its private key belong together",
        ),
        (
            &["--encryption-provider-config=e.yaml"],
            "--encryption-provider-config is not supported: objects are not encrypted at rest yet",
        ),
        (&["--run-controllers=false"], "--run-controllers is not supported: controllers run in the shard"),
        (&["--shard-base-url=http://x"], r#"--shard-base-url: "http://x" is no https URL"#),
        (&["--secure-port=0"], "serving.address: with port 0 the URL of this shard is unknown"),
        (
            &["--authorization-order=Sesame"],
            r#"--authorization-order: "Sesame" is no authorizer such as RBAC"#,
        ),
        (
            &["--audit-log-path=a", "--audit-log-mode=never"],
            r#"--audit-log-mode: "never" is no batch, blocking or blocking-strict"#,
        ),
        (
            &["--audit-log-path=a", "--audit-log-maxsize=-1"],
            r#"--audit-log-maxsize: "-1" is no number of this kind"#,
        ),
        (&["--goaway-chance=often"], r#"--goaway-chance: "often" is no number"#),
        (&["--tls-cert-file=x"], "--tls-cert-file needs --tls-private-key-file"),
    ] {
        assert_eq!(parse(arguments).unwrap_err().to_string(), expected, "{arguments:?}");
    }
    for accepted in [
        &["--encryption-provider-config="][..],
        &["--feature-gates=A=true,B=f", "--feature-gates="],
        &["--run-controllers"],
        &["--profiling=false", "--goaway-chance=0.1", "--v=4"],
    ] {
        assert!(parse(accepted).is_ok(), "{accepted:?}");
    }
}

#[test]
fn the_flags_are_listed_on_request() {
    for arguments in [&["options"][..], &["--help"], &["--v=4", "-h"]] {
        let parsed = ShardFlags::parse("1", arguments.iter().map(|argument| (*argument).to_owned()));
        let Ok(ShardArguments::Text(text)) = parsed else { panic!("{parsed:?}") };
        assert!(text.contains("--embedded-etcd-directory") && text.contains("--batteries-included"));
    }
}

#[test]
fn every_flag_of_the_recorded_programs_is_known() {
    let shard = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/kcp/flags/kcp-start.tsv"));
    let names: Vec<&str> = shard.lines().filter(|name| *name != "help").collect();
    assert!(names.len() > 150, "only {} flags are recorded", names.len());
    let unknown: Vec<&str> =
        names.into_iter().filter(|name| !FLAGS.flags().any(|flag| flag.name == *name)).collect();
    assert_eq!(unknown, [""; 0]);
    let recorded =
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/kcp/flags/cache-server.tsv"));
    let help = match CacheFlags::parse("1", ["--help".to_owned()]) {
        Ok(CacheArguments::Text(text)) => text,
        other => panic!("{other:?}"),
    };
    let names: Vec<&str> = recorded.lines().collect();
    assert!(names.len() > 40, "only {} flags are recorded", names.len());
    let unknown: Vec<&str> = names.into_iter().filter(|name| !help.contains(&format!("--{name}"))).collect();
    assert_eq!(unknown, [""; 0]);
}

#[test]
fn the_cache_servers_command_line_is_understood() {
    let flags = cache(&[
        "--root-directory=/w/.kcp-cache",
        "--bind-address=127.0.0.1",
        "--secure-port=8012",
        "--synthetic-delay=20ms",
        "--client-ca-file=/w/.kcp/client-ca.crt",
        "--embedded-etcd-client-port=8010",
        "--embedded-etcd-peer-port=8011",
    ])
    .unwrap();
    assert_eq!(flags.config.serving.address.to_string(), "127.0.0.1:8012");
    assert_eq!(flags.config.synthetic_delay, Timespan::from_millis(20));
    assert_eq!(flags.config.store.path.to_str(), Some("/w/.kcp-cache/etcd-server/store.redb"));
    assert_eq!(flags.self_signed.unwrap().certificate.to_str(), Some("/w/.kcp-cache/apiserver.crt"));
    assert_eq!(flags.warnings.len(), 1);
    for (arguments, expected) in [
        (&[][..], "--client-ca-file is required"),
        (
            &["--client-ca-file=c", "--config=f"],
            "--client-ca-file beside --config: settings come from flags or from a file, not from both",
        ),
    ] {
        assert_eq!(cache(arguments).unwrap_err().to_string(), expected);
    }
}

#[test]
fn a_cache_server_on_etcd_has_the_prefix_of_kcp() {
    for (prefix, expected) in
        [(None, "/cache"), (Some("/registry"), "/cache"), (Some("caches/one"), "/caches/one")]
    {
        let mut arguments = vec![
            "--root-directory=/w".to_owned(),
            "--client-ca-file=c".to_owned(),
            "--etcd-servers=https://one:2379".to_owned(),
            "--replica-name=cache-1".to_owned(),
        ];
        arguments.extend(prefix.map(|prefix| format!("--etcd-prefix={prefix}")));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let config = cache(&arguments).unwrap().config;
        let store = config.effective_store();
        assert_eq!((store.etcd.prefix.as_str(), config.replica_name.as_deref()), (expected, Some("cache-1")));
        assert_eq!(store.etcd.endpoints, ["https://one:2379"]);
        assert_eq!(store.path.to_str(), Some("/w/etcd-server/etcd-view.redb"));
    }
}
