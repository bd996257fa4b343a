//! `fairlead ws`, also as the plugin `kubectl ws`.

use std::os::unix::fs::symlink;

use fairlead_tests::harness::binary;
use tokio::process::Command;

use super::versions;
use crate::installation::{Installation, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workspaces_are_created_entered_and_listed() {
    let installation = Installation::start(2).await;
    let folder = installation.scratch("plugin");
    symlink(binary("fairlead").unwrap(), folder.join("kubectl-ws")).unwrap();
    let ways =
        [(None, "alone".to_owned())].into_iter().chain(versions(&installation).into_iter().map(|kubectl| {
            let name = format!("v{}", kubectl.version().replace('.', "-"));
            (Some(kubectl), name)
        }));
    for (kubectl, name) in ways {
        let kubeconfig = folder.join(format!("{name}.kubeconfig"));
        std::fs::copy(installation.admin_kubeconfig(), &kubeconfig).unwrap();
        let ws = |line: &str| {
            let mut command = match &kubectl {
                Some(kubectl) => kubectl.command(),
                None => Command::new(binary("fairlead").unwrap()),
            };
            let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
            command.arg("ws").args(line.split_whitespace()).env("KUBECONFIG", &kubeconfig).env("PATH", path);
            async move {
                let output = within("ws", command.output()).await.unwrap();
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                (output.status.success(), text(&output.stdout), text(&output.stderr))
            }
        };
        let ok = |line: &'static str| async move {
            let (success, printed, complaint) = ws(line).await;
            assert!(success, "{line}: {printed}{complaint}");
            printed
        };
        assert_eq!(ok("current").await, "Current workspace is 'root'.\n");
        let (_, printed, complaint) =
            ws(&format!("create {name} --location-selector name=shard-1 --enter")).await;
        assert!(printed.contains(&format!("'root:{name}' (type root:organization)")), "{printed}{complaint}");
        assert!(ok("create fleet --type root:universal").await.contains("is ready to use"), "{name}");
        assert!(ok("create fleet --ignore-existing").await.contains("fleet"), "{name}");
        assert!(ok("create crew --enter").await.contains(&format!("'root:{name}:crew'")), "{name}");
        assert!(ok("..").await.contains(&format!("'root:{name}'")), "{name}");
        assert_eq!(ok("tree").await.trim(), format!(".\n└── root:{name}\n    ├── crew\n    └── fleet"));
        assert!(ok("use fleet").await.contains(&format!("'root:{name}:fleet' (type root:universal)")));
        assert_eq!(ok("current --short").await.trim(), format!("root:{name}:fleet"));
        assert!(ok("-").await.contains(&format!("'root:{name}'")));
        assert!(ok(":root").await.contains("'root'"));
        let (success, _, complaint) = ws("use nowhere").await;
        assert!(!success && complaint.contains("nowhere"), "{complaint}");
        let (success, _, complaint) = ws(&format!("create {name}")).await;
        assert!(!success && complaint.contains("already exists"), "{complaint}");
    }
}
