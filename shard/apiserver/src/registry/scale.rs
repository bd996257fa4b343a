//! The `scale` subresource: writes of the Scale of an object (`kubectl scale`), and the owners of its replicas.

use fairlead_process::{Status, StatusReason};
use fairlead_schema::apply::{ManagedFields, ReplicasPaths};
use fairlead_schema::crd::ScalePaths;
use serde_json::Value;

use super::managed_fields::{take_managed_fields, with_managed_fields};
use super::ownership::Owners;
use super::{Proposal, StoreRegistry, Target, check_name};
use crate::request::WriteOptions;

/// Translates owners of fields between an object and its Scale, in the version of a write.
pub(super) struct ScaleOwners {
    api_version: String,
    paths: ReplicasPaths,
}

impl ScaleOwners {
    /// `None` if the request is not about a Scale.
    pub(super) fn of(target: &Target) -> Option<Self> {
        target.scale()?;
        let resource = &target.resource;
        let mut paths = ReplicasPaths::default();
        for version in resource.versions.served.iter().chain([&resource.versions.storage]) {
            let path = version.strategy.scale().map(ScalePaths::spec_path);
            paths.insert(resource.api_version(&version.name), path);
        }
        Some(Self { api_version: resource.api_version(&target.version), paths })
    }

    /// The owners of the Scale of an object with these owners.
    pub(super) fn of_scale(&self, stored: &[u8]) -> Vec<u8> {
        ManagedFields::parse(stored).unwrap_or_default().of_scale(&self.paths).to_json()
    }

    /// The owners of the object after a write of its Scale.
    pub(super) fn of_object(&self, stored: &[u8], scale: &Owners) -> Owners {
        let scale = ManagedFields::parse(&scale.0).unwrap_or_default();
        let object = ManagedFields::parse(stored).unwrap_or_default();
        Owners(object.with_scale(scale, &self.api_version, &self.paths).to_json())
    }
}

impl StoreRegistry {
    /// The new state of an object after a write of its Scale, and the new owners of the Scale. The proposal gets and returns
    /// the Scale; everything else of the object stays. `stored` are the owners of the Scale.
    pub(super) fn propose_scale(
        &self,
        target: &Target,
        name: &str,
        scale: &ScalePaths,
        (old, stored): (&Value, &[u8]),
        proposal: &Proposal<'_, '_>,
        options: &WriteOptions,
    ) -> Result<(Value, Owners), Status> {
        let shown = scale
            .scale_of(old)
            .map_err(|reason| Status::new(500, StatusReason::Unknown, reason))?
            .for_update();
        let ownership = self.ownership(target, options);
        let (changed, owners) = match proposal {
            Proposal::Change(change) => {
                let mut changed = match options.uses_managed_fields {
                    true => change(Some(&with_managed_fields(&shown, stored)?))?,
                    false => change(Some(&shown))?,
                };
                // As for all subresources, a client cannot set them.
                take_managed_fields(&mut changed);
                let owners = ownership.of_updated(stored, None, &shown, &changed);
                (changed, owners)
            }
            Proposal::Apply(configuration) => {
                let (changed, owners) =
                    ownership.apply(stored, Some(&shown), configuration.value, options.force)?;
                check_name(&changed, name)?;
                (changed, owners)
            }
        };
        Ok((scale.apply(&changed, old).map_err(Status::bad_request)?, owners))
    }
}
