//! Admission of APIConversions: the rules must fit the APIResourceSchema of the same name.

use fairlead_apiserver::AdmissionRequest;
use fairlead_process::Status;
use fairlead_schema::ApiConversionRules;
use serde_json::Value;

use super::{ShardAdmission, forbidden, invalid};
use crate::names::{API_RESOURCE_SCHEMAS, CUSTOM};

impl ShardAdmission {
    /// Compiles the rules, so that every stored APIConversion can be used.
    pub(super) fn validate_api_conversion(
        &self,
        write: &AdmissionRequest<'_>,
        object: &Value,
    ) -> Result<(), Status> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let schema = self.objects.get(&API_RESOURCE_SCHEMAS, &CUSTOM, write.scope, None, name)?;
        let Some(schema) = schema else {
            let message = format!(
                "error getting APIResourceSchema {name}: apiresourceschemas.apis.kcp.io \"{name}\" not found"
            );
            return Err(forbidden(write, message));
        };
        let schema = self.objects.tree(&schema)?;
        ApiConversionRules::compile(object, &schema).map(drop).map_err(|errors| invalid(write, &errors))
    }
}
