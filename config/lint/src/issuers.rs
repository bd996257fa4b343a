//! Rules about issuers: an issuer can assert any name, and a prefix separates its names from all others.

use std::path::Path;

use fairlead_config::AuthenticationConfig;
use serde_json::Value;

use crate::pairs::below;
use crate::survey::{ConfigurationPass, Meaning};

const SUCH_AS: &str = "such as \"oidc:\"";
const BY_CERTIFICATE: &str = "leave it off, and give operators and shards client certificates";
const OF_KUBERNETES: &str = "names that begin with system: are reserved for Kubernetes";

/// Checks the issuers of a listener, in its settings and in the file of `configuration`. `key` is that of `authentication`.
pub(crate) fn inspect(authentication: &AuthenticationConfig, key: &str, survey: &mut ConfigurationPass<'_>) {
    let has_tokens = authentication.token_file.is_some()
        || authentication.oidc.is_some()
        || authentication.configuration.is_some()
        || authentication.webhook.is_some();
    if authentication.privileged_token_groups && has_tokens {
        let fault =
            "tokens can assert system:kcp:admin and system:fairlead:*, which grant rights at the gateway";
        survey.checker.fault(&below(key, "privilegedTokenGroups"), fault, BY_CERTIFICATE);
    }
    one(authentication, &below(key, "oidc"), survey);
    if let Some(file) = &authentication.configuration {
        of_file(file, &below(key, "configuration"), survey);
    }
}

fn one(authentication: &AuthenticationConfig, key: &str, survey: &mut ConfigurationPass<'_>) {
    let Some(oidc) = &authentication.oidc else { return };
    if let Some(file) = &oidc.ca_file {
        survey.bundle(&below(key, "caFile"), file, Meaning::Server);
    }
    let is_bare =
        oidc.username_prefix == "-" || (oidc.username_prefix.is_empty() && oidc.username_claim == "email");
    if is_bare {
        survey.checker.fault(&below(key, "usernamePrefix"), &bare_users(&oidc.username_claim), SUCH_AS);
    } else if oidc.username_prefix.starts_with("system:") {
        survey.checker.fault(&below(key, "usernamePrefix"), OF_KUBERNETES, SUCH_AS);
    }
    if !oidc.groups_claim.is_empty() && oidc.groups_prefix.is_empty() {
        survey.checker.fault(&below(key, "groupsPrefix"), &bare_groups(&oidc.groups_claim), SUCH_AS);
    } else if oidc.groups_prefix.starts_with("system:") {
        survey.checker.fault(&below(key, "groupsPrefix"), OF_KUBERNETES, SUCH_AS);
    }
}

/// Files that cannot be parsed are skipped, because the gateway rejects them with the line. Names from CEL expressions are not
/// checked.
fn of_file(file: &Path, key: &str, survey: &mut ConfigurationPass<'_>) {
    let Some(text) = survey.text(file) else { return };
    let Ok(tree) = serde_saphyr::from_str::<Value>(&text) else { return };
    for (index, issuer) in tree["jwt"].as_array().into_iter().flatten().enumerate() {
        for (what, message) in
            [("username", bare_users as fn(&str) -> String), ("groups", bare_groups as fn(&str) -> String)]
        {
            let mapping = &issuer["claimMappings"][what];
            let Some(claim) = mapping["claim"].as_str().filter(|claim| !claim.is_empty()) else { continue };
            let prefix = mapping["prefix"].as_str().unwrap_or_default();
            let at = format!("{}: jwt[{index}].claimMappings.{what}.prefix", file.display());
            if prefix.is_empty() {
                survey.checker.fault(key, &format!("{at}: {}", message(claim)), SUCH_AS);
            } else if prefix.starts_with("system:") {
                survey.checker.fault(key, &format!("{at}: {OF_KUBERNETES}"), SUCH_AS);
            }
        }
    }
}

fn bare_users(claim: &str) -> String {
    format!("the issuer can assert any user name: the claim {claim:?} has no prefix")
}

fn bare_groups(claim: &str) -> String {
    format!("the issuer can assert any group, including system: ones: the claim {claim:?} has no prefix")
}
