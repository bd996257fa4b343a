//! The settings of one issuer, from flags or from a tree with Kubernetes' structure.

use std::collections::{BTreeMap, BTreeSet};

use http::Uri;
use serde_json::Value;

use super::{
    expression::{Expression, ExpressionError, Variable},
    fields::{FieldError, FieldErrors, Fields, UnknownFields},
    mapping::{ClaimOrExpression, Mappings, Rules},
};
use crate::jwt::Algorithm;

/// The validated settings of an issuer, with compiled expressions.
#[derive(Debug)]
pub struct JwtSettings {
    pub(crate) issuer: String,
    pub(crate) discovery_url: Option<String>,
    /// PEM; the system's roots if `None`.
    pub(crate) certificate_authority: Option<String>,
    pub(crate) audiences: Vec<String>,
    pub(crate) algorithms: Vec<Algorithm>,
    pub(crate) mappings: Mappings,
    pub(crate) rules: Rules,
}

/// The flags `--oidc-*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OidcFlags {
    /// `--oidc-issuer-url`.
    pub issuer_url: String,
    /// `--oidc-client-id`.
    pub client_id: String,
    /// The content of `--oidc-ca-file`; the system's roots if `None`.
    pub certificate_authority: Option<String>,
    /// `--oidc-username-claim`.
    pub username_claim: String,
    /// `--oidc-username-prefix`. Empty means `<issuer>#`, unless the claim is `email`; `-` means none.
    pub username_prefix: String,
    /// `--oidc-groups-claim`; empty for no groups.
    pub groups_claim: String,
    /// `--oidc-groups-prefix`.
    pub groups_prefix: String,
    /// `--oidc-signing-algs`.
    pub signing_algorithms: Vec<Algorithm>,
    /// `--oidc-required-claim`.
    pub required_claims: BTreeMap<String, String>,
}

impl Default for OidcFlags {
    fn default() -> Self {
        Self {
            issuer_url: String::new(),
            client_id: String::new(),
            certificate_authority: None,
            username_claim: "sub".to_owned(),
            username_prefix: String::new(),
            groups_claim: String::new(),
            groups_prefix: String::new(),
            signing_algorithms: vec![Algorithm::Rs256],
            required_claims: BTreeMap::new(),
        }
    }
}

impl JwtSettings {
    /// Settings from flags. The path of an error is the flag.
    pub fn from_flags(flags: &OidcFlags) -> Result<Self, Vec<FieldError>> {
        let mut errors = Vec::new();
        let mut fault = |flag: &str, problem: &str| {
            errors.push(FieldError { path: flag.to_owned(), problem: problem.to_owned() });
        };
        if let Err(problem) = check_url(&flags.issuer_url) {
            fault("--oidc-issuer-url", problem);
        }
        if flags.client_id.is_empty() {
            fault("--oidc-client-id", "is required together with --oidc-issuer-url");
        }
        if let Some(pem) = &flags.certificate_authority
            && let Err(problem) = check_certificates(pem)
        {
            fault("--oidc-ca-file", problem);
        }
        if flags.username_claim.is_empty() {
            fault("--oidc-username-claim", "is empty");
        }
        if flags.signing_algorithms.is_empty() {
            fault("--oidc-signing-algs", "is empty");
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let username_prefix = match flags.username_prefix.as_str() {
            "-" => String::new(),
            "" if flags.username_claim == "email" => String::new(),
            "" => format!("{}#", flags.issuer_url),
            prefix => prefix.to_owned(),
        };
        let claim = |name: &str, prefix: &str| ClaimOrExpression::Claim {
            name: name.to_owned(),
            prefix: prefix.to_owned(),
        };
        Ok(Self {
            issuer: flags.issuer_url.clone(),
            discovery_url: None,
            certificate_authority: flags.certificate_authority.clone(),
            audiences: vec![flags.client_id.clone()],
            algorithms: flags.signing_algorithms.clone(),
            mappings: Mappings {
                username: claim(&flags.username_claim, &username_prefix),
                groups: (!flags.groups_claim.is_empty())
                    .then(|| claim(&flags.groups_claim, &flags.groups_prefix)),
                uid: None,
                extra: Vec::new(),
            },
            rules: Rules {
                required: flags.required_claims.clone().into_iter().collect(),
                claim_rules: Vec::new(),
                user_rules: Vec::new(),
            },
        })
    }

    /// Settings from one element of `spec.jwt` of a `WorkspaceAuthenticationConfiguration`, or of a list with the same
    /// structure. Unknown fields are ignored, because an API server has validated the object.
    pub fn from_value(element: &Value) -> Result<Self, Vec<FieldError>> {
        let errors = FieldErrors::new(UnknownFields::Ignore);
        let settings = Self::read(&errors.root(element));
        match (settings, errors.into_vec()) {
            (Some(settings), errors) if errors.is_empty() => Ok(settings),
            (_, errors) => Err(errors),
        }
    }

    /// The URL of the issuer.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Reads the settings and records errors. `None` implies an error; settings may be returned together with errors, too.
    pub(crate) fn read(fields: &Fields<'_>) -> Option<Self> {
        fields.allow_only(&["issuer", "claimValidationRules", "claimMappings", "userValidationRules"]);
        let issuer = fields.child("issuer");
        let (required, claim_rules) = read_claim_rules(fields);
        let mappings = read_mappings(&fields.child("claimMappings"), &claim_rules);
        let user_rules = read_user_rules(fields);
        issuer.allow_only(&[
            "url",
            "discoveryURL",
            "certificateAuthority",
            "audiences",
            "audienceMatchPolicy",
            "egressSelectorType",
        ]);
        let url = issuer.required("url");
        if !url.is_empty()
            && let Err(problem) = check_url(url)
        {
            issuer.add("url", problem);
        }
        let discovery_url = issuer.text("discoveryURL");
        if let Some(discovery_url) = discovery_url {
            if let Err(problem) = check_url(discovery_url) {
                issuer.add("discoveryURL", problem);
            }
            if discovery_url.trim_end_matches('/') == url.trim_end_matches('/') {
                issuer.add("discoveryURL", "is the same as url");
            }
        }
        let certificate_authority = issuer.text("certificateAuthority");
        if let Some(Err(problem)) = certificate_authority.map(check_certificates) {
            issuer.add("certificateAuthority", problem);
        }
        if issuer.text("egressSelectorType").is_some() {
            issuer.add("egressSelectorType", "is not supported: there are no egress selectors here");
        }
        Some(Self {
            issuer: url.to_owned(),
            discovery_url: discovery_url.map(str::to_owned),
            certificate_authority: certificate_authority.map(str::to_owned),
            audiences: read_audiences(&issuer),
            algorithms: Algorithm::ALL.to_vec(),
            mappings: mappings?,
            rules: Rules { required, claim_rules, user_rules },
        })
    }
}

fn read_audiences(issuer: &Fields<'_>) -> Vec<String> {
    let audiences = issuer.texts("audiences");
    if audiences.is_empty() {
        issuer.add("audiences", "needs at least one");
    }
    let mut seen = BTreeSet::new();
    for (index, audience) in audiences.iter().enumerate() {
        if audience.is_empty() {
            issuer.add(&format!("audiences[{index}]"), "is empty");
        } else if !seen.insert(audience) {
            issuer.add(&format!("audiences[{index}]"), "is a duplicate");
        }
    }
    match issuer.text("audienceMatchPolicy") {
        Some("MatchAny") => {}
        Some(_) => issuer.add("audienceMatchPolicy", "must be MatchAny"),
        None if audiences.len() > 1 => {
            issuer.add("audienceMatchPolicy", "must be MatchAny if there are several audiences");
        }
        None => {}
    }
    audiences.into_iter().map(str::to_owned).collect()
}

/// Claims with their required values, and rules with their messages.
type ClaimRules = (Vec<(String, String)>, Vec<(Expression, String)>);

fn read_claim_rules(fields: &Fields<'_>) -> ClaimRules {
    let (mut required, mut rules): ClaimRules = Default::default();
    for rule in fields.children("claimValidationRules") {
        rule.allow_only(&["claim", "requiredValue", "expression", "message"]);
        match (rule.text("claim"), rule.text("expression")) {
            (None, None) => rule.add_here("needs a claim or an expression"),
            (Some(_), Some(_)) => rule.add_here("has both a claim and an expression"),
            (Some(claim), None) => {
                if rule.text("message").is_some() {
                    rule.add("message", "must not be set together with a claim");
                }
                if required.iter().any(|(known, _)| known == claim) {
                    rule.add("claim", "is a duplicate");
                }
                let value = rule.any_text("requiredValue").unwrap_or_default();
                required.push((claim.to_owned(), value.to_owned()));
            }
            (None, Some(source)) => {
                if rule.text("requiredValue").is_some() {
                    rule.add("requiredValue", "must not be set together with an expression");
                }
                if rules.iter().any(|(known, _)| known.source() == source) {
                    rule.add("expression", "is a duplicate");
                }
                push_rule(&rule, source, Variable::Claims, &mut rules);
            }
        }
    }
    (required, rules)
}

fn read_user_rules(fields: &Fields<'_>) -> Vec<(Expression, String)> {
    let mut rules: Vec<(Expression, String)> = Vec::new();
    for rule in fields.children("userValidationRules") {
        rule.allow_only(&["expression", "message"]);
        let source = rule.required("expression");
        if rules.iter().any(|(known, _)| known.source() == source) {
            rule.add("expression", "is a duplicate");
        }
        if !source.is_empty() {
            push_rule(&rule, source, Variable::User, &mut rules);
        }
    }
    rules
}

fn push_rule(fields: &Fields<'_>, source: &str, variable: Variable, rules: &mut Vec<(Expression, String)>) {
    match Expression::rule(source, variable) {
        Ok(rule) => rules.push((rule, fields.any_text("message").unwrap_or_default().to_owned())),
        Err(error) => fields.add("expression", unusable(source, &error)),
    }
}

fn read_mappings(fields: &Fields<'_>, rules: &[(Expression, String)]) -> Option<Mappings> {
    fields.allow_only(&["username", "groups", "uid", "extra"]);
    let username = fields.child("username");
    let name = read_prefixed(&username);
    if name.is_none() && !username.has("claim") && !username.has("expression") {
        username.add_here("needs a claim or an expression");
    }
    let uid = fields.child("uid");
    uid.allow_only(&["claim", "expression"]);
    let extra = read_extra(fields);
    let uses_email_verified = |expression: &Expression| expression.uses("email_verified");
    if let Some(ClaimOrExpression::Expression(expression)) = &name
        && expression.uses("email")
        && !uses_email_verified(expression)
        && !extra.iter().any(|(_, expression)| uses_email_verified(expression))
        && !rules.iter().any(|(expression, _)| uses_email_verified(expression))
    {
        username.add(
            "expression",
            "uses claims.email, so claims.email_verified must be used here, in a claim validation rule or in an extra",
        );
    }
    Some(Mappings {
        groups: read_prefixed(&fields.child("groups")),
        uid: read_claim_or_expression(&uid, ""),
        extra,
        username: name?,
    })
}

fn read_prefixed(fields: &Fields<'_>) -> Option<ClaimOrExpression> {
    fields.allow_only(&["claim", "prefix", "expression"]);
    let prefix = fields.any_text("prefix");
    match (fields.has("claim"), prefix) {
        (true, None) => fields.add("prefix", "is required together with a claim; it may be empty"),
        (false, Some(_)) if fields.has("expression") => {
            fields.add("prefix", "must not be set together with an expression");
        }
        _ => {}
    }
    read_claim_or_expression(fields, prefix.unwrap_or_default())
}

fn read_claim_or_expression(fields: &Fields<'_>, prefix: &str) -> Option<ClaimOrExpression> {
    match (fields.text("claim"), fields.text("expression")) {
        (None, None) => None,
        (Some(_), Some(_)) => {
            fields.add_here("has both a claim and an expression");
            None
        }
        (Some(name), None) => {
            Some(ClaimOrExpression::Claim { name: name.to_owned(), prefix: prefix.to_owned() })
        }
        (None, Some(source)) => match Expression::new(source, Variable::Claims) {
            Ok(expression) => Some(ClaimOrExpression::Expression(expression)),
            Err(error) => {
                fields.add("expression", unusable(source, &error));
                None
            }
        },
    }
}

fn read_extra(fields: &Fields<'_>) -> Vec<(String, Expression)> {
    let mut extra: Vec<(String, Expression)> = Vec::new();
    for mapping in fields.children("extra") {
        mapping.allow_only(&["key", "valueExpression"]);
        let key = mapping.required("key");
        if !key.is_empty()
            && let Err(problem) = check_extra_key(key)
        {
            mapping.add("key", problem);
        }
        if extra.iter().any(|(known, _)| known == key) {
            mapping.add("key", "is a duplicate");
        }
        let source = mapping.required("valueExpression");
        if source.is_empty() {
            continue;
        }
        match Expression::new(source, Variable::Claims) {
            Ok(expression) => extra.push((key.to_owned(), expression)),
            Err(error) => mapping.add("valueExpression", unusable(source, &error)),
        }
    }
    extra
}

fn unusable(source: &str, error: &ExpressionError) -> String {
    format!("is invalid: {source:?}: {error}")
}

/// Checks that a key is `domain/path`, in lower case, and not reserved for Kubernetes.
fn check_extra_key(key: &str) -> Result<(), &'static str> {
    let (domain, path) = key.split_once('/').ok_or("is not of the form domain/path")?;
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let is_path_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
    if !domain.split('.').all(is_label) || path.is_empty() || !path.bytes().all(is_path_byte) {
        return Err("is not of the form domain/path");
    }
    if key.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err("is not in lower case");
    }
    let is_owned_by =
        |owner: &str| domain == owner || domain.strip_suffix(owner).is_some_and(|rest| rest.ends_with('.'));
    if is_owned_by("kubernetes.io") || is_owned_by("k8s.io") {
        return Err("is of k8s.io or kubernetes.io, which are reserved");
    }
    Ok(())
}

fn check_url(url: &str) -> Result<(), &'static str> {
    if url.contains('#') {
        return Err("contains a fragment");
    }
    let uri: Uri = url.parse().map_err(|_| "is not a URL")?;
    if uri.scheme_str() != Some("https") {
        return Err("is not an https URL");
    }
    let authority = uri.authority().ok_or("has no host")?;
    if authority.as_str().contains('@') {
        return Err("contains a user name or password");
    }
    if uri.query().is_some() {
        return Err("contains a query");
    }
    Ok(())
}

fn check_certificates(pem: &str) -> Result<(), &'static str> {
    use rustls_pki_types::{CertificateDer, pem::PemObject};
    let mut certificates = CertificateDer::pem_slice_iter(pem.as_bytes()).peekable();
    if certificates.peek().is_none() {
        return Err("contains no PEM certificate");
    }
    let mut roots = rustls::RootCertStore::empty();
    for certificate in certificates {
        let usable = certificate.ok().is_some_and(|certificate| roots.add(certificate).is_ok());
        if !usable {
            return Err("contains a certificate that cannot be used");
        }
    }
    Ok(())
}
