//! The labels of an object by the claims in its logical cluster.

use std::borrow::Cow;
use std::sync::Arc;

use fairlead_api::label;
use fairlead_names::{Origin, ResourceName};
use serde_json::{Map, Value};

use super::binding::LabelRule;
use crate::names::{API_BINDINGS, EVENTS};

/// The claims in force in one logical cluster, by the name of the binding. Bindings with the same rules share them.
#[derive(Debug, Default)]
pub(crate) struct ClusterClaims {
    bindings: Vec<(Box<str>, Arc<[LabelRule]>)>,
}

impl ClusterClaims {
    /// The claims of several bindings.
    pub(crate) fn of(bindings: impl IntoIterator<Item = (Box<str>, Vec<LabelRule>)>) -> Self {
        Self { bindings: bindings.into_iter().map(|(name, rules)| (name, rules.into())).collect() }
    }

    /// Replaces the rules of a binding.
    pub(super) fn set(&mut self, binding: &str, rules: Arc<[LabelRule]>) {
        self.bindings.retain(|(name, _)| **name != *binding);
        if !rules.is_empty() {
            self.bindings.push((binding.into(), rules));
        }
    }

    /// The rules of a binding.
    pub(super) fn rules_of(&self, binding: &str) -> Option<&Arc<[LabelRule]>> {
        self.bindings.iter().find(|(name, _)| **name == *binding).map(|(_, rules)| rules)
    }

    /// Whether a claim covers objects of a resource.
    pub(super) fn cover(&self, resource: &ResourceName, origin: &Origin) -> bool {
        self.rules(resource, origin).next().is_some()
    }

    fn rules<'c>(
        &'c self,
        resource: &'c ResourceName,
        origin: &'c Origin,
    ) -> impl Iterator<Item = &'c LabelRule> {
        let all = self.bindings.iter().flat_map(|(_, rules)| &**rules);
        all.filter(move |rule| rule.resource.0 == *resource && rule.resource.1 == *origin)
    }
}

/// The claim labels that an object must have.
#[derive(Debug, Default)]
pub(crate) struct ClaimLabels<'c>(Vec<(Cow<'c, str>, &'c str)>);

impl<'c> ClaimLabels<'c> {
    /// The labels of an object with the labels that `label` looks up. `claims` are those of its logical cluster; without claims it
    /// costs nothing.
    ///
    /// An APIBinding has a label for its own export in any case, so that the export sees the bindings to it.
    pub(crate) fn of<'l>(
        claims: Option<&'c ClusterClaims>,
        (resource, origin): (&ResourceName, &Origin),
        label: impl Fn(&str) -> Option<&'l str>,
    ) -> Self {
        let resource = stored_name(resource);
        let mut labels = Self::default();
        for (_, rules) in claims.into_iter().flat_map(|claims| &claims.bindings) {
            for rule in &**rules {
                if rule.resource.0 == *resource
                    && rule.resource.1 == *origin
                    && rule.selector.as_ref().is_none_or(|selector| selector.selects(&label))
                {
                    labels.set_value(Cow::Borrowed(&rule.key), &rule.value);
                }
            }
        }
        if *resource == *API_BINDINGS
            && let Some(export) = label(label::EXPORT)
        {
            let key = format!("{}{export}", label::CLAIMED_PREFIX);
            if labels.value(&key).is_none() {
                labels.set_value(Cow::Owned(key), label::REFLEXIVE_CLAIM);
            }
        }
        labels
    }

    /// Sets them in an object and removes its other claim labels.
    pub(crate) fn set(&self, object: &mut Value) {
        let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
        let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) else {
            if !self.0.is_empty() {
                let labels = self.0.iter().map(|(key, value)| (key.to_string(), Value::from(*value)));
                metadata.insert("labels".to_owned(), Value::Object(labels.collect::<Map<_, _>>()));
            }
            return;
        };
        labels.retain(|key, _| !key.starts_with(label::CLAIMED_PREFIX) || self.value(key).is_some());
        for (key, value) in &self.0 {
            if labels.get(&**key).is_none_or(|present| present != value) {
                labels.insert(key.to_string(), Value::from(*value));
            }
        }
    }

    /// Whether an object has these claim labels and no others.
    pub(crate) fn are_set<'l>(&self, labels: impl IntoIterator<Item = (&'l str, &'l str)>) -> bool {
        let mut claimed = labels.into_iter().filter(|(key, _)| key.starts_with(label::CLAIMED_PREFIX));
        let mut found = 0;
        claimed.all(|(key, value)| {
            found += 1;
            self.value(key) == Some(value)
        }) && found == self.0.len()
    }

    fn value(&self, key: &str) -> Option<&'c str> {
        self.0.iter().find(|(own, _)| *own == key).map(|(_, value)| *value)
    }

    fn set_value(&mut self, key: Cow<'c, str>, value: &'c str) {
        match self.0.iter_mut().find(|(own, _)| *own == key) {
            Some((_, present)) => *present = value,
            None => self.0.push((key, value)),
        }
    }
}

/// The name under which the objects of a resource are stored and claimed: events of both groups are those of core.
fn stored_name(resource: &ResourceName) -> &ResourceName {
    if *resource.group == *"events.k8s.io" && *resource.resource == *"events" { &EVENTS } else { resource }
}

#[cfg(test)]
mod tests {
    use fairlead_api::ClaimSelector;
    use serde_json::json;

    use super::*;
    use crate::names::{BUILT_IN, CONFIG_MAPS, CUSTOM};

    const ONE: &str = "claimed.internal.apis.kcp.io/one";
    const TWO: &str = "claimed.internal.apis.kcp.io/two";

    fn rule(resource: &ResourceName, origin: Origin, key: &str, value: &str, selector: Value) -> LabelRule {
        let selector: ClaimSelector = serde_json::from_value(selector).unwrap();
        LabelRule {
            resource: (resource.clone(), origin),
            key: key.into(),
            value: value.into(),
            selector: Some(selector).filter(|selector| !selector.match_all),
        }
    }

    fn claims() -> ClusterClaims {
        let all = json!({"matchAll": true});
        let sheriffs = ResourceName::new("wild.west", "sheriffs");
        ClusterClaims::of([
            (
                "a".into(),
                vec![
                    rule(&CONFIG_MAPS, BUILT_IN, ONE, "maps", all.clone()),
                    rule(&EVENTS, BUILT_IN, ONE, "events", all.clone()),
                    rule(&sheriffs, Origin::Identity("x".into()), ONE, "sheriffs", all.clone()),
                ],
            ),
            ("b".into(), vec![rule(&CONFIG_MAPS, BUILT_IN, TWO, "few", json!({"matchLabels": {"a": "b"}}))]),
            ("c".into(), vec![rule(&API_BINDINGS, CUSTOM, ONE, "bindings", all)]),
        ])
    }

    #[test]
    fn labels_follow_resource_origin_and_selector() {
        let claims = claims();
        let sheriffs = ResourceName::new("wild.west", "sheriffs");
        let new_events = ResourceName::new("events.k8s.io", "events");
        for (resource, origin, labels, expected) in [
            (&*CONFIG_MAPS, BUILT_IN, Value::Null, json!({ONE: "maps"})),
            (&*CONFIG_MAPS, BUILT_IN, json!({"a": "b"}), json!({"a": "b", ONE: "maps", TWO: "few"})),
            (&*CONFIG_MAPS, BUILT_IN, json!({"a": "c", TWO: "few"}), json!({"a": "c", ONE: "maps"})),
            (
                &*CONFIG_MAPS,
                BUILT_IN,
                json!({ONE: "forged", "claimed.internal.apis.kcp.io/x": "y"}),
                json!({ONE: "maps"}),
            ),
            (&*EVENTS, BUILT_IN, Value::Null, json!({ONE: "events"})),
            (&new_events, BUILT_IN, Value::Null, json!({ONE: "events"})),
            (&sheriffs, Origin::Identity("x".into()), Value::Null, json!({ONE: "sheriffs"})),
            (&sheriffs, Origin::Identity("y".into()), json!({ONE: "sheriffs"}), json!({})),
            (&sheriffs, CUSTOM, Value::Null, Value::Null),
            (
                &*API_BINDINGS,
                CUSTOM,
                json!({label::EXPORT: "one"}),
                json!({label::EXPORT: "one", ONE: "bindings"}),
            ),
            (
                &*API_BINDINGS,
                CUSTOM,
                json!({label::EXPORT: "two"}),
                json!({label::EXPORT: "two", ONE: "bindings", TWO: label::REFLEXIVE_CLAIM}),
            ),
        ] {
            let mut object = json!({"metadata": {"name": "o", "labels": labels}});
            let find = |key: &str| labels[key].as_str();
            let computed = ClaimLabels::of(Some(&claims), (resource, &origin), find);
            let pairs = |labels: &Value| -> Vec<(String, String)> {
                let all = labels.as_object().into_iter().flatten();
                all.map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned())).collect()
            };
            let are_set = |labels: &Value| {
                computed.are_set(pairs(labels).iter().map(|(key, value)| (key.as_str(), value.as_str())))
            };
            assert_eq!(are_set(&labels), labels == expected, "{resource} {labels}");
            computed.set(&mut object);
            assert_eq!(object["metadata"]["labels"], expected, "{resource} {labels}");
            assert!(are_set(&expected), "{resource} {labels}");
        }
    }

    #[test]
    fn without_claims_only_bindings_have_labels() {
        let none = |_: &str| None;
        assert!(ClaimLabels::of(None, (&CONFIG_MAPS, &BUILT_IN), none).0.is_empty());
        let export = |key: &str| (key == label::EXPORT).then_some("two");
        let mut binding = json!({"metadata": {}});
        ClaimLabels::of(None, (&API_BINDINGS, &CUSTOM), export).set(&mut binding);
        assert_eq!(binding["metadata"]["labels"], json!({TWO: label::REFLEXIVE_CLAIM}));
    }

    #[test]
    fn rules_are_replaced_by_binding() {
        let mut claims = claims();
        claims.set("b", Arc::from([]));
        let labels = ClaimLabels::of(Some(&claims), (&CONFIG_MAPS, &BUILT_IN), |_| Some("b"));
        assert!(labels.are_set([(ONE, "maps")]));
        assert!(claims.cover(&CONFIG_MAPS, &BUILT_IN) && !claims.cover(&CONFIG_MAPS, &CUSTOM));
        assert!(claims.rules_of("b").is_none() && claims.rules_of("a").is_some());
    }
}
