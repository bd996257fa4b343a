//! Who is this? Client certificates, request headers, static tokens, service accounts, OIDC, webhook, chains
//! of them.
//!
//! The contract: the TLS layer completes every handshake (proof of possession checked, trust not) and hands
//! over the presented certificates as [`ConnectionCredentials`]; a [`Chain`] of [`Authenticator`]s then
//! judges each request by them and by its headers, and says [`Outcome::Identified`], [`Outcome::Anonymous`]
//! or [`Outcome::Rejected`]. Whoever asserts identities to the next server first removes what clients have
//! forged ([`strip_identity_headers`]) and then stamps his own ([`IdentityHeaders`]).
//!
//! This crate must not know routes, resources or rights: it never asks what a request is for. It knows no
//! server either; of HTTP it sees header maps. Service accounts, OIDC and webhooks are [`Authenticator`]s
//! still to come.

mod authenticator;
mod authorities;
mod bearer;
mod certificate;
mod chain;
mod connection;
mod flights;
mod groups;
mod identity_headers;
mod jwt;
mod remembered;
mod request_header;
mod service_account;
mod token_file;
mod tokens;
mod user;

pub use self::{
    authenticator::{Answer, Authenticator, CredentialKind, Presented, Reason, Verdict},
    authorities::{BundleError, CertificateAuthorities, SharedAuthorities, TrustError, TrustPurpose},
    bearer::{BearerToken, MalformedToken, remove_bearer_token},
    certificate::{CertificateError, ClientCertificate, ClientCertificateAuthenticator},
    chain::{Chain, ChainBuilder, Outcome, Rejection},
    connection::ConnectionCredentials,
    groups::GroupFilter,
    identity_headers::{IdentityHeaders, Unstampable, is_identity_header, strip_identity_headers},
    jwt::{Algorithm, KeyError, TokenFault, UnknownAlgorithm, VerificationKeys, in_cluster_claim},
    request_header::{RequestHeaderAuthenticator, RequestHeaderNames},
    service_account::{
        DEFAULT_SERVICE_ACCOUNT_ISSUER, FoundObject, LookUp, LookupFailed, MalformedObject, ObjectReference,
        ReferencedKind, ServiceAccountKeyError, ServiceAccountKeys, ServiceAccountLookup,
        ServiceAccountSettings, ServiceAccountTokens, SharedKeys,
    },
    token_file::{TokenFile, TokenFileError},
    tokens::TokenUnion,
    user::{ANONYMOUS, AUTHENTICATED, Identity, Method, UNAUTHENTICATED, UserInfo},
};
