//! Certificates and kubeconfigs: plan, issue, rotate, write.
//!
//! An [`Inventory`] lists the servers. [`Plan::for_inventory`] turns it, without disk I/O, into the full list of authorities,
//! keys and leaf certificates. [`Plan::apply`] makes a directory match the plan; applying it again changes nothing.
//! [`Layout`] is the only definition of file paths; all readers of certificates use it. All calls block on disk I/O.
//!
//! This crate must not know the servers: no sockets, no settings, no requests. It does not authenticate either; that is
//! `fairlead-authn`.

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
    kubeconfig::{Kubeconfig, KubeconfigBuilder, WriteOutcome},
    layout::{CertificateFiles, FORMAT, Layout, ServiceAccountKeyFiles},
    plan::{Item, Leaf, Plan, Usage},
    report::{Report, Row},
    roles::{Authority, Client, Server},
    self_signed::{write_self_signed, write_serving_chain, write_signing_key},
};
