//! The HTTP service: paths and methods, host check, body limits, protection of forms.
//!
//! A form is accepted only from a page of this issuer (CSRF): `Origin` must be the issuer, and the secret in the form must be
//! that of a `SameSite=Strict` cookie.

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

use crate::authorization::AuthorizationError;
use crate::clock::Time;
use crate::devices::{Decision, UserCode};
use crate::form::Form;
use crate::oauth_error::OAuthError;
use crate::page::{FormSecret, Page, policy};
use crate::provider::Provider;
use crate::secret::{is_secret, secret};

/// Maximum size of a form. A usual one has a few hundred bytes.
const MAX_FORM_SIZE: usize = 16 << 10;
/// Maximum size of a body that is read and discarded.
const MAX_DISCARDED_SIZE: usize = 1 << 20;
/// Timeout of a form.
const FORM_TIMEOUT: Duration = Duration::from_secs(10);
/// The cookie with the secret of forms. The `__Host-` prefix keeps other hosts from setting it.
const COOKIE_NAME: &str = "__Host-fairlead-sign-in";

/// The HTTP service of the issuer.
pub(crate) struct IssuerService {
    provider: Arc<Provider>,
    health: Health,
    metrics: Metrics,
    responses: IntCounterVec,
    tokens: IntCounterVec,
    policy: HeaderValue,
}

/// An endpoint, by path.
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

/// State of a browser.
struct Browser {
    /// The secret in the cookie of this issuer.
    cookie: Option<String>,
}

type HttpResponse = Response<Full<Bytes>>;

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

    /// The label in metrics.
    fn label(self) -> &'static str {
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

    fn allows(self, method: &Method) -> bool {
        self.methods().split(", ").any(|known| known == method.as_str())
    }
}

impl IssuerService {
    /// Creates the service and registers its metrics: once per process.
    pub(crate) fn new(
        provider: Arc<Provider>,
        health: Health,
        metrics: Metrics,
    ) -> Result<Self, MetricsError> {
        let responses = metrics.counters(
            "fairlead_issuer_responses_total",
            "Responses by endpoint and status code.",
            &["endpoint", "code"],
        )?;
        let tokens =
            metrics.counters("fairlead_issuer_tokens_total", "ID tokens issued, by grant.", &["grant"])?;
        let policy =
            HeaderValue::from_str(&policy()).unwrap_or(HeaderValue::from_static("default-src 'none'"));
        Ok(Self { provider, health, metrics, responses, tokens, policy })
    }

    /// Responds to one request.
    pub(crate) async fn respond(&self, request: Request<RequestBody>) -> HttpResponse {
        let endpoint = Endpoint::of(request.uri().path());
        let mut response = self.dispatch(endpoint, request).await;
        let label = endpoint.map_or("none", Endpoint::label);
        self.responses.with_label_values(&[label, response.status().as_str()]).inc();
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        // Not "no-referrer": with it, browsers send `Origin: null` with forms.
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
        response
    }

    async fn dispatch(&self, endpoint: Option<Endpoint>, request: Request<RequestBody>) -> HttpResponse {
        if !self.is_own_host(&request) {
            let message =
                format!("this is {}, and requests for other hosts are refused\n", self.provider.issuer());
            return text(StatusCode::MISDIRECTED_REQUEST, message);
        }
        let Some(endpoint) = endpoint else {
            return text(StatusCode::NOT_FOUND, "there is no such endpoint\n".to_owned());
        };
        let method = request.method().clone();
        if !endpoint.allows(&method) {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, format!("use {}\n", endpoint.methods()));
            response.headers_mut().insert(ALLOW, HeaderValue::from_static(endpoint.methods()));
            return response;
        }
        let is_post = method == Method::POST;
        match endpoint {
            Endpoint::Discovery => json(StatusCode::OK, &self.provider.discovery()),
            Endpoint::Keys => json(StatusCode::OK, &self.provider.keys()),
            Endpoint::Metrics => self.metrics_page(),
            Endpoint::Health => {
                let uri = request.uri();
                let response = self.health.respond(uri.path(), uri.query());
                response.map_or_else(
                    || text(StatusCode::NOT_FOUND, String::new()),
                    |response| response.map(Full::new),
                )
            }
            Endpoint::Authorize if is_post => self.with_own_form(request, Self::submit_sign_in).await,
            Endpoint::Authorize => self.with_query(&request, Self::choose_user),
            Endpoint::Device if is_post => self.with_own_form(request, Self::submit_decision).await,
            Endpoint::Device => self.with_query(&request, Self::device),
            Endpoint::DeviceAuthorization => {
                self.with_client_form(request, |form| self.provider.begin_device(Time::now(), form)).await
            }
            Endpoint::Token => {
                let tokens = |form: &Form| {
                    let (grant, tokens) = self.provider.token(Time::now(), form)?;
                    self.tokens.with_label_values(&[grant.label()]).inc();
                    Ok(tokens)
                };
                self.with_client_form(request, tokens).await
            }
        }
    }

    /// Whether the request names this host. Another name may be DNS rebinding.
    fn is_own_host(&self, request: &Request<RequestBody>) -> bool {
        let named = match request.uri().authority() {
            Some(authority) => Some(authority.as_str()),
            None => request.headers().get(HOST).and_then(|host| host.to_str().ok()),
        };
        let ours = self.provider.issuer().strip_prefix("https://");
        matches!((named, ours), (Some(named), Some(ours)) if named.eq_ignore_ascii_case(ours))
    }

    fn metrics_page(&self) -> HttpResponse {
        match self.metrics.text() {
            Ok(metrics) => with_type(StatusCode::OK, METRICS_CONTENT_TYPE, metrics),
            Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
        }
    }

    // Requests of clients.

    async fn with_client_form(
        &self,
        request: Request<RequestBody>,
        act: impl Fn(&Form) -> Result<Value, OAuthError>,
    ) -> HttpResponse {
        let has_authorization = request.headers().contains_key(AUTHORIZATION);
        let outcome = match read_form(request).await {
            Ok(_) if has_authorization => {
                Err(OAuthError::InvalidClient("clients have no secrets: send no Authorization header"))
            }
            Ok(form) => act(&form),
            Err(FormReadError::OAuth(error)) => Err(error),
            Err(FormReadError::Http(code, reason)) => {
                let error = OAuthError::InvalidRequest(reason);
                return json(code, &error.to_json());
            }
        };
        match outcome {
            Ok(value) => json(StatusCode::OK, &value),
            Err(error) => {
                let mut response = json(error.status(), &error.to_json());
                if has_authorization && error.status() == StatusCode::UNAUTHORIZED {
                    let challenge = HeaderValue::from_static("Basic realm=\"fairlead-issuer\"");
                    response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
                }
                response
            }
        }
    }

    // Requests of browsers.

    fn with_query(
        &self,
        request: &Request<RequestBody>,
        show: impl Fn(&Self, &Form, &str) -> HttpResponse,
    ) -> HttpResponse {
        let form = match Form::parse(request.uri().query().unwrap_or_default()) {
            Ok(form) => form,
            Err(error) => {
                return self.message(
                    StatusCode::BAD_REQUEST,
                    "Invalid request",
                    &format!("In the query, {error}."),
                );
            }
        };
        let browser = Browser::of(request.headers());
        let (secret, is_new) = match browser.cookie {
            Some(secret) => (secret, false),
            None => match secret() {
                Ok(secret) => (secret, true),
                Err(error) => {
                    return self.message(
                        StatusCode::INTERNAL_SERVER_ERROR,
                        "Internal error",
                        &error.to_string(),
                    );
                }
            },
        };
        let mut response = show(self, &form, &secret);
        if is_new && response.status() == StatusCode::OK {
            let cookie = format!("{COOKIE_NAME}={secret}; Path=/; Secure; HttpOnly; SameSite=Strict");
            if let Ok(cookie) = HeaderValue::from_str(&cookie) {
                response.headers_mut().insert(SET_COOKIE, cookie);
            }
        }
        response
    }

    async fn with_own_form(
        &self,
        request: Request<RequestBody>,
        act: impl Fn(&Self, &Form) -> HttpResponse,
    ) -> HttpResponse {
        let has_own_origin = request
            .headers()
            .get(ORIGIN)
            .is_some_and(|origin| origin.as_bytes() == self.provider.issuer().as_bytes());
        let browser = Browser::of(request.headers());
        let form = match read_form(request).await {
            Ok(form) => form,
            Err(FormReadError::OAuth(error)) => {
                let message = format!("In the form, {}.", error.description());
                return self.message(StatusCode::BAD_REQUEST, "Invalid request", &message);
            }
            Err(FormReadError::Http(code, reason)) => {
                return self.message(code, "Invalid request", &format!("In the form, {reason}."));
            }
        };
        let has_own_secret = browser.cookie.is_some() && browser.cookie.as_deref() == form.get("csrf");
        if !has_own_origin || !has_own_secret {
            let message = "This form does not come from a page of this issuer. Start the sign-in again in your program.";
            return self.message(StatusCode::FORBIDDEN, "Foreign form", message);
        }
        act(self, &form)
    }

    fn choose_user(&self, form: &Form, secret: &str) -> HttpResponse {
        match self.provider.authorize(form) {
            Ok(_) => {
                self.page(StatusCode::OK, Page::choose_user(&self.provider.users(), form, FormSecret(secret)))
            }
            Err(error) => self.authorization_error(error),
        }
    }

    fn submit_sign_in(&self, form: &Form) -> HttpResponse {
        let next = self.provider.authorize(form).and_then(|request| match form.get("user") {
            Some(user) => self.provider.sign_in(Time::now(), &request, user),
            None => Err(self.provider.refuse(&request)),
        });
        next.map_or_else(|error| self.authorization_error(error), |address| self.redirect_to(&address))
    }

    fn device(&self, form: &Form, secret: &str) -> HttpResponse {
        let Some(typed) = form.get("user_code") else {
            return self.page(StatusCode::OK, Page::enter_code(None));
        };
        match UserCode::parse(typed) {
            Some(code) if self.provider.is_device_pending(Time::now(), &code) => {
                let users = self.provider.users();
                self.page(StatusCode::OK, Page::choose_user_of_device(&users, &code, FormSecret(secret)))
            }
            _ => self.unknown_code(),
        }
    }

    fn submit_decision(&self, form: &Form) -> HttpResponse {
        let now = Time::now();
        let decision = match form.get("user") {
            Some(user) => Decision::SignIn { user: user.to_owned(), at: now.unix },
            None => Decision::Refuse,
        };
        let message = match &decision {
            Decision::SignIn { user, .. } => {
                format!("The program is signed in as {user}. You can close this page.")
            }
            Decision::Refuse => "The program has been refused. You can close this page.".to_owned(),
        };
        let code = form.get("user_code").and_then(UserCode::parse);
        if code.is_some_and(|code| self.provider.decide(now, &code, decision)) {
            self.message(StatusCode::OK, "Done", &message)
        } else {
            self.unknown_code()
        }
    }

    fn unknown_code(&self) -> HttpResponse {
        let notice = "No program waits for this code.";
        self.page(StatusCode::BAD_REQUEST, Page::enter_code(Some(notice)))
    }

    fn authorization_error(&self, error: AuthorizationError) -> HttpResponse {
        match error {
            AuthorizationError::ShowToUser(sentence) => {
                self.message(StatusCode::BAD_REQUEST, "No sign-in", &sentence)
            }
            AuthorizationError::RedirectToClient(address) => self.redirect_to(&address),
        }
    }

    fn redirect_to(&self, address: &str) -> HttpResponse {
        let Ok(location) = HeaderValue::from_str(address) else {
            return self.message(
                StatusCode::BAD_REQUEST,
                "No sign-in",
                "The redirect is not a valid header.",
            );
        };
        let mut response = text(StatusCode::SEE_OTHER, String::new());
        response.headers_mut().insert(LOCATION, location);
        response
    }

    fn message(&self, code: StatusCode, title: &str, sentence: &str) -> HttpResponse {
        self.page(code, Page::message(title, sentence))
    }

    fn page(&self, code: StatusCode, page: Page) -> HttpResponse {
        let mut response = with_type(code, "text/html; charset=utf-8", page.0);
        let headers = response.headers_mut();
        headers.insert(CONTENT_SECURITY_POLICY, self.policy.clone());
        headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
        headers.insert(
            HeaderName::from_static("cross-origin-opener-policy"),
            HeaderValue::from_static("same-origin"),
        );
        response
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

/// Errors of reading a form.
enum FormReadError {
    OAuth(OAuthError),
    Http(StatusCode, &'static str),
}

async fn read_form(request: Request<RequestBody>) -> Result<Form, FormReadError> {
    let is_form = request.headers().get(CONTENT_TYPE).is_some_and(|kind| {
        let kind = kind.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
        kind.trim_ascii().eq_ignore_ascii_case(b"application/x-www-form-urlencoded")
    });
    if !is_form {
        let reason = "the body must be application/x-www-form-urlencoded";
        return Err(FormReadError::Http(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason));
    }
    let body = match timeout(FORM_TIMEOUT, read_body(request.into_body())).await {
        Ok(Ok(body)) => body,
        Ok(Err(error)) => return Err(error),
        Err(_) => {
            return Err(FormReadError::Http(
                StatusCode::REQUEST_TIMEOUT,
                "the body was not received in time",
            ));
        }
    };
    let text = std::str::from_utf8(&body)
        .map_err(|_| FormReadError::OAuth(OAuthError::InvalidRequest("a parameter is not text")))?;
    Form::parse(text).map_err(|error| FormReadError::OAuth(error.into()))
}

/// Reads a body. The excess of a large one is read and discarded up to a limit, because a client that is still sending may
/// not read the response.
async fn read_body(mut body: RequestBody) -> Result<Vec<u8>, FormReadError> {
    let (mut whole, mut received) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let broken = |_| FormReadError::Http(StatusCode::BAD_REQUEST, "the body is incomplete");
        let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
        received += data.len();
        if received <= MAX_FORM_SIZE {
            whole.extend_from_slice(&data);
        } else if received > MAX_DISCARDED_SIZE {
            break;
        }
    }
    if received > MAX_FORM_SIZE {
        return Err(FormReadError::Http(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large"));
    }
    Ok(whole)
}

fn json(code: StatusCode, value: &Value) -> HttpResponse {
    with_type(code, "application/json", value.to_string())
}

fn text(code: StatusCode, body: String) -> HttpResponse {
    with_type(code, "text/plain; charset=utf-8", body)
}

fn with_type(code: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> HttpResponse {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
