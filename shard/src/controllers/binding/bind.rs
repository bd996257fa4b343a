//! The decision about a binding that is not being deleted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fairlead_api::{
    Condition, Severity, condition_type, conditions_of, is_condition_true, set_condition, set_summary,
    write_conditions,
};
use fairlead_schema::crd::CrdNames;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Plan, name_of};
use crate::controller_runtime::ReconcileOutcome;
use crate::exports::{
    PublishedExport, PublishedSchema, add_finalizer, record_claims, record_export, record_extra_annotations,
    record_resources, set_claim_conditions,
};
use crate::resource_locks::{ResourceLock, ResourceLocks};

/// Inputs of a decision about a binding.
pub(super) struct BindContext<'a> {
    /// The logical cluster of the binding.
    pub(super) cluster: &'a str,
    pub(super) export: Option<&'a PublishedExport>,
    pub(super) locks: ResourceLocks,
    /// The other bindings of the logical cluster.
    pub(super) others: &'a [&'a Value],
    /// Names that are in use in the logical cluster, by UID of the definition.
    pub(super) holders: Vec<NameHolder>,
    pub(super) obstacles: Obstacles,
}

/// A CRD or a bound resource of another binding, with its names.
pub(super) struct NameHolder {
    pub(super) group: String,
    pub(super) names: Arc<CrdNames>,
    pub(super) uid: String,
    pub(super) owner: NameOwner,
}

/// The owner of names.
pub(super) enum NameOwner {
    Binding { name: String, export_path: String, export: String },
    Definition { name: String, is_established: bool },
}

/// Decides about a binding: it binds the resources of its export that are free. Reasons and messages are those of kcp.
pub(super) fn bind(old: &Value, context: &BindContext<'_>, now: Timestamp) -> Plan {
    let mut state = BindingState::of(old.clone(), now);
    let mut locks = context.locks.clone();
    state.bind(context, &mut locks);
    Plan { binding: Some(state.finish()), locks, is_released: false, next: context.obstacles.next() }
}

/// Binds a bound binding to the present schemas of its export, whose resources it owns already under the same names.
pub(super) fn follow(old: Value, export: &PublishedExport, obstacles: &Obstacles, now: Timestamp) -> Value {
    let mut state = BindingState::of(old, now);
    if state.record_export(export) {
        let can_bind = |schema: &&PublishedSchema| obstacles.allow(schema);
        record_resources(&mut state.binding, export, export.schemas.iter().filter(can_bind));
        match export.schemas.iter().find_map(|schema| Some((schema, obstacles.reason(schema)?))) {
            Some((schema, reason)) => state.invalid_schema(export, schema, reason),
            None if obstacles.deferred.is_empty() => state.bound(),
            None => {}
        }
    }
    state.finish()
}

/// Schemas that a binding cannot be bound to in this commit.
#[derive(Default)]
pub(super) struct Obstacles {
    /// The UIDs of schemas that are no valid CRDs, with the reason.
    pub(super) invalid: Vec<(Box<str>, String)>,
    /// The UIDs of schemas whose CRDs would exceed the size of a commit. The next commits bind them.
    pub(super) deferred: Vec<Box<str>>,
}

impl Obstacles {
    fn allow(&self, schema: &PublishedSchema) -> bool {
        self.reason(schema).is_none() && !self.deferred.contains(&schema.uid)
    }

    fn reason(&self, schema: &PublishedSchema) -> Option<&str> {
        self.invalid.iter().find(|(uid, _)| *uid == schema.uid).map(|(_, reason)| &**reason)
    }

    /// What follows when the schemas without obstacles are bound.
    pub(super) fn next(&self) -> ReconcileOutcome {
        match self.deferred.is_empty() {
            true => ReconcileOutcome::Done,
            false => ReconcileOutcome::RequeueAfter(Duration::ZERO),
        }
    }
}

struct BindingState {
    binding: Value,
    conditions: Vec<Condition>,
    now: Timestamp,
}

impl BindingState {
    fn of(mut binding: Value, now: Timestamp) -> Self {
        let mut conditions = conditions_of(&binding);
        add_finalizer(&mut binding);
        if binding["status"]["phase"].as_str().is_none_or(str::is_empty) {
            if !binding["status"].is_object() {
                binding["status"] = json!({});
            }
            binding["status"]["phase"] = "Binding".into();
            let message = "Waiting for API(s) to be established";
            let kind = condition_type::INITIAL_BINDING_COMPLETED;
            let waiting = Condition::unmet(kind, Severity::Info, "WaitingForEstablished", message);
            set_condition(&mut conditions, waiting, now);
        }
        Self { binding, conditions, now }
    }

    fn finish(mut self) -> Value {
        set_claim_conditions(&self.binding, &mut self.conditions, self.now);
        set_summary(&mut self.conditions, &[condition_type::INITIAL_BINDING_COMPLETED], self.now);
        write_conditions(&mut self.binding, &self.conditions);
        self.binding
    }

    fn bind(&mut self, context: &BindContext<'_>, locks: &mut ResourceLocks) {
        let reference = &self.binding["spec"]["reference"]["export"];
        let path = reference["path"].as_str().filter(|path| !path.is_empty()).unwrap_or(context.cluster);
        let shown = format!("{path}|{}", reference["name"].as_str().unwrap_or_default());
        let Some(export) = context.export else {
            record_extra_annotations(&mut self.binding, None);
            return self.invalid_export(
                Severity::Error,
                "APIExportNotFound",
                format!("APIExport {shown} not found"),
            );
        };
        if export.identity.is_none() {
            record_extra_annotations(&mut self.binding, context.export);
            record_claims(&mut self.binding, export);
            return self.invalid_export(
                Severity::Warning,
                "MissingIdentityHash",
                format!("APIExport {shown} is missing status.identityHash"),
            );
        }
        if self.record_export(export) {
            self.bind_resources(export, context, locks);
        }
    }

    /// Records the properties of an export that has an identity, and returns whether its resources can be bound.
    fn record_export(&mut self, export: &PublishedExport) -> bool {
        record_extra_annotations(&mut self.binding, Some(export));
        record_export(&mut self.binding, export);
        let contact = "Invalid APIExport. Please contact the APIExport owner to resolve";
        let problem = match &export.missing_schema {
            Some(missing) => Some(format!("{contact}: APIResourceSchema {missing:?} not found")),
            None => export.schemas.iter().any(|schema| schema.lacks_conversion).then(|| contact.to_owned()),
        };
        let is_valid = problem.is_none();
        if let Some(message) = problem {
            self.invalid_export(Severity::Error, "InternalError", message);
        }
        is_valid
    }

    fn bind_resources(
        &mut self,
        export: &PublishedExport,
        context: &BindContext<'_>,
        locks: &mut ResourceLocks,
    ) {
        let name = name_of(&self.binding).unwrap_or_default().to_owned();
        let mut skipped = BTreeMap::new();
        let mut free: Vec<&PublishedSchema> = Vec::new();
        for schema in &export.schemas {
            match lock_holder(schema, &name, context) {
                Some(holder) => _ = skipped.insert(schema.lock_name(), holder),
                None => free.push(schema),
            }
        }
        for schema in &free {
            let lock = ResourceLock { binding: Some(name.clone()), ..ResourceLock::default() };
            locks.0.insert(schema.lock_name(), lock);
        }
        let conflict = |schema: &PublishedSchema| naming_conflict(schema, &context.holders);
        let obstacles = &context.obstacles;
        let is_unfit =
            |schema: &&PublishedSchema| conflict(schema).is_some() || obstacles.reason(schema).is_some();
        let unfit = free.iter().position(is_unfit);
        let (fit, unfit) = free.split_at(unfit.unwrap_or(free.len()));
        let now = fit.iter().copied().filter(|schema| obstacles.allow(schema));
        record_resources(&mut self.binding, export, now);
        if let Some(schema) = unfit.first() {
            return match (conflict(schema), obstacles.reason(schema)) {
                (Some(conflict), _) => {
                    self.not_bound("NamingConflicts", &format!("Unable to bind APIs: {conflict}"))
                }
                (None, reason) => self.invalid_schema(export, schema, reason.unwrap_or_default()),
            };
        }
        if skipped.is_empty() && obstacles.deferred.is_empty() {
            return self.bound();
        }
        set_condition(&mut self.conditions, Condition::met(condition_type::API_EXPORT_VALID), self.now);
        if skipped.is_empty() {
            return;
        }
        // As Go prints a map of structs.
        let holders: Vec<String> =
            skipped.iter().map(|(resource, holder)| format!("{resource}:{{{holder}}}")).collect();
        let message = format!(
            "Unable to bind APIs because they are bound by other APIBindings or CRDs: map[{}]",
            holders.join(" ")
        );
        self.not_bound("NamingConflicts", &message);
    }

    /// Marks the binding as bound to all resources of its export.
    fn bound(&mut self) {
        for kind in [
            condition_type::API_EXPORT_VALID,
            condition_type::INITIAL_BINDING_COMPLETED,
            condition_type::BINDING_UP_TO_DATE,
        ] {
            set_condition(&mut self.conditions, Condition::met(kind), self.now);
        }
        self.binding["status"]["phase"] = "Bound".into();
    }

    fn invalid_schema(&mut self, export: &PublishedExport, schema: &PublishedSchema, reason: &str) {
        let message = format!("APIResourceSchema {}|{} is invalid: {reason}", export.cluster, schema.name);
        self.not_bound("APIResourceSchemaInvalid", &message);
    }

    fn invalid_export(&mut self, severity: Severity, reason: &str, message: String) {
        let invalid = Condition::unmet(condition_type::API_EXPORT_VALID, severity, reason, message);
        set_condition(&mut self.conditions, invalid, self.now);
    }

    /// Marks the binding as outdated, and as incomplete if it has never been complete.
    fn not_bound(&mut self, reason: &str, message: &str) {
        let unmet = |kind| Condition::unmet(kind, Severity::Error, reason, message);
        set_condition(&mut self.conditions, unmet(condition_type::BINDING_UP_TO_DATE), self.now);
        if !is_condition_true(&self.conditions, condition_type::INITIAL_BINDING_COMPLETED) {
            set_condition(&mut self.conditions, unmet(condition_type::INITIAL_BINDING_COMPLETED), self.now);
        }
    }
}

/// The other owner of a resource, as kcp prints a lock: the name of a binding, and whether a CRD owns the resource.
fn lock_holder(schema: &PublishedSchema, name: &str, context: &BindContext<'_>) -> Option<String> {
    let resource = schema.lock_name();
    let is_defined = context.holders.iter().any(|holder| {
        matches!(&holder.owner, NameOwner::Definition { name, is_established: true } if *name == resource)
    });
    if is_defined {
        return Some(" true".to_owned());
    }
    let holder = context.locks.0.get(&resource)?.binding.as_deref()?;
    let exists = context.others.iter().any(|other| name_of(other) == Some(holder));
    (holder != name && exists).then(|| format!("{holder} false"))
}

/// The first conflict of a schema's names with those of CRDs and other bindings.
fn naming_conflict(schema: &PublishedSchema, holders: &[NameHolder]) -> Option<String> {
    holders.iter().filter(|holder| *holder.group == *schema.group).find_map(|holder| {
        let details = conflicting_name(&holder.names, &schema.names)?;
        Some(match &holder.owner {
            NameOwner::Binding { name, export_path, export } if export_path.is_empty() => {
                format!("naming conflict with APIBinding {name:?} bound to local APIExport {export:?}: {details}")
            }
            NameOwner::Binding { name, export_path, export } => {
                format!("naming conflict with APIBinding {name:?} bound to APIExport {export_path}:{export}: {details}")
            }
            NameOwner::Definition { name, .. } => {
                format!("naming conflict with CustomResourceDefinition {name:?}: {details}")
            }
        })
    })
}

fn conflicting_name(taken: &CrdNames, wanted: &CrdNames) -> Option<String> {
    let is_taken = |name: &str| {
        let shorts = taken.short_names.iter();
        !name.is_empty()
            && [&taken.plural, &taken.singular].into_iter().chain(shorts).any(|used| used == name)
    };
    let is_taken_kind = |kind: &str| !kind.is_empty() && (taken.kind == kind || taken.list_kind == kind);
    let forbidden = |field: &str, value: &str| Some(format!("spec.names.{field}={value} is forbidden"));
    match wanted {
        _ if is_taken(&wanted.plural) => forbidden("plural", &wanted.plural),
        _ if is_taken(&wanted.singular) => forbidden("singular", &wanted.singular),
        _ if wanted.short_names.iter().any(|name| is_taken(name)) => {
            forbidden("shortNames", &format!("[{}]", wanted.short_names.join(" ")))
        }
        _ if is_taken_kind(&wanted.kind) => forbidden("kind", &wanted.kind),
        _ if is_taken_kind(&wanted.list_kind) => forbidden("listKind", &wanted.list_kind),
        _ => None,
    }
}
