//! Opening: owners of prefixes, local copies, TLS and passwords, an etcd that comes late.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use etcd_client::{Client, ConnectOptions, GetOptions, UserAddOptions};
use fairlead_store::{CommitError, MemoryStore, Mutation, Revision, Store};
use fairlead_store_etcd::{EtcdError, EtcdOptions, EtcdStore, EtcdUser, Timing, TlsFiles};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};

use crate::backend::runtime;
use crate::contract::subject::{put, take};
use crate::etcd::{Cluster, commit_when_available, is_left_out};

#[test]
fn a_store_continues_from_its_copy_or_without_it() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let cluster = Cluster::start(1).await;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("view.redb");
        let with_copy = || EtcdOptions { view: Some(path.clone()), ..cluster.options() };
        let store = EtcdStore::open(with_copy()).await.unwrap();
        let first = put(&store, "a", "1").await;
        put(&store, "b", "1").await;
        store.close().await;
        let refused = store.commit(vec![Mutation::put("a", "closed")]).await;
        assert!(matches!(refused, Err(CommitError::Unavailable { .. })), "{refused:?}");
        drop(store);

        let elsewhere = EtcdStore::open(cluster.options()).await.unwrap();
        let last = put(&elsewhere, "a", "2").await;
        assert_eq!(elsewhere.get(b"b").unwrap().unwrap().value, "1", "read from etcd");
        assert!(elsewhere.compacted() > first);

        let store = EtcdStore::open(with_copy()).await.unwrap();
        assert_eq!(store.get(b"a").unwrap().unwrap().value, "2", "what came meanwhile is visible at once");
        assert!(store.revision() > last, "the barrier of the connection");
        let batches = take(&mut store.follow(first).unwrap(), 2).await;
        assert_eq!(batches[1].revision, last, "the copy has kept the history");
    });
}

#[test]
fn a_copy_of_another_cluster_is_refused_and_nothing_is_written() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let (one, two) = (Cluster::start(1).await, Cluster::start(1).await);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("view.redb");
        // A refusal is final after this time: another member may be one of the right cluster.
        let open = Duration::from_secs(3);
        let with_copy = |cluster: &Cluster| {
            let options = cluster.options();
            let timing = Timing { open, ..options.timing };
            EtcdOptions { view: Some(path.clone()), timing, ..options }
        };
        let store = EtcdStore::open(with_copy(&one)).await.unwrap();
        put(&store, "a", "1").await;
        store.close().await;
        drop(store);
        let copy = std::fs::read(&path).unwrap();

        let error = EtcdStore::open(with_copy(&two)).await.unwrap_err();
        assert!(
            matches!(&error, EtcdError::Foreign { reason, .. } if reason.contains("it has no keys")),
            "{error}"
        );
        let keys = two.client(0).await.get("/", Some(GetOptions::new().with_prefix())).await.unwrap();
        assert!(keys.kvs().is_empty());
        EtcdStore::open(two.options()).await.unwrap().close().await;
        let error = EtcdStore::open(with_copy(&two)).await.unwrap_err();
        assert!(
            matches!(&error, EtcdError::Foreign { reason, .. } if reason.contains("remove the file")),
            "{error}"
        );
        assert!(std::fs::read(&path).unwrap() == copy, "the copy is unchanged");

        std::fs::write(&path, b"rotten").unwrap();
        let error = EtcdStore::open(with_copy(&one)).await.unwrap_err().to_string();
        assert!(error.contains("it is only a copy, which is made again"), "{error}");
    });
}

#[test]
fn a_cluster_that_has_lost_revisions_is_refused() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let cluster = Cluster::start(1).await;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("view.redb");
        let options = EtcdOptions { view: Some(path.clone()), ..cluster.options() };
        let store = EtcdStore::open(options.clone()).await.unwrap();
        put(&store, "a", "1").await;
        store.close().await;
        drop(store);
        // As if etcd had been set back: the copy has seen more.
        let stats = {
            let origin = origin_of(&cluster).await;
            let (replica, mut writer) =
                fairlead_store::ReplicaWriter::open(Some(&path), origin, Default::default()).unwrap();
            let later = fairlead_store::ReplicatedCommit {
                revision: Revision(replica.revision().0 + 1000),
                changes: vec![("a".into(), Some("2".into()))],
            };
            writer.apply(vec![later]).unwrap();
            writer.checkpoint().unwrap();
            replica.stats()
        };
        let error = EtcdStore::open(options).await.unwrap_err();
        assert!(
            matches!(&error, EtcdError::Foreign { reason, .. } if reason.contains(&stats.revision.to_string())),
            "{error}"
        );
    });
}

#[test]
fn a_cluster_that_was_set_back_is_refused_also_after_others_have_written_to_it() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let mut cluster = Cluster::start(1).await;
        let folder = tempfile::tempdir().unwrap();
        let with_copy =
            |name: &str| EtcdOptions { view: Some(folder.path().join(name)), ..cluster.options() };
        let options = [with_copy("one.redb"), with_copy("two.redb")];
        let running = EtcdStore::open(options[0].clone()).await.unwrap();
        let stopped = EtcdStore::open(options[1].clone()).await.unwrap();
        put(&running, "a", "1").await;
        cluster.kill(0);
        cluster.save(0);
        cluster.start_member(0);
        let lost = commit_when_available(&running, vec![Mutation::put("lost", "1")]).await;
        // It connects again by itself, and may be behind.
        let mut follower = stopped.follow(stopped.revision()).unwrap();
        while follower.position() < lost {
            follower.advance().await.unwrap();
        }
        stopped.close().await;
        drop(stopped);
        cluster.kill(0);
        cluster.set_back(0);
        cluster.start_member(0);

        // A replica without a copy begins anew, and passes the revisions that the others have seen.
        let anew = EtcdStore::open(cluster.options()).await.unwrap();
        assert_eq!(anew.get(b"lost").unwrap(), None);
        let seen = running.revision();
        while put(&anew, "b", "2").await <= seen {}
        let short = Timing { open: Duration::from_millis(300), ..options[1].timing };
        let error = EtcdStore::open(EtcdOptions { timing: short, ..options[1].clone() }).await.unwrap_err();
        let is_refusal = |text: &str| text.contains("other data than the local copy: a backup was restored");
        assert!(matches!(&error, EtcdError::Foreign { reason, .. } if is_refusal(reason)), "{error}");
        let refused = async {
            while !running.stats().failure.is_some_and(|failure| is_refusal(&failure)) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), refused).await.expect("the running store goes on");
        assert_eq!(running.get(b"b").unwrap(), None);

        std::fs::remove_file(folder.path().join("two.redb")).unwrap();
        let again = EtcdStore::open(options[1].clone()).await.unwrap();
        assert_eq!(again.get(b"b").unwrap().unwrap().value, "2");
    });
}

#[test]
fn a_copy_without_a_log_is_compared_by_its_newest_record() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let cluster = Cluster::start(1).await;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("view.redb");
        let options = EtcdOptions { view: Some(path.clone()), ..cluster.options() };
        let store = EtcdStore::open(options.clone()).await.unwrap();
        put(&store, "a", "1").await;
        put(&store, "b", "1").await;
        store.close().await;
        drop(store);
        let origin = origin_of(&cluster).await;
        let compact = |change: Option<&'static str>| {
            let (replica, mut writer) =
                fairlead_store::ReplicaWriter::open(Some(&path), origin, Default::default()).unwrap();
            if let Some(value) = change {
                let revision = Revision(replica.revision().0 + 1);
                let changes = vec![("b".into(), Some(value.into()))];
                writer.apply(vec![fairlead_store::ReplicatedCommit { revision, changes }]).unwrap();
            }
            writer.compact(replica.revision()).unwrap();
            while writer.has_rows_to_sweep() {
                writer.sweep().unwrap();
            }
            writer.checkpoint().unwrap();
            assert_eq!(replica.stats().log, 0);
            replica.revision()
        };
        compact(None);
        let store = EtcdStore::open(options.clone()).await.unwrap();
        assert_eq!(store.stats().server.unwrap().reloads, 0, "the copy is good");
        store.close().await;
        drop(store);
        // As if that commit had been lost, and others had taken its revision.
        let lost = compact(Some("lost"));
        let elsewhere = EtcdStore::open(cluster.options()).await.unwrap();
        while put(&elsewhere, "c", "1").await <= lost {}
        let short = Timing { open: Duration::from_millis(300), ..options.timing };
        let error = EtcdStore::open(EtcdOptions { timing: short, ..options }).await.unwrap_err();
        assert!(matches!(error, EtcdError::Foreign { .. }), "{error}");
    });
}

/// The stamp of a copy: the cluster and the number in the owner's record.
async fn origin_of(cluster: &Cluster) -> fairlead_store::Origin {
    let record = cluster.client(0).await.get("/registry/.fairlead/owner", None).await.unwrap();
    let text = record.kvs()[0].value_str().unwrap().to_owned();
    let number = text.lines().nth(2).unwrap();
    fairlead_store::Origin {
        cluster: record.header().unwrap().cluster_id(),
        part: u64::from_str_radix(number, 16).unwrap(),
    }
}

#[test]
fn a_prefix_of_another_owner_or_of_another_program_is_refused() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let cluster = Cluster::start(1).await;
        let owned = |owner: &str| EtcdOptions { owner: owner.to_owned(), ..cluster.options() };
        EtcdStore::open(owned("shard one")).await.unwrap().close().await;
        let error = EtcdStore::open(owned("shard two")).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "the prefix /registry in etcd belongs to \"shard one\", not to \"shard two\": choose another prefix"
        );
        EtcdStore::open(owned("shard one")).await.unwrap().close().await;

        cluster.client(0).await.put("/kcp/core/configmaps/root/a", "k8s", None).await.unwrap();
        let error = EtcdStore::open(EtcdOptions { prefix: "/kcp".to_owned(), ..cluster.options() }).await;
        assert_eq!(
            error.unwrap_err().to_string(),
            "the prefix /kcp in etcd has keys that no Fairlead server has written: choose another prefix"
        );

        for (prefix, reason) in [
            ("/registry/two", "lies below the prefix of another server"),
            ("/registry/two/three", "lies below the prefix of another server"),
            ("/registryof/two", ""),
            ("/registryof", "has keys that no Fairlead server has written"),
        ] {
            let opened = EtcdStore::open(EtcdOptions { prefix: prefix.to_owned(), ..cluster.options() }).await;
            let found = opened.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(found.contains(reason) && found.is_empty() == reason.is_empty(), "{prefix}: {found}");
        }
        let nested = EtcdOptions { prefix: "/registry/two".to_owned(), ..cluster.options() };
        let source: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let refused = EtcdStore::copy_from(nested, source).await.unwrap_err().to_string();
        assert!(refused.contains("lies below the prefix of another server"), "{refused}");
    });
}

#[test]
fn opening_waits_for_etcd_and_gives_up_in_the_end() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let mut cluster = Cluster::stopped(1, &[]);
        let short = Timing { open: Duration::from_millis(300), ..cluster.options().timing };
        let error = EtcdStore::open(EtcdOptions { timing: short, ..cluster.options() }).await.unwrap_err();
        assert!(matches!(error, EtcdError::Unreachable { .. }), "{error}");
        let options = cluster.options();
        let opening = tokio::spawn(EtcdStore::open(options));
        cluster.start_member(0);
        let store = opening.await.unwrap().unwrap();
        put(&store, "a", "1").await;
    });
}

#[test]
fn certificates_and_passwords_are_presented_and_required() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        let issue = |name: &str| {
            let mut leaf =
                CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
            leaf.extended_key_usages =
                vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
            let key = KeyPair::generate().unwrap();
            let leaf = leaf.signed_by(&key, &authority).unwrap();
            (write(&format!("{name}.crt"), leaf.pem()), write(&format!("{name}.key"), key.serialize_pem()))
        };
        let ca = write("ca.crt", authority.pem());
        let (certificate, key) = issue("etcd");
        let (client_certificate, client_key) = issue("client");
        let arguments = [
            "--client-cert-auth",
            "--trusted-ca-file",
            ca.to_str().unwrap(),
            "--cert-file",
            certificate.to_str().unwrap(),
            "--key-file",
            key.to_str().unwrap(),
        ];
        let mut cluster = Cluster::stopped(1, &arguments);
        cluster.start_member(0);
        let tls = TlsFiles {
            authorities: Some(ca.clone()),
            certificate: Some(client_certificate),
            key: Some(client_key),
        };
        let secure = EtcdOptions { tls, ..cluster.options() };
        let store = EtcdStore::open(secure.clone()).await.unwrap();
        put(&store, "a", "1").await;
        store.close().await;

        let short = Timing { open: Duration::from_millis(500), ..secure.timing };
        let authorities = |path: &Path| TlsFiles { authorities: Some(path.into()), ..TlsFiles::default() };
        let foreign = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let foreign = write("foreign.crt", foreign.cert.pem());
        let text = write("text.crt", "no PEM".to_owned());
        for (tls, reason) in [
            (authorities(&ca), "etcd cannot be reached: .*https://"),
            (authorities(&foreign), "etcd cannot be reached: .*invalid peer certificate"),
            (authorities(&text), "the options of etcd cannot be used: .*text.crt has no certificate"),
        ] {
            let refused = EtcdStore::open(EtcdOptions { tls, timing: short, ..secure.clone() }).await;
            let refused = refused.map(drop).map_err(|error| error.to_string());
            let (kind, detail) = reason.split_once(".*").unwrap();
            assert!(
                refused.as_ref().is_err_and(|error| error.starts_with(kind) && error.contains(detail)),
                "{refused:?}: {reason}"
            );
        }

        let plain = Cluster::start(1).await;
        // A cluster that knows no users refuses one.
        let user = |name: &str, password: &str| {
            let password_file = write(&format!("{password}.txt"), format!("{password}\n"));
            EtcdUser { name: name.to_owned(), password_file }
        };
        let root = Some(user("root", "hush"));
        let refused = EtcdStore::open(EtcdOptions { user: root, ..plain.options() }).await;
        assert!(matches!(refused, Err(EtcdError::Denied { .. })), "{refused:?}");
        let mut client = plain.client(0).await;
        client.user_add("root", "hush", Some(UserAddOptions::new())).await.unwrap();
        client.role_add("root").await.unwrap();
        client.user_grant_role("root", "root").await.unwrap();
        client.auth_enable().await.unwrap();
        let with_user = |given: Option<(&str, &str)>| EtcdOptions {
            user: given.map(|(name, password)| user(name, password)),
            ..plain.options()
        };
        let store = EtcdStore::open(with_user(Some(("root", "hush")))).await.unwrap();
        put(&store, "a", "1").await;
        for user in [None, Some(("root", "wrong"))] {
            let refused = EtcdStore::open(with_user(user)).await;
            assert!(matches!(refused, Err(EtcdError::Denied { .. })), "{user:?}: {refused:?}");
        }
    });
}

#[test]
fn a_password_that_is_changed_while_the_store_is_open_is_read_again() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let cluster = Cluster::start(1).await;
        let mut client = cluster.client(0).await;
        client.role_add("root").await.unwrap();
        for (user, password) in [("root", "administrator"), ("shard", "old")] {
            client.user_add(user, password, Some(UserAddOptions::new())).await.unwrap();
            client.user_grant_role(user, "root").await.unwrap();
        }
        client.auth_enable().await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let password_file = folder.path().join("password");
        std::fs::write(&password_file, "old\n").unwrap();
        let user = EtcdUser { name: "shard".to_owned(), password_file: password_file.clone() };
        let store = EtcdStore::open(EtcdOptions { user: Some(user), ..cluster.options() }).await.unwrap();
        put(&store, "a", "old").await;

        let administrator = ConnectOptions::new().with_user("root", "administrator");
        let mut client = Client::connect([cluster.client_url(0)], Some(administrator)).await.unwrap();
        client.user_change_password("shard", "new").await.unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        // The heartbeat finds it, and the old password is tried again.
        while !matches!(
            store.commit(vec![Mutation::put("a", "refused")]).await,
            Err(CommitError::Unavailable { cause }) if cause.to_string() == "etcd refuses access"
        ) {
            assert!(Instant::now() < deadline, "the old password is still accepted");
        }
        std::fs::write(&password_file, "new\n").unwrap();
        commit_when_available(&store, vec![Mutation::put("a", "new")]).await;
    });
}

#[test]
fn a_prefix_of_another_installation_is_refused_and_authorities_can_be_renewed() {
    if is_left_out() {
        return;
    }
    runtime().block_on(async {
        let cluster = Cluster::start(1).await;
        let refused = "the prefix /registry in etcd is used by another installation, none of whose authorities this server has \
                       (if they were replaced, delete the key /registry/.fairlead/installation): choose another prefix";
        for (marks, expected) in [
            (vec!["old"], ""),
            (vec!["foreign"], refused),
            (vec!["old", "new"], ""),
            (vec!["new"], ""),
            (vec!["old"], refused),
            // A program that does not know its installation, such as a copy.
            (vec![], ""),
        ] {
            let installation = marks.iter().map(|mark| (*mark).to_owned()).collect();
            let opened = EtcdStore::open(EtcdOptions { installation, ..cluster.options() }).await;
            let found = opened.as_ref().err().map(ToString::to_string).unwrap_or_default();
            assert_eq!(found, expected, "{marks:?}");
            if let Ok(store) = opened {
                put(&store, "a", &marks.concat()).await;
                store.close().await;
            }
        }
    });
}
