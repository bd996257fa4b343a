//! `ws PATH`: checks access to a workspace and makes it the current one.

use fairlead_client::Client;
use fairlead_names::WorkspacePath;

use super::WsError;
use super::requests::{self, Access, Workspace};
use super::session::{PathFormat, Session, location_text, workspace_of};
use super::target::{Form, HomeRequest, Target, resolve, top_of};
use crate::output::Output;

/// Enters a target and prints its path.
pub(crate) async fn go(
    session: &mut Session,
    target: &Target,
    format: PathFormat,
    output: &mut Output<'_>,
) -> Result<(), WsError> {
    match target {
        Target::Current => Ok(output.print(&session.location_text(format))?),
        Target::Previous => {
            session.go_back()?;
            print_location(session, None, format, output).await
        }
        Target::Top => {
            let top = top_of(&session.path()?);
            session.enter(&top)?;
            print_location(session, None, format, output).await
        }
        Target::Home { steps, requested } => {
            if *requested == HomeRequest::NoArgument {
                output.warn(
                    "Note: 'kubectl ws' now matches 'cd' semantics: go to home workspace. \
                     'kubectl ws -' to go back. 'kubectl ws .' to print current workspace.\n",
                )?;
            }
            let home = home(session).await?;
            enter(session, &resolve(Some(&home), steps)?, format, output).await
        }
        Target::Absolute { steps, form } => {
            if *form == Form::Bare {
                output.warn(
                    "Note: Using 'root:' to define an absolute path is no longer supported. \
                     Instead, use ':root' to specify an absolute path.\n",
                )?;
            }
            enter(session, &resolve(None, steps)?, format, output).await
        }
        Target::Relative { steps } => {
            let here = session.path()?;
            enter(session, &resolve(Some(&here), steps)?, format, output).await
        }
    }
}

/// Enters a workspace if the user has access.
pub(crate) async fn enter(
    session: &mut Session,
    path: &WorkspacePath,
    format: PathFormat,
    output: &mut Output<'_>,
) -> Result<(), WsError> {
    let access = requests::access(&session.client(path)).await?;
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
    print_location(session, kind.as_deref(), format, output).await
}

/// The Workspace object in the parent.
enum Object {
    /// `root`, which has no parent.
    Root,
    Found(Box<Workspace>),
    Missing,
    /// The parent is unknown or may not be read.
    Hidden,
}

async fn object_of(session: &Session, path: &WorkspacePath) -> Result<Object, WsError> {
    let Some(parent) = path.parent() else {
        return Ok(if path.as_str() == "root" { Object::Root } else { Object::Hidden });
    };
    match requests::workspace(&session.client(&parent), path.base()).await {
        Ok(workspace) => Ok(Object::Found(Box::new(workspace))),
        Err(error) if error.is_not_found() => Ok(Object::Missing),
        Err(error) if error.code() == Some(403) => Ok(Object::Hidden),
        Err(error) => Err(error.into()),
    }
}

async fn home(session: &Session) -> Result<WorkspacePath, WsError> {
    // The server replaces `~` by the home of the user.
    let root = resolve(None, "root")?;
    let workspace = requests::home(&session.client(&root)).await?;
    let url = workspace.spec.url;
    workspace_of(&url).map(|(_, path)| path).ok_or(WsError::NotInWorkspace(url))
}

/// Prints the current workspace, and warnings about its API bindings.
async fn print_location(
    session: &Session,
    kind: Option<&str>,
    format: PathFormat,
    output: &mut Output<'_>,
) -> Result<(), WsError> {
    if let Ok(path) = session.path() {
        warn_of_claims(&session.client(&path), output).await?;
    }
    Ok(output.print(&location_text(session.server(), kind, format))?)
}

async fn warn_of_claims(workspace: &Client, output: &mut Output<'_>) -> Result<(), WsError> {
    for binding in requests::bindings(workspace).await? {
        for warning in binding.warnings() {
            output.warn(&warning)?;
        }
    }
    Ok(())
}
