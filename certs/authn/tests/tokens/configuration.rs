//! Authentication configuration files, and the messages for invalid ones.

use std::path::Path;

use fairlead_authn::{AuthenticationConfiguration, JwtSettings, OidcFlags};
use serde_json::json;

fn parse(text: &str) -> Result<AuthenticationConfiguration, String> {
    let reserved = ["https://kcp.default.svc".to_owned()];
    AuthenticationConfiguration::parse(text, Path::new("authn.yaml"), &reserved)
        .map_err(|error| error.to_string())
}

const GOOD: &str = "\
apiVersion: apiserver.config.k8s.io/v1beta1
kind: AuthenticationConfiguration
anonymous:
  enabled: true
  conditions:
  - path: /livez
  - path: /readyz
jwt:
- issuer:
    url: https://one.example.com
    audiences: [a, b]
    audienceMatchPolicy: MatchAny
  claimMappings:
    username: {claim: sub, prefix: ''}
    groups: {claim: groups, prefix: 'one:'}
    uid: {claim: sub}
- issuer:
    url: https://two.example.com/realm
    discoveryURL: https://inside.example.com/.well-known/openid-configuration
    audiences: [a]
  claimMappings:
    username:
      expression: claims.email
    extra:
    - key: example.com/verified
      valueExpression: \"string(claims.email_verified)\"
";

#[test]
fn files_of_all_versions_are_read() {
    for version in ["v1", "v1beta1", "v1alpha1"] {
        let configuration = parse(&GOOD.replace("v1beta1", version)).unwrap();
        let issuers: Vec<_> = configuration.issuers.iter().map(JwtSettings::issuer).collect();
        assert_eq!(issuers, ["https://one.example.com", "https://two.example.com/realm"]);
        let anonymous = configuration.anonymous.unwrap();
        let admitted = ["/livez", "/readyz", "/livez/", "/", "/api"].map(|path| anonymous.admits(path));
        assert_eq!(admitted, [true, true, false, false, false]);
    }
    let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n";
    let empty = parse(head).unwrap();
    assert!(empty.issuers.is_empty() && empty.anonymous.is_none());
    let everywhere = parse(&format!("{head}anonymous: {{enabled: true}}")).unwrap().anonymous.unwrap();
    let nowhere = parse(&format!("{head}anonymous: {{enabled: false}}")).unwrap().anonymous.unwrap();
    assert_eq!((everywhere.admits("/x"), nowhere.admits("/x")), (true, false));
}

#[test]
fn mistakes_are_named_with_file_and_line() {
    let cases = [
        (
            "v1beta1",
            "v2",
            ":1: apiVersion is not one of apiserver.config.k8s.io/v1, apiserver.config.k8s.io/v1beta1, apiserver.config.k8s.io/v1alpha1",
        ),
        ("kind: AuthenticationConfiguration\n", "", ": kind is required"),
        ("Configuration\n", "Config\n", ":2: kind is not AuthenticationConfiguration"),
        ("jwt:", "jwts:", ":8: jwts is not a known field; did you mean jwt?"),
        (
            "jwt:",
            "issuers:",
            ":8: issuers is not a known field, expected one of apiVersion, kind, jwt, anonymous",
        ),
        (
            "enabled: true",
            "enabled: false",
            ":5: anonymous.conditions must not be set if anonymous access is not enabled",
        ),
        (
            "enabled: true",
            "enabled: yes please",
            ":4: anonymous.enabled is neither true nor false (and 1 more)",
        ),
        (
            "path: /livez",
            "paths: /livez",
            ":6: anonymous.conditions[0].paths is not a known field; did you mean path? (and 1 more)",
        ),
        ("https://one.example.com", "http://one.example.com", ":10: jwt[0].issuer.url is not an https URL"),
        (
            "https://one.example.com",
            "https://a:b@one.example.com",
            ":10: jwt[0].issuer.url contains a user name or password",
        ),
        ("https://one.example.com", "https://one.example.com?a=b", ":10: jwt[0].issuer.url contains a query"),
        (
            "https://one.example.com",
            "'https://one.example.com#a'",
            ":10: jwt[0].issuer.url contains a fragment",
        ),
        (
            "https://one.example.com",
            "https://kcp.default.svc",
            ":10: jwt[0].issuer.url is the issuer of service accounts",
        ),
        ("https://one.example.com", "https://two.example.com/realm", ":18: jwt[1].issuer.url is a duplicate"),
        ("    url: https://one.example.com\n", "", ":9: jwt[0].issuer.url is required"),
        ("[a, b]", "[a, a]", ":11: jwt[0].issuer.audiences[1] is a duplicate"),
        ("[a, b]", "[a, '']", ":11: jwt[0].issuer.audiences[1] is empty"),
        ("[a, b]", "[]", ":11: jwt[0].issuer.audiences needs at least one"),
        ("[a, b]", "a", ":11: jwt[0].issuer.audiences is not a list (and 1 more)"),
        (
            "    audienceMatchPolicy: MatchAny\n",
            "",
            ":9: jwt[0].issuer.audienceMatchPolicy must be MatchAny if there are several audiences",
        ),
        ("MatchAny", "MatchAll", ":12: jwt[0].issuer.audienceMatchPolicy must be MatchAny"),
        (
            "audienceMatchPolicy: MatchAny",
            "egressSelectorType: cluster",
            ":12: jwt[0].issuer.egressSelectorType is not supported: there are no egress selectors here (and 1 more)",
        ),
        (
            "[a, b]",
            "[a, b]\n    certificateAuthority: nonsense",
            ":12: jwt[0].issuer.certificateAuthority contains no PEM certificate",
        ),
        (
            "https://inside.example.com/.well-known/openid-configuration",
            "https://two.example.com/realm/",
            ":19: jwt[1].issuer.discoveryURL is the same as url",
        ),
        (
            "{claim: sub, prefix: ''}",
            "{claim: sub}",
            ":14: jwt[0].claimMappings.username.prefix is required together with a claim; it may be empty",
        ),
        (
            "{claim: sub, prefix: ''}",
            "{}",
            ":14: jwt[0].claimMappings.username needs a claim or an expression",
        ),
        (
            "{claim: sub, prefix: ''}",
            "{claim: sub, prefix: '', expression: claims.sub}",
            ":14: jwt[0].claimMappings.username has both a claim and an expression",
        ),
        (
            "{claim: sub, prefix: ''}",
            "{expression: claims.sub, prefix: ''}",
            ":14: jwt[0].claimMappings.username.prefix must not be set together with an expression",
        ),
        (
            "{claim: sub, prefix: ''}",
            "{expression: 'claims.'}",
            ":14: jwt[0].claimMappings.username.expression is invalid: \"claims.\": compilation failed: ERROR: <input>:1:",
        ),
        (
            "{claim: sub, prefix: ''}",
            "{expression: user.username}",
            "compilation failed: ERROR: <input>:1:1: undeclared reference to 'user' (in container '')",
        ),
        (
            "string(claims.email_verified)",
            "claims.sub",
            ":23: jwt[1].claimMappings.username.expression uses claims.email, so claims.email_verified must be used here, in a claim validation rule or in an extra",
        ),
        (
            "example.com/verified",
            "verified",
            ":25: jwt[1].claimMappings.extra[0].key is not of the form domain/path",
        ),
        (
            "example.com/verified",
            "example.com/Verified",
            ":25: jwt[1].claimMappings.extra[0].key is not in lower case",
        ),
        (
            "example.com/verified",
            "authentication.k8s.io/x",
            ":25: jwt[1].claimMappings.extra[0].key is of k8s.io or kubernetes.io, which are reserved",
        ),
        ("jwt:\n", "jwt:\n- 7\n", ":9: jwt[0] is not a mapping"),
        ("kind: ", "kind: [\n", "it is not valid YAML"),
    ];
    for (from, to, expected) in cases {
        let text = GOOD.replacen(from, to, 1);
        assert_ne!(text, GOOD, "{from}");
        let error = parse(&text).map(|_| ()).unwrap_err();
        let matches = error.contains(expected) && error.starts_with("authn.yaml");
        assert!(matches, "{from} → {to}\n  is: {error}\n  not: authn.yaml{expected}");
    }
}

#[test]
fn rules_are_checked_too() {
    let cases = [
        ("{claim: hd, requiredValue: x, expression: 'true'}", "has both a claim and an expression"),
        ("{message: x}", "needs a claim or an expression"),
        ("{claim: hd, message: x}", "must not be set together with a claim"),
        ("{expression: 'true', requiredValue: x}", "must not be set together with an expression"),
        ("{expression: claims.hd}", "must evaluate to bool"),
    ];
    for (rule, expected) in cases {
        let text = format!("{GOOD}  claimValidationRules:\n  - {rule}\n");
        let error = parse(&text).map(|_| ()).unwrap_err();
        assert!(error.starts_with("authn.yaml:28: jwt[1].claimValidationRules[0]"), "{rule}: {error}");
        assert!(error.contains(expected), "{rule}: {error}");
    }
    let text = format!("{GOOD}  userValidationRules:\n  - expression: user.name == 'x'\n");
    let error = parse(&text).map(|_| ()).unwrap_err();
    let expected = "authn.yaml:28: jwt[1].userValidationRules[0].expression is invalid: ";
    assert!(error.starts_with(expected) && error.contains("undefined field 'name'"), "{error}");
}

#[test]
fn flags_are_checked() {
    let errors = JwtSettings::from_flags(&OidcFlags {
        issuer_url: "http://issuer".to_owned(),
        certificate_authority: Some("nonsense".to_owned()),
        signing_algorithms: Vec::new(),
        ..OidcFlags::default()
    })
    .unwrap_err();
    let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        errors,
        [
            "--oidc-issuer-url is not an https URL",
            "--oidc-client-id is required together with --oidc-issuer-url",
            "--oidc-ca-file contains no PEM certificate",
            "--oidc-signing-algs is empty",
        ]
    );
}

#[test]
fn unknown_fields_in_objects_of_an_api_server_are_ignored() {
    let element = json!({
        "issuer": { "url": "https://a.example.com", "audiences": ["a"], "newer": true },
        "claimMappings": { "username": { "claim": "sub", "prefix": "" }, "newer": {} },
        "newer": 7,
    });
    assert_eq!(JwtSettings::from_value(&element).unwrap().issuer(), "https://a.example.com");
    let errors = JwtSettings::from_value(&json!({ "issuer": 7 })).unwrap_err();
    let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert!(errors.contains(&"issuer is not a mapping".to_owned()), "{errors:?}");
    assert!(errors.contains(&"issuer.url is required".to_owned()), "{errors:?}");
}
