//! The `scale` subresource: writes of the Scale of an object (`kubectl scale`).

use fairlead_process::{Status, StatusReason};
use serde_json::Value;

use super::read::not_found;
use super::{Change, Proposal, StoreRegistry, Target, WriteResult};
use crate::request::WriteOptions;

impl StoreRegistry {
    /// Changes the desired replicas of an object. `change` gets and returns its Scale; everything else of the object stays.
    pub(super) async fn write_scale(
        &self,
        target: &Target,
        name: &str,
        change: &Change<'_>,
        options: &WriteOptions,
    ) -> Result<WriteResult, Status> {
        let resource = &target.resource;
        let scale = resource.strategy(&target.version).scale().ok_or_else(Status::unknown_resource)?;
        let change_of_object = |old: Option<&Value>| {
            let old = old.ok_or_else(|| not_found(resource, name))?;
            let shown = scale
                .scale_of(old)
                .map_err(|reason| Status::new(500, StatusReason::Unknown, reason))?
                .for_update();
            let changed = change(Some(&shown))?;
            scale.apply(&changed, old).map_err(Status::bad_request)
        };
        self.write_change(target, name, &Proposal::Change(&change_of_object), options).await
    }
}
