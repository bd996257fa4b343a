//! Certificates and kubeconfigs: plan, issue, rotate, write.
//!
//! The contract: an [`Inventory`] says which servers exist, [`Plan::for_inventory`] turns it (without
//! touching the disk) into the full list of authorities, keys and leaf certificates, and [`Plan::apply`]
//! makes a directory match the plan. Applying twice changes nothing the second time. [`Layout`] is the only
//! place that knows where a file lies; everybody who reads a certificate asks it. All calls block on disk
//! I/O.
//!
//! This crate knows who needs which certificate, but not the servers: no sockets, no settings, no requests.
//! It judges nobody either; who may log in with a certificate is decided by `fairlead-authn`.

mod acme;
mod apply;
mod decide;
mod error;
mod files;
mod inventory;
mod issue;
mod kubeconfig;
mod layout;
mod observe;
mod plan;
mod report;
mod roles;
mod self_signed;

pub use self::{
    acme::{CertificateRequest, challenge_certificate, provisional_certificate, write_secret},
    decide::{Action, Reason, Renewal, Step},
    error::Error,
    files::create_private_folder,
    inventory::{Host, Inventory, InventoryError, ShardName},
    kubeconfig::{Kubeconfig, KubeconfigBuilder, Written},
    layout::{CertificateFiles, FORMAT, Layout, ServiceAccountKeyFiles},
    plan::{Item, Leaf, Plan, Usage},
    report::{Report, Row},
    roles::{Authority, Client, Server},
    self_signed::write_self_signed,
};
