//! The rules of the protocol, one table per endpoint.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

const ISSUER: &str = "https://127.0.0.1:6444";
const REDIRECT: &str = "http://127.0.0.1:8000/callback";
/// The example of RFC 7636, appendix B.
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

struct Stage {
    provider: Provider,
    users: Arc<Reloadable<Users>>,
    now: Moment,
}

impl Stage {
    fn set() -> Self {
        let users = Users::of("users: [{name: developer, groups: [developers]}, {name: visitor}]");
        let users = Arc::new(Reloadable::new(users));
        let mint = Mint {
            issuer: ISSUER.to_owned(),
            client_id: "fairlead".to_owned(),
            key: crate::key::SigningKey::for_tests(),
            token_lifetime: Duration::from_secs(600),
            sign_in_lifetime: Duration::from_secs(3600),
        };
        Self { provider: Provider::new(mint, Arc::clone(&users)), users, now: Moment::now() }
    }

    fn later(&mut self, seconds: u64) {
        self.now = self.now.after(Duration::from_secs(seconds));
    }

    /// A sign-in up to the code.
    fn code(&self) -> String {
        let request = self.provider.authorize(&authorization(&[])).unwrap();
        let address = self.provider.sign_in(self.now, &request, "developer").unwrap();
        let (_, query) = address.split_once('?').unwrap();
        let answer = Form::parse(query).unwrap();
        assert_eq!((answer.get("state"), answer.get("iss")), (Some("s"), Some(ISSUER)));
        answer.get("code").unwrap().to_owned()
    }

    fn token(&self, pairs: &[(&str, &str)]) -> Result<Value, &'static str> {
        let answer = self.provider.token(self.now, &form(pairs));
        answer.map(|(_, tokens)| tokens).map_err(Refusal::code)
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
        let answer = self.provider.begin_device(self.now, &form).unwrap();
        assert_eq!(answer["verification_uri"], format!("{ISSUER}/device"));
        let user_code = UserCode::parse(answer["user_code"].as_str().unwrap()).unwrap();
        (answer["device_code"].as_str().unwrap().to_owned(), user_code)
    }

    fn poll(&self, device_code: &str) -> Result<Value, &'static str> {
        let grant = "urn:ietf:params:oauth:grant-type:device_code";
        self.token(&[("grant_type", grant), ("client_id", "fairlead"), ("device_code", device_code)])
    }

    fn claims(&self, answer: &Value) -> Value {
        self.provider.mint.key.verify("JWT", answer["id_token"].as_str().unwrap()).unwrap()
    }

    fn decision(&self, user: &str) -> Decision {
        Decision::SignIn { user: user.to_owned(), at: self.now.unix }
    }
}

fn form(pairs: &[(&str, &str)]) -> Form {
    let redirect = crate::redirect::RedirectUri::parse(REDIRECT).unwrap().with(pairs);
    Form::parse(redirect.split_once('?').map_or("", |(_, query)| query)).unwrap()
}

/// The usual pairs with some replaced; an empty value is as good as none.
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
fn a_code_is_good_for_tokens_once() {
    let stage = Stage::set();
    let code = stage.code();
    let answer = stage.redeem(&code, &[]).unwrap();
    assert_eq!(answer["token_type"], "Bearer");
    assert_eq!(answer["expires_in"], 600);
    let claims = stage.claims(&answer);
    assert_eq!(claims["iss"], ISSUER);
    assert_eq!(claims["aud"], "fairlead");
    assert_eq!(claims["sub"], "developer");
    assert_eq!(claims["groups"], json!(["developers"]));
    assert_eq!(claims["nonce"], "n");
    assert_eq!(claims["exp"].as_u64(), Some(stage.now.unix + 600));
    assert_eq!(stage.redeem(&code, &[]), Err("invalid_grant"), "used");
}

#[test]
fn a_code_is_for_who_has_asked_for_it_and_soon() {
    for (change, error) in [
        (("code_verifier", "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXX"), "invalid_grant"),
        (("code_verifier", CHALLENGE), "invalid_grant"),
        (("code_verifier", "short"), "invalid_grant"),
        (("redirect_uri", "http://127.0.0.1:8001/callback"), "invalid_grant"),
        (("redirect_uri", "http://localhost:8000/callback"), "invalid_grant"),
    ] {
        let stage = Stage::set();
        let code = stage.code();
        assert_eq!(stage.redeem(&code, &[change]), Err(error), "{change:?}");
        assert_eq!(stage.redeem(&code, &[]), Err("invalid_grant"), "{change:?}: used up by the wrong one");
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
        let stage = Stage::set();
        let code = stage.code();
        assert_eq!(stage.redeem(&code, &[change]), Err(error), "{change:?}");
        assert!(stage.redeem(&code, &[]).is_ok(), "{change:?}: not used up");
    }
    let mut stage = Stage::set();
    let code = stage.code();
    stage.later(60);
    assert_eq!(stage.redeem(&code, &[]), Err("invalid_grant"), "over");
}

#[test]
fn what_is_no_good_request_for_a_code_is_told_to_the_right_one() {
    let provider = Stage::set().provider;
    assert!(provider.authorize(&authorization(&[])).is_ok());
    // Without a good client and address, the person; nobody is sent anywhere.
    for change in [
        ("client_id", "other"),
        ("client_id", ""),
        ("redirect_uri", ""),
        ("redirect_uri", "https://evil.example/callback"),
        ("redirect_uri", "http://127.0.0.1.evil.example/callback"),
        ("redirect_uri", "http://127.0.0.1:8000/elsewhere"),
    ] {
        let turned = provider.authorize(&authorization(&[change])).unwrap_err();
        assert!(matches!(turned, Turned::Here(_)), "{change:?}: {turned:?}");
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
        let turned = provider.authorize(&authorization(&[change])).unwrap_err();
        let Turned::Back(address) = turned else { panic!("{change:?}: {turned:?}") };
        let (to, query) = address.split_once('?').unwrap();
        let answer = Form::parse(query).unwrap();
        assert_eq!(to, REDIRECT);
        assert_eq!((answer.get("error"), answer.get("state")), (Some(error), Some("s")), "{change:?}");
        assert_eq!(answer.get("iss"), Some(ISSUER), "{change:?}");
    }
    let request = provider.authorize(&authorization(&[])).unwrap();
    assert!(
        matches!(provider.refuse(&request), Turned::Back(address) if address.contains("error=access_denied"))
    );
    let gone = provider.sign_in(Moment::now(), &request, "nobody");
    assert!(matches!(gone, Err(Turned::Here(_))), "{gone:?}");
}

#[test]
fn a_sign_in_is_refreshed_until_it_is_over() {
    let mut stage = Stage::set();
    let answer = stage.redeem(&stage.code(), &[]).unwrap();
    let refresh = answer["refresh_token"].as_str().unwrap().to_owned();
    stage.later(3_599);
    let again = stage.refresh(&refresh).unwrap();
    let claims = stage.claims(&again);
    assert_eq!(claims["sub"], "developer");
    assert!(claims["nonce"].is_null());
    assert_eq!(claims["auth_time"], stage.claims(&answer)["auth_time"]);
    assert_eq!(claims["exp"].as_u64(), Some(stage.now.unix + 600));
    let newer = again["refresh_token"].as_str().unwrap().to_owned();
    assert!(stage.refresh(&refresh).is_ok(), "another process may be as late as this one");
    stage.later(1);
    for token in [refresh.as_str(), newer.as_str()] {
        assert_eq!(stage.refresh(token), Err("invalid_grant"), "a refresh does not make a sign-in longer");
    }
}

#[test]
fn a_refresh_token_is_for_us_and_for_users_that_there_are() {
    let stage = Stage::set();
    let answer = stage.redeem(&stage.code(), &[]).unwrap();
    let refresh = answer["refresh_token"].as_str().unwrap();
    let id_token = answer["id_token"].as_str().unwrap();
    let foreign = Stage::set();
    let foreign = foreign.redeem(&foreign.code(), &[]).unwrap();
    for token in ["made.up.token", "x", id_token, foreign["refresh_token"].as_str().unwrap()] {
        assert_eq!(stage.refresh(token), Err("invalid_grant"), "{token}");
    }
    let usual = [("grant_type", "refresh_token"), ("client_id", "fairlead"), ("refresh_token", refresh)];
    assert_eq!(stage.token(&changed(&usual, &[("refresh_token", "")])), Err("invalid_request"));
    assert_eq!(stage.token(&changed(&usual, &[("client_id", "other")])), Err("invalid_client"));
    let claims: Value = stage.provider.mint.key.verify("refresh+jwt", refresh).unwrap();
    assert_eq!(claims["aud"], ISSUER, "no server that expects tokens for its client takes it");
    stage.users.replace(Users::of("users: [{name: visitor}]"));
    assert_eq!(stage.refresh(refresh), Err("invalid_grant"), "the user has been removed");
}

#[test]
fn nothing_outlives_a_sign_in_that_is_not_asked_to() {
    let stage = Stage::set();
    let request = stage.provider.authorize(&authorization(&[("scope", "openid")])).unwrap();
    let address = stage.provider.sign_in(stage.now, &request, "visitor").unwrap();
    let answer = Form::parse(address.split_once('?').unwrap().1).unwrap();
    let answer = stage.redeem(answer.get("code").unwrap(), &[]).unwrap();
    assert!(answer["refresh_token"].is_null() && answer["scope"] == "openid", "{answer}");
    assert_eq!(stage.claims(&answer)["groups"], json!([]));
}

#[test]
fn a_device_waits_for_a_person() {
    let mut stage = Stage::set();
    let (device_code, user_code) = stage.begin_device();
    assert_eq!(stage.poll(&device_code), Err("authorization_pending"));
    assert_eq!(stage.poll(&device_code), Err("slow_down"), "asked at once");
    stage.later(1);
    assert_eq!(stage.poll(&device_code), Err("authorization_pending"));
    assert!(stage.provider.device_waits(stage.now, &user_code));
    assert!(!stage.provider.decide(stage.now, &user_code, stage.decision("nobody")), "no such user");
    assert!(stage.provider.decide(stage.now, &user_code, stage.decision("visitor")));
    assert!(!stage.provider.device_waits(stage.now, &user_code), "decided");
    assert!(!stage.provider.decide(stage.now, &user_code, stage.decision("developer")), "once");
    let answer = stage.poll(&device_code).unwrap();
    assert_eq!(stage.claims(&answer)["sub"], "visitor");
    assert!(answer["refresh_token"].is_string());
    assert_eq!(stage.poll(&device_code), Err("invalid_grant"), "used");
}

#[test]
fn a_device_is_refused_or_too_late() {
    let mut stage = Stage::set();
    let (refused, user_code) = stage.begin_device();
    assert!(stage.provider.decide(stage.now, &user_code, Decision::Refuse));
    assert_eq!(stage.poll(&refused), Err("access_denied"));
    let (late, user_code) = stage.begin_device();
    stage.later(600);
    assert!(!stage.provider.decide(stage.now, &user_code, stage.decision("developer")));
    assert_eq!(stage.poll(&late), Err("expired_token"));
    stage.later(600);
    assert_eq!(stage.poll(&late), Err("invalid_grant"), "forgotten");
    assert_eq!(stage.poll("made-up"), Err("invalid_grant"));
    for (pairs, error) in [
        (&[("client_id", "other"), ("scope", "openid")][..], "invalid_client"),
        (&[("scope", "openid")], "invalid_client"),
        (&[("client_id", "fairlead")], "invalid_scope"),
    ] {
        let refusal = stage.provider.begin_device(stage.now, &form(pairs)).unwrap_err();
        assert_eq!(refusal.code(), error, "{pairs:?}");
    }
}

#[test]
fn memory_is_bounded() {
    let stage = Stage::set();
    let (first_code, (first_device, _)) = (stage.code(), stage.begin_device());
    for _ in 0..MOST_CODES {
        stage.code();
        stage.begin_device();
    }
    assert_eq!(stage.redeem(&first_code, &[]), Err("invalid_grant"), "the oldest are forgotten");
    assert_eq!(stage.poll(&first_device), Err("invalid_grant"));
}
