//! Tests of the protocol rules, one table per endpoint.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

const ISSUER: &str = "https://127.0.0.1:6444";
const REDIRECT: &str = "http://127.0.0.1:8000/callback";
/// The example of RFC 7636, appendix B.
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

struct TestProvider {
    provider: Provider,
    users: Arc<Reloadable<Users>>,
    now: Time,
}

impl TestProvider {
    fn new() -> Self {
        let users = Users::of("users: [{name: developer, groups: [developers]}, {name: visitor}]");
        let users = Arc::new(Reloadable::new(users));
        let signer = TokenSigner {
            issuer: ISSUER.to_owned(),
            client_id: "fairlead".to_owned(),
            key: crate::key::SigningKey::for_tests(),
            token_lifetime: Duration::from_secs(600),
            sign_in_lifetime: Duration::from_secs(3600),
        };
        Self { provider: Provider::new(signer, Arc::clone(&users)), users, now: Time::now() }
    }

    fn later(&mut self, seconds: u64) {
        self.now = self.now.after(Duration::from_secs(seconds));
    }

    /// A sign-in up to the code.
    fn code(&self) -> String {
        let request = self.provider.authorize(&authorization(&[])).unwrap();
        let address = self.provider.sign_in(self.now, &request, "developer").unwrap();
        let (_, query) = address.split_once('?').unwrap();
        let response = Form::parse(query).unwrap();
        assert_eq!((response.get("state"), response.get("iss")), (Some("s"), Some(ISSUER)));
        response.get("code").unwrap().to_owned()
    }

    fn token(&self, pairs: &[(&str, &str)]) -> Result<Value, &'static str> {
        let response = self.provider.token(self.now, &form(pairs));
        response.map(|(_, tokens)| tokens).map_err(OAuthError::code)
    }

    fn redeem(&self, code: &str, changes: &[(&str, &str)]) -> Result<Value, &'static str> {
        let usual = [
            ("grant_type", "authorization_code"),
            ("client_id", "fairlead"),
            ("code", code),
            ("redirect_uri", REDIRECT),
            ("code_verifier", VERIFIER),
        ];
        self.token(&changed(&usual, changes))
    }

    fn refresh(&self, token: &str) -> Result<Value, &'static str> {
        self.token(&[("grant_type", "refresh_token"), ("client_id", "fairlead"), ("refresh_token", token)])
    }

    fn begin_device(&self) -> (String, UserCode) {
        let form = form(&[("client_id", "fairlead"), ("scope", "openid offline_access")]);
        let response = self.provider.begin_device(self.now, &form).unwrap();
        assert_eq!(response["verification_uri"], format!("{ISSUER}/device"));
        let user_code = UserCode::parse(response["user_code"].as_str().unwrap()).unwrap();
        (response["device_code"].as_str().unwrap().to_owned(), user_code)
    }

    fn poll(&self, device_code: &str) -> Result<Value, &'static str> {
        let grant = "urn:ietf:params:oauth:grant-type:device_code";
        self.token(&[("grant_type", grant), ("client_id", "fairlead"), ("device_code", device_code)])
    }

    fn claims(&self, response: &Value) -> Value {
        self.provider.signer.key.verify("JWT", response["id_token"].as_str().unwrap()).unwrap()
    }

    fn decision(&self, user: &str) -> Decision {
        Decision::SignIn { user: user.to_owned(), at: self.now.unix }
    }
}

fn form(pairs: &[(&str, &str)]) -> Form {
    let redirect = crate::redirect::RedirectUri::parse(REDIRECT).unwrap().with(pairs);
    Form::parse(redirect.split_once('?').map_or("", |(_, query)| query)).unwrap()
}

/// The usual pairs with some replaced. An empty value counts as absent.
fn changed<'a>(usual: &[(&'a str, &'a str)], changes: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let is_changed = |key: &str| changes.iter().any(|(changed, _)| *changed == key);
    let kept = usual.iter().filter(|(key, _)| !is_changed(key));
    kept.chain(changes).copied().collect()
}

fn authorization(changes: &[(&str, &str)]) -> Form {
    let usual = [
        ("response_type", "code"),
        ("client_id", "fairlead"),
        ("redirect_uri", REDIRECT),
        ("scope", "openid offline_access groups"),
        ("state", "s"),
        ("nonce", "n"),
        ("code_challenge", CHALLENGE),
        ("code_challenge_method", "S256"),
    ];
    form(&changed(&usual, changes))
}

#[test]
fn a_code_can_be_redeemed_once() {
    let test = TestProvider::new();
    let code = test.code();
    let response = test.redeem(&code, &[]).unwrap();
    assert_eq!(response["token_type"], "Bearer");
    assert_eq!(response["expires_in"], 600);
    let claims = test.claims(&response);
    assert_eq!(claims["iss"], ISSUER);
    assert_eq!(claims["aud"], "fairlead");
    assert_eq!(claims["sub"], "developer");
    assert_eq!(claims["groups"], json!(["developers"]));
    assert_eq!(claims["nonce"], "n");
    assert_eq!(claims["exp"].as_u64(), Some(test.now.unix + 600));
    assert_eq!(test.redeem(&code, &[]), Err("invalid_grant"), "used");
}

#[test]
fn a_code_is_bound_to_its_client_and_expires() {
    for (change, error) in [
        (("code_verifier", "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXX"), "invalid_grant"),
        (("code_verifier", CHALLENGE), "invalid_grant"),
        (("code_verifier", "short"), "invalid_grant"),
        (("redirect_uri", "http://127.0.0.1:8001/callback"), "invalid_grant"),
        (("redirect_uri", "http://localhost:8000/callback"), "invalid_grant"),
    ] {
        let test = TestProvider::new();
        let code = test.code();
        assert_eq!(test.redeem(&code, &[change]), Err(error), "{change:?}");
        assert_eq!(test.redeem(&code, &[]), Err("invalid_grant"), "{change:?}: used up");
    }
    for (change, error) in [
        (("code_verifier", ""), "invalid_request"),
        (("redirect_uri", ""), "invalid_request"),
        (("code", ""), "invalid_request"),
        (("code", "made-up"), "invalid_grant"),
        (("client_id", "other"), "invalid_client"),
        (("client_id", ""), "invalid_client"),
        (("client_secret", "x"), "invalid_client"),
        (("grant_type", ""), "invalid_request"),
        (("grant_type", "password"), "unsupported_grant_type"),
    ] {
        let test = TestProvider::new();
        let code = test.code();
        assert_eq!(test.redeem(&code, &[change]), Err(error), "{change:?}");
        assert!(test.redeem(&code, &[]).is_ok(), "{change:?}: not used up");
    }
    let mut test = TestProvider::new();
    let code = test.code();
    test.later(60);
    assert_eq!(test.redeem(&code, &[]), Err("invalid_grant"), "expired");
}

#[test]
fn errors_are_redirected_only_to_valid_redirect_uris() {
    let provider = TestProvider::new().provider;
    assert!(provider.authorize(&authorization(&[])).is_ok());
    // Without a valid client and redirect URI, a page shows the error.
    for change in [
        ("client_id", "other"),
        ("client_id", ""),
        ("redirect_uri", ""),
        ("redirect_uri", "https://evil.example/callback"),
        ("redirect_uri", "http://127.0.0.1.evil.example/callback"),
        ("redirect_uri", "http://127.0.0.1:8000/elsewhere"),
    ] {
        let error = provider.authorize(&authorization(&[change])).unwrap_err();
        assert!(matches!(error, AuthorizationError::ShowToUser(_)), "{change:?}: {error:?}");
    }
    let long = "x".repeat(3_000);
    for (change, error) in [
        (("response_type", "token"), "unsupported_response_type"),
        (("response_type", ""), "unsupported_response_type"),
        (("response_mode", "fragment"), "invalid_request"),
        (("scope", "profile"), "invalid_scope"),
        (("scope", ""), "invalid_scope"),
        (("code_challenge", ""), "invalid_request"),
        (("code_challenge", "short"), "invalid_request"),
        (("code_challenge_method", "plain"), "invalid_request"),
        (("code_challenge_method", ""), "invalid_request"),
        (("prompt", "none"), "login_required"),
        (("request", "e30."), "request_not_supported"),
        (("request_uri", "https://evil.example"), "request_not_supported"),
        (("nonce", long.as_str()), "invalid_request"),
    ] {
        let found = provider.authorize(&authorization(&[change])).unwrap_err();
        let AuthorizationError::RedirectToClient(address) = found else { panic!("{change:?}: {found:?}") };
        let (to, query) = address.split_once('?').unwrap();
        let response = Form::parse(query).unwrap();
        assert_eq!(to, REDIRECT);
        assert_eq!((response.get("error"), response.get("state")), (Some(error), Some("s")), "{change:?}");
        assert_eq!(response.get("iss"), Some(ISSUER), "{change:?}");
    }
    let request = provider.authorize(&authorization(&[])).unwrap();
    assert!(
        matches!(provider.refuse(&request), AuthorizationError::RedirectToClient(address) if address.contains("error=access_denied"))
    );
    let gone = provider.sign_in(Time::now(), &request, "nobody");
    assert!(matches!(gone, Err(AuthorizationError::ShowToUser(_))), "{gone:?}");
}

#[test]
fn a_sign_in_can_be_refreshed_until_it_ends() {
    let mut test = TestProvider::new();
    let response = test.redeem(&test.code(), &[]).unwrap();
    let refresh = response["refresh_token"].as_str().unwrap().to_owned();
    test.later(3_599);
    let again = test.refresh(&refresh).unwrap();
    let claims = test.claims(&again);
    assert_eq!(claims["sub"], "developer");
    assert!(claims["nonce"].is_null());
    assert_eq!(claims["auth_time"], test.claims(&response)["auth_time"]);
    assert_eq!(claims["exp"].as_u64(), Some(test.now.unix + 600));
    let newer = again["refresh_token"].as_str().unwrap().to_owned();
    assert!(test.refresh(&refresh).is_ok(), "a refresh token can be used repeatedly");
    test.later(1);
    for token in [refresh.as_str(), newer.as_str()] {
        assert_eq!(test.refresh(token), Err("invalid_grant"), "a refresh does not extend the sign-in");
    }
}

#[test]
fn a_refresh_token_is_valid_here_only_and_for_existing_users() {
    let test = TestProvider::new();
    let response = test.redeem(&test.code(), &[]).unwrap();
    let refresh = response["refresh_token"].as_str().unwrap();
    let id_token = response["id_token"].as_str().unwrap();
    let foreign = TestProvider::new();
    let foreign = foreign.redeem(&foreign.code(), &[]).unwrap();
    for token in ["made.up.token", "x", id_token, foreign["refresh_token"].as_str().unwrap()] {
        assert_eq!(test.refresh(token), Err("invalid_grant"), "{token}");
    }
    let usual = [("grant_type", "refresh_token"), ("client_id", "fairlead"), ("refresh_token", refresh)];
    assert_eq!(test.token(&changed(&usual, &[("refresh_token", "")])), Err("invalid_request"));
    assert_eq!(test.token(&changed(&usual, &[("client_id", "other")])), Err("invalid_client"));
    let claims: Value = test.provider.signer.key.verify("refresh+jwt", refresh).unwrap();
    assert_eq!(claims["aud"], ISSUER, "servers reject it, because they expect the client as audience");
    test.users.replace(Users::of("users: [{name: visitor}]"));
    assert_eq!(test.refresh(refresh), Err("invalid_grant"), "the user has been removed");
}

#[test]
fn there_is_no_refresh_token_without_offline_access() {
    let test = TestProvider::new();
    let request = test.provider.authorize(&authorization(&[("scope", "openid")])).unwrap();
    let address = test.provider.sign_in(test.now, &request, "visitor").unwrap();
    let response = Form::parse(address.split_once('?').unwrap().1).unwrap();
    let response = test.redeem(response.get("code").unwrap(), &[]).unwrap();
    assert!(response["refresh_token"].is_null() && response["scope"] == "openid", "{response}");
    assert_eq!(test.claims(&response)["groups"], json!([]));
}

#[test]
fn a_device_waits_for_the_decision_of_a_user() {
    let mut test = TestProvider::new();
    let (device_code, user_code) = test.begin_device();
    assert_eq!(test.poll(&device_code), Err("authorization_pending"));
    assert_eq!(test.poll(&device_code), Err("slow_down"), "polled at once");
    test.later(1);
    assert_eq!(test.poll(&device_code), Err("authorization_pending"));
    assert!(test.provider.is_device_pending(test.now, &user_code));
    assert!(!test.provider.decide(test.now, &user_code, test.decision("nobody")), "no such user");
    assert!(test.provider.decide(test.now, &user_code, test.decision("visitor")));
    assert!(!test.provider.is_device_pending(test.now, &user_code), "decided");
    assert!(!test.provider.decide(test.now, &user_code, test.decision("developer")), "once");
    let response = test.poll(&device_code).unwrap();
    assert_eq!(test.claims(&response)["sub"], "visitor");
    assert!(response["refresh_token"].is_string());
    assert_eq!(test.poll(&device_code), Err("invalid_grant"), "used");
}

#[test]
fn a_device_is_refused_or_expires() {
    let mut test = TestProvider::new();
    let (refused, user_code) = test.begin_device();
    assert!(test.provider.decide(test.now, &user_code, Decision::Refuse));
    assert_eq!(test.poll(&refused), Err("access_denied"));
    let (late, user_code) = test.begin_device();
    test.later(600);
    assert!(!test.provider.decide(test.now, &user_code, test.decision("developer")));
    assert_eq!(test.poll(&late), Err("expired_token"));
    test.later(600);
    assert_eq!(test.poll(&late), Err("invalid_grant"), "removed");
    assert_eq!(test.poll("made-up"), Err("invalid_grant"));
    for (pairs, error) in [
        (&[("client_id", "other"), ("scope", "openid")][..], "invalid_client"),
        (&[("scope", "openid")], "invalid_client"),
        (&[("client_id", "fairlead")], "invalid_scope"),
    ] {
        let found = test.provider.begin_device(test.now, &form(pairs)).unwrap_err();
        assert_eq!(found.code(), error, "{pairs:?}");
    }
}

#[test]
fn the_number_of_codes_and_devices_is_bounded() {
    let test = TestProvider::new();
    let (first_code, (first_device, _)) = (test.code(), test.begin_device());
    for _ in 0..MAX_CODES {
        test.code();
        test.begin_device();
    }
    assert_eq!(test.redeem(&first_code, &[]), Err("invalid_grant"), "the oldest are removed");
    assert_eq!(test.poll(&first_device), Err("invalid_grant"));
}
