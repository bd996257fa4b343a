//! A page about the gateway for operators, at listeners that offer it: three files and nothing from anywhere else.
//!
//! It shows what the gateway's other endpoints say, and whatever it changes it asks the shards for, as its user: the browser's
//! certificate says who that is, and the shards' rules decide. A page of another site cannot do so in his name: browsers say that
//! a request is of such a page, and with a certificate it is refused (`screen::is_of_another_site`).

use bytes::Bytes;
use fairlead_process::Status;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{Method, Response};

use crate::admin::AdminApi;
use crate::auth::identity::RequestIdentity;
use crate::pipeline::RequestView;
use crate::request::AdminFile;
use crate::request::response::LocalResponse;

/// Where it is.
const PATH: &str = "/services/fairlead/admin/";
const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// Nothing but what comes from here, and no page around it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

const HEADERS: [(HeaderName, &str); 7] = [
    (CACHE_CONTROL, "no-store"),
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

impl AdminApi {
    /// A part of the page, for an operator.
    ///
    /// # Errors
    /// What everybody else gets; where there is no page, everybody.
    pub(crate) fn admin_page(
        &self,
        view: &RequestView<'_>,
        identity: &RequestIdentity,
        file: AdminFile,
    ) -> Result<LocalResponse, LocalResponse> {
        if !view.connection.listener.policy.load().admin_page {
            return Err(LocalResponse::not_found());
        }
        Self::is_operator(identity, PATH)?;
        if !matches!(*view.method, Method::GET | Method::HEAD) {
            return Err(LocalResponse::status(&Status::unknown_method(), "method"));
        }
        let (kind, text) = match file {
            AdminFile::Elsewhere => return Ok(LocalResponse::redirect(view.method, PATH, None)),
            AdminFile::Page => ("text/html; charset=utf-8", PAGE),
            AdminFile::Style => ("text/css; charset=utf-8", STYLE),
            AdminFile::Script => ("text/javascript; charset=utf-8", SCRIPT),
        };
        let mut response = Response::new(Bytes::from_static(text.as_bytes()));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.extend(HEADERS.map(|(name, value)| (name, HeaderValue::from_static(value))));
        Ok(LocalResponse::new(response, "admin"))
    }
}
