//! A lean Kubernetes client on hyper: kubeconfig, requests, a reflector that decodes only the requested fields.
//!
//! The crate sends requests to any server of a kubeconfig or [`Endpoint`]. It implements the wire format of lists, watches,
//! patches and `Status` errors, and is independent of servers, resources and storage.
//!
//! The contract:
//! - A [`Client`] is cheap to clone. All its clones share one small pool of multiplexed HTTP/2 connections; HTTP/1.1
//!   is the fallback when the server does not offer `h2` by ALPN.
//! - Every response with a status of 400 or more is an error: [`ClientError::Status`].
//! - An error has its retryability ([`ClientError::is_retryable`]) and an origin ([`ClientError::origin`]); only
//!   [`retry`], within its [`RetryPolicy`], and the [`Reflector`] retry on their own, apart from a request that provably
//!   never reached the server, or that a replica behind the others has refused ([`ClientOptions::follows_revisions`]).
//! - A [`Reflector`] retries for ever and never loses an event: it resumes by resourceVersion after an interruption, and
//!   lists again only when the server reports that the history is gone.

mod backoff;
mod body;
mod client;
mod connection;
mod credentials;
mod endpoint;
mod error;
mod kubeconfig;
mod object;
mod options;
mod pool;
mod reflector;
mod request_body;
mod resolver;
mod resource;
mod retry;
mod revision;
mod server_certificate;
mod watch;

pub use backoff::Backoff;
pub use body::ResponseBody;
pub use client::{Client, Request, Response, StreamingResponse};
pub use credentials::{Credentials, CredentialsError, Impersonation, Token, TrustRoots, UnverifiedTls};
pub use endpoint::{Endpoint, EndpointError};
pub use error::{ClientError, ErrorOrigin, KubeStatus, StatusCause, StatusDetails};
pub use kubeconfig::{
    Cluster, Context, KeyMaterial, Kubeconfig, KubeconfigError, ResolvedContext, User,
    default_kubeconfig_path,
};
pub use object::{Ignored, List, ListMeta, ObjectHead, ObjectMeta};
pub use options::ClientOptions;
pub use reflector::{Event, ListWatch, Phase, Piece, Reflector, ReflectorOptions, ReflectorStatus};
pub use resolver::NameResolver;
pub use resource::{DeleteOptions, PatchType, Preconditions, Query, WriteOptions};
pub use retry::{RetryPolicy, retry};
pub use watch::{WatchEvent, WatchEventKind, WatchStream};
