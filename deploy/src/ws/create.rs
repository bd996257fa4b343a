//! `ws create`: makes a workspace and waits until it can be used.

use std::time::Duration;

use fairlead_client::Client;
use tokio::time::Instant;

use super::remote::{self, NewWorkspace, TypeReference, Workspace};
use super::selector::LabelSelector;
use super::session::{Length, Session};
use super::target::walk;
use super::{CreateArguments, Voice, WsError, go};

/// A workspace is ready well before, unless something waits for somebody.
const PATIENCE: Duration = Duration::from_secs(60);
/// A workspace that was just made may not be there yet for a reader at another replica.
const VISIBLE: Duration = Duration::from_secs(5);

/// A workspace to be made, and what then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Creation {
    pub new: NewWorkspace,
    pub existing: Existing,
    pub then: Then,
}

/// What to do if there is one of that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Existing {
    Refuse,
    Accept,
}

/// What to do when it is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Stay,
    Enter,
}

impl Creation {
    pub(super) fn parse(arguments: &CreateArguments) -> Result<Self, WsError> {
        let workspace_type = arguments.workspace_type.as_deref().map(parse_type).transpose()?;
        let shards = arguments.location_selector.as_deref().map(LabelSelector::parse).transpose()?;
        Ok(Self {
            new: NewWorkspace { name: arguments.name.clone(), workspace_type, shards },
            existing: if arguments.ignore_existing { Existing::Accept } else { Existing::Refuse },
            then: if arguments.enter { Then::Enter } else { Then::Stay },
        })
    }
}

/// Makes it in the current workspace.
pub(crate) async fn create(
    session: &mut Session,
    creation: &Creation,
    voice: &mut Voice<'_>,
) -> Result<(), WsError> {
    let here = session.path()?;
    let parent = session.client(&here);
    let name = &creation.new.name;
    let (workspace, verb) = match remote::create(&parent, &creation.new).await {
        Ok(workspace) => (workspace, "created. Waiting for it to be ready..."),
        Err(error) if error.is_already_exists() && creation.existing == Existing::Accept => {
            (remote::workspace(&parent, name).await?, "already exists.")
        }
        Err(error) => return Err(error.into()),
    };
    let kind = workspace.spec.workspace_type.clone().map_or(String::new(), |kind| format!(" (type {kind})"));
    voice.say(&format!("Workspace \"{name}\"{kind} {verb}\n"))?;
    if workspace.status.phase != "Ready" {
        until_ready(&parent, name).await?;
    }
    voice.say(&format!("Workspace \"{name}\"{kind} is ready to use.\n"))?;
    match creation.then {
        Then::Stay => Ok(()),
        Then::Enter => go::enter(session, &walk(Some(&here), name)?, Length::Sentence, voice).await,
    }
}

/// Asks often at first: most workspaces are ready in a blink.
async fn until_ready(parent: &Client, name: &str) -> Result<(), WsError> {
    let begin = Instant::now();
    let mut pause = Duration::from_millis(20);
    let mut why = None;
    while begin.elapsed() < PATIENCE {
        match remote::workspace(parent, name).await {
            Ok(Workspace { status, .. }) if status.phase == "Ready" => return Ok(()),
            Ok(workspace) => why = workspace.status.waits_for(),
            Err(error) if error.is_not_found() && begin.elapsed() < VISIBLE => {}
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(500));
    }
    Err(WsError::NotReady { name: name.to_owned(), why })
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
    fn who_waits_in_vain_is_told_for_what() {
        let said = |status: serde_json::Value| {
            let workspace: Workspace =
                serde_json::from_value(serde_json::json!({ "status": status })).unwrap();
            WsError::NotReady { name: "w".to_owned(), why: workspace.status.waits_for() }.to_string()
        };
        let plain = "workspace \"w\" did not get ready in time";
        assert_eq!(said(serde_json::json!({"conditions": null})), plain);
        assert_eq!(said(serde_json::json!({"conditions": [{"type": "A", "status": "True"}]})), plain);
        let unmet = serde_json::json!({"conditions": [
            {"type": "A", "status": "True"},
            {"type": "WorkspaceScheduled", "status": "False", "reason": "Unschedulable", "message": "of 2 shards 2 cordoned"},
        ]});
        assert_eq!(said(unmet), format!("{plain}: Unschedulable: of 2 shards 2 cordoned"));
    }
}
