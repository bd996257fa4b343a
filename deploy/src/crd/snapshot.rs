//! Converts a CRD to an APIResourceSchema. Pure.

use fairlead_names::is_dns_label;

use super::CrdError;
use super::definition::{
    ApiResourceSchema, CustomResourceDefinition, DefinitionVersion, Name, Names, SchemaClientConfig,
    SchemaConversion, SchemaSpec, SchemaVersion, SchemaWebhook,
};

/// Most characters of the name of an object.
const MAX_NAME_LENGTH: usize = 253;

/// A CRD, and the prefix of the name of its APIResourceSchema.
pub(crate) struct Conversion<'a> {
    pub prefix: &'a str,
    pub definition: &'a CustomResourceDefinition,
}

impl<'a> Conversion<'a> {
    /// The APIResourceSchema, with the defaults that the API server sets in a CRD.
    pub(crate) fn api_resource_schema(&self) -> Result<ApiResourceSchema<'a>, CrdError> {
        let spec = &self.definition.spec;
        let name = format!("{}.{}", self.prefix, self.definition.metadata.name);
        if name.len() > MAX_NAME_LENGTH || !name.split('.').all(is_dns_label) {
            return Err(CrdError::Name { name });
        }
        let versions: Vec<_> = spec.versions.iter().map(schema_version).collect();
        Ok(ApiResourceSchema {
            kind: "APIResourceSchema",
            api_version: "apis.kcp.io/v1alpha1",
            metadata: Name { name },
            spec: SchemaSpec {
                group: &spec.group,
                names: with_defaults(&spec.names),
                scope: &spec.scope,
                versions: (!versions.is_empty()).then_some(versions),
                conversion: self.conversion()?,
            },
        })
    }

    fn conversion(&self) -> Result<SchemaConversion<'a>, CrdError> {
        let Some(conversion) = &self.definition.spec.conversion else {
            return Ok(SchemaConversion { strategy: "None", webhook: None });
        };
        let strategy = conversion.strategy.as_str();
        if strategy != "Webhook" {
            return Ok(SchemaConversion { strategy, webhook: None });
        }
        let client_config = match &conversion.webhook.client_config {
            None => None,
            Some(config) if config.service.is_some() => return Err(CrdError::WebhookService),
            Some(config) => {
                let url = config.url.as_deref().ok_or(CrdError::WebhookWithoutUrl)?;
                Some(SchemaClientConfig { url, ca_bundle: &config.ca_bundle })
            }
        };
        let conversion_review_versions = conversion.webhook.conversion_review_versions.as_deref();
        Ok(SchemaConversion {
            strategy,
            webhook: Some(SchemaWebhook { client_config, conversion_review_versions }),
        })
    }
}

fn with_defaults(names: &Names) -> Names {
    let mut names = names.clone();
    if names.singular.is_empty() {
        names.singular = names.kind.to_lowercase();
    }
    if names.list_kind.is_empty() && !names.kind.is_empty() {
        names.list_kind = format!("{}List", names.kind);
    }
    names
}

fn schema_version(version: &DefinitionVersion) -> SchemaVersion<'_> {
    SchemaVersion {
        name: &version.name,
        served: version.served,
        storage: version.storage,
        deprecated: version.deprecated,
        deprecation_warning: version.deprecation_warning.as_deref(),
        schema: version.schema.as_ref().and_then(|validation| validation.schema.as_ref()),
        subresources: &version.subresources,
        additional_printer_columns: &version.additional_printer_columns,
        selectable_fields: &version.selectable_fields,
    }
}
