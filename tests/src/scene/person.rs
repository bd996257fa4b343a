//! A person who signs in at the development issuer with a code, as at a terminal without a browser.

use fairlead_client::Request;
use http::Method;
use http::header::{COOKIE, HeaderValue, ORIGIN, SET_COOKIE};
use serde_json::Value;

use super::SceneError;
use super::site::{Site, client};

const FORM: &str = "application/x-www-form-urlencoded";

/// A token of the user `developer`.
pub(crate) async fn token(site: &Site) -> Result<String, SceneError> {
    let issuer = site.server("issuer")?.url;
    let issuer_client = client(&issuer, site.anonymous()?)?;
    let post = |path: &str, body: String| {
        let request = Request::new(Method::POST, path).with_body(FORM, body);
        let sent = issuer_client.answer(request);
        async { serde_json::from_slice::<Value>(&sent.await?.body).map_err(|error| missing("JSON", error)) }
    };
    let text = |value: &Value, name: &str| {
        value[name].as_str().map(str::to_owned).ok_or_else(|| missing(name, value))
    };
    let begun = post("/device_authorization", "client_id=fairlead&scope=openid".to_owned()).await?;
    let address = text(&begun, "verification_uri_complete")?;
    let path = address.strip_prefix(&issuer).unwrap_or(&address).to_owned();
    let answer = issuer_client.answer(Request::new(Method::GET, path)).await?;
    let cookie = answer.headers.get(SET_COOKIE).and_then(|cookie| cookie.to_str().ok()).unwrap_or_default();
    let cookie = cookie.split(';').next().unwrap_or_default();
    let page = String::from_utf8_lossy(&answer.body).into_owned();
    let fields = hidden(&page).map(|(name, value)| format!("{name}={}&", encoded(value)));
    let form = fields.collect::<String>() + "user=developer";
    let header = |text: &str| HeaderValue::from_str(text).map_err(|error| missing("a header", error));
    let sign_in = Request::new(Method::POST, "/device")
        .with_body(FORM, form)
        .with_header(ORIGIN, header(&issuer)?)
        .with_header(COOKIE, header(cookie)?);
    issuer_client.answer(sign_in).await?;
    let grant = "urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Adevice_code";
    let code = text(&begun, "device_code")?;
    let told =
        post("/token", format!("client_id=fairlead&grant_type={grant}&device_code={}", encoded(&code)))
            .await?;
    text(&told, "id_token")
}

fn missing(what: &str, last: impl ToString) -> SceneError {
    SceneError::missing(format!("{what} of the issuer"), last)
}

/// The fields of a form that a person does not see.
fn hidden(page: &str) -> impl Iterator<Item = (&str, &str)> {
    page.split("type=\"hidden\" name=\"").skip(1).filter_map(|rest| {
        let (name, rest) = rest.split_once('"')?;
        let (_, rest) = rest.split_once("value=\"")?;
        Some((name, rest.split('"').next()?))
    })
}

fn encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}
