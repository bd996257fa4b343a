//! `fairlead login` and `fairlead logout`: sign-in at an OpenID issuer, as a credential plugin of client-go.

mod browser;
mod cache;
mod callback;
mod exec_credential;
mod http_client;
mod id_token;
mod issuer;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use fairlead_client::{Credentials, CredentialsError, TrustRoots};
use jiff::Timestamp;
use tokio::time::timeout;

use crate::installation::{Installation, InstallationError, default_directory};
use crate::output::print;
use browser::Browser;
use cache::{CacheError, CacheFile, Tokens};
use callback::{Callback, CallbackError, ExpectedCallback};
use exec_credential::{Caller, ExecInfoError};
use issuer::{Issuer, IssuerError};

/// A token that expires within this time is not used: it could expire in transit.
const EXPIRY_MARGIN_SECONDS: i64 = 10;
/// Timeout of a sign-in with a browser.
const SIGN_IN_TIMEOUT: Duration = Duration::from_secs(300);

/// Sign in at an OpenID issuer and print the token for kubectl
#[derive(Clone, Debug, Args)]
pub(crate) struct LoginCommand {
    /// URL of the issuer; by default that of the installation in --dir
    #[arg(long, value_name = "URL", requires = "client_id")]
    issuer: Option<String>,
    /// OAuth client id
    #[arg(long, value_name = "ID", requires = "issuer")]
    client_id: Option<String>,
    /// CA bundle (PEM) for the certificate of the issuer; by default that of the system
    #[arg(long, value_name = "FILE", requires = "issuer")]
    ca_file: Option<PathBuf>,
    /// Scopes to request besides openid
    #[arg(long, value_delimiter = ',', default_value = "offline_access", value_name = "SCOPE,..")]
    scopes: Vec<String>,
    /// Show a code for a sign-in on any device (RFC 8628)
    #[arg(long)]
    device: bool,
    /// Print the address instead of opening a browser
    #[arg(long)]
    no_browser: bool,
    /// Folder of the tokens; by default ~/.cache/fairlead/login
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// Directory of the installation whose issuer is used
    #[arg(long, default_value = default_directory().as_os_str())]
    dir: PathBuf,
}

/// Delete the tokens of earlier sign-ins
#[derive(Clone, Debug, Args)]
pub(crate) struct LogoutCommand {
    /// Only tokens of this issuer
    #[arg(long, value_name = "URL")]
    issuer: Option<String>,
    /// Folder of the tokens; by default ~/.cache/fairlead/login
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
}

/// Errors of `fairlead login` and `fairlead logout`.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) struct LoginError(#[from] LoginErrorKind);

#[derive(Debug, thiserror::Error)]
enum LoginErrorKind {
    #[error(transparent)]
    ExecInfo(#[from] ExecInfoError),
    #[error(transparent)]
    Cache(#[from] CacheError),
    #[error(transparent)]
    Installation(#[from] InstallationError),
    #[error("nothing is running in {}, and no --issuer is given", .0.display())]
    NoIssuer(PathBuf),
    #[error("cannot read {}: {source}", path.display())]
    Authorities { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error("the async runtime cannot be started: {0}")]
    Runtime(io::Error),
    #[error(transparent)]
    Issuer(#[from] IssuerError),
    #[error("cannot listen for the browser: {0}")]
    Listen(io::Error),
    #[error(transparent)]
    CallbackError(#[from] CallbackError),
    #[error("no sign-in within {} minutes", SIGN_IN_TIMEOUT.as_secs() / 60)]
    TimedOut,
    #[error("a sign-in is required, and there is no terminal for it")]
    SignInRequired { command: String },
}

impl LoginError {
    pub(crate) fn hint(&self) -> Option<String> {
        match &self.0 {
            LoginErrorKind::SignInRequired { command } => Some(format!("run `{command}` in a terminal")),
            LoginErrorKind::NoIssuer(_) => Some("`fairlead up` starts an issuer".to_owned()),
            LoginErrorKind::Issuer(IssuerError::Unreachable(..)) => Some(
                "check that it is running: `fairlead status` shows the processes of an installation"
                    .to_owned(),
            ),
            LoginErrorKind::Installation(error) => error.hint(),
            _ => None,
        }
    }
}

/// A method of signing in.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SignInMethod {
    /// Authorization code flow with a browser on this machine; `None` only prints the address.
    Code { browser: Option<Browser> },
    /// Device flow, with a browser on any device.
    Device,
}

/// The issuer and client of a sign-in.
struct Target {
    issuer: String,
    client_id: String,
    ca_file: Option<PathBuf>,
}

impl LoginCommand {
    /// Prints a valid token: the cached one, a refreshed one, or that of a new sign-in.
    pub(crate) fn run(&self) -> Result<(), LoginError> {
        let info = std::env::var("KUBERNETES_EXEC_INFO").ok();
        let caller = Caller::of(info.as_deref()).map_err(LoginErrorKind::from)?;
        let tokens = self.tokens(&caller)?;
        if caller == Caller::CommandLine && io::stdout().is_terminal() {
            print(summary(&tokens));
        } else {
            print(format_args!("{}\n", caller.response(&tokens)));
        }
        Ok(())
    }

    fn tokens(&self, caller: &Caller) -> Result<Tokens, LoginErrorKind> {
        let target = self.target()?;
        let authorities = target.ca_file.as_deref().map(read).transpose()?;
        let folder = cache::folder(self.cache_dir.as_deref())?;
        let key = authorities.as_deref().unwrap_or_default();
        let file = CacheFile::of(&folder, &target.issuer, &target.client_id, key);
        let before = file.read();
        if let Some(tokens) = before.as_ref().filter(|tokens| is_valid(tokens)) {
            return Ok(tokens.clone());
        }
        let can_refresh = before.as_ref().is_some_and(|tokens| tokens.refresh_token.is_some());
        if !can_refresh && !can_interact(caller) {
            return Err(LoginErrorKind::SignInRequired { command: self.command_for_terminal(&target) });
        }
        let roots = authorities.map_or(TrustRoots::System, TrustRoots::Pem);
        let credentials = Credentials::new(roots)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let signing_in = async {
            let issuer =
                Issuer::discover(&target.issuer, &target.client_id, &self.scopes, credentials).await?;
            if let Some(tokens) = refreshed(&issuer, &file, before.as_ref()).await? {
                return Ok(tokens);
            }
            if !can_interact(caller) {
                return Err(LoginErrorKind::SignInRequired { command: self.command_for_terminal(&target) });
            }
            match self.method() {
                SignInMethod::Device => by_device(&issuer).await,
                SignInMethod::Code { browser } => by_code(&issuer, &target.issuer, browser).await,
            }
        };
        let tokens = runtime.map_err(LoginErrorKind::Runtime)?.block_on(signing_in)?;
        file.write(&tokens)?;
        Ok(tokens)
    }

    fn target(&self) -> Result<Target, LoginErrorKind> {
        if let (Some(issuer), Some(client_id)) = (&self.issuer, &self.client_id) {
            let (issuer, client_id) = (issuer.clone(), client_id.clone());
            return Ok(Target { issuer, client_id, ca_file: self.ca_file.clone() });
        }
        let installation = Installation::at(&self.dir)?;
        let state = installation.running_up()?.and_then(|_| installation.read_state());
        let issuer = state.and_then(|state| state.issuer());
        let issuer = issuer.ok_or_else(|| LoginErrorKind::NoIssuer(installation.directory().to_owned()))?;
        let ca_file = Some(installation.certificates().serving_ca());
        Ok(Target { issuer, client_id: crate::up::CLIENT_ID.to_owned(), ca_file })
    }

    fn method(&self) -> SignInMethod {
        match (self.device, self.no_browser) {
            (true, _) => SignInMethod::Device,
            (false, true) => SignInMethod::Code { browser: None },
            (false, false) => SignInMethod::Code { browser: Browser::detect() },
        }
    }

    /// The command to run in a terminal for this sign-in.
    fn command_for_terminal(&self, target: &Target) -> String {
        let program = std::env::current_exe().unwrap_or_else(|_| "fairlead".into());
        let mut command = format!(
            "{} login --issuer={} --client-id={}",
            program.display(),
            target.issuer,
            target.client_id
        );
        if let Some(file) = &target.ca_file {
            command.push_str(&format!(" --ca-file={}", file.display()));
        }
        if let Some(folder) = &self.cache_dir {
            command.push_str(&format!(" --cache-dir={}", folder.display()));
        }
        command
    }
}

impl LogoutCommand {
    /// Deletes tokens.
    pub(crate) fn run(&self) -> Result<(), LoginError> {
        let delete = || -> Result<usize, LoginErrorKind> {
            Ok(cache::delete(&cache::folder(self.cache_dir.as_deref())?, self.issuer.as_deref())?)
        };
        match delete()? {
            0 => print("There was no sign-in.\n"),
            1 => print("Signed out.\n"),
            count => print(format_args!("Signed out {count} times.\n")),
        }
        Ok(())
    }
}

/// New tokens by the cached refresh token, if possible.
async fn refreshed(
    issuer: &Issuer,
    file: &CacheFile,
    before: Option<&Tokens>,
) -> Result<Option<Tokens>, LoginErrorKind> {
    let Some(refresh_token) = before.and_then(|tokens| tokens.refresh_token.as_deref()) else {
        return Ok(None);
    };
    match issuer.refresh(refresh_token).await {
        Ok(tokens) => Ok(Some(tokens)),
        // Where refresh tokens are used once, another process of this user may just have used it.
        Err(IssuerError::Refused(_)) => Ok(file.read().filter(|now| Some(now) != before && is_valid(now))),
        // An issuer need not send an ID token on refresh (OpenID Connect Core 12.2).
        Err(IssuerError::NoIdToken) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn by_code(issuer: &Issuer, url: &str, browser: Option<Browser>) -> Result<Tokens, LoginErrorKind> {
    let callback = Callback::listen().await.map_err(LoginErrorKind::Listen)?;
    let flow = issuer.begin_code(&callback.redirect())?;
    print_to_user(&format!("To sign in, open\n  {}\n", flow.url));
    if let Some(browser) = browser {
        // The address has been printed, so a browser that does not start is no error.
        let _ = browser.open(flow.url.as_str());
    }
    let expected = ExpectedCallback { state: flow.state.secret().clone(), issuer: url.to_owned() };
    let code =
        timeout(SIGN_IN_TIMEOUT, callback.code(&expected)).await.map_err(|_| LoginErrorKind::TimedOut)??;
    Ok(issuer.finish_code(flow, code).await?)
}

async fn by_device(issuer: &Issuer) -> Result<Tokens, LoginErrorKind> {
    let flow = issuer.begin_device().await?;
    print_to_user(&flow.instructions());
    Ok(issuer.finish_device(&flow).await?)
}

/// Whether a user can sign in. A Kubernetes client reports whether standard input is a terminal. A terminal on standard error
/// is enough, because the user only opens an address: `kubectl apply -f - < file`.
fn can_interact(caller: &Caller) -> bool {
    match caller {
        Caller::CommandLine => true,
        Caller::Client { interactive, .. } => *interactive || io::stderr().is_terminal(),
    }
}

fn is_valid(tokens: &Tokens) -> bool {
    tokens.expires.saturating_sub(EXPIRY_MARGIN_SECONDS) > Timestamp::now().as_second()
}

fn summary(tokens: &Tokens) -> String {
    let until = Timestamp::from_second(tokens.expires)
        .map_or(String::new(), |until| format!(" The token is valid until {until}."));
    let again = if tokens.refresh_token.is_some() { " It is renewed automatically." } else { "" };
    format!("Signed in as {}.{until}{again}\n", tokens.user)
}

/// Prints to standard error, because standard output is for the client.
fn print_to_user(text: &str) {
    // On failure the sign-in times out.
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

fn read(path: &Path) -> Result<Vec<u8>, LoginErrorKind> {
    std::fs::read(path).map_err(|source| LoginErrorKind::Authorities { path: path.to_owned(), source })
}
