//! HTTP before the provider: which path and method, whose host, how much and how long, and whose form it is.
//!
//! A form is believed only if it comes from a page of ours: browsers say where a form comes from (`Origin`), and it brings
//! back the secret of its page, which the browser also keeps in a cookie that goes with no request from elsewhere.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fairlead_process::{Health, METRICS_CONTENT_TYPE, Metrics, MetricsError, RequestBody};
use http::header::{
    ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, HOST, HeaderMap,
    HeaderName, HeaderValue, LOCATION, ORIGIN, REFERRER_POLICY, SET_COOKIE, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use prometheus::IntCounterVec;
use serde_json::Value;
use tokio::time::timeout;

use crate::devices::{Decision, UserCode};
use crate::form::Form;
use crate::moment::Moment;
use crate::page::{FormSecret, Page, policy};
use crate::provider::Provider;
use crate::refusal::Refusal;
use crate::secret::{is_secret, secret};
use crate::sign_in::Turned;

/// Larger forms are not read: one is a few hundred bytes.
const LARGEST_FORM: usize = 16 << 10;
/// Whoever sends even more is not waited for.
const LARGEST_THROWN_AWAY: usize = 1 << 20;
/// How long a form may take to arrive.
const FORM_PATIENCE: Duration = Duration::from_secs(10);
/// The cookie beside the secret of a form. The prefix keeps other hosts from setting it.
const COOKIE_NAME: &str = "__Host-fairlead-sign-in";

/// Answers requests.
pub(crate) struct IssuerService {
    provider: Arc<Provider>,
    health: Health,
    metrics: Metrics,
    answers: IntCounterVec,
    tokens: IntCounterVec,
    policy: HeaderValue,
}

/// What there is, by path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Endpoint {
    Discovery,
    Keys,
    Authorize,
    DeviceAuthorization,
    Device,
    Token,
    Metrics,
    Health,
}

/// What a browser brings along.
struct Browser {
    /// The cookie, if it has one of ours.
    cookie: Option<String>,
}

type Answer = Response<Full<Bytes>>;

impl Endpoint {
    fn of(path: &str) -> Option<Self> {
        Some(match path {
            "/.well-known/openid-configuration" => Self::Discovery,
            "/keys" => Self::Keys,
            "/authorize" => Self::Authorize,
            "/device_authorization" => Self::DeviceAuthorization,
            "/device" => Self::Device,
            "/token" => Self::Token,
            "/metrics" => Self::Metrics,
            "/livez" | "/readyz" | "/healthz" => Self::Health,
            _ => return None,
        })
    }

    /// Its name in metrics.
    fn word(self) -> &'static str {
        match self {
            Self::Discovery => "discovery",
            Self::Keys => "keys",
            Self::Authorize => "authorize",
            Self::DeviceAuthorization => "device_authorization",
            Self::Device => "device",
            Self::Token => "token",
            Self::Metrics => "metrics",
            Self::Health => "health",
        }
    }

    fn methods(self) -> &'static str {
        match self {
            Self::Discovery | Self::Keys | Self::Metrics | Self::Health => "GET, HEAD",
            Self::Authorize | Self::Device => "GET, HEAD, POST",
            Self::DeviceAuthorization | Self::Token => "POST",
        }
    }

    fn takes(self, method: &Method) -> bool {
        self.methods().split(", ").any(|known| known == method.as_str())
    }
}

impl IssuerService {
    /// Registers its metrics: once per process.
    pub(crate) fn new(
        provider: Arc<Provider>,
        health: Health,
        metrics: Metrics,
    ) -> Result<Self, MetricsError> {
        let answers = metrics.counters(
            "fairlead_issuer_answers_total",
            "Answers by endpoint and status code.",
            &["endpoint", "code"],
        )?;
        let tokens =
            metrics.counters("fairlead_issuer_tokens_total", "ID tokens issued, by grant.", &["grant"])?;
        let policy =
            HeaderValue::from_str(&policy()).unwrap_or(HeaderValue::from_static("default-src 'none'"));
        Ok(Self { provider, health, metrics, answers, tokens, policy })
    }

    /// Answers one request.
    pub(crate) async fn answer(&self, request: Request<RequestBody>) -> Answer {
        let endpoint = Endpoint::of(request.uri().path());
        let mut answer = self.dispatch(endpoint, request).await;
        let word = endpoint.map_or("none", Endpoint::word);
        self.answers.with_label_values(&[word, answer.status().as_str()]).inc();
        let headers = answer.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        // Not "no-referrer": with that, browsers do not say where our own forms come from.
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
        answer
    }

    async fn dispatch(&self, endpoint: Option<Endpoint>, request: Request<RequestBody>) -> Answer {
        if !self.is_for_us(&request) {
            let told = format!("this is {} and goes by no other name\n", self.provider.issuer());
            return text(StatusCode::MISDIRECTED_REQUEST, told);
        }
        let Some(endpoint) = endpoint else {
            return text(StatusCode::NOT_FOUND, "there is nothing here\n".to_owned());
        };
        let method = request.method().clone();
        if !endpoint.takes(&method) {
            let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, format!("use {}\n", endpoint.methods()));
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static(endpoint.methods()));
            return answer;
        }
        let is_post = method == Method::POST;
        match endpoint {
            Endpoint::Discovery => json(StatusCode::OK, &self.provider.discovery()),
            Endpoint::Keys => json(StatusCode::OK, &self.provider.keys()),
            Endpoint::Metrics => self.tell_metrics(),
            Endpoint::Health => {
                let uri = request.uri();
                let answer = self.health.respond(uri.path(), uri.query());
                answer.map_or_else(
                    || text(StatusCode::NOT_FOUND, String::new()),
                    |answer| answer.map(Full::new),
                )
            }
            Endpoint::Authorize if is_post => self.with_own_form(request, Self::signed_in).await,
            Endpoint::Authorize => self.with_query(&request, Self::choose_user),
            Endpoint::Device if is_post => self.with_own_form(request, Self::decided).await,
            Endpoint::Device => self.with_query(&request, Self::device),
            Endpoint::DeviceAuthorization => {
                self.with_client_form(request, |form| self.provider.begin_device(Moment::now(), form)).await
            }
            Endpoint::Token => {
                let tokens = |form: &Form| {
                    let (grant, tokens) = self.provider.token(Moment::now(), form)?;
                    self.tokens.with_label_values(&[grant.word()]).inc();
                    Ok(tokens)
                };
                self.with_client_form(request, tokens).await
            }
        }
    }

    /// A page on the way here by another name (DNS rebinding) is none of ours.
    fn is_for_us(&self, request: &Request<RequestBody>) -> bool {
        let named = match request.uri().authority() {
            Some(authority) => Some(authority.as_str()),
            None => request.headers().get(HOST).and_then(|host| host.to_str().ok()),
        };
        let ours = self.provider.issuer().strip_prefix("https://");
        matches!((named, ours), (Some(named), Some(ours)) if named.eq_ignore_ascii_case(ours))
    }

    fn tell_metrics(&self) -> Answer {
        match self.metrics.text() {
            Ok(metrics) => with_type(StatusCode::OK, METRICS_CONTENT_TYPE, metrics),
            Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
        }
    }

    // Programs.

    async fn with_client_form(
        &self,
        request: Request<RequestBody>,
        act: impl Fn(&Form) -> Result<Value, Refusal>,
    ) -> Answer {
        let asks_as_somebody = request.headers().contains_key(AUTHORIZATION);
        let outcome = match read_form(request).await {
            Ok(_) if asks_as_somebody => {
                Err(Refusal::InvalidClient("clients have no secrets here: leave out Authorization"))
            }
            Ok(form) => act(&form),
            Err(Unread::Refused(refusal)) => Err(refusal),
            Err(Unread::Answered(code, why)) => {
                let refusal = Refusal::InvalidRequest(why);
                return json(code, &refusal.to_json());
            }
        };
        match outcome {
            Ok(value) => json(StatusCode::OK, &value),
            Err(refusal) => {
                let mut answer = json(refusal.status(), &refusal.to_json());
                if asks_as_somebody && refusal.status() == StatusCode::UNAUTHORIZED {
                    let challenge = HeaderValue::from_static("Basic realm=\"fairlead-issuer\"");
                    answer.headers_mut().insert(WWW_AUTHENTICATE, challenge);
                }
                answer
            }
        }
    }

    // People.

    fn with_query(
        &self,
        request: &Request<RequestBody>,
        show: impl Fn(&Self, &Form, &str) -> Answer,
    ) -> Answer {
        let form = match Form::parse(request.uri().query().unwrap_or_default()) {
            Ok(form) => form,
            Err(error) => {
                return self.told(
                    StatusCode::BAD_REQUEST,
                    "Not understood",
                    &format!("In the address, {error}."),
                );
            }
        };
        let browser = Browser::of(request.headers());
        let (secret, is_new) = match browser.cookie {
            Some(secret) => (secret, false),
            None => match secret() {
                Ok(secret) => (secret, true),
                Err(error) => {
                    return self.told(StatusCode::INTERNAL_SERVER_ERROR, "Not now", &error.to_string());
                }
            },
        };
        let mut answer = show(self, &form, &secret);
        if is_new && answer.status() == StatusCode::OK {
            let cookie = format!("{COOKIE_NAME}={secret}; Path=/; Secure; HttpOnly; SameSite=Strict");
            if let Ok(cookie) = HeaderValue::from_str(&cookie) {
                answer.headers_mut().insert(SET_COOKIE, cookie);
            }
        }
        answer
    }

    async fn with_own_form(
        &self,
        request: Request<RequestBody>,
        act: impl Fn(&Self, &Form) -> Answer,
    ) -> Answer {
        let is_from_here = request
            .headers()
            .get(ORIGIN)
            .is_some_and(|origin| origin.as_bytes() == self.provider.issuer().as_bytes());
        let browser = Browser::of(request.headers());
        let form = match read_form(request).await {
            Ok(form) => form,
            Err(Unread::Refused(refusal)) => {
                let told = format!("In the form, {}.", refusal.description());
                return self.told(StatusCode::BAD_REQUEST, "Not understood", &told);
            }
            Err(Unread::Answered(code, why)) => {
                return self.told(code, "Not understood", &format!("In the form, {why}."));
            }
        };
        let is_own = browser.cookie.is_some() && browser.cookie.as_deref() == form.get("csrf");
        if !is_from_here || !is_own {
            let told = "This form does not come from a page of this issuer. Begin again in the program that you want to sign in.";
            return self.told(StatusCode::FORBIDDEN, "Not from here", told);
        }
        act(self, &form)
    }

    fn choose_user(&self, form: &Form, secret: &str) -> Answer {
        match self.provider.authorize(form) {
            Ok(_) => {
                self.page(StatusCode::OK, Page::choose_user(&self.provider.users(), form, FormSecret(secret)))
            }
            Err(turned) => self.turn(turned),
        }
    }

    fn signed_in(&self, form: &Form) -> Answer {
        let next = self.provider.authorize(form).and_then(|request| match form.get("user") {
            Some(user) => self.provider.sign_in(Moment::now(), &request, user),
            None => Err(self.provider.refuse(&request)),
        });
        next.map_or_else(|turned| self.turn(turned), |address| self.sent_to(&address))
    }

    fn device(&self, form: &Form, secret: &str) -> Answer {
        let Some(typed) = form.get("user_code") else {
            return self.page(StatusCode::OK, Page::enter_code(None));
        };
        match UserCode::parse(typed) {
            Some(code) if self.provider.device_waits(Moment::now(), &code) => {
                let users = self.provider.users();
                self.page(StatusCode::OK, Page::choose_user_of_device(&users, &code, FormSecret(secret)))
            }
            _ => self.unknown_code(),
        }
    }

    fn decided(&self, form: &Form) -> Answer {
        let now = Moment::now();
        let decision = match form.get("user") {
            Some(user) => Decision::SignIn { user: user.to_owned(), at: now.unix },
            None => Decision::Refuse,
        };
        let told = match &decision {
            Decision::SignIn { user, .. } => {
                format!("The program acts as {user} now. You can close this page.")
            }
            Decision::Refuse => "The program has been refused. You can close this page.".to_owned(),
        };
        let code = form.get("user_code").and_then(UserCode::parse);
        if code.is_some_and(|code| self.provider.decide(now, &code, decision)) {
            self.told(StatusCode::OK, "Done", &told)
        } else {
            self.unknown_code()
        }
    }

    fn unknown_code(&self) -> Answer {
        let remark = "No program waits under this code, or none any more.";
        self.page(StatusCode::BAD_REQUEST, Page::enter_code(Some(remark)))
    }

    fn turn(&self, turned: Turned) -> Answer {
        match turned {
            Turned::Here(sentence) => self.told(StatusCode::BAD_REQUEST, "No sign-in", &sentence),
            Turned::Back(address) => self.sent_to(&address),
        }
    }

    fn sent_to(&self, address: &str) -> Answer {
        let Ok(location) = HeaderValue::from_str(address) else {
            return self.told(
                StatusCode::BAD_REQUEST,
                "No sign-in",
                "The address to go to cannot be written.",
            );
        };
        let mut answer = text(StatusCode::SEE_OTHER, String::new());
        answer.headers_mut().insert(LOCATION, location);
        answer
    }

    fn told(&self, code: StatusCode, title: &str, sentence: &str) -> Answer {
        self.page(code, Page::told(title, sentence))
    }

    fn page(&self, code: StatusCode, page: Page) -> Answer {
        let mut answer = with_type(code, "text/html; charset=utf-8", page.0);
        let headers = answer.headers_mut();
        headers.insert(CONTENT_SECURITY_POLICY, self.policy.clone());
        headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
        headers.insert(
            HeaderName::from_static("cross-origin-opener-policy"),
            HeaderValue::from_static("same-origin"),
        );
        answer
    }
}

impl Browser {
    fn of(headers: &HeaderMap) -> Self {
        let cookies = headers.get_all(COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
        let ours = cookies
            .flat_map(|cookies| cookies.split(';'))
            .filter_map(|cookie| cookie.trim().strip_prefix(COOKIE_NAME)?.strip_prefix('='))
            .find(|value| is_secret(value));
        Self { cookie: ours.map(str::to_owned) }
    }
}

/// A form that is not read.
enum Unread {
    Refused(Refusal),
    Answered(StatusCode, &'static str),
}

async fn read_form(request: Request<RequestBody>) -> Result<Form, Unread> {
    let is_form = request.headers().get(CONTENT_TYPE).is_some_and(|kind| {
        let kind = kind.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
        kind.trim_ascii().eq_ignore_ascii_case(b"application/x-www-form-urlencoded")
    });
    if !is_form {
        let why = "the body has to be application/x-www-form-urlencoded";
        return Err(Unread::Answered(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
    }
    let body = match timeout(FORM_PATIENCE, read_body(request.into_body())).await {
        Ok(Ok(body)) => body,
        Ok(Err(unread)) => return Err(unread),
        Err(_) => return Err(Unread::Answered(StatusCode::REQUEST_TIMEOUT, "the body takes too long")),
    };
    let text = std::str::from_utf8(&body)
        .map_err(|_| Unread::Refused(Refusal::InvalidRequest("a parameter is not text")))?;
    Form::parse(text).map_err(|error| Unread::Refused(error.into()))
}

/// What is too large is taken in and thrown away up to a point, because clients that are still sending miss the answer.
async fn read_body(mut body: RequestBody) -> Result<Vec<u8>, Unread> {
    let (mut whole, mut seen) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let broken = |_| Unread::Answered(StatusCode::BAD_REQUEST, "the body breaks off");
        let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
        seen += data.len();
        if seen <= LARGEST_FORM {
            whole.extend_from_slice(&data);
        } else if seen > LARGEST_THROWN_AWAY {
            break;
        }
    }
    if seen > LARGEST_FORM {
        return Err(Unread::Answered(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large"));
    }
    Ok(whole)
}

fn json(code: StatusCode, value: &Value) -> Answer {
    with_type(code, "application/json", value.to_string())
}

fn text(code: StatusCode, body: String) -> Answer {
    with_type(code, "text/plain; charset=utf-8", body)
}

fn with_type(code: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = code;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}
