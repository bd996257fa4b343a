//! `fairlead crd snapshot`, `bind` and `claims`, also as the plugin `kubectl kcp`, between two shards.

use std::os::unix::fs::symlink;
use std::path::Path;

use fairlead_tests::harness::{Kubectl, binary};
use tokio::process::Command;

use super::versions;
use crate::installation::{Installation, within};

const DEFINITION: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: anchors.harbour.example.com}
spec:
  group: harbour.example.com
  scope: Namespaced
  names: {plural: anchors, singular: anchor, kind: Anchor}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {weight: {type: integer, minimum: 1}}}
"#;

const EXPORT: &str = r#"
apiVersion: apis.kcp.io/v1alpha2
kind: APIExport
metadata: {name: harbour}
spec:
  resources:
  - {group: harbour.example.com, name: anchors, schema: first.anchors.harbour.example.com, storage: {crd: {}}}
  permissionClaims:
  - {group: "", resource: secrets, verbs: [get, list]}
  - {group: "", resource: configmaps, verbs: ["*"]}
"#;

const ANCHOR: &str = r#"
apiVersion: harbour.example.com/v1
kind: Anchor
metadata: {name: bow, namespace: default}
spec: {weight: 9}
"#;

/// A kubeconfig in a workspace, and the way to call a command.
struct Session<'a> {
    folder: &'a Path,
    kubectl: &'a Kubectl,
    /// Whether the commands are called as `kubectl kcp`.
    as_plugin: bool,
    name: String,
}

impl Session<'_> {
    /// Runs `fairlead <line>`, or `kubectl kcp <line>`.
    async fn kcp(&self, line: &str) -> (bool, String, String) {
        let command = if self.as_plugin {
            let mut command = self.kubectl.command();
            command.arg("kcp");
            command
        } else {
            Command::new(binary("fairlead").unwrap())
        };
        self.run(command, line, "").await
    }

    /// Output of a command that must succeed.
    async fn ok(&self, line: &str) -> String {
        let (success, printed, complaint) = self.kcp(line).await;
        assert!(success, "{line}: {printed}{complaint}");
        printed
    }

    /// Output of a kubectl that must succeed.
    async fn kubectl(&self, line: &str, input: &str) -> String {
        let (success, printed, complaint) = self.run(self.kubectl.command(), line, input).await;
        assert!(success, "kubectl {line}: {printed}{complaint}");
        printed
    }

    async fn run(&self, mut command: Command, line: &str, input: &str) -> (bool, String, String) {
        let given = self.folder.join(format!("{}.input", self.name));
        std::fs::write(&given, input).unwrap();
        let path = format!("{}:{}", self.folder.display(), std::env::var("PATH").unwrap());
        command
            .args(line.split_whitespace())
            .current_dir(self.folder)
            .env("KUBECONFIG", self.folder.join(format!("{}.kubeconfig", self.name)))
            .env("KUBE_EDITOR", "sed -i s/Rejected/Accepted/")
            .env("PATH", path)
            .stdin(std::fs::File::open(given).unwrap());
        let output = within(line, command.output()).await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_is_published_bound_and_its_claims_are_decided() {
    let installation = Installation::start(2).await;
    let folder = installation.scratch("sharing");
    symlink(binary("fairlead").unwrap(), folder.join("kubectl-kcp")).unwrap();
    std::fs::write(folder.join("crd.yaml"), DEFINITION).unwrap();
    let Some(kubectl) = versions(&installation).pop() else { return };
    for (as_plugin, way) in [(false, "alone"), (true, "plugin")] {
        let session = |part: &str| {
            let name = format!("{part}-{way}");
            let kubeconfig = folder.join(format!("{name}.kubeconfig"));
            std::fs::copy(installation.admin_kubeconfig(), kubeconfig).unwrap();
            Session { folder: &folder, kubectl: &kubectl, as_plugin, name }
        };
        let (provider, consumer) = (session("provider"), session("consumer"));
        let ws = if as_plugin { "workspace" } else { "ws" };
        provider.ok(&format!("{ws} create provider-{way} --location-selector name=root --enter")).await;
        consumer.ok(&format!("{ws} create consumer-{way} --location-selector name=shard-1 --enter")).await;

        let schema = provider.ok("crd snapshot -f crd.yaml --prefix first").await;
        assert!(schema.contains("name: first.anchors.harbour.example.com"), "{schema}");
        provider.kubectl("apply -f -", &schema).await;
        provider.kubectl("apply -f -", EXPORT).await;

        let bind =
            format!("bind apiexport root:provider-{way}:harbour --accept-permission-claim=secrets.core");
        let printed = consumer.ok(&bind).await;
        assert_eq!(
            printed,
            "apibinding harbour created. Waiting to successfully bind ...\nharbour created and bound.\n"
        );
        let (success, _, complaint) = consumer.kcp(&bind).await;
        assert!(!success && complaint.starts_with("error: failed to create APIBinding: "), "{complaint}");
        consumer.kubectl("apply -f -", ANCHOR).await;
        assert!(consumer.kubectl("get anchors -o name", "").await.contains("/bow"), "{way}");

        consumer.ok("claims reject harbour --resource=configmaps").await;
        let table = consumer.ok("claims get apibinding harbour").await;
        let rows: Vec<Vec<&str>> = table.lines().map(|row| row.split_whitespace().collect()).collect();
        assert!(rows.contains(&vec!["harbour", "secrets", "*", "Accepted"]), "{table}");
        assert!(rows.contains(&vec!["harbour", "configmaps", "*", "Rejected"]), "{table}");
        assert_eq!(consumer.ok("claims edit harbour").await, "apibinding.apis.kcp.io/harbour edited\n");
        let table = consumer.ok("claims get apibinding").await;
        assert!(!table.contains("Rejected"), "{table}");

        let (success, _, complaint) =
            consumer.kcp("bind apiexport root:nowhere:harbour --name=other --timeout=1s").await;
        assert!(!success && complaint.starts_with("error: "), "{complaint}");
        let printed = consumer.ok("claims accept harbour --resource=secrets.core").await;
        assert_eq!(printed, "claim \"secrets.core\" on APIBinding \"harbour\" is accepted\n");
    }
}
