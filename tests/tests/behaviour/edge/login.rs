//! `fairlead login` as a credential plugin.

use rustix::process::Signal;
use serde_json::Value;

use super::{Person, age, cached, token};
use crate::installation::{Installation, code, until};
use crate::kubectl::versions;

const V1: &str = "client.authentication.k8s.io/v1";

fn question(version: &str) -> String {
    format!("{{\"apiVersion\":\"{version}\",\"kind\":\"ExecCredential\",\"spec\":{{\"interactive\":false}}}}")
}

/// What clients of Kubernetes hear, to the letter; who has not signed in is told how.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_plugin_speaks_the_protocol() {
    let installation = Installation::start(1).await;
    let person = Person::new(&installation, "a");
    let asked = |version: &str| {
        let mut command = person.fairlead("login --dir=site");
        command.env("KUBERNETES_EXEC_INFO", question(version));
        person.run(command)
    };
    let nobody = asked(V1).await;
    assert!(!nobody.success && nobody.stdout.is_empty(), "{nobody:?}");
    assert!(nobody.stderr.contains("somebody has to sign in"), "{nobody:?}");
    assert!(nobody.stderr.contains("fairlead login --issuer=https://127.0.0.1:"), "{nobody:?}");
    for kubectl in versions(&installation) {
        let mut command = person.command(kubectl.command().as_std().get_program().as_ref());
        command.args(["get", "workspaces"]);
        let ended = person.run(command).await;
        assert!(!ended.success && ended.stderr.contains("somebody has to sign in"), "{ended:?}");
    }

    let first = person.login("--device", "developer").await;
    let answer = asked(V1).await;
    assert!(answer.success && answer.stderr.is_empty(), "{answer:?}");
    assert_eq!(answer.stdout.lines().count(), 1, "{answer:?}");
    let answer: Value = serde_json::from_str(&answer.stdout).unwrap();
    let keys: Vec<_> = answer.as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["apiVersion", "kind", "status"]);
    assert_eq!(answer["apiVersion"], V1);
    assert_eq!(answer["status"]["token"], first, "the token from before");
    let expires = answer["status"]["expirationTimestamp"].as_str().unwrap();
    assert!(expires.len() == 20 && expires.ends_with('Z'), "{expires}");
    let beta = asked("client.authentication.k8s.io/v1beta1").await;
    assert!(beta.stdout.contains("client.authentication.k8s.io/v1beta1"), "{beta:?}");
    let alpha = asked("client.authentication.k8s.io/v1alpha1").await;
    assert!(!alpha.success && alpha.stderr.contains("v1alpha1"), "{alpha:?}");

    let out = person.run(person.fairlead("logout")).await;
    assert_eq!(out.stdout, "Signed out.\n");
    assert!(!asked(V1).await.success);
    let again = person.run(person.fairlead("logout")).await;
    assert!(again.success && again.stdout == "Nobody was signed in.\n", "{again:?}");

    // The person refuses.
    let mut command = person.fairlead("login --dir=site --no-browser");
    let mut child = command.spawn().unwrap();
    let address = super::person::address(&mut child).await;
    let mut form = person.open(&address).await;
    form.fields.push(("refuse".to_owned(), "1".to_owned()));
    person.follow(&person.send(&form).await).await;
    let ended = child.wait_with_output().await.unwrap();
    assert!(!ended.status.success() && ended.stdout.is_empty());
    assert!(!person.cache().exists() || std::fs::read_dir(person.cache()).unwrap().next().is_none());
}

/// A token that is over is renewed without anybody; tokens outlive a restart of the issuer; without an issuer there is a
/// sentence about it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_renewed_and_outlive_the_issuer() {
    let mut installation = Installation::start(1).await;
    let home = installation.scratch("kept");
    let (first, second);
    {
        let person = Person::new(&installation, "a");
        first = person.login("--no-browser", "developer").await;
        assert_eq!(code(&installation.bearer(&first, "/clusters/root").get("/api").await), 200);
        age(&person.cache());
        second = renewed(&person).await;
        assert_ne!(first, second);
        let kept = std::fs::read_to_string(cached(&person.cache())).unwrap();
        assert!(kept.contains(&second) && !kept.contains(&first), "the new one is kept");
        let issuer = person.at(&installation.server("issuer").url);
        let metrics = issuer.get("/metrics").await.unwrap().body;
        let metrics = String::from_utf8(metrics.to_vec()).unwrap();
        for counted in ["{grant=\"code\"} 1", "{grant=\"refresh\"} 1"] {
            assert!(metrics.contains(&format!("fairlead_issuer_tokens_total{counted}")), "{metrics}");
        }

        // Several at once: all get a token, and what is kept is whole.
        age(&person.cache());
        let all = futures_util::future::join_all((0..8).map(|_| renewed(&person))).await;
        let kept: Value = serde_json::from_slice(&std::fs::read(cached(&person.cache())).unwrap()).unwrap();
        assert!(all.iter().any(|token| kept["idToken"] == *token));
        std::fs::copy(cached(&person.cache()), home.join("kept.json")).unwrap();
    }

    let before = installation.server("issuer");
    installation.kill("issuer").await;
    assert_eq!(installation.server("issuer").url, before.url);
    assert_eq!(code(&installation.bearer(&first, "/clusters/root").get("/api").await), 200);
    {
        let person = Person::new(&installation, "a");
        age(&person.cache());
        let third = renewed(&person).await;
        // The gateway has the keys of before; the new issuer signs with the same one.
        assert_eq!(code(&installation.bearer(&third, "/clusters/root").get("/api").await), 200);
    }

    let issuer = before.url;
    let authorities = installation.layout().serving_ca();
    installation.stop().await;
    let person = Person::new(&installation, "a");
    let line = format!("login --issuer={issuer} --client-id=fairlead --ca-file={}", authorities.display());
    let ended = person.run(person.fairlead(&line)).await;
    assert!(ended.success, "a token that is good needs no issuer: {ended:?}");
    age(&person.cache());
    let ended = person.run(person.fairlead(&line)).await;
    assert!(!ended.success && ended.stdout.is_empty(), "{ended:?}");
    assert!(ended.stderr.contains(&format!("the issuer {issuer} cannot be reached")), "{ended:?}");
    assert!(ended.stderr.contains("hint: is it running?"), "{ended:?}");
}

/// Who is taken out of the file of users has no sign-in any more; who is put into it can sign in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_are_a_file_that_people_change() {
    let installation = Installation::start(1).await;
    let person = Person::new(&installation, "a");
    person.login("--no-browser", "developer").await;
    let file = installation.directory().join("users.yaml");
    assert!(std::fs::read_to_string(&file).unwrap().contains("name: visitor"));
    std::fs::write(&file, "users: [{name: carla, groups: [crew]}]").unwrap();
    installation.signal("issuer", Signal::HUP);
    age(&person.cache());
    let issuer = installation.server("issuer").url;
    until("other users", || async {
        let page = person.device_page(&issuer).await;
        if page.contains("carla") && !page.contains("developer") { Ok(()) } else { Err(page) }
    })
    .await;
    let mut command = person.fairlead("login --dir=site");
    command.env("KUBERNETES_EXEC_INFO", question(V1));
    let ended = person.run(command).await;
    assert!(!ended.success && ended.stderr.contains("somebody has to sign in"), "{ended:?}");
    let token = person.login("--device", "carla").await;
    let review = serde_json::json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let root = installation.bearer(&token, "/clusters/root");
    let answer: Value = root.create(reviews, &review, &Default::default()).await.unwrap();
    assert_eq!(answer["status"]["userInfo"]["username"], "oidc:carla");
    assert_eq!(answer["status"]["userInfo"]["groups"][0], "oidc:crew", "{answer:#}");
}

async fn renewed(person: &Person<'_>) -> String {
    let mut command = person.fairlead("login --dir=site");
    command.env("KUBERNETES_EXEC_INFO", question(V1));
    let ended = person.run(command).await;
    assert!(ended.success, "{ended:?}");
    token(&ended.stdout)
}
