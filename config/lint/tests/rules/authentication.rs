//! Issuers of tokens, and users that a listener refuses.

use fairlead_config::ProcessKind;

use crate::site::{Case, GATEWAY, check, with};

const CASES: &[Case] = &[
    (
        "an issuer without prefixes",
        |_, text| {
            with(
                text,
                "usernamePrefix: \"oidc:\", groupsClaim: groups, groupsPrefix: \"oidc:\"",
                "usernameClaim: email, groupsClaim: groups",
            )
        },
        &[
            "14: listeners[1].authentication.oidc.usernamePrefix: the issuer can assert any user name",
            "14: listeners[1].authentication.oidc.groupsPrefix: the issuer can assert any group",
        ],
    ),
    (
        "tokens that may make operators",
        |_, text| {
            with(
                text,
                "groupsPrefix: \"oidc:\"}",
                "groupsPrefix: \"oidc:\"}\n    privilegedTokenGroups: true",
            )
        },
        &["15: listeners[1].authentication.privilegedTokenGroups: tokens can assert system:kcp:admin"],
    ),
    (
        "an issuer that says that it wants none",
        |_, text| with(text, "usernamePrefix: \"oidc:\"", "usernamePrefix: \"-\""),
        &["14: listeners[1].authentication.oidc.usernamePrefix: the issuer can assert any user name"],
    ),
    ("an issuer whose URL is the prefix", |_, text| with(text, "usernamePrefix: \"oidc:\", ", ""), &[]),
    (
        "an issuer with a prefix that is Kubernetes'",
        |_, text| with(text, "groupsPrefix: \"oidc:\"", "groupsPrefix: \"system:\""),
        &["14: listeners[1].authentication.oidc.groupsPrefix: names that begin with system: are reserved"],
    ),
    (
        "issuers of a file without prefixes",
        |site, text| {
            let jwt = |username: &str, groups: &str| {
                format!(
                    "- issuer: {{url: \"https://a.example\", audiences: [a]}}\n  claimMappings:\n    username: {username}\n    \
                     groups: {groups}\n"
                )
            };
            let issuers = [
                jwt("{claim: sub, prefix: \"a:\"}", "{claim: groups, prefix: \"a:\"}"),
                jwt("{claim: sub, prefix: \"\"}", "{claim: groups, prefix: \"\"}"),
                jwt("{claim: sub, prefix: \"system:\"}", "{expression: claims.roles}"),
            ];
            let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n";
            site.write("issuers.yaml", &format!("{head}{}", issuers.concat()));
            with(
                text,
                "    oidc: {issuerURL: \"https://login.example.com\", clientID: a, usernamePrefix: \"oidc:\", groupsClaim: groups, \
                 groupsPrefix: \"oidc:\"}\n",
                "    configuration: issuers.yaml\n",
            )
        },
        &[
            "14: listeners[1].authentication.configuration: issuers.yaml: jwt[1].claimMappings.username.prefix: the issuer can assert any user",
            "14: listeners[1].authentication.configuration: issuers.yaml: jwt[1].claimMappings.groups.prefix: the issuer can assert",
            "14: listeners[1].authentication.configuration: issuers.yaml: jwt[2].claimMappings.username.prefix: names that begin with system:",
        ],
    ),
    (
        "names that are refused only to those who are known",
        |_, text| {
            with(
                text,
                "  clientCA: clients.crt\n",
                "  clientCA: clients.crt\n  deny: {groups: [\"system:masters\"]}\n",
            )
        },
        &["6: listeners[0].deny: tokens pass through to shards without authentication here"],
    ),
    (
        "the same where no tokens pass",
        |_, text| {
            with(text, "  tokens: refuse\n", "  tokens: refuse\n  deny: {groups: [\"system:masters\"]}\n")
        },
        &[],
    ),
    (
        "the same with a token method",
        |_, text| with(text, "  tokens: refuse\n", "  deny: {groups: [\"system:masters\"]}\n"),
        &[],
    ),
];

#[test]
fn each_fault_of_authentication_is_reported_at_its_position() {
    check(ProcessKind::Gateway, GATEWAY, CASES);
}
