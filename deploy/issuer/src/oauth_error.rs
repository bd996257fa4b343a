//! OAuth error responses.

use http::StatusCode;
use serde_json::{Value, json};

use crate::form::FormError;
use crate::secret::RandomnessError;

/// An error of the token endpoint (RFC 6749 5.2, RFC 8628 3.5) or of an authorization (RFC 6749 4.1.2.1). The descriptions
/// are parts of sentences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OAuthError {
    /// The request is malformed.
    InvalidRequest(&'static str),
    /// The client is unknown.
    InvalidClient(&'static str),
    /// The code, token or verifier is invalid or expired. A new sign-in is required.
    InvalidGrant(&'static str),
    /// The grant type is not supported.
    UnsupportedGrantType,
    /// The response type is not supported.
    UnsupportedResponseType,
    /// The scope lacks `openid`.
    InvalidScope,
    /// Request objects are not supported.
    RequestNotSupported,
    /// A sign-in needs a user, and `prompt=none` forbids the page.
    LoginRequired,
    /// The user has not decided yet.
    AuthorizationPending,
    /// The user has not decided yet, and the client polls too often.
    SlowDown,
    /// The user has refused.
    AccessDenied,
    /// The user has not decided in time.
    ExpiredToken,
    /// The issuer has failed. Another attempt may succeed.
    ServerError,
}

impl OAuthError {
    /// The error code of the protocol.
    pub(crate) fn code(self) -> &'static str {
        match self {
            Self::InvalidRequest(_) => "invalid_request",
            Self::InvalidClient(_) => "invalid_client",
            Self::InvalidGrant(_) => "invalid_grant",
            Self::UnsupportedGrantType => "unsupported_grant_type",
            Self::UnsupportedResponseType => "unsupported_response_type",
            Self::InvalidScope => "invalid_scope",
            Self::RequestNotSupported => "request_not_supported",
            Self::LoginRequired => "login_required",
            Self::AuthorizationPending => "authorization_pending",
            Self::SlowDown => "slow_down",
            Self::AccessDenied => "access_denied",
            Self::ExpiredToken => "expired_token",
            Self::ServerError => "server_error",
        }
    }

    /// The description.
    pub(crate) fn description(self) -> &'static str {
        match self {
            Self::InvalidRequest(reason) | Self::InvalidClient(reason) | Self::InvalidGrant(reason) => reason,
            Self::UnsupportedGrantType => {
                "the grants are authorization_code, refresh_token and urn:ietf:params:oauth:grant-type:device_code"
            }
            Self::UnsupportedResponseType => "the only response_type is code",
            Self::InvalidScope => "the scope lacks openid",
            Self::RequestNotSupported => "request and request_uri are not supported",
            Self::LoginRequired => "this issuer has no sessions, so prompt=none is not possible",
            Self::AuthorizationPending => "the user has not decided yet",
            Self::SlowDown => "polled too soon: wait 5 seconds longer between polls",
            Self::AccessDenied => "the user has refused",
            Self::ExpiredToken => "the user has not decided in time",
            Self::ServerError => "the issuer failed; try again",
        }
    }

    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::InvalidClient(_) => StatusCode::UNAUTHORIZED,
            Self::ServerError => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_REQUEST,
        }
    }

    /// The body of the response.
    pub(crate) fn to_json(self) -> Value {
        json!({ "error": self.code(), "error_description": self.description() })
    }
}

impl From<FormError> for OAuthError {
    fn from(error: FormError) -> Self {
        Self::InvalidRequest(match error {
            FormError::Encoding => "a parameter is not text",
            FormError::Twice => "a parameter occurs twice",
            FormError::TooMany => "there are too many parameters",
        })
    }
}

impl From<RandomnessError> for OAuthError {
    fn from(error: RandomnessError) -> Self {
        tracing::error!(%error, "cannot generate a secret");
        Self::ServerError
    }
}
