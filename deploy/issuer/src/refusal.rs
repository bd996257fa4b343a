//! What a client is told that does not get what it wants.

use http::StatusCode;
use serde_json::{Value, json};

use crate::form::FormError;
use crate::secret::NoRandomness;

/// An error of the token endpoint and its kin (RFC 6749 5.2, RFC 8628 3.5), or of an authorization (4.1.2.1). The texts are
/// the second half of a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The request is malformed: the client's fault.
    InvalidRequest(&'static str),
    /// It is not known who asks.
    InvalidClient(&'static str),
    /// A code, token or verifier that is not good, or not any more. The way out is another sign-in.
    InvalidGrant(&'static str),
    /// There is no such grant here.
    UnsupportedGrantType,
    /// There is no such flow here.
    UnsupportedResponseType,
    /// Without `openid` there is nothing to give.
    InvalidScope,
    /// A request as an object is not read.
    RequestNotSupported,
    /// Nobody is signed in, and nobody may be asked.
    LoginRequired,
    /// The person has not decided yet: ask again later.
    AuthorizationPending,
    /// As before, and asked too soon.
    SlowDown,
    /// The person has said no.
    AccessDenied,
    /// The person has not decided in time.
    ExpiredToken,
    /// Our fault; another try may help.
    ServerError,
}

impl Refusal {
    /// The word for it in the protocol.
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

    /// A sentence for people.
    pub(crate) fn description(self) -> &'static str {
        match self {
            Self::InvalidRequest(why) | Self::InvalidClient(why) | Self::InvalidGrant(why) => why,
            Self::UnsupportedGrantType => {
                "the grants are authorization_code, refresh_token and urn:ietf:params:oauth:grant-type:device_code"
            }
            Self::UnsupportedResponseType => "the only response_type is code",
            Self::InvalidScope => "the scope lacks openid",
            Self::RequestNotSupported => "request and request_uri are not supported",
            Self::LoginRequired => "nobody stays signed in here, so prompt=none cannot work",
            Self::AuthorizationPending => "the person has not decided yet",
            Self::SlowDown => "asked too soon: wait 5 seconds longer between questions",
            Self::AccessDenied => "the person has refused",
            Self::ExpiredToken => "the person has not decided in time",
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

    /// The body of the answer.
    pub(crate) fn to_json(self) -> Value {
        json!({ "error": self.code(), "error_description": self.description() })
    }
}

impl From<FormError> for Refusal {
    fn from(error: FormError) -> Self {
        Self::InvalidRequest(match error {
            FormError::Encoding => "a parameter is not text",
            FormError::Twice => "a parameter stands there twice",
            FormError::TooMany => "there are too many parameters",
        })
    }
}

impl From<NoRandomness> for Refusal {
    fn from(error: NoRandomness) -> Self {
        tracing::error!(%error, "cannot make a secret");
        Self::ServerError
    }
}
