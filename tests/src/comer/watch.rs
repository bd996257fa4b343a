//! An idle watch through a CDN that aborts responses which pause too long.

use std::process::Stdio;
use std::time::{Duration, Instant};

use fairlead_certs::Client as Role;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::ChildStdout;
use tokio::time::timeout;

use super::access_matrix::{Credential, GatewayAddress, kubectl, workspace, write};
use super::{Comer, ComerError, READ_LIMIT};
use crate::harness::{HarnessError, Kubectl};

/// Limit for the delivery of an event.
const EVENT_TIMEOUT: Duration = Duration::from_secs(30);

/// The result of the check.
#[derive(Debug, Clone, Copy)]
pub struct IdleWatch {
    /// Time for which the watch was idle.
    pub idle: Duration,
}

/// Watches workspaces with kubectl as the developer, stays idle for three times the CDN's read limit, and then creates a
/// workspace as the administrator at the internal gateway.
///
/// # Errors
/// If the watch ends early, or the event does not arrive.
pub async fn check_idle_watch(comer: &Comer) -> Result<IdleWatch, ComerError> {
    let layout = comer.layout();
    let edge = GatewayAddress { server: comer.cdn_url(), authority: comer.public_authority() };
    let developer = kubectl(comer, "watching", &edge, &Credential::Token(comer.sign_in("developer").await?))?;
    let mut watch = developer
        .command()
        .args(["get", "workspaces", "--watch-only", "--output=name"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(HarnessError::system("running kubectl"))?;
    let Some(stdout) = watch.stdout.take() else {
        return Err(ComerError::Missing("kubectl has no standard output".to_owned()));
    };
    let mut lines = BufReader::new(stdout).lines();
    let internal = GatewayAddress { server: comer.internal_url(), authority: layout.serving_ca() };
    let admin = Credential::Certificate(layout.client_cert(&Role::Admin).certificate);
    let admin = kubectl(comer, "watched", &internal, &admin)?;
    // Creates workspaces until the first event arrives. kubectl does not report when the watch is open.
    let mut made = 0;
    let opened_at = loop {
        make(comer, &admin, &format!("before-{made}")).await?;
        made += 1;
        match timeout(READ_LIMIT / 4, lines.next_line()).await {
            Ok(Ok(Some(_))) => break Instant::now(),
            Ok(_) => return Err(ended(watch).await),
            Err(_) if made < 100 => {}
            Err(_) => return Err(ComerError::Missing("the watch saw no workspace".to_owned())),
        }
    };
    let mut last = opened_at;
    while last.elapsed() < READ_LIMIT * 3 {
        match timeout(READ_LIMIT * 3 - last.elapsed(), lines.next_line()).await {
            // Later events of the workspaces from before.
            Ok(Ok(Some(_))) => last = Instant::now(),
            Ok(_) => return Err(ended(watch).await),
            Err(_) => {}
        }
    }
    let idle = last.elapsed();
    make(comer, &admin, "afterwards").await?;
    match timeout(EVENT_TIMEOUT, event_of(&mut lines, "afterwards")).await {
        Ok(true) => Ok(IdleWatch { idle }),
        Ok(false) => Err(ended(watch).await),
        Err(_) => Err(ComerError::Missing("the event after the idle time did not arrive".to_owned())),
    }
}

async fn make(comer: &Comer, admin: &Kubectl, name: &str) -> Result<(), ComerError> {
    let manifest = comer.home("manifests").join(format!("{name}.json"));
    write(&manifest, &workspace(name))?;
    admin.ok(&format!("create -f {}", manifest.display())).await?;
    Ok(())
}

async fn event_of(lines: &mut Lines<BufReader<ChildStdout>>, name: &str) -> bool {
    while let Ok(Some(line)) = lines.next_line().await {
        if line.ends_with(name) {
            return true;
        }
    }
    false
}

async fn ended(watch: tokio::process::Child) -> ComerError {
    // It has closed its output already, or is about to.
    let output = timeout(EVENT_TIMEOUT, watch.wait_with_output()).await;
    let errors = match &output {
        Ok(Ok(output)) => String::from_utf8_lossy(&output.stderr).into_owned(),
        _ => String::new(),
    };
    ComerError::Missing(format!("the watch ended: {}", errors.trim()))
}
