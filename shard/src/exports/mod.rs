//! APIExports: their resources, the look-up by path or identity, and the status of bindings to them.

mod bound;
mod lookup;
mod published;
mod root;

pub(crate) use bound::{
    add_finalizer, as_bound, locks_of, record_claims, record_export, record_extra_annotations,
    record_resources, set_claim_conditions,
};
pub(crate) use lookup::ExportLookup;
pub(crate) use published::{PublishedExport, PublishedSchema};
pub(crate) use root::RootExports;
