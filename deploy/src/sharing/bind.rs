//! `bind apiexport`: creates an APIBinding and waits until it is bound.

use std::time::Duration;

use clap::{Args, Subcommand};
use fairlead_client::Client;
use fairlead_config::flags::values;
use fairlead_names::WorkspacePath;
use serde_json::Value;
use tokio::time::Instant;

use super::SharingError;
use super::binding::{self, NewBinding};
use super::claim::{Decision, GroupResource, decided};
use crate::connection::{Connection, ConnectionArguments};
use crate::output::Output;

/// First and longest pause between two reads of the APIBinding: most are bound at once.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// Bind the API of another workspace
#[derive(Debug, Args)]
pub(crate) struct BindCommand {
    #[command(subcommand)]
    verb: BindVerb,
}

#[derive(Debug, Subcommand)]
enum BindVerb {
    /// Bind to an APIExport
    Apiexport(BindArguments),
}

/// Arguments of `bind apiexport`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # Bind the APIExport my-export of the workspace root:my-service
  fairlead bind apiexport root:my-service:my-export --name my-binding

  # The same with accepted or rejected permission claims
  fairlead bind apiexport root:my-service:my-export --accept-permission-claim secrets.core,configmaps.core
  fairlead bind apiexport root:my-service:my-export --reject-permission-claim secrets.core")]
struct BindArguments {
    /// Path of the workspace and name of its APIExport
    #[arg(value_name = "WORKSPACE_PATH:APIEXPORT")]
    export: Option<String>,
    /// Name of the APIBinding; by default that of the APIExport
    #[arg(long)]
    name: Option<String>,
    /// Time to wait until the APIBinding is bound
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    timeout: String,
    /// Permission claims to accept: resource.group
    #[arg(long, value_name = "CLAIMS", value_delimiter = ',')]
    accept_permission_claim: Vec<String>,
    /// Permission claims to reject: resource.group
    #[arg(long, value_name = "CLAIMS", value_delimiter = ',')]
    reject_permission_claim: Vec<String>,
    /// Accept all permission claims of the APIExport
    #[arg(long)]
    accept_all_permission_claims: bool,
    /// Reject all permission claims of the APIExport
    #[arg(long)]
    reject_all_permission_claims: bool,
    #[command(flatten)]
    connection: ConnectionArguments,
}

/// A valid request to bind.
#[derive(Debug)]
struct BindRequest<'a> {
    export_path: WorkspacePath,
    export_name: &'a str,
    name: &'a str,
    timeout: Duration,
    /// Claims that the arguments name.
    claims: Vec<Value>,
    /// Decision on all claims of the APIExport.
    all: Option<Decision>,
}

impl BindCommand {
    /// Runs the command.
    pub(crate) fn run(&self) -> Result<(), SharingError> {
        super::run(async |output| self.execute(output).await)
    }

    pub(super) async fn execute(&self, output: &mut Output<'_>) -> Result<(), SharingError> {
        let BindVerb::Apiexport(arguments) = &self.verb;
        let request = arguments.request()?;
        let connection = arguments.connection.open()?;
        request.bind(&connection, &arguments.timeout, output).await
    }
}

impl BindArguments {
    fn request(&self) -> Result<BindRequest<'_>, SharingError> {
        let export =
            self.export.as_deref().filter(|export| !export.is_empty()).ok_or(SharingError::NoExport)?;
        let all = self.decision_on_all()?;
        let (path, export_name) = export.rsplit_once(':').ok_or(SharingError::ExportWithoutPath)?;
        let export_path = WorkspacePath::parse(path).map_err(|_| SharingError::ExportWithoutPath)?;
        let accepted = parse_claims("accepted", &self.accept_permission_claim)?;
        let rejected = parse_claims("rejected", &self.reject_permission_claim)?;
        if let Some(both) = accepted.iter().find(|claim| rejected.contains(claim)) {
            return Err(SharingError::Conflict(both.to_string()));
        }
        let timeout = values::duration(&self.timeout);
        let accepted = accepted.iter().map(|claim| claim.claim(Decision::Accepted));
        let rejected = rejected.iter().map(|claim| claim.claim(Decision::Rejected));
        Ok(BindRequest {
            export_path,
            export_name,
            name: self.name.as_deref().filter(|name| !name.is_empty()).unwrap_or(export_name),
            timeout: timeout.ok_or_else(|| SharingError::Timeout(self.timeout.clone()))?,
            claims: accepted.chain(rejected).collect(),
            all,
        })
    }

    fn decision_on_all(&self) -> Result<Option<Decision>, SharingError> {
        let (decision, all) = match (self.accept_all_permission_claims, self.reject_all_permission_claims) {
            (true, true) => return Err(SharingError::AcceptAndRejectAll),
            (true, false) => (Decision::Accepted, "accept"),
            (false, true) => (Decision::Rejected, "reject"),
            (false, false) => return Ok(None),
        };
        for (some, claims) in
            [("accept", &self.accept_permission_claim), ("reject", &self.reject_permission_claim)]
        {
            if !claims.is_empty() {
                return Err(SharingError::AllAndSome { all, some });
            }
        }
        Ok(Some(decision))
    }
}

impl BindRequest<'_> {
    async fn bind(
        mut self,
        connection: &Connection,
        timeout: &str,
        output: &mut Output<'_>,
    ) -> Result<(), SharingError> {
        if let Some(decision) = self.all {
            // Unlike kcp's plugin, the claims keep their verbs and identities: a claim with others would not be valid.
            let exporter = connection.client_of(&self.export_path);
            let claims = binding::claims_of_export(&exporter, self.export_name).await;
            let claims = claims
                .map_err(|source| SharingError::Export { name: self.export_name.to_owned(), source })?;
            self.claims.extend(claims.into_iter().map(|claim| decided(claim, decision)));
        }
        let workspace = connection.client();
        let new = NewBinding {
            name: self.name,
            export_path: self.export_path.as_str(),
            export_name: self.export_name,
            claims: self.claims,
        };
        let created = binding::create(&workspace, new).await.map_err(SharingError::Create)?;
        let name = self.name;
        output.print(&format!("apibinding {name} created. Waiting to successfully bind ...\n"))?;
        if !binding::is_bound(&created) {
            let reason = until_bound(&workspace, name, self.timeout).await;
            if let Err(reason) =
                reason.map_err(|source| SharingError::Wait { name: name.to_owned(), source })?
            {
                let timeout = timeout.to_owned();
                return Err(SharingError::NotBound { name: name.to_owned(), timeout, reason });
            }
        }
        Ok(output.print(&format!("{name} created and bound.\n"))?)
    }
}

/// Reads the APIBinding until it is bound. `Err` within `Ok` is the reason why it was not bound in time.
async fn until_bound(
    workspace: &Client,
    name: &str,
    timeout: Duration,
) -> Result<Result<(), Option<String>>, fairlead_client::ClientError> {
    let begin = Instant::now();
    let (mut pause, longest) = PAUSES;
    loop {
        let reason = match binding::get(workspace, name).await {
            Ok(binding) if binding::is_bound(&binding) => return Ok(Ok(())),
            Ok(binding) => binding::unmet_conditions(&binding),
            Err(error) if error.is_retryable() => Some(error.to_string()),
            Err(error) => return Err(error),
        };
        let left = timeout.saturating_sub(begin.elapsed());
        if left.is_zero() {
            return Ok(Err(reason));
        }
        tokio::time::sleep(pause.min(left)).await;
        pause = (pause * 2).min(longest);
    }
}

fn parse_claims(decision: &'static str, texts: &[String]) -> Result<Vec<GroupResource>, SharingError> {
    let (mut claims, mut invalid) = (Vec::new(), Vec::new());
    for text in texts {
        match GroupResource::parse_with_group(text) {
            Some(claim) => claims.push(claim),
            None => invalid.push(text.clone()),
        }
    }
    if invalid.is_empty() { Ok(claims) } else { Err(SharingError::Claims { decision, claims: invalid }) }
}
