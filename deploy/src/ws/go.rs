//! `ws PATH`: looks whether a workspace lets us in, and makes it the current one.

use fairlead_client::Client;
use fairlead_names::WorkspacePath;

use super::remote::{self, Access, Workspace};
use super::session::{Length, Session, whereabouts, workspace_of};
use super::target::{Asked, Form, Target, top_of, walk};
use super::{Voice, WsError};

/// Goes to a target and tells where that is.
pub(crate) async fn go(
    session: &mut Session,
    target: &Target,
    length: Length,
    voice: &mut Voice<'_>,
) -> Result<(), WsError> {
    match target {
        Target::Current => Ok(voice.say(&session.whereabouts(length))?),
        Target::Previous => {
            session.go_back()?;
            arrive(session, None, length, voice).await
        }
        Target::Top => {
            let top = top_of(&session.path()?);
            session.enter(&top)?;
            arrive(session, None, length, voice).await
        }
        Target::Home { steps, asked } => {
            if *asked == Asked::BySilence {
                voice.remark(
                    "Note: 'kubectl ws' now matches 'cd' semantics: go to home workspace. \
                     'kubectl ws -' to go back. 'kubectl ws .' to print current workspace.\n",
                )?;
            }
            let home = home(session).await?;
            enter(session, &walk(Some(&home), steps)?, length, voice).await
        }
        Target::Absolute { steps, form } => {
            if *form == Form::Bare {
                voice.remark(
                    "Note: Using 'root:' to define an absolute path is no longer supported. \
                     Instead, use ':root' to specify an absolute path.\n",
                )?;
            }
            enter(session, &walk(None, steps)?, length, voice).await
        }
        Target::Relative { steps } => {
            let here = session.path()?;
            enter(session, &walk(Some(&here), steps)?, length, voice).await
        }
    }
}

/// Goes to a workspace if it lets us in.
pub(crate) async fn enter(
    session: &mut Session,
    path: &WorkspacePath,
    length: Length,
    voice: &mut Voice<'_>,
) -> Result<(), WsError> {
    let access = remote::access(&session.client(path)).await?;
    let object = object_of(session, path).await?;
    match (access, &object) {
        (Access::Granted, _) => {}
        (Access::Denied, Object::Missing) => return Err(WsError::NotFound(path.to_string())),
        (Access::Denied, _) => return Err(WsError::Denied(path.to_string())),
    }
    session.enter(path)?;
    let kind = match object {
        Object::Root => Some("root".to_owned()),
        Object::Found(workspace) => workspace.spec.workspace_type.map(|kind| kind.to_string()),
        Object::Missing | Object::Hidden => None,
    };
    arrive(session, kind.as_deref(), length, voice).await
}

/// What is known of a workspace in its parent.
enum Object {
    /// It has no parent, and is well known.
    Root,
    Found(Box<Workspace>),
    Missing,
    /// It has no parent that we could ask, or that would tell us.
    Hidden,
}

async fn object_of(session: &Session, path: &WorkspacePath) -> Result<Object, WsError> {
    let Some(parent) = path.parent() else {
        return Ok(if path.as_str() == "root" { Object::Root } else { Object::Hidden });
    };
    match remote::workspace(&session.client(&parent), path.base()).await {
        Ok(workspace) => Ok(Object::Found(Box::new(workspace))),
        Err(error) if error.is_not_found() => Ok(Object::Missing),
        Err(error) if error.code() == Some(403) => Ok(Object::Hidden),
        Err(error) => Err(error.into()),
    }
}

async fn home(session: &Session) -> Result<WorkspacePath, WsError> {
    // The one request that is not about a path of ours.
    let root = walk(None, "root")?;
    let workspace = remote::home(&session.client(&root)).await?;
    let url = workspace.spec.url;
    workspace_of(&url).map(|(_, path)| path).ok_or(WsError::NotInWorkspace(url))
}

/// Tells where we are now, and what should be known there.
async fn arrive(
    session: &Session,
    kind: Option<&str>,
    length: Length,
    voice: &mut Voice<'_>,
) -> Result<(), WsError> {
    if let Ok(path) = session.path() {
        warn_of_claims(&session.client(&path), voice).await?;
    }
    Ok(voice.say(&whereabouts(session.server(), kind, length))?)
}

async fn warn_of_claims(workspace: &Client, voice: &mut Voice<'_>) -> Result<(), WsError> {
    for binding in remote::bindings(workspace).await? {
        for warning in binding.warnings() {
            voice.remark(&warning)?;
        }
    }
    Ok(())
}
