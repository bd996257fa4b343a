//! A user who signs in at the development issuer with a device code.

use fairlead_client::Request;
use http::Method;
use serde_json::Value;

use super::ScenarioError;
use super::site::{Site, client};
use crate::harness::{Form, encoded, split_address};

const GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";

/// A token of the user `developer`.
pub(crate) async fn token(site: &Site) -> Result<String, ScenarioError> {
    let issuer = client(&site.server("issuer")?.url, site.anonymous()?)?;
    let post = |path: &str, fields: &[(&str, &str)]| {
        let fields: Vec<_> =
            fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let request =
            Request::new(Method::POST, path).with_body("application/x-www-form-urlencoded", encoded(&fields));
        let sent = issuer.request_any_status(request);
        async { serde_json::from_slice::<Value>(&sent.await?.body).map_err(|error| missing("JSON", error)) }
    };
    let text = |value: &Value, name: &str| {
        value[name].as_str().map(str::to_owned).ok_or_else(|| missing(name, value))
    };
    let authorization =
        post("/device_authorization", &[("client_id", "fairlead"), ("scope", "openid")]).await?;
    let address = text(&authorization, "verification_uri_complete")?;
    let (origin, path) = split_address(&address).ok_or_else(|| missing("the address", &address))?;
    let page = issuer.request_any_status(Request::new(Method::GET, path)).await?;
    let mut form = Form::on(&origin, &page).ok_or_else(|| missing("a form", &address))?;
    form.fields.push(("user".to_owned(), "developer".to_owned()));
    let sent = form.request().map_err(|error| missing("a form", error))?;
    issuer.request_any_status(sent).await?;
    let code = text(&authorization, "device_code")?;
    let fields = [("client_id", "fairlead"), ("grant_type", GRANT), ("device_code", &code)];
    text(&post("/token", &fields).await?, "id_token")
}

fn missing(what: &str, last: impl ToString) -> ScenarioError {
    ScenarioError::missing(format!("{what} of the issuer"), last)
}
