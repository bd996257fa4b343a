//! Users of single workspaces and of the whole installation.

use std::path::Path;

use fairlead_authn::{
    Chain, ConnectionCredentials, GroupFilter, JwtSettings, KeyFetchSettings, Outcome, TokenFile, TokenUnion,
    WorkspaceAuthenticator,
};
use http::HeaderMap;
use serde_json::json;

use super::{
    NOW, at,
    issuers::{claims, element, serve},
    server::Server,
    signing::Signer,
};

fn workspace(servers: &[&Server]) -> WorkspaceAuthenticator {
    let changes = json!({ "claimMappings": {
        "groups": { "claim": "groups", "prefix": "" },
        "username": { "claim": "sub", "prefix": "" },
    } });
    let settings = servers.iter().map(|server| JwtSettings::from_value(&element(server, &changes)).unwrap());
    let key_settings =
        KeyFetchSettings { max_wait: std::time::Duration::from_secs(600), ..KeyFetchSettings::default() };
    WorkspaceAuthenticator::with_key_settings(settings, &key_settings)
}

async fn outcome(chain: &Chain, workspace: &WorkspaceAuthenticator, token: Option<&str>) -> Outcome {
    let mut headers = HeaderMap::new();
    if let Some(token) = token {
        headers.insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    let connection = ConnectionCredentials::none();
    chain.authenticate_in(None, &connection, &headers, at(NOW), workspace, "2vhzq").await
}

fn summary(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Identified(identity) => {
            let user = identity.user();
            let scopes = user.extra.get("authentication.kcp.io/scopes").map(|scopes| scopes.join(","));
            format!("{}: {} [{}]", user.name, user.groups.join(" "), scopes.unwrap_or_default())
        }
        Outcome::Anonymous => "anonymous".to_owned(),
        Outcome::Rejected(rejection) if rejection.lacks_authenticator() => "nobody judges".to_owned(),
        Outcome::Rejected(rejection) => rejection.to_string(),
    }
}

/// A chain with a token file with the token `static`, and a chain without authenticators of tokens.
fn chains() -> [Chain; 2] {
    let file = TokenFile::parse("static,bob,1,system:masters", Path::new("tokens.csv")).unwrap();
    let knows =
        Chain::builder().with(TokenUnion::new().with(file)).filter_groups(GroupFilter::new(["x"], [""]));
    [knows.build(), Chain::builder().build()]
}

#[tokio::test]
async fn a_workspace_has_users_of_its_own() {
    let server = Server::start().await;
    let (signer, stranger) = (Signer::elliptic_curve("P-256", "k1"), Signer::elliptic_curve("P-256", "k1"));
    serve(&server, &[&signer]);
    let workspace = workspace(&[&server]);
    let mut theirs = claims(&server);
    theirs["groups"] = json!(["team", "system:masters"]);
    let token = signer.sign(&theirs);
    let forged = stranger.sign(&theirs);
    theirs["sub"] = json!("system:admin");
    let reserved = signer.sign(&theirs);
    theirs["iss"] = json!("https://elsewhere.example.com");
    let foreign = signer.sign(&theirs);
    let [knows, judges_nothing] = chains();
    let ann = "ann: team system:authenticated [cluster:2vhzq]";
    let unknown = "bearer token: token file: the bearer token is not known";
    let cases = [
        (&knows, None, "anonymous".to_owned()),
        (&knows, Some("static"), "bob:  []".to_owned()),
        (&knows, Some(token.as_str()), ann.to_owned()),
        (&knows, Some(&forged), format!("{unknown}; workspace: the token's signature is not valid")),
        (
            &knows,
            Some(&reserved),
            format!("{unknown}; workspace: user names that begin with \"system:\" are not accepted here"),
        ),
        (&knows, Some(&foreign), unknown.to_owned()),
        (&knows, Some("opaque"), unknown.to_owned()),
        // If the chain has no authenticator of tokens, tokens of other issuers are left to the shard.
        (&judges_nothing, None, "anonymous".to_owned()),
        (&judges_nothing, Some(&token), ann.to_owned()),
        (&judges_nothing, Some(&forged), "workspace: the token's signature is not valid".to_owned()),
        (&judges_nothing, Some(&foreign), "nobody judges".to_owned()),
        (&judges_nothing, Some("opaque"), "nobody judges".to_owned()),
    ];
    for (chain, token, expected) in cases {
        assert_eq!(summary(&outcome(chain, &workspace, token).await), expected);
    }
}

#[tokio::test]
async fn an_identity_is_valid_in_the_workspace_of_its_request_only() {
    let server = Server::start().await;
    let signer = Signer::elliptic_curve("P-256", "k1");
    serve(&server, &[&signer]);
    let workspace = workspace(&[&server]);
    let [_, chain] = chains();
    let mut headers = HeaderMap::new();
    headers.insert("authorization", format!("Bearer {}", signer.sign(&claims(&server))).parse().unwrap());
    let connection = ConnectionCredentials::none();
    let mut first = None;
    for cluster in ["one", "two", "one"] {
        let outcome = chain.authenticate_in(None, &connection, &headers, at(NOW), &workspace, cluster).await;
        let Outcome::Identified(identity) = outcome else { panic!("{outcome:?}") };
        assert_eq!(identity.user().extra["authentication.kcp.io/scopes"], [format!("cluster:{cluster}")]);
        assert_eq!(identity.user().extra["authentication.kcp.io/cluster-name"], [cluster]);
        if cluster == "one" {
            let known = first.get_or_insert_with(|| identity.clone());
            assert!(std::sync::Arc::ptr_eq(known, &identity), "its headers are built once");
        }
    }
}

#[tokio::test]
async fn each_workspace_has_its_own_issuers() {
    let (one, two) = (Server::start().await, Server::start().await);
    let signers = ["one", "two"].map(|name| Signer::elliptic_curve("P-256", name));
    serve(&one, &[&signers[0]]);
    serve(&two, &[&signers[1]]);
    let tokens = [signers[0].sign(&claims(&one)), signers[1].sign(&claims(&two))];
    let [_, chain] = chains();
    for (servers, expected) in
        [(vec![&one], [true, false]), (vec![&two], [false, true]), (vec![&one, &two], [true, true])]
    {
        let workspace = workspace(&servers);
        for (token, expected) in tokens.iter().zip(expected) {
            let outcome = outcome(&chain, &workspace, Some(token)).await;
            assert_eq!(matches!(outcome, Outcome::Identified(_)), expected);
        }
    }
}
