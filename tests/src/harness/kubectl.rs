//! The kubectl binaries of this machine.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::HarnessError;
use super::tool::{is_left_out, tool};

/// A kubectl with its own kubeconfig and home, so that caches are not shared.
#[derive(Debug, Clone)]
pub struct Kubectl {
    version: String,
    path: PathBuf,
    kubeconfig: PathBuf,
    home: PathBuf,
}

/// The result of a run of kubectl.
#[derive(Debug, Clone)]
pub struct Output {
    /// The exit status.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// The supported versions. All of them use `/openapi/v3` and JSON discovery.
const VERSIONS: [&str; 5] = ["1.29", "1.30", "1.31", "1.32", "1.33"];

impl Kubectl {
    /// All versions that are installed: `kubectl` itself, which is required, and `kubectl.1.29` to `kubectl.1.33` beside
    /// it; missing ones are named on standard output. Empty where kubectl is [left out](is_left_out). `home` is a
    /// directory for caches.
    pub fn found(kubeconfig: &Path, home: &Path) -> Result<Vec<Self>, HarnessError> {
        if is_left_out("kubectl") {
            return Ok(Vec::new());
        }
        let plain = Self::any(kubeconfig, home)?;
        let beside = std::fs::canonicalize(&plain.path).unwrap_or(plain.path.clone());
        let mut found = vec![plain];
        for version in VERSIONS {
            let path = beside.with_file_name(format!("kubectl.{version}"));
            if path.is_file() {
                found.push(Self::new(version, path, kubeconfig, home));
            } else {
                println!("skipped: kubectl {version} missing");
            }
        }
        Ok(found)
    }

    fn new(version: &str, path: PathBuf, kubeconfig: &Path, home: &Path) -> Self {
        Self {
            version: version.to_owned(),
            path,
            kubeconfig: kubeconfig.to_owned(),
            home: home.join(format!("kubectl-{version}")),
        }
    }

    /// The default `kubectl`.
    pub fn any(kubeconfig: &Path, home: &Path) -> Result<Self, HarnessError> {
        Ok(Self::new("default", tool("kubectl")?, kubeconfig, home))
    }

    /// `default`, or a version such as `1.29`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The same binary with another kubeconfig.
    pub fn with_kubeconfig(&self, kubeconfig: &Path) -> Self {
        Self { kubeconfig: kubeconfig.to_owned(), ..self.clone() }
    }

    /// Runs kubectl and returns the result, whether or not it succeeds.
    pub async fn run<A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<Output, HarnessError> {
        self.run_with_input(arguments, "").await
    }

    /// Runs kubectl with standard input, for example for `apply -f -`.
    pub async fn run_with_input<A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
        input: &str,
    ) -> Result<Output, HarnessError> {
        let running =
            |source| HarnessError::System { what: format!("running kubectl {}", self.version), source };
        std::fs::create_dir_all(&self.home).map_err(running)?;
        let mut child = self
            .command()
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(running)?;
        if let Some(mut stdin) = child.stdin.take() {
            // kubectl may exit without reading its input. The exit status shows whether it succeeded.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        let output = child.wait_with_output().await.map_err(running)?;
        Ok(Output {
            status: output.status,
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Runs kubectl with arguments separated by spaces, and returns its output. Fails if kubectl fails.
    pub async fn ok(&self, line: &str) -> Result<String, HarnessError> {
        self.succeeded(line, self.run(line.split_whitespace()).await?)
    }

    /// Like [`Kubectl::ok`], with a manifest as standard input.
    pub async fn ok_with_input(&self, line: &str, input: &str) -> Result<String, HarnessError> {
        self.succeeded(line, self.run_with_input(line.split_whitespace(), input).await?)
    }

    /// A command with kubeconfig and home set, for tests that keep it running.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", &self.home)
            .env("KUBECACHEDIR", self.home.join("cache"))
            .kill_on_drop(true);
        command
    }

    fn succeeded(&self, line: &str, output: Output) -> Result<String, HarnessError> {
        if output.status.success() {
            return Ok(output.stdout);
        }
        Err(HarnessError::Kubectl {
            version: self.version.clone(),
            command: line.to_owned(),
            status: output.status,
            stderr: output.stderr,
        })
    }
}
