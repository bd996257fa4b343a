//! WorkspaceAuthenticationConfiguration: JWT issuers that a workspace trusts, shaped like the JWT part of
//! Kubernetes' AuthenticationConfiguration.

use super::Version;
use super::build::{Schema, list, object, string};
use super::fragments::kind;

pub(super) fn workspace_authentication_configuration() -> Version {
    let schema = kind([(
        "spec",
        object([(
            "jwt",
            list(
                object([
                    ("claimMappings", claim_mappings()),
                    ("claimValidationRules", list(claim_validation_rule())),
                    ("issuer", issuer()),
                    (
                        "userValidationRules",
                        list(
                            object([("expression", string()), ("message", string())])
                                .required(["expression", "message"]),
                        ),
                    ),
                ])
                .required(["claimMappings", "issuer"]),
            )
            .about("One authenticator per issuer."),
        )])
        .required(["jwt"]),
    )])
    .required(["metadata", "spec"]);
    Version::new("v1alpha1", schema)
}

fn issuer() -> Schema {
    object([
        ("audienceMatchPolicy", string()),
        ("audiences", list(string())),
        ("certificateAuthority", string()),
        ("discoveryURL", string()),
        ("url", string()),
    ])
    .required(["url"])
}

fn claim_mappings() -> Schema {
    object([
        (
            "extra",
            list(
                object([("key", string()), ("valueExpression", string())])
                    .required(["key", "valueExpression"]),
            ),
        ),
        ("groups", prefixed_claim()),
        ("uid", not_both(claim_or_expression())),
        ("username", prefixed_claim()),
    ])
}

fn claim_or_expression() -> Schema {
    object([("claim", string().not_empty()), ("expression", string().not_empty())])
}

fn prefixed_claim() -> Schema {
    not_both(one_at_least(claim_or_expression().field("prefix", string()))).rule(
        "!(has(self.prefix)) || has(self.claim)",
        "prefix can only be specified when claim is specified",
    )
}

fn claim_validation_rule() -> Schema {
    let fields = claim_or_expression()
        .field("message", string().not_empty())
        .field("requiredValue", string().not_empty());
    not_both(one_at_least(fields))
        .rule(
            "(has(self.expression) && !has(self.requiredValue)) || (has(self.claim) && has(self.requiredValue))",
            "requiredValue can only be specified when claim is specified",
        )
        .rule(
            "(has(self.expression) && has(self.message)) || (has(self.claim) && !has(self.message))",
            "message can only be specified when expression is specified",
        )
}

fn one_at_least(schema: Schema) -> Schema {
    schema.rule("has(self.claim) || has(self.expression)", "either claim or expression must be specified")
}

fn not_both(schema: Schema) -> Schema {
    schema.rule("!(has(self.claim) && has(self.expression))", "claim and expression cannot both be specified")
}
