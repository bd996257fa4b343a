//! Rules about issuers: an issuer can assert any name, and a prefix separates its names from all others.

use std::path::Path;

use fairlead_config::AuthenticationConfig;
use serde_json::Value;

use crate::linter::{AuthorityUse, FileLinter};
use crate::pairs::below;

const PREFIX_HINT: &str = "such as \"oidc:\"";
const PRIVILEGED_GROUPS_HINT: &str = "set it to false, and give operators and shards client certificates";
const RESERVED_PREFIX: &str = "names that begin with system: are reserved for Kubernetes";

/// Checks the issuers of a listener, in its settings and in the file of `configuration`. `key` is that of `authentication`.
pub(crate) fn inspect(authentication: &AuthenticationConfig, key: &str, linter: &mut FileLinter<'_>) {
    let has_tokens = authentication.token_file.is_some()
        || authentication.oidc.is_some()
        || authentication.configuration.is_some()
        || authentication.webhook.is_some();
    if authentication.privileged_token_groups && has_tokens {
        let fault =
            "tokens can assert system:kcp:admin and system:fairlead:*, which grant rights at the gateway";
        linter.checker.fault(&below(key, "privilegedTokenGroups"), fault, PRIVILEGED_GROUPS_HINT);
    }
    check_oidc(authentication, &below(key, "oidc"), linter);
    if let Some(file) = &authentication.configuration {
        check_configuration_file(file, &below(key, "configuration"), linter);
    }
}

fn check_oidc(authentication: &AuthenticationConfig, key: &str, linter: &mut FileLinter<'_>) {
    let Some(oidc) = &authentication.oidc else { return };
    if let Some(file) = &oidc.ca_file {
        linter.check_bundle(&below(key, "caFile"), file, AuthorityUse::Server);
    }
    let has_no_prefix =
        oidc.username_prefix == "-" || (oidc.username_prefix.is_empty() && oidc.username_claim == "email");
    if has_no_prefix {
        linter.checker.fault(
            &below(key, "usernamePrefix"),
            &unprefixed_users(&oidc.username_claim),
            PREFIX_HINT,
        );
    } else if oidc.username_prefix.starts_with("system:") {
        linter.checker.fault(&below(key, "usernamePrefix"), RESERVED_PREFIX, PREFIX_HINT);
    }
    if !oidc.groups_claim.is_empty() && oidc.groups_prefix.is_empty() {
        linter.checker.fault(
            &below(key, "groupsPrefix"),
            &unprefixed_groups(&oidc.groups_claim),
            PREFIX_HINT,
        );
    } else if oidc.groups_prefix.starts_with("system:") {
        linter.checker.fault(&below(key, "groupsPrefix"), RESERVED_PREFIX, PREFIX_HINT);
    }
}

/// Checks an AuthenticationConfiguration. Files that cannot be parsed are skipped, because the gateway rejects them with the
/// line. Names from CEL expressions are not checked.
fn check_configuration_file(file: &Path, key: &str, linter: &mut FileLinter<'_>) {
    let Some(text) = linter.text(file) else { return };
    let Ok(tree) = serde_saphyr::from_str::<Value>(&text) else { return };
    for (index, issuer) in tree["jwt"].as_array().into_iter().flatten().enumerate() {
        for (attribute, message) in [
            ("username", unprefixed_users as fn(&str) -> String),
            ("groups", unprefixed_groups as fn(&str) -> String),
        ] {
            let mapping = &issuer["claimMappings"][attribute];
            let Some(claim) = mapping["claim"].as_str().filter(|claim| !claim.is_empty()) else { continue };
            let prefix = mapping["prefix"].as_str().unwrap_or_default();
            let path = format!("{}: jwt[{index}].claimMappings.{attribute}.prefix", file.display());
            if prefix.is_empty() {
                linter.checker.fault(key, &format!("{path}: {}", message(claim)), PREFIX_HINT);
            } else if prefix.starts_with("system:") {
                linter.checker.fault(key, &format!("{path}: {RESERVED_PREFIX}"), PREFIX_HINT);
            }
        }
    }
}

fn unprefixed_users(claim: &str) -> String {
    format!("the issuer can assert any user name: the claim {claim:?} has no prefix")
}

fn unprefixed_groups(claim: &str) -> String {
    format!("the issuer can assert any group, including system: ones: the claim {claim:?} has no prefix")
}
