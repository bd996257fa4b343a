//! `fairlead login` and `fairlead logout`: signing in at an OpenID issuer, as a credential plugin of client-go.

mod browser;
mod cache;
mod callback;
mod http;
mod issuer;
mod plugin;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use fairlead_client::{Credentials, CredentialsError, TrustRoots};
use jiff::Timestamp;
use tokio::time::timeout;

use crate::command::default_directory;
use crate::output::print;
use crate::site::{Site, SiteError};
use browser::Browser;
use cache::{CacheError, CacheFile, Tokens};
use callback::{Callback, Expected, NoCode};
use issuer::{Issuer, IssuerError};
use plugin::{Asker, QuestionError};

/// A token that ends so soon is as good as over: it has to arrive, too.
const MARGIN_SECONDS: i64 = 10;
/// How long a browser may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// Sign in at an OpenID issuer and print the token for kubectl.
#[derive(Clone, Debug, Args)]
pub(crate) struct LoginCommand {
    /// The issuer; by default that of the installation in --dir
    #[arg(long, value_name = "URL", requires = "client_id")]
    issuer: Option<String>,
    /// As which client to ask
    #[arg(long, value_name = "ID", requires = "issuer")]
    client_id: Option<String>,
    /// PEM bundle: authorities of the issuer's certificate, if not those of the system
    #[arg(long, value_name = "FILE", requires = "issuer")]
    ca_file: Option<PathBuf>,
    /// What to ask for besides openid
    #[arg(long, value_delimiter = ',', default_value = "offline_access", value_name = "SCOPE,..")]
    scopes: Vec<String>,
    /// Sign in with a browser on any device, which is shown a code
    #[arg(long)]
    device: bool,
    /// Do not open a browser, only print the address
    #[arg(long)]
    no_browser: bool,
    /// Where tokens are kept; by default ~/.cache/fairlead/login
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// The installation whose issuer is meant
    #[arg(long, default_value = default_directory().as_os_str())]
    dir: PathBuf,
}

/// Forget the tokens of earlier sign-ins.
#[derive(Clone, Debug, Args)]
pub(crate) struct LogoutCommand {
    /// Those of this issuer only
    #[arg(long, value_name = "URL")]
    issuer: Option<String>,
    /// Where tokens are kept; by default ~/.cache/fairlead/login
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
}

/// Why nobody is signed in.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) struct LoginError(#[from] Problem);

#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error(transparent)]
    Question(#[from] QuestionError),
    #[error(transparent)]
    Cache(#[from] CacheError),
    #[error(transparent)]
    Site(#[from] SiteError),
    #[error("nothing is running in {}, and no --issuer is given", .0.display())]
    NoIssuer(PathBuf),
    #[error("cannot read {}: {source}", path.display())]
    Authorities { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error("cannot prepare to run: {0}")]
    Runtime(io::Error),
    #[error(transparent)]
    Issuer(#[from] IssuerError),
    #[error("cannot listen for the browser: {0}")]
    Listen(io::Error),
    #[error(transparent)]
    NoCode(#[from] NoCode),
    #[error("nobody signed in within {} minutes", PATIENCE.as_secs() / 60)]
    TooLate,
    #[error("somebody has to sign in, and nobody is here to do it")]
    Nobody { command: String },
}

impl LoginError {
    pub(crate) fn hint(&self) -> Option<String> {
        match &self.0 {
            Problem::Nobody { command } => Some(format!("run `{command}` in a terminal")),
            Problem::NoIssuer(_) => Some("`fairlead up` starts one".to_owned()),
            Problem::Issuer(IssuerError::Unreachable(..)) => Some(
                "is it running? `fairlead status` shows the processes of an installation here".to_owned(),
            ),
            Problem::Site(error) => error.hint(),
            _ => None,
        }
    }
}

/// How somebody signs in.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Way {
    /// With a browser here, which is opened if there is one.
    Code { browser: Option<Browser> },
    /// With one on any device.
    Device,
}

/// Where to sign in, as whose client.
struct Target {
    issuer: String,
    client_id: String,
    ca_file: Option<PathBuf>,
}

impl LoginCommand {
    /// Prints a token that is good now: the one from before, or a refreshed one, or that of a sign-in.
    pub(crate) fn run(&self) -> Result<(), LoginError> {
        let info = std::env::var("KUBERNETES_EXEC_INFO").ok();
        let asker = Asker::of(info.as_deref()).map_err(Problem::from)?;
        let tokens = self.tokens(&asker)?;
        if asker == Asker::CommandLine && io::stdout().is_terminal() {
            print(told(&tokens));
        } else {
            print(format_args!("{}\n", asker.answer(&tokens)));
        }
        Ok(())
    }

    fn tokens(&self, asker: &Asker) -> Result<Tokens, Problem> {
        let target = self.target()?;
        let authorities = target.ca_file.as_deref().map(read).transpose()?;
        let folder = cache::folder(self.cache_dir.as_deref())?;
        let key = authorities.as_deref().unwrap_or_default();
        let file = CacheFile::of(&folder, &target.issuer, &target.client_id, key);
        let before = file.read();
        if let Some(tokens) = before.as_ref().filter(|tokens| is_good(tokens)) {
            return Ok(tokens.clone());
        }
        let can_refresh = before.as_ref().is_some_and(|tokens| tokens.refresh_token.is_some());
        if !can_refresh && !somebody_is_here(asker) {
            return Err(Problem::Nobody { command: self.by_hand(&target) });
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
            if !somebody_is_here(asker) {
                return Err(Problem::Nobody { command: self.by_hand(&target) });
            }
            match self.way() {
                Way::Device => by_device(&issuer).await,
                Way::Code { browser } => by_code(&issuer, &target.issuer, browser).await,
            }
        };
        let tokens = runtime.map_err(Problem::Runtime)?.block_on(signing_in)?;
        file.write(&tokens)?;
        Ok(tokens)
    }

    fn target(&self) -> Result<Target, Problem> {
        if let (Some(issuer), Some(client_id)) = (&self.issuer, &self.client_id) {
            let (issuer, client_id) = (issuer.clone(), client_id.clone());
            return Ok(Target { issuer, client_id, ca_file: self.ca_file.clone() });
        }
        let site = Site::at(&self.dir)?;
        let record = site.occupant()?.and_then(|_| site.read_record());
        let issuer = record.and_then(|record| record.issuer());
        let issuer = issuer.ok_or_else(|| Problem::NoIssuer(site.directory().to_owned()))?;
        let ca_file = Some(site.certificates().serving_ca());
        Ok(Target { issuer, client_id: crate::up::CLIENT_ID.to_owned(), ca_file })
    }

    fn way(&self) -> Way {
        match (self.device, self.no_browser) {
            (true, _) => Way::Device,
            (false, true) => Way::Code { browser: None },
            (false, false) => Way::Code { browser: Browser::here() },
        }
    }

    /// The command that somebody could run for this.
    fn by_hand(&self, target: &Target) -> String {
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
    /// Forgets.
    pub(crate) fn run(&self) -> Result<(), LoginError> {
        let forget = || -> Result<usize, Problem> {
            Ok(cache::forget(&cache::folder(self.cache_dir.as_deref())?, self.issuer.as_deref())?)
        };
        match forget()? {
            0 => print("Nobody was signed in.\n"),
            1 => print("Signed out.\n"),
            count => print(format_args!("Signed out {count} times.\n")),
        }
        Ok(())
    }
}

/// New tokens by what was kept, if that is possible.
async fn refreshed(
    issuer: &Issuer,
    file: &CacheFile,
    before: Option<&Tokens>,
) -> Result<Option<Tokens>, Problem> {
    let Some(refresh_token) = before.and_then(|tokens| tokens.refresh_token.as_deref()) else {
        return Ok(None);
    };
    match issuer.refresh(refresh_token).await {
        Ok(tokens) => Ok(Some(tokens)),
        // Where a refresh token is good once, another process of this person may just have used it.
        Err(IssuerError::Refused(_)) => Ok(file.read().filter(|now| Some(now) != before && is_good(now))),
        // An issuer need not give an ID token for a refresh (OpenID Connect Core 12.2).
        Err(IssuerError::NoIdToken) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn by_code(issuer: &Issuer, url: &str, browser: Option<Browser>) -> Result<Tokens, Problem> {
    let callback = Callback::listen().await.map_err(Problem::Listen)?;
    let flow = issuer.begin_code(&callback.redirect())?;
    say(&format!("To sign in, open\n  {}\n", flow.url));
    if let Some(browser) = browser {
        // The address has been printed: a browser that does not start is no reason to end.
        let _ = browser.open(flow.url.as_str());
    }
    let expected = Expected { state: flow.state.secret().clone(), issuer: url.to_owned() };
    let code = timeout(PATIENCE, callback.code(&expected)).await.map_err(|_| Problem::TooLate)??;
    Ok(issuer.finish_code(flow, code).await?)
}

async fn by_device(issuer: &Issuer) -> Result<Tokens, Problem> {
    let flow = issuer.begin_device().await?;
    say(&flow.told());
    Ok(issuer.finish_device(&flow).await?)
}

/// Whoever has typed the command is here. A client of Kubernetes says whether somebody can type, and who sees standard
/// error can open an address, which is all that is needed: `kubectl apply -f - < file`.
fn somebody_is_here(asker: &Asker) -> bool {
    match asker {
        Asker::CommandLine => true,
        Asker::Client { interactive, .. } => *interactive || io::stderr().is_terminal(),
    }
}

fn is_good(tokens: &Tokens) -> bool {
    tokens.expires.saturating_sub(MARGIN_SECONDS) > Timestamp::now().as_second()
}

fn told(tokens: &Tokens) -> String {
    let until = Timestamp::from_second(tokens.expires)
        .map_or(String::new(), |until| format!(" The token is good until {until}."));
    let again = if tokens.refresh_token.is_some() { " It is renewed when it is needed." } else { "" };
    format!("Signed in as {}.{until}{again}\n", tokens.user)
}

/// To the person; standard output is for the client.
fn say(text: &str) {
    // Who cannot hear it cannot sign in, and the wait ends by itself.
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

fn read(path: &Path) -> Result<Vec<u8>, Problem> {
    std::fs::read(path).map_err(|source| Problem::Authorities { path: path.to_owned(), source })
}
