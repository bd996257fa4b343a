//! Authentication: client certificates, request headers, static tokens, service accounts, OIDC, webhooks, and chains of
//! these authenticators.
//!
//! The TLS layer completes every handshake: it checks the proof of possession, not the trust. It passes the presented
//! certificates on as [`ConnectionCredentials`]. A [`Chain`] of [`Authenticator`]s then authenticates each request by
//! these certificates and by its headers; the result is [`Outcome::Identified`], [`Outcome::Anonymous`] or
//! [`Outcome::Rejected`]. A server that asserts identities to the next server first removes the headers that clients have
//! forged ([`strip_identity_headers`]) and then sets its own ([`IdentityHeaders`]).
//!
//! This crate is independent of routes, resources and permissions: authentication does not depend on the purpose of a request.
//! It contains no server. Of HTTP it uses header maps, and it is a client of issuers and webhooks.
//!
//! # The chain of a gateway
//!
//! Every authenticator below is optional, and so is each argument that has a default.
//!
//! ```no_run
//! use std::{path::Path, sync::Arc};
//!
//! use fairlead_authn::*;
//!
//! # fn chain(
//! #     authorities: SharedAuthorities,
//! #     shards: Arc<dyn ServiceAccountLookup>,
//! # ) -> Result<Chain, Box<dyn std::error::Error>> {
//! // --token-auth-file
//! let file = TokenFile::load(Path::new("tokens.csv"))?;
//! // --service-account-key-file; a reload calls `keys.replace`.
//! let keys = SharedKeys::new(ServiceAccountKeys::load(["sa.pub", "sa-old.pub"])?);
//! // --service-account-issuer, --api-audiences, --service-account-lookup
//! let accounts =
//!     ServiceAccountTokens::new(keys, ServiceAccountSettings::default(), LookupPolicy::All(shards));
//! // --authentication-config; or --oidc-*: `JwtSettings::from_flags`.
//! let reserved = ["https://kcp.default.svc".to_owned()];
//! let configuration = AuthenticationConfiguration::load(Path::new("authn.yaml"), &reserved)?;
//! // The server decides about requests without credentials by `configuration.anonymous`.
//! let issuers = JwtAuthenticator::new(configuration.issuers);
//! issuers.start();
//! // --authentication-token-webhook-config-file
//! let webhook = TokenWebhook::from_kubeconfig(Path::new("webhook"), WebhookSettings::default())?;
//!
//! let tokens = TokenUnion::new().with(file).with(accounts).with(issuers).with(webhook);
//! let chain = Chain::builder()
//!     .with(RequestHeaderAuthenticator::new(authorities.clone(), ["proxy"], RequestHeaderNames::default()))
//!     .with(ClientCertificateAuthenticator::new(authorities))
//!     .with(tokens)
//!     // --authentication-pass-on-groups, --authentication-drop-groups
//!     .filter_groups(GroupFilter::from_flags(&[] as &[&str], &GroupFilter::PRIVILEGED))
//!     .build();
//! # Ok(chain)
//! # }
//! ```
//!
//! A request to a workspace with issuers of its own is authenticated by [`Chain::authenticate_in`] with a
//! [`WorkspaceAuthenticator`], which lives as long as the configuration of the workspace does not change.

mod authenticator;
mod authorities;
mod bearer;
mod certificate;
mod certificate_authenticator;
mod chain;
mod connection;
mod groups;
mod identity;
mod identity_headers;
mod jwt;
mod oidc;
mod request_header;
mod service_account;
mod single_flight;
mod token_file;
mod tokens;
mod ttl_cache;
mod user;
mod webhook;
mod workspace;

pub use self::{
    authenticator::{
        Authenticator, CredentialKind, Observer, Reason, RequestCredentials, Verdict, VerdictFuture,
    },
    authorities::{BundleError, CertificateAuthorities, SharedAuthorities, TrustError, TrustPurpose},
    bearer::{BearerToken, MalformedToken, contains_token, remove_bearer_token},
    certificate::{CertificateError, ClientCertificate, validity},
    certificate_authenticator::ClientCertificateAuthenticator,
    chain::{Chain, ChainBuilder, Outcome, Rejection, ReviewedToken},
    connection::ConnectionCredentials,
    groups::GroupFilter,
    identity::{AuthenticationMethod, Identity},
    identity_headers::{IdentityHeaders, InvalidIdentity, is_identity_header, strip_identity_headers},
    jwt::{Algorithm, KeyError, TokenError, UnknownAlgorithm, VerificationKeys, unverified_cluster_claim},
    oidc::{
        AnonymousAccess, AuthenticationConfiguration, ConfigurationError, FieldError, IssuerStatus,
        JwtAuthenticator, JwtSettings, KeyFetchSettings, LineNumber, OidcFlags,
    },
    request_header::{InvalidHeaderName, RequestHeaderAuthenticator, RequestHeaderNames},
    service_account::{
        DEFAULT_SERVICE_ACCOUNT_ISSUER, FoundObject, LookupError, LookupPolicy, MalformedObject,
        ObjectReference, ReferencedKind, ServiceAccountKeyError, ServiceAccountKeys, ServiceAccountLookup,
        ServiceAccountSettings, ServiceAccountSigner, ServiceAccountTokens, SharedKeys, SigningError,
    },
    single_flight::SingleFlight,
    token_file::{TokenFile, TokenFileError},
    tokens::TokenUnion,
    ttl_cache::TtlCache,
    user::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, UserInfo},
    webhook::{ReviewVersion, TokenWebhook, UnknownReviewVersion, WebhookError, WebhookSettings},
    workspace::WorkspaceAuthenticator,
};
