//! A generic Kubernetes API server over a registry: requests, discovery, watch hub, authz, admission.
//!
//! Implements the wire behaviour of the Kubernetes API and the stored form of objects. The crate has no
//! notion of workspaces, exports or shards: a [`Scope`] is an opaque sequence of storage segments, and a
//! [`Host`] decides which scopes exist, which resources they have, and who may use them.
//!
//! Stages of a request ([`ApiServer::handle`]): path → scope → identity → permission →
//! resource → registry → response. The read path copies stored bytes and builds no trees.

pub mod audit;
pub mod authz;
mod concurrency;
mod discovery;
mod dynamic_admission;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod gzip;
mod host;
pub mod hub;
mod list;
mod metrics;
pub mod object;
pub mod registry;
mod render;
pub mod request;
pub mod resource;
mod response;
mod scope;
pub mod serve;
mod server;
mod version;
mod watch;
mod webhook_client;

pub use concurrency::RequestLimits;
pub use dynamic_admission::{AdmissionHost, DynamicAdmission};

pub use host::{
    Action, Attributes, Authorization, AuthorizationFuture, AuthorizationStep, Decision, DiscoveryForms,
    Host, IdentityAssumption, InterceptedRequest, RequestedResource, RequestedSelectors, ScopedPath,
};
pub use metrics::{RequestMetrics, register_store_metrics};
pub use registry::{Admission, AdmissionOptions, AdmissionRequest, ReviewedManagedFields, Selection};
pub use response::{AUDIT_ID, Response, ResponseBody, content, failure, unknown_path};
pub use scope::{Scope, ScopeSelector};
pub use server::{ApiServer, ByteBody, forbidden, forbidden_because};
pub use version::version_document;
pub use watch::WatchBody;
