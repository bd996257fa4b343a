//! `claims get|accept|reject|edit`: the permission claims of the APIBindings in a workspace.

use clap::{Args, Subcommand};
use serde_json::Value;

use super::claim::{self, Decision, GroupResource, Selection, SelectionError};
use super::{SharingError, binding, edit};
use crate::connection::{Connection, ConnectionArguments};
use crate::output::Output;
use crate::ws::Binding;

/// Attempts to change an APIBinding that others change at the same time.
const MAX_ATTEMPTS: usize = 5;
/// Spaces between two columns; a column is at least six characters wide with them.
const PADDING: usize = 3;
const MIN_COLUMN: usize = 6;

/// Show, accept and reject permission claims
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fairlead claims get apibinding                                     # all APIBindings of the workspace
  fairlead claims get apibinding cert-manager
  fairlead claims accept cert-manager --resource=secrets
  fairlead claims accept cert-manager --resource=gateways.networking.istio.io
  fairlead claims reject cert-manager --identity-hash=5fdf7c7aaf407fd1594566869803f565bb84d22156cef5c445d2ee13ac2cfca6
  fairlead claims edit cert-manager                                  # all claims in an editor")]
pub(crate) struct ClaimsCommand {
    #[command(subcommand)]
    verb: ClaimsVerb,
    #[command(flatten)]
    connection: ConnectionArguments,
}

#[derive(Debug, Subcommand)]
enum ClaimsVerb {
    /// Print the claims of APIBindings
    #[command(subcommand)]
    Get(GetVerb),
    /// Accept claims of an APIBinding
    Accept(SelectionArguments),
    /// Reject claims of an APIBinding
    Reject(SelectionArguments),
    /// Decide on the claims of an APIBinding in an editor
    Edit {
        /// Name of the APIBinding
        #[arg(value_name = "APIBINDING")]
        name: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
enum GetVerb {
    /// Print the claims of one APIBinding, or of all
    #[command(alias = "apibindings")]
    Apibinding {
        /// Name of the APIBinding; by default all of the workspace
        #[arg(value_name = "APIBINDING")]
        name: Option<String>,
    },
}

/// Arguments of `claims accept` and `claims reject`.
#[derive(Debug, Args)]
struct SelectionArguments {
    /// Name of the APIBinding
    #[arg(value_name = "APIBINDING")]
    name: Option<String>,
    /// Claims on this resource: `secrets`, `things.example.com`
    #[arg(long, value_name = "RESOURCE.GROUP")]
    resource: Option<String>,
    /// Claims on resources with this identity
    #[arg(long, value_name = "HASH")]
    identity_hash: Option<String>,
}

impl ClaimsCommand {
    /// Runs the command.
    pub(crate) fn run(&self) -> Result<(), SharingError> {
        super::run(async |output| self.execute(output).await)
    }

    pub(super) async fn execute(&self, output: &mut Output<'_>) -> Result<(), SharingError> {
        match &self.verb {
            ClaimsVerb::Get(GetVerb::Apibinding { name }) => {
                get(&self.connection.open()?, given(name.as_deref()), output).await
            }
            ClaimsVerb::Accept(arguments) => {
                decide(&self.connection, arguments, Decision::Accepted, output).await
            }
            ClaimsVerb::Reject(arguments) => {
                decide(&self.connection, arguments, Decision::Rejected, output).await
            }
            ClaimsVerb::Edit { name } => {
                let name = given(name.as_deref()).ok_or(SharingError::NoBinding)?;
                edit::edit(&self.connection.open()?, name, output).await
            }
        }
    }
}

/// An argument that is not empty.
fn given(argument: Option<&str>) -> Option<&str> {
    argument.filter(|argument| !argument.is_empty())
}

/// Prints the claims that the APIBindings specify as a table, and warns of claims without a decision.
async fn get(
    connection: &Connection,
    name: Option<&str>,
    output: &mut Output<'_>,
) -> Result<(), SharingError> {
    let workspace = connection.client();
    let bindings = match name {
        Some(name) => vec![binding::get(&workspace, name).await.map_err(SharingError::Find)?],
        None => binding::list(&workspace)
            .await
            .map_err(|source| SharingError::List { workspace: connection.workspace().to_string(), source })?,
    };
    output.print(&table(&bindings))?;
    for binding in &bindings {
        let binding: Binding = serde_json::from_value(binding.clone()).unwrap_or_default();
        for warning in binding.warnings() {
            output.warn(&warning)?;
        }
    }
    Ok(())
}

/// Sets the state of the selected claims, again if another client has changed the APIBinding meanwhile.
async fn decide(
    connection: &ConnectionArguments,
    arguments: &SelectionArguments,
    decision: Decision,
    output: &mut Output<'_>,
) -> Result<(), SharingError> {
    let name = given(arguments.name.as_deref()).ok_or(SharingError::NoBinding)?;
    let resource = given(arguments.resource.as_deref());
    let identity_hash = given(arguments.identity_hash.as_deref());
    let claim = match (resource, identity_hash) {
        (Some(resource), _) => format!("{resource:?}"),
        (None, Some(hash)) => format!("with identity hash {hash:?}"),
        (None, None) => return Err(SharingError::NoSelection(name.to_owned())),
    };
    let selection = Selection {
        resource: resource.map(GroupResource::parse),
        identity_hash: identity_hash.map(str::to_owned),
    };
    let workspace = connection.open()?.client();
    let failed = |source| SharingError::Update { name: name.to_owned(), source };
    for attempt in 1.. {
        let mut changed = binding::get(&workspace, name).await.map_err(failed)?;
        claim::decide(&mut changed, &selection, decision).map_err(|error| match error {
            SelectionError::NoClaim => {
                SharingError::NoClaim { binding: name.to_owned(), claim: claim.clone() }
            }
            SelectionError::Ambiguous(count) => SharingError::Ambiguous { binding: name.to_owned(), count },
        })?;
        match binding::replace(&workspace, &changed).await {
            Ok(_) => break,
            Err(error) if error.is_conflict() && attempt < MAX_ATTEMPTS => {}
            Err(error) => return Err(failed(error)),
        }
    }
    let decided = match decision {
        Decision::Accepted => "accepted",
        Decision::Rejected => "rejected",
    };
    Ok(output.print(&format!("claim {claim} on APIBinding {name:?} is {decided}\n"))?)
}

/// One line per claim, with the columns of kcp's plugin.
fn table(bindings: &[Value]) -> String {
    let mut rows = vec![["APIBINDING", "GROUP-RESOURCE", "VERBS", "STATUS"].map(str::to_owned)];
    for binding in bindings {
        for claim in claim::specified_claims(binding) {
            let verbs = claim.get("verbs").and_then(Value::as_array).into_iter().flatten();
            let verbs: Vec<_> = verbs.filter_map(Value::as_str).collect();
            rows.push([
                binding::name_of(binding).to_owned(),
                GroupResource::of(claim).to_string(),
                verbs.join(","),
                claim::text(claim, "state").to_owned(),
            ]);
        }
    }
    let width = |column: usize| {
        let longest = rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        (longest + PADDING).max(MIN_COLUMN)
    };
    let widths = [width(0), width(1), width(2)];
    let line = |[binding, resource, verbs, state]: &[String; 4]| {
        let [first, second, third] = widths;
        format!("{binding:first$}{resource:second$}{verbs:third$}{state}\n")
    };
    rows.iter().map(line).collect()
}
