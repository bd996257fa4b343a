//! The values of the variables of expressions, for one write.

use std::sync::Arc;

use fairlead_cel::{AuthorizerValue, Environment, Extension, Inputs, Value as CelValue};
use serde_json::Value;

use super::authorizer::RequestAuthorizer;
use crate::dynamic_admission::host::AdmissionHost;
use crate::registry::AdmissionRequest;

/// The variables of one write, in the version in which it is reviewed. Objects are read in place.
#[derive(Debug)]
pub(in crate::dynamic_admission) struct RequestVariables {
    request: Value,
    object: Value,
    old: Value,
    /// `null` for cluster-scoped objects, and in match conditions.
    namespace: Value,
    authorizer: [AuthorizerValue; 2],
}

impl RequestVariables {
    /// `request` is an AdmissionRequest; `object` and `old` are the reviewed objects.
    pub(in crate::dynamic_admission) fn new(
        host: &Arc<dyn AdmissionHost>,
        write: &AdmissionRequest<'_>,
        request: Value,
        object: Option<Value>,
        old: Option<Value>,
    ) -> Self {
        Self {
            request,
            object: object.unwrap_or_default(),
            old: old.unwrap_or_default(),
            namespace: Value::Null,
            authorizer: RequestAuthorizer::values(host, write),
        }
    }

    pub(in crate::dynamic_admission) fn with_namespace(mut self, namespace: Option<Value>) -> Self {
        self.namespace = namespace.unwrap_or_default();
        self
    }

    /// The object that is reviewed.
    pub(in crate::dynamic_admission) fn object(&self) -> &Value {
        &self.object
    }

    /// Replaces the object after a mutation.
    pub(in crate::dynamic_admission) fn set_object(&mut self, object: Value) {
        self.object = object;
    }

    /// The inputs of expressions of an environment. `namespace` is not set in match conditions.
    pub(in crate::dynamic_admission) fn inputs<'a>(
        &'a self,
        environment: &'a Environment,
        params: &'a Value,
    ) -> Inputs<'a> {
        self.condition_inputs(environment, params).with_json("namespaceObject", &self.namespace)
    }

    /// The inputs of match conditions, which do not see the namespace.
    pub(in crate::dynamic_admission) fn condition_inputs<'a>(
        &'a self,
        environment: &'a Environment,
        params: &'a Value,
    ) -> Inputs<'a> {
        let [authorizer, requested] =
            self.authorizer.clone().map(|value| CelValue::Extension(Extension::Authorizer(value)));
        Inputs::new(environment)
            .with_json("request", &self.request)
            .with_json("object", &self.object)
            .with_json("oldObject", &self.old)
            .with_json("namespaceObject", &Value::Null)
            .with_json("params", params)
            .with_value("authorizer", authorizer)
            .with_value("authorizer.requestResource", requested)
    }
}
