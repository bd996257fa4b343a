//! Permission claims: which objects the export of an APIBinding may see in the logical cluster of the binding.
//!
//! A claim is in force if the consumer accepts it in the binding and the export claims it. Its objects get a label, by which the
//! virtual workspace of the export finds them. Labels are a pure function of the bindings of a logical cluster: their `spec` has
//! the accepted claims, their `status` the logical cluster and the claims of the export, as the binding controller copies them. So
//! they do not depend on whether the export, perhaps of another shard, can be read at the moment.
//!
//! Admission and [`Writes`](crate::writes::Writes) label each object that is written. The controller `permission-claims` labels the
//! objects that exist when claims change.

mod binding;
mod index;
mod labels;

pub(crate) use binding::{BindingClaims, LabelledResource, claim_key, stored_resource};
pub(crate) use index::{OutdatedLabels, PermissionClaims};
pub(crate) use labels::{ClaimLabels, ClusterClaims};
