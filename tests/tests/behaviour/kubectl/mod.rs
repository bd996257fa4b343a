//! kubectl, with all installed versions.

mod definitions;
mod deletion;
mod events;
mod guide;
mod objects;
mod quotas;
mod readme;
mod scheduling;
mod sharing;
mod watching;
mod workspaces;

use std::future::Future;

use fairlead_certs::{Client as Role, Kubeconfig};
use fairlead_tests::harness::{Kubectl, Output};
use futures_util::future::join_all;

use crate::installation::{Installation, within};

/// All versions. `kubectl` itself is included only if it is the only one, because it is one of the versions. At least
/// one, unless kubectl is left out.
pub fn versions(installation: &Installation) -> Vec<Kubectl> {
    let found = Kubectl::found(&installation.admin_kubeconfig(), &installation.scratch("homes"));
    // Displayed, not debug-printed: the error says how to install kubectl.
    let found = found.unwrap_or_else(|error| panic!("{error}"));
    let (alone, numbered): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|kubectl| kubectl.version() == "default");
    if numbered.is_empty() { alone } else { numbered }
}

/// Runs a test with all versions concurrently, each in its own workspace below root.
async fn with_each<F: Future<Output = ()>>(test: impl Fn(Session) -> F) {
    let installation = Installation::start(1).await;
    let tests = versions(&installation).into_iter().map(|kubectl| {
        let (installation, test) = (&installation, &test);
        async move {
            let name = format!("v{}", kubectl.version().replace('.', "-"));
            let prefix = installation.workspace("root", &name, "root").await;
            test(Session::new(installation, kubectl, &prefix)).await;
        }
    });
    within("the tests", join_all(tests)).await;
}

/// One kubectl in one workspace.
struct Session {
    kubectl: Kubectl,
    admin: fairlead_client::Client,
    folder: std::path::PathBuf,
}

impl Session {
    fn new(installation: &Installation, kubectl: Kubectl, prefix: &str) -> Self {
        let folder = installation.scratch(&format!("session-{}", kubectl.version()));
        let kubeconfig = folder.join("kubeconfig");
        let server = format!("https://127.0.0.1:{}{prefix}", installation.port());
        let authority = std::fs::read_to_string(installation.layout().serving_ca()).unwrap();
        Kubeconfig::builder()
            .cluster("here", &server, &authority)
            .client(&installation.layout(), &Role::Admin)
            .unwrap()
            .context("here", "here", &Role::Admin.user_name())
            .current("here")
            .build()
            .unwrap()
            .write(&kubeconfig)
            .unwrap();
        Self { kubectl: kubectl.with_kubeconfig(&kubeconfig), admin: installation.admin(prefix), folder }
    }

    /// Runs kubectl and returns its output.
    async fn ok(&self, line: &str) -> String {
        self.kubectl.ok(line).await.unwrap()
    }

    async fn apply(&self, manifest: &str) -> String {
        self.kubectl.ok_with_input("apply -f -", manifest).await.unwrap()
    }

    /// Runs kubectl with arguments that contain spaces.
    async fn run(&self, arguments: &[&str]) -> Output {
        self.kubectl.run(arguments).await.unwrap()
    }

    /// Runs kubectl, which must fail, and returns its error.
    async fn refused(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments).await;
        assert!(!output.status.success(), "{}: {arguments:?}: {output:?}", self.kubectl.version());
        output.stderr
    }

    /// Runs kubectl and compares the trimmed output.
    async fn prints(&self, arguments: &[&str], expected: &str) {
        let output = self.run(arguments).await;
        assert!(output.status.success(), "{}: {arguments:?}: {output:?}", self.kubectl.version());
        assert_eq!(output.stdout.trim(), expected, "{}: {arguments:?}", self.kubectl.version());
    }
}
