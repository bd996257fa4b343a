//! A watch with nothing to say, through a CDN that gives up on answers that pause.

use std::process::Stdio;
use std::time::{Duration, Instant};

use fairlead_certs::Client as Role;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::ChildStdout;
use tokio::time::timeout;

use super::doors::{At, Shown, kubectl, workspace, write};
use super::{Comer, ComerError, READ_LIMIT};
use crate::harness::{HarnessError, Kubectl};

/// How long an event may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// What was seen.
#[derive(Debug, Clone, Copy)]
pub struct Quiet {
    /// How long the watch had nothing to say.
    pub quiet: Duration,
}

/// Watches workspaces with kubectl as the developer, is quiet for three times as long as the CDN waits, and has the
/// administrator make one at the internal door.
///
/// # Errors
/// If the watch ends before, or the event does not come.
pub async fn quiet_watch(comer: &Comer) -> Result<Quiet, ComerError> {
    let layout = comer.layout();
    let edge = At { server: comer.at_the_cdn(), authority: comer.public_authority() };
    let developer = kubectl(comer, "watching", &edge, &Shown::Token(comer.sign_in("developer").await?))?;
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
    let internal = At { server: comer.internal(), authority: layout.serving_ca() };
    let admin = Shown::Certificate(layout.client_cert(&Role::Admin).certificate);
    let admin = kubectl(comer, "watched", &internal, &admin)?;
    // Until it watches, which kubectl does not tell.
    let mut made = 0;
    let begun = loop {
        make(comer, &admin, &format!("before-{made}")).await?;
        made += 1;
        match timeout(READ_LIMIT / 4, lines.next_line()).await {
            Ok(Ok(Some(_))) => break Instant::now(),
            Ok(_) => return Err(ended(watch).await),
            Err(_) if made < 100 => {}
            Err(_) => return Err(ComerError::Missing("the watch saw no workspace".to_owned())),
        }
    };
    let mut last = begun;
    while last.elapsed() < READ_LIMIT * 3 {
        match timeout(READ_LIMIT * 3 - last.elapsed(), lines.next_line()).await {
            // What the workspaces from before still go through.
            Ok(Ok(Some(_))) => last = Instant::now(),
            Ok(_) => return Err(ended(watch).await),
            Err(_) => {}
        }
    }
    let quiet = last.elapsed();
    make(comer, &admin, "afterwards").await?;
    match timeout(PATIENCE, event_of(&mut lines, "afterwards")).await {
        Ok(true) => Ok(Quiet { quiet }),
        Ok(false) => Err(ended(watch).await),
        Err(_) => Err(ComerError::Missing("the event after the quiet did not come".to_owned())),
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
    let output = timeout(PATIENCE, watch.wait_with_output()).await;
    let said = match &output {
        Ok(Ok(output)) => String::from_utf8_lossy(&output.stderr).into_owned(),
        _ => String::new(),
    };
    ComerError::Missing(format!("the watch ended: {}", said.trim()))
}
