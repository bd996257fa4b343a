//! The options of a delete: its query and its body.

use fairlead_store::Revision;
use serde::Deserialize;

use super::options::{DryRun, OptionsError, Query};
use super::{AuditAnnotations, Guard, Warnings};

/// The options of a delete or deletecollection.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// `preconditions.uid`.
    pub uid: Option<String>,
    /// `preconditions.resourceVersion`.
    pub resource_version: Option<String>,
    /// `propagationPolicy`; `None`: the finalizers of the object decide, and by default its dependents are deleted afterwards.
    pub propagation: Option<Propagation>,
    /// `orphanDependents`, an older form of `propagation`, which has its meaning as well.
    pub orphan_dependents: Option<bool>,
    /// `gracePeriodSeconds`. No resource of a shard has a graceful deletion; admission sees it.
    pub grace_period_seconds: Option<i64>,
    /// `dryRun`.
    pub dry_run: DryRun,
    /// Whether the object is one of a deleted collection. As in Kubernetes, admission then sees no name in the request.
    pub is_of_collection: bool,
    /// Receives what the registry has to tell the client.
    pub warnings: Warnings,
    /// Receives the audit annotations of admission.
    pub audit_annotations: AuditAnnotations,
    /// Restricts the delete to what a view permits.
    pub guard: Guard,
}

/// The treatment of the dependents of a deleted object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Propagation {
    /// The garbage collector deletes them afterwards.
    Background,
    /// The garbage collector deletes them first.
    Foreground,
    /// The garbage collector removes the owner reference; they stay.
    Orphan,
}

impl Propagation {
    /// Its name in requests.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Foreground => "Foreground",
            Self::Orphan => "Orphan",
        }
    }
}

impl DeleteOptions {
    /// The revision on which the client bases the delete.
    pub(crate) fn base(&self) -> Option<Revision> {
        self.resource_version.as_ref()?.parse().ok().map(Revision)
    }

    /// Reads the options from the query and the body (already decoded to a tree; `null` for none).
    ///
    /// # Errors
    /// [`OptionsError`]: a client error.
    pub fn parse(query: &Query<'_>, body: serde_json::Value) -> Result<Self, OptionsError> {
        let has_body = !body.is_null();
        let wire: WireDeleteOptions = match body {
            serde_json::Value::Null => WireDeleteOptions::default(),
            // A derived deserializer would also accept an array, by position.
            body if !body.is_object() => return Err(OptionsError::Body("it is no object".to_owned())),
            body => match body["kind"].as_str().unwrap_or_default() {
                // An object of another kind is a mistake, and what it names would be deleted.
                "" | "DeleteOptions" => {
                    serde_json::from_value(body).map_err(|error| OptionsError::Body(error.to_string()))?
                }
                kind => {
                    return Err(OptionsError::Body(format!("{kind:?} cannot be converted to DeleteOptions")));
                }
            },
        };
        let policy = wire.propagation_policy.as_deref().or_else(|| query.get("propagationPolicy"));
        let orphan = wire
            .orphan_dependents
            .or_else(|| query.get("orphanDependents").map(|_| query.flag("orphanDependents")));
        let propagation = match (policy, orphan) {
            (Some(_), Some(_)) => {
                return Err(OptionsError::Invalid {
                    field: "propagationPolicy",
                    value: policy.unwrap_or_default().to_owned(),
                    message: "orphanDependents and deletionPropagation cannot be both set",
                });
            }
            (Some("Orphan"), None) | (None, Some(true)) => Some(Propagation::Orphan),
            (Some("Foreground"), None) => Some(Propagation::Foreground),
            (Some("Background"), None) | (None, Some(false)) => Some(Propagation::Background),
            (None, None) => None,
            (Some(other), None) => {
                return Err(OptionsError::NotSupported {
                    field: "propagationPolicy",
                    value: format!("{other:?}"),
                    supported: "\"Background\", \"Foreground\", \"Orphan\"",
                });
            }
        };
        let grace_period_seconds =
            match (wire.grace_period_seconds, query.get("gracePeriodSeconds")) {
                (Some(seconds), _) => Some(seconds),
                (None, None) => None,
                (None, Some(text)) => Some(text.parse().map_err(|_| OptionsError::Number {
                    name: "gracePeriodSeconds",
                    text: text.to_owned(),
                })?),
            };
        // As in Kubernetes, parameters are preconditions only if there is no body.
        let from_query = |name| query.get(name).filter(|_| !has_body).map(str::to_owned);
        let dry_run = wire.dry_run.iter().flatten().map(|text| &**text);
        let preconditions = wire.preconditions.unwrap_or_else(|| WirePreconditions {
            uid: from_query("uid"),
            resource_version: from_query("resourceVersion"),
        });
        Ok(Self {
            uid: preconditions.uid.filter(|uid| !uid.is_empty()),
            resource_version: preconditions.resource_version.filter(|version| !version.is_empty()),
            propagation,
            orphan_dependents: orphan,
            grace_period_seconds,
            dry_run: DryRun::parse(dry_run.chain(query.all("dryRun")))?,
            is_of_collection: false,
            warnings: Warnings::default(),
            guard: Guard::default(),
            audit_annotations: AuditAnnotations::default(),
        })
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireDeleteOptions {
    preconditions: Option<WirePreconditions>,
    propagation_policy: Option<String>,
    orphan_dependents: Option<bool>,
    grace_period_seconds: Option<i64>,
    dry_run: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WirePreconditions {
    uid: Option<String>,
    resource_version: Option<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn delete_options_come_from_query_and_body() {
        let parse = |query: &str, body: Value| DeleteOptions::parse(&Query::parse(query), body);
        assert_eq!(
            parse("propagationPolicy=Foreground", Value::Null).unwrap().propagation,
            Some(Propagation::Foreground)
        );
        assert_eq!(parse("", Value::Null).unwrap().propagation, None);
        assert_eq!(
            parse("", json!({"orphanDependents": true})).unwrap().propagation,
            Some(Propagation::Orphan)
        );
        for (value, expected) in
            [("1", Propagation::Orphan), ("True", Propagation::Orphan), ("0", Propagation::Background)]
        {
            let options = parse(&format!("orphanDependents={value}"), Value::Null).unwrap();
            assert_eq!(options.propagation, Some(expected), "{value}");
        }
        assert_eq!(parse("", json!({"dryRun": ["All"]})).unwrap().dry_run, DryRun::All);
        assert!(parse("", json!({"dryRun": null})).is_ok());
        let both = json!({"propagationPolicy": "Orphan", "orphanDependents": true});
        assert!(parse("", both).unwrap_err().is_invalid());
        let seconds =
            |query: &str, body: Value| parse(query, body).map(|options| options.grace_period_seconds);
        assert_eq!(seconds("gracePeriodSeconds=5", Value::Null).unwrap(), Some(5));
        assert_eq!(seconds("", json!({"gracePeriodSeconds": 7})).unwrap(), Some(7));
        assert!(seconds("gracePeriodSeconds=x", Value::Null).is_err());
        assert!(seconds("", json!({"gracePeriodSeconds": "7"})).is_err());
        assert!(parse("", json!({"preconditions": 1})).is_err());
        let preconditions = |query: &str, body: Value| {
            let options = parse(query, body).unwrap();
            (options.uid.unwrap_or_default(), options.resource_version.unwrap_or_default())
        };
        for (query, body, uid, version) in [
            ("uid=a&resourceVersion=7", Value::Null, "a", "7"),
            ("uid=a&resourceVersion=7", json!({}), "", ""),
            ("uid=a", json!({"preconditions": {"uid": "b"}}), "b", ""),
            ("uid=", Value::Null, "", ""),
        ] {
            assert_eq!(preconditions(query, body), (uid.to_owned(), version.to_owned()), "{query}");
        }
    }
}
