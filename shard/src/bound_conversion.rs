//! The rules of an APIConversion, kept in an annotation of the CRD of its bound schema. So a shard converts objects of another shard's
//! API by the right rules even if it starts without the cache server: without them, a conversion would lose data.

use std::sync::Arc;

use fairlead_apiserver::hub::{ObjectChange, ObjectEvent};
use fairlead_apiserver::registry::Conversion;
use fairlead_schema::ApiConversionRules;
use serde_json::{Value, json};

use crate::names::BOUND_CRDS;

/// The annotation: the `spec` of the APIConversion as JSON.
const CONVERSION: &str = "fairlead.dev/api-conversion";

/// The conversion of a bound CRD by rules, and its digest for the key of the served resource.
pub(crate) struct RuleConversion {
    pub(crate) conversion: Conversion,
    pub(crate) digest: [u8; 32],
}

/// Sets the rules of a bound CRD to those of an APIConversion; without one, removes them. Rules that do not fit the CRD are logged, and
/// those that it has stay: an APIConversion was valid for its schema when it was written.
pub(crate) fn set_rules(definition: &mut Value, api_conversion: Option<&Value>) {
    let rules = api_conversion.map(|conversion| &conversion["spec"]).filter(|_| can_have_rules(definition));
    if let Some(spec) = rules
        && let Err(errors) = ApiConversionRules::compile(&json!({"spec": spec}), definition)
    {
        let definition = &definition["metadata"]["name"];
        tracing::warn!(%definition, ?errors, "an APIConversion does not fit its schema");
        return;
    }
    match rules {
        Some(spec) => definition["metadata"]["annotations"][CONVERSION] = spec.to_string().into(),
        None => {
            if let Some(annotations) = definition["metadata"]["annotations"].as_object_mut() {
                annotations.remove(CONVERSION);
            }
        }
    }
}

/// The rules of a bound CRD as text, to compare two states of it.
pub(crate) fn rules_of(definition: &Value) -> Option<&str> {
    definition["metadata"]["annotations"][CONVERSION].as_str()
}

/// Whether an event gives the CRD of a bound schema other rules.
pub(crate) fn changes_rules(event: &ObjectEvent) -> bool {
    let ObjectChange::Updated { object, previous } = &event.change else { return false };
    let [new, old] = [object, previous]
        .map(|object| serde_json::from_slice::<Value>(object.as_object().json()).unwrap_or_default());
    &*event.scope == BOUND_CRDS && rules_of(&new) != rules_of(&old)
}

/// Compiles the rules of a bound CRD. `None` if it has none. Costs some 20 µs per expression.
pub(crate) fn compile_rules(definition: &Value) -> Option<RuleConversion> {
    let text = rules_of(definition)?;
    let spec: Value = serde_json::from_str(text).unwrap_or_default();
    Some(match ApiConversionRules::compile(&json!({"spec": spec}), definition) {
        Ok(rules) => {
            let digest = *rules.digest();
            RuleConversion { conversion: Conversion::Rules(Arc::new(rules)), digest }
        }
        Err(errors) => {
            let definition = &definition["metadata"]["name"];
            tracing::error!(%definition, ?errors, "the rules of a bound CRD are invalid; its objects are not converted");
            RuleConversion { conversion: Conversion::Function(refuse), digest: [0; 32] }
        }
    })
}

/// Whether rules apply. A webhook that the schema names takes precedence over them.
fn can_have_rules(definition: &Value) -> bool {
    definition["spec"]["conversion"]["strategy"] != "Webhook"
}

fn refuse(_object: Value, _to_version: &str) -> Result<Value, String> {
    Err("the APIConversion of its schema is invalid".to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

    use super::*;

    fn definition(strategy: &str) -> Value {
        let version = |name: &str, field: &str| {
            let schema = json!({"type": "object", "properties": {field: {"type": "string"}}});
            json!({"name": name, "schema": {"openAPIV3Schema": schema}})
        };
        json!({
            "metadata": {"name": "uid", "annotations": {"other": "x"}},
            "spec": {"conversion": {"strategy": strategy}, "versions": [version("v1", "old"), version("v2", "new")]},
        })
    }

    fn api_conversion(field: &str) -> Value {
        let rules = json!([{"field": field, "destination": "new"}]);
        json!({"spec": {"conversions": [{"from": "v1", "to": "v2", "rules": rules}]}})
    }

    #[test]
    fn rules_are_kept_at_the_definition_and_compiled_from_it() {
        let mut definition = definition("None");
        set_rules(&mut definition, Some(&api_conversion("old")));
        let rules = compile_rules(&definition).unwrap();
        let Conversion::Rules(compiled) = &rules.conversion else { panic!("no rules") };
        let object = json!({"apiVersion": "g/v1", "old": "x"});
        assert_eq!(compiled.convert(object, "v2").unwrap()["new"], "x");
        let before = definition.clone();
        set_rules(&mut definition, Some(&api_conversion("nowhere")));
        assert_eq!(definition, before, "rules that do not fit change nothing");
        set_rules(&mut definition, None);
        assert!(compile_rules(&definition).is_none());
        assert_eq!(definition["metadata"]["annotations"], json!({"other": "x"}));
    }

    #[test]
    fn a_webhook_takes_precedence_over_rules() {
        let mut definition = definition("Webhook");
        set_rules(&mut definition, Some(&api_conversion("old")));
        assert_eq!(rules_of(&definition), None);
    }

    #[test]
    fn objects_are_not_converted_by_invalid_rules() {
        let mut definition = definition("None");
        definition["metadata"]["annotations"][CONVERSION] =
            api_conversion("nowhere")["spec"].to_string().into();
        let rules = compile_rules(&definition).unwrap();
        let Conversion::Function(function) = rules.conversion else { panic!("converted") };
        assert!(function(json!({}), "v2").is_err());
    }
}
