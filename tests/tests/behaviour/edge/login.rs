//! `fairlead login` as a credential plugin.

use rustix::process::Signal;
use serde_json::Value;

use super::{User, age, cached, token};
use crate::installation::{Installation, code, until};
use crate::kubectl::versions;

const V1: &str = "client.authentication.k8s.io/v1";

fn exec_credential(version: &str) -> String {
    format!("{{\"apiVersion\":\"{version}\",\"kind\":\"ExecCredential\",\"spec\":{{\"interactive\":false}}}}")
}

/// The output follows the protocol of credential plugins. Without a sign-in, the error names the command.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_plugin_follows_the_credential_protocol() {
    let installation = Installation::start(1).await;
    let user = User::new(&installation, "a");
    let run_with_exec_info = |version: &str| {
        let mut command = user.fairlead("login --dir=site");
        command.env("KUBERNETES_EXEC_INFO", exec_credential(version));
        user.run(command)
    };
    let signed_out = run_with_exec_info(V1).await;
    assert!(!signed_out.success && signed_out.stdout.is_empty(), "{signed_out:?}");
    assert!(signed_out.stderr.contains("a sign-in is required"), "{signed_out:?}");
    assert!(signed_out.stderr.contains("fairlead login --issuer=https://127.0.0.1:"), "{signed_out:?}");
    for kubectl in versions(&installation) {
        let mut command = user.command(kubectl.command().as_std().get_program().as_ref());
        command.args(["get", "workspaces"]);
        let finished = user.run(command).await;
        assert!(!finished.success && finished.stderr.contains("a sign-in is required"), "{finished:?}");
    }

    let first = user.login("--device", "developer").await;
    let output = run_with_exec_info(V1).await;
    assert!(output.success && output.stderr.is_empty(), "{output:?}");
    assert_eq!(output.stdout.lines().count(), 1, "{output:?}");
    let credential: Value = serde_json::from_str(&output.stdout).unwrap();
    let keys: Vec<_> = credential.as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["apiVersion", "kind", "status"]);
    assert_eq!(credential["apiVersion"], V1);
    assert_eq!(credential["status"]["token"], first, "the cached token");
    let expires = credential["status"]["expirationTimestamp"].as_str().unwrap();
    assert!(expires.len() == 20 && expires.ends_with('Z'), "{expires}");
    let beta = run_with_exec_info("client.authentication.k8s.io/v1beta1").await;
    assert!(beta.stdout.contains("client.authentication.k8s.io/v1beta1"), "{beta:?}");
    let alpha = run_with_exec_info("client.authentication.k8s.io/v1alpha1").await;
    assert!(!alpha.success && alpha.stderr.contains("v1alpha1"), "{alpha:?}");

    let out = user.run(user.fairlead("logout")).await;
    assert_eq!(out.stdout, "Signed out.\n");
    assert!(!run_with_exec_info(V1).await.success);
    let again = user.run(user.fairlead("logout")).await;
    assert!(again.success && again.stdout == "There was no sign-in.\n", "{again:?}");

    // The user denies the request.
    let mut command = user.fairlead("login --dir=site --no-browser");
    let mut child = command.spawn().unwrap();
    let address = super::user::address(&mut child).await;
    let mut form = user.open(&address).await;
    form.fields.push(("refuse".to_owned(), "1".to_owned()));
    user.follow(&user.send(&form).await).await;
    let finished = child.wait_with_output().await.unwrap();
    assert!(!finished.status.success() && finished.stdout.is_empty());
    assert!(!user.cache().exists() || std::fs::read_dir(user.cache()).unwrap().next().is_none());
}

/// An expired token is renewed without interaction. Tokens stay valid across a restart of the issuer. Without an issuer there
/// is a clear error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_renewed_and_outlive_the_issuer() {
    let mut installation = Installation::start(1).await;
    let home = installation.scratch("kept");
    let (first, second);
    {
        let user = User::new(&installation, "a");
        first = user.login("--no-browser", "developer").await;
        assert_eq!(code(&installation.bearer(&first, "/clusters/root").get("/api").await), 200);
        age(&user.cache());
        second = renewed(&user).await;
        assert_ne!(first, second);
        let kept = std::fs::read_to_string(cached(&user.cache())).unwrap();
        assert!(kept.contains(&second) && !kept.contains(&first), "the new token is cached");
        let issuer = user.at(&installation.server("issuer").url);
        let metrics = issuer.get("/metrics").await.unwrap().body;
        let metrics = String::from_utf8(metrics.to_vec()).unwrap();
        for counted in ["{grant=\"code\"} 1", "{grant=\"refresh\"} 1"] {
            assert!(metrics.contains(&format!("fairlead_issuer_tokens_total{counted}")), "{metrics}");
        }

        // Concurrent renewals: all get a token, and the cache file stays valid.
        age(&user.cache());
        let all = futures_util::future::join_all((0..8).map(|_| renewed(&user))).await;
        let kept: Value = serde_json::from_slice(&std::fs::read(cached(&user.cache())).unwrap()).unwrap();
        assert!(all.iter().any(|token| kept["idToken"] == *token));
        std::fs::copy(cached(&user.cache()), home.join("kept.json")).unwrap();
    }

    let before = installation.server("issuer");
    installation.kill("issuer").await;
    assert_eq!(installation.server("issuer").url, before.url);
    assert_eq!(code(&installation.bearer(&first, "/clusters/root").get("/api").await), 200);
    {
        let user = User::new(&installation, "a");
        age(&user.cache());
        let third = renewed(&user).await;
        // The gateway has cached keys; the restarted issuer signs with the same key.
        assert_eq!(code(&installation.bearer(&third, "/clusters/root").get("/api").await), 200);
    }

    let issuer = before.url;
    let authorities = installation.layout().serving_ca();
    installation.stop().await;
    let user = User::new(&installation, "a");
    let line = format!("login --issuer={issuer} --client-id=fairlead --ca-file={}", authorities.display());
    let finished = user.run(user.fairlead(&line)).await;
    assert!(finished.success, "a valid token needs no issuer: {finished:?}");
    age(&user.cache());
    let finished = user.run(user.fairlead(&line)).await;
    assert!(!finished.success && finished.stdout.is_empty(), "{finished:?}");
    assert!(finished.stderr.contains(&format!("the issuer {issuer} cannot be reached")), "{finished:?}");
    assert!(finished.stderr.contains("hint: check that it is running"), "{finished:?}");
}

/// A user who is removed from the file of users cannot renew tokens. A user who is added can sign in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_the_file_of_users_take_effect() {
    let installation = Installation::start(1).await;
    let user = User::new(&installation, "a");
    user.login("--no-browser", "developer").await;
    let file = installation.directory().join("users.yaml");
    assert!(std::fs::read_to_string(&file).unwrap().contains("name: visitor"));
    std::fs::write(&file, "users: [{name: carla, groups: [crew]}]").unwrap();
    installation.signal("issuer", Signal::HUP);
    age(&user.cache());
    let issuer = installation.server("issuer").url;
    until("other users", || async {
        let page = user.device_page(&issuer).await;
        if page.contains("carla") && !page.contains("developer") { Ok(()) } else { Err(page) }
    })
    .await;
    let mut command = user.fairlead("login --dir=site");
    command.env("KUBERNETES_EXEC_INFO", exec_credential(V1));
    let finished = user.run(command).await;
    assert!(!finished.success && finished.stderr.contains("a sign-in is required"), "{finished:?}");
    let token = user.login("--device", "carla").await;
    let review = serde_json::json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let root = installation.bearer(&token, "/clusters/root");
    let response: Value = root.create(reviews, &review, &Default::default()).await.unwrap();
    assert_eq!(response["status"]["userInfo"]["username"], "oidc:carla");
    assert_eq!(response["status"]["userInfo"]["groups"][0], "oidc:crew", "{response:#}");
}

async fn renewed(user: &User<'_>) -> String {
    let mut command = user.fairlead("login --dir=site");
    command.env("KUBERNETES_EXEC_INFO", exec_credential(V1));
    let finished = user.run(command).await;
    assert!(finished.success, "{finished:?}");
    token(&finished.stdout)
}
