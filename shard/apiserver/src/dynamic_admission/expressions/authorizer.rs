//! The variable `authorizer`: decides about actions of the user who writes.

use std::fmt;
use std::sync::Arc;

use fairlead_authn::UserInfo;
use fairlead_cel::{Authorizer, AuthorizerValue, Decision, ResourceAttributes};

use crate::dynamic_admission::host::AdmissionHost;
use crate::host::Action;
use crate::registry::AdmissionRequest;
use crate::scope::Scope;

/// Decides about actions of the user of one write, in the written scope.
pub(super) struct RequestAuthorizer {
    host: Arc<dyn AdmissionHost>,
    scope: Scope,
    user: UserInfo,
}

impl fmt::Debug for RequestAuthorizer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "RequestAuthorizer({}, {})", self.scope, self.user.name)
    }
}

impl RequestAuthorizer {
    /// The values of `authorizer` and `authorizer.requestResource`.
    pub(super) fn values(
        host: &Arc<dyn AdmissionHost>,
        write: &AdmissionRequest<'_>,
    ) -> [AuthorizerValue; 2] {
        let authorizer: Arc<dyn Authorizer> =
            Arc::new(Self { host: Arc::clone(host), scope: write.scope.clone(), user: write.user.clone() });
        let name = &write.resource.name;
        let attributes = ResourceAttributes {
            group: (*name.group).into(),
            resource: (*name.resource).into(),
            subresource: write.subresource.unwrap_or_default().into(),
            namespace: write.namespace.unwrap_or_default().into(),
            name: write.name.into(),
            ..ResourceAttributes::default()
        };
        [AuthorizerValue::new(Arc::clone(&authorizer)), AuthorizerValue::for_resource(authorizer, attributes)]
    }

    fn decide(&self, service_account: Option<(&str, &str)>, action: &Action<'_>) -> Decision {
        let is_allowed = match service_account {
            None => self.host.is_allowed(&self.scope, &self.user, action),
            Some((namespace, name)) => {
                let account = self.host.service_account(&self.scope, namespace, name);
                self.host.is_allowed(&self.scope, &account, action)
            }
        };
        Decision { is_allowed, ..Decision::default() }
    }
}

impl Authorizer for RequestAuthorizer {
    /// Roles do not restrict by selectors, so a decision does not depend on them.
    fn authorize_resource(
        &self,
        service_account: Option<(&str, &str)>,
        attributes: &ResourceAttributes,
        verb: &str,
    ) -> Decision {
        let given = |text: &'_ str| (!text.is_empty()).then(|| text.to_owned());
        let (subresource, namespace, name) =
            (given(&attributes.subresource), given(&attributes.namespace), given(&attributes.name));
        let action = Action::Resource {
            verb,
            group: &attributes.group,
            version: "*",
            resource: &attributes.resource,
            subresource: subresource.as_deref(),
            namespace: namespace.as_deref(),
            name: name.as_deref(),
        };
        self.decide(service_account, &action)
    }

    fn authorize_path(&self, service_account: Option<(&str, &str)>, path: &str, verb: &str) -> Decision {
        self.decide(service_account, &Action::NonResource { verb, path })
    }
}
