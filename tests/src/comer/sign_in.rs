//! Signs in with `fairlead login` at a terminal and a browser on another device.

use std::path::Path;
use std::process::Stdio;

use fairlead_client::{Client, ClientOptions, Credentials, Endpoint, Request};
use http::{Method, StatusCode};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use super::ComerError;
use crate::harness::{Form, HarnessError, binary, split_address};

/// Signs in as a user of the issuer, which requires no password. Returns the token.
pub(super) async fn sign_in(
    issuer: &str,
    authorities: &Path,
    trust: &Credentials,
    home: &Path,
    user: &str,
) -> Result<String, ComerError> {
    let failed = |step: String| ComerError::SignIn { user: user.to_owned(), step };
    let running = HarnessError::system("running fairlead login");
    let mut child = Command::new(binary("fairlead")?)
        .args(["login", "--device", "--client-id=fairlead"])
        .arg(format!("--issuer={issuer}"))
        .arg(format!("--ca-file={}", authorities.display()))
        .arg(format!("--cache-dir={}", home.join(user).display()))
        .env_remove("KUBERNETES_EXEC_INFO")
        .env_remove("BROWSER")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(running)?;
    let Some(messages) = child.stderr.take() else {
        return Err(failed("it has no standard error".to_owned()));
    };
    let mut lines = BufReader::new(messages).lines();
    let mut heard = Vec::new();
    let address = loop {
        match lines.next_line().await {
            Ok(Some(line)) if line.trim().starts_with("https://") => break Some(line.trim().to_owned()),
            Ok(Some(line)) => heard.push(line),
            // It has a token already, or it failed.
            Ok(None) | Err(_) => break None,
        }
    };
    if let Some(address) = address {
        visit(&address, trust, user).await?;
    }
    // The rest of the output is read so that the process does not block.
    let rest = tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    let output =
        child.wait_with_output().await.map_err(HarnessError::system("waiting for fairlead login"))?;
    rest.abort();
    if !output.status.success() {
        return Err(failed(heard.join("\n")));
    }
    let printed: serde_json::Value =
        serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))?;
    let token = printed["status"]["token"].as_str();
    token.map(str::to_owned).ok_or_else(|| failed("no token was printed".to_owned()))
}

/// Plays the browser's part.
async fn visit(address: &str, trust: &Credentials, user: &str) -> Result<(), ComerError> {
    let failed = |step: String| ComerError::SignIn { user: user.to_owned(), step };
    let (origin, path) = split_address(address).ok_or_else(|| failed(format!("{address} is no address")))?;
    let endpoint = Endpoint::parse(&origin).map_err(|error| failed(error.to_string()))?;
    let browser = Client::new(endpoint, trust.clone(), ClientOptions::default());
    let page = browser.request_any_status(Request::new(Method::GET, path)).await?;
    let mut form = Form::on(&origin, &page).ok_or_else(|| failed("the page has no form".to_owned()))?;
    form.fields.push(("user".to_owned(), user.to_owned()));
    let sent = form.request().map_err(|error| failed(error.to_string()))?;
    let response = browser.request_any_status(sent).await?;
    if response.status == StatusCode::OK {
        Ok(())
    } else {
        Err(failed(format!("the form got {}", response.status)))
    }
}
