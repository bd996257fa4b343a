//! The Python client, `kubernetes` of PyPI.

use std::path::Path;

use fairlead_tests::harness::{is_left_out, python};
use tokio::process::Command;

use crate::installation::{Installation, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_with_the_python_client_works() {
    if is_left_out("python-kubernetes") {
        return;
    }
    let installation = Installation::start(1).await;
    let workspace = installation.workspace("root", "snakes", "root").await;
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/behaviour/python/program.py");
    let mut command = Command::new(python().unwrap());
    command
        .arg(program)
        .arg(format!("https://localhost:{}{workspace}", installation.port()))
        .env("KUBECONFIG", installation.admin_kubeconfig())
        .env("HOME", installation.scratch("python"))
        .kill_on_drop(true);
    let output = within("the Python program", command.output()).await.unwrap();
    let (printed, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{printed}\n{errors}");
    assert_eq!(
        printed.lines().collect::<Vec<_>>(),
        [
            "objects",
            "pages",
            "watch",
            "watch after a resumption",
            "definition",
            "patches",
            "server-side apply",
            "watch of the dynamic client",
            "lease",
            "errors"
        ],
        "{errors}"
    );
}
