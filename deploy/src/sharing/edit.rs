//! `claims edit`: all claims of an APIBinding and of its APIExport in an editor.

use serde_json::{Value, json};

use super::claim::{Decision, exported_claims, selector_of, specified_claims, text};
use super::editor::EditedFile;
use super::{SharingError, binding};
use crate::connection::Connection;
use crate::output::Output;
use crate::yaml::to_yaml;

/// Opens the claims of an APIBinding in an editor and writes the edited ones.
pub(super) async fn edit(
    connection: &Connection,
    name: &str,
    output: &mut Output<'_>,
) -> Result<(), SharingError> {
    let workspace = connection.client();
    let mut binding = binding::get(&workspace, name).await.map_err(SharingError::Find)?;
    let file = EditedFile::open(&document(&binding))?;
    let edited = file.text()?;
    if is_empty(&edited) {
        // An editor that fails may leave an empty file.
        file.remove();
        return Ok(output.print("Edit cancelled, saved file was empty.\n")?);
    }
    let claims = match parse(&edited) {
        Ok(claims) => claims,
        Err(reason) => return Err(SharingError::Edited { reason, copy: file.path().to_owned() }),
    };
    if claims == specified_claims(&binding) {
        file.remove();
        return Ok(output.print("Edit cancelled, no changes made.\n")?);
    }
    binding["spec"]["permissionClaims"] = Value::Array(claims);
    if let Err(source) = binding::replace(&workspace, &binding).await {
        let (name, copy) = (name.to_owned(), file.path().to_owned());
        return Err(SharingError::UpdateEdited { name, source, copy });
    }
    file.remove();
    Ok(output.print(&format!("apibinding.apis.kcp.io/{name} edited\n"))?)
}

/// The claims of the APIBinding, then those that only its APIExport has, with an empty state.
fn document(binding: &Value) -> String {
    let identity =
        |claim: &Value| ["group", "resource", "identityHash"].map(|field| text(claim, field).to_owned());
    let specified = specified_claims(binding);
    let mut claims = specified.to_vec();
    for exported in exported_claims(binding) {
        if !specified.iter().any(|claim| identity(claim) == identity(exported)) {
            let mut claim = exported.clone();
            claim["selector"] = selector_of(exported);
            claim["state"] = json!("");
            claims.push(claim);
        }
    }
    format!(
        "# Permission claims of the APIBinding {}. The state of a claim is Accepted or Rejected; a claim with an\n\
         # empty state, or a removed one, stays undecided; [] removes all. A file that is empty or has no change cancels\n\
         # the edit.\n{}",
        binding::name_of(binding),
        to_yaml(&Value::Array(claims))
    )
}

fn is_empty(edited: &str) -> bool {
    edited.lines().map(str::trim).all(|line| line.is_empty() || line.starts_with('#'))
}

/// The claims with a decision.
fn parse(edited: &str) -> Result<Vec<Value>, String> {
    let options = serde_saphyr::options! { with_snippet: false };
    let claims: Option<Vec<Value>> =
        serde_saphyr::from_str_with_options(edited, options).map_err(|error| error.to_string())?;
    let mut decided = Vec::new();
    for (index, claim) in claims.unwrap_or_default().into_iter().enumerate() {
        let number = index + 1;
        if text(&claim, "resource").is_empty() {
            return Err(format!("claim {number} has no resource"));
        }
        match claim.get("state") {
            None | Some(Value::Null) => {}
            Some(Value::String(state)) if state.is_empty() => {}
            Some(state) => match serde_json::from_value::<Decision>(state.clone()) {
                Ok(_) => decided.push(claim),
                Err(_) => {
                    return Err(format!(
                        "the state of claim {number} must be Accepted or Rejected, not {state}"
                    ));
                }
            },
        }
    }
    Ok(decided)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_claims_with_and_without_a_decision() {
        let accepted = json!({ "resource": "secrets", "verbs": ["get"], "selector": { "matchAll": true }, "state": "Accepted" });
        let binding = json!({
            "metadata": { "name": "b" },
            "spec": { "permissionClaims": [accepted] },
            "status": { "exportPermissionClaims": [
                { "resource": "secrets", "verbs": ["*"] },
                { "group": "x.io", "resource": "things", "verbs": ["*"], "identityHash": "h" },
            ] },
        });
        let document = document(&binding);
        let yaml: String =
            document.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect();
        let expected = "- resource: secrets\n  selector:\n    matchAll: true\n  state: Accepted\n  verbs:\n  - get\n\
                        - group: x.io\n  identityHash: h\n  resource: things\n  selector:\n    matchAll: true\n  state: \"\"\n  verbs:\n  - '*'\n";
        assert_eq!(yaml, expected);
        assert_eq!(parse(&document).unwrap(), [accepted]);
    }

    #[test]
    fn edited_claims_need_a_resource_and_a_known_state() {
        let reject = |text: &str| parse(text).unwrap_err();
        assert_eq!(reject("- state: Accepted"), "claim 1 has no resource");
        assert_eq!(
            reject("- resource: a\n- {resource: b, state: accepted}"),
            "the state of claim 2 must be Accepted or Rejected, not \"accepted\""
        );
        assert!(reject("- [").contains("line 1"), "{}", reject("- ["));
        assert_eq!(parse("# nothing\n[]\n").unwrap(), Vec::<Value>::new());
    }

    #[test]
    fn a_file_with_comments_only_is_empty() {
        assert!(is_empty("") && is_empty("# Permission claims\n\n  # of b\n"));
        assert!(!is_empty("# none\n[]\n"));
    }
}
