//! The variables of admission: policies, and match conditions of policies and webhooks.

use std::sync::Arc;

use crate::check::Variable;
use crate::environment::Environment;
use crate::library::AuthorizerValue;
use crate::types::{DeclType, FieldType, ListKind, TextFormat};

/// The variables that not all expressions of admission have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdmissionVariables {
    /// `params`: a policy with `paramKind`.
    pub params: bool,
    /// `authorizer` and `authorizer.requestResource`.
    pub authorizer: bool,
    /// `Object{…}`, `JSONPatch{…}` and `jsonpatch.escapeKey`: mutations.
    pub patch_types: bool,
}

impl Environment {
    /// Declares the variables of admission: `object` and `oldObject` of any type (`null` if absent), `request`,
    /// `namespaceObject`, and those of `variables`.
    ///
    /// `request` is an `AdmissionRequest` without `uid`, `object` and `oldObject`. Named expressions
    /// ([`with_named_expression`](Self::with_named_expression)) are added after it.
    #[must_use]
    pub fn with_admission_variables(self, variables: AdmissionVariables) -> Self {
        let any = || Variable::Json(Arc::new(DeclType::any()));
        let mut environment = self
            .with_variable("object", any())
            .with_variable("oldObject", any())
            .with_variable("namespaceObject", Variable::Json(Arc::new(namespace().nullable())))
            .with_variable("request", Variable::Json(Arc::new(request())));
        if variables.params {
            environment = environment.with_variable("params", any());
        }
        if variables.authorizer {
            environment = environment
                .with_variable("authorizer", Variable::Typed(AuthorizerValue::declared_type()))
                .with_variable(
                    "authorizer.requestResource",
                    Variable::Typed(AuthorizerValue::declared_resource_type()),
                );
        }
        if variables.patch_types { environment.with_patch_types() } else { environment }
    }
}

/// `UserInfo` of `authentication.k8s.io`.
pub(crate) fn user_info() -> DeclType {
    object(
        "kubernetes.UserInfo",
        &[],
        [("username", text()), ("uid", text()), ("groups", list(text())), ("extra", map(list(text())))],
    )
}

fn text() -> DeclType {
    DeclType::text(TextFormat::Plain, None, &[])
}

fn time() -> DeclType {
    DeclType::text(TextFormat::DateTime, None, &[])
}

fn list(items: DeclType) -> DeclType {
    DeclType::list(items, ListKind::Atomic, None)
}

fn map(values: DeclType) -> DeclType {
    DeclType::map(values, None)
}

/// An object with fields, of which `required` are always present.
fn object<const N: usize>(name: &str, required: &[&str], fields: [(&str, DeclType); N]) -> DeclType {
    let fields = fields.map(|(field, type_)| (field.to_owned(), FieldType::Declared(Arc::new(type_))));
    DeclType::native_object(name, fields.into(), required)
}

fn request() -> DeclType {
    let kind = || {
        let fields = [("group", text()), ("version", text()), ("kind", text())];
        object("kubernetes.GroupVersionKind", &["group", "version", "kind"], fields)
    };
    let resource = || {
        let fields = [("group", text()), ("version", text()), ("resource", text())];
        object("kubernetes.GroupVersionResource", &["group", "version", "resource"], fields)
    };
    let user = user_info();
    object(
        "kubernetes.AdmissionRequest",
        &["kind", "resource", "requestKind", "requestResource", "name", "operation", "userInfo"],
        [
            ("kind", kind()),
            ("resource", resource()),
            ("subResource", text()),
            ("requestKind", kind()),
            ("requestResource", resource()),
            ("requestSubResource", text()),
            ("name", text()),
            ("namespace", text()),
            ("operation", text()),
            ("userInfo", user),
            ("dryRun", DeclType::bool()),
            ("options", DeclType::any()),
        ],
    )
}

fn namespace() -> DeclType {
    let metadata = object(
        "kubernetes.NamespaceMetadata",
        &[],
        [
            ("name", text()),
            ("generateName", text()),
            ("namespace", text()),
            ("labels", map(text())),
            ("annotations", map(text())),
            ("UID", text()),
            ("creationTimestamp", time()),
            ("deletionGracePeriodSeconds", DeclType::int()),
            ("deletionTimestamp", time()),
            ("generation", DeclType::int()),
            ("resourceVersion", text()),
            ("finalizers", list(text())),
        ],
    );
    let condition = object(
        "kubernetes.NamespaceCondition",
        &[],
        [
            ("status", text()),
            ("type", text()),
            ("lastTransitionTime", time()),
            ("message", text()),
            ("reason", text()),
        ],
    );
    let spec = object("kubernetes.NamespaceSpec", &[], [("finalizers", list(text()))]);
    let status =
        object("kubernetes.NamespaceStatus", &[], [("conditions", list(condition)), ("phase", text())]);
    object("kubernetes.Namespace", &[], [("metadata", metadata), ("spec", spec), ("status", status)])
}
