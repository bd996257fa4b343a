//! The admin page for operators, at listeners that enable it: three files without external resources.
//!
//! The page shows the data of the gateway's other endpoints. Changes are requests to the shards as the page's user: the browser's
//! certificate authenticates the user, and the shards authorize. A page of another site cannot send such requests in the user's
//! name: browsers mark cross-site requests, and with a certificate these are refused (`request_filter::is_cross_site`).

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

/// Path of the page.
const PATH: &str = "/services/fairlead/admin/";
const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// Allows resources of the same origin only, and no framing.
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
    /// A file of the page, for an operator.
    ///
    /// # Errors
    /// The response for other users; for all users where the page is disabled.
    pub(crate) fn admin_page(
        &self,
        view: &RequestView<'_>,
        identity: &RequestIdentity,
        file: AdminFile,
    ) -> Result<LocalResponse, LocalResponse> {
        if !view.connection.listener.policy.load().admin_page {
            return Err(LocalResponse::not_found());
        }
        Self::require_operator(identity, PATH)?;
        if !matches!(*view.method, Method::GET | Method::HEAD) {
            return Err(LocalResponse::status(&Status::unknown_method(), "method"));
        }
        let (kind, text) = match file {
            AdminFile::Redirect => return Ok(LocalResponse::redirect(view.method, PATH, None)),
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
