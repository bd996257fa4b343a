//! `ws create`: creates a workspace and waits until it is ready.

use std::time::Duration;

use fairlead_client::Client;
use tokio::time::Instant;

use super::requests::{self, NewWorkspace, TypeReference, Workspace};
use super::selector::LabelSelector;
use super::session::{PathFormat, Session};
use super::target::resolve;
use super::{CreateArguments, WsError, enter};
use crate::output::Output;

/// Timeout until a workspace is ready. Only an initializer or a missing shard takes this long.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Time in which a new workspace may still be missing in reads from another replica.
const VISIBILITY_TIMEOUT: Duration = Duration::from_secs(5);

/// A workspace to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Creation {
    pub new: NewWorkspace,
    pub existing: ExistingPolicy,
    pub then: AfterCreation,
}

/// Policy for an existing workspace of that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExistingPolicy {
    Refuse,
    Accept,
}

/// Action after the workspace is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterCreation {
    Stay,
    Enter,
}

impl Creation {
    pub(super) fn parse(arguments: &CreateArguments) -> Result<Self, WsError> {
        let workspace_type = arguments.workspace_type.as_deref().map(parse_type).transpose()?;
        let shards = arguments.location_selector.as_deref().map(LabelSelector::parse).transpose()?;
        Ok(Self {
            new: NewWorkspace { name: arguments.name.clone(), workspace_type, shards },
            existing: if arguments.ignore_existing { ExistingPolicy::Accept } else { ExistingPolicy::Refuse },
            then: if arguments.enter { AfterCreation::Enter } else { AfterCreation::Stay },
        })
    }
}

/// Creates it in the current workspace.
pub(crate) async fn create(
    session: &mut Session,
    creation: &Creation,
    output: &mut Output<'_>,
) -> Result<(), WsError> {
    let here = session.path()?;
    let parent = session.client(&here);
    let name = &creation.new.name;
    let (workspace, verb) = match requests::create(&parent, &creation.new).await {
        Ok(workspace) => (workspace, "created. Waiting for it to be ready..."),
        Err(error) if error.is_already_exists() && creation.existing == ExistingPolicy::Accept => {
            (requests::workspace(&parent, name).await?, "already exists.")
        }
        Err(error) => return Err(error.into()),
    };
    let kind = workspace.spec.workspace_type.clone().map_or(String::new(), |kind| format!(" (type {kind})"));
    output.print(&format!("Workspace \"{name}\"{kind} {verb}\n"))?;
    if workspace.status.phase != "Ready" {
        until_ready(&parent, name).await?;
    }
    output.print(&format!("Workspace \"{name}\"{kind} is ready to use.\n"))?;
    match creation.then {
        AfterCreation::Stay => Ok(()),
        AfterCreation::Enter => {
            enter::enter(session, &resolve(Some(&here), name)?, PathFormat::Sentence, output).await
        }
    }
}

/// Polls with back-off from 20 ms to 500 ms: most workspaces are ready at once.
async fn until_ready(parent: &Client, name: &str) -> Result<(), WsError> {
    let begin = Instant::now();
    let mut pause = Duration::from_millis(20);
    let mut reason = None;
    while begin.elapsed() < READY_TIMEOUT {
        match requests::workspace(parent, name).await {
            Ok(Workspace { status, .. }) if status.phase == "Ready" => return Ok(()),
            Ok(workspace) => reason = workspace.status.unmet_condition(),
            Err(error) if error.is_not_found() && begin.elapsed() < VISIBILITY_TIMEOUT => {}
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(500));
    }
    Err(WsError::NotReady { name: name.to_owned(), reason })
}

/// `name` or `path:name`. Names of types are lower case.
fn parse_type(text: &str) -> Result<TypeReference, WsError> {
    let (path, name) = text.rsplit_once(':').unwrap_or(("", text));
    if name.is_empty() {
        return Err(WsError::Type(text.to_owned()));
    }
    Ok(TypeReference { name: name.to_lowercase(), path: path.trim_start_matches(':').to_owned() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn types_have_a_path_or_none() {
        for (text, path, name) in
            [("team", "", "team"), ("root:Team", "root", "team"), (":root:org:team", "root:org", "team")]
        {
            let parsed = parse_type(text).unwrap();
            assert_eq!((parsed.path.as_str(), parsed.name.as_str()), (path, name));
        }
        assert!(parse_type("root:").is_err() && parse_type("").is_err());
    }

    #[test]
    fn the_timeout_names_the_unmet_condition() {
        let message = |status: serde_json::Value| {
            let workspace: Workspace =
                serde_json::from_value(serde_json::json!({ "status": status })).unwrap();
            WsError::NotReady { name: "w".to_owned(), reason: workspace.status.unmet_condition() }.to_string()
        };
        let plain = "workspace \"w\" did not get ready in time";
        assert_eq!(message(serde_json::json!({"conditions": null})), plain);
        assert_eq!(message(serde_json::json!({"conditions": [{"type": "A", "status": "True"}]})), plain);
        let unmet = serde_json::json!({"conditions": [
            {"type": "A", "status": "True"},
            {"type": "WorkspaceScheduled", "status": "False", "reason": "Unschedulable", "message": "of 2 shards 2 cordoned"},
        ]});
        assert_eq!(message(unmet), format!("{plain}: Unschedulable: of 2 shards 2 cordoned"));
    }
}
