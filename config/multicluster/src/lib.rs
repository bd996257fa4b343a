//! Controllers of shared APIs over all shards, on kube-rs.
//!
//! A provider publishes an API by an APIExport; the objects of its consumers are served by one URL per shard, which an
//! APIExportEndpointSlice lists. This crate follows the slice and gives one stream of (logical cluster, object) over all
//! shards, and a controller that reconciles each object of the stream:
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use fairlead_multicluster::{Action, Controller, Provider, Request};
//! use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
//!
//! let anchors = ApiResource::from_gvk(&GroupVersionKind::gvk("harbour.example.com", "v1", "Anchor"));
//! let provider = Provider::new(kube::Config::infer().await?, "anchors")?;
//! Controller::new(provider.objects::<DynamicObject>(&anchors))
//!     .run(|request: Request<DynamicObject>| async move {
//!         println!("{}: {:?}", request.key, request.object.map(|anchor| anchor.data.clone()));
//!         Ok::<_, std::convert::Infallible>(Action::AwaitChange)
//!     })
//!     .await;
//! # Ok(())
//! # }
//! ```
//!
//! The program `examples/anchors.rs` is a complete controller.
//!
//! The contract:
//! - Each version of an object is given once, whatever connections break. A watch resumes from its last revision or bookmark;
//!   where the server has forgotten that, a list gives only what has changed meanwhile, and what has been deleted.
//! - Intermediate versions may be left out: an object that changes twice during an interruption is given once.
//! - An object is [`Change::Gone`] when it was deleted, and when no endpoint serves it any more: a consumer has unbound the
//!   API, or its shard has left the slice. A finalizer tells these apart.
//! - A logical cluster that moves to another shard keeps its objects. While two endpoints serve it, the version that has
//!   changed last is the current one; when its endpoint stops to serve it, the other version is given again.
//! - Reading never ends and never fails as a whole: failures of one endpoint are retried with back-off from 0.8 s to 30 s
//!   and logged, the others go on.
//! - The stream works only while it is polled. Connections have tasks of their own, which end with the stream.

mod controller;
mod endpoints;
mod error;
mod key;
mod objects;
mod provider;
mod view;
mod watch;

pub use controller::{Action, Controller, Request};
pub use error::Error;
pub use key::ObjectKey;
pub use objects::Objects;
pub use provider::Provider;
pub use view::Change;
