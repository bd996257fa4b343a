//! `authorizer`: asks the caller whether a user may do something. The caller gives the answer through a trait; this
//! crate does not know how it is found.

use std::sync::Arc;

use crate::failure::Failure;
use crate::types::Type;

/// Decides about actions of the user whose request is evaluated.
pub trait Authorizer: std::fmt::Debug + Send + Sync {
    /// Decides about an action on a resource. `service_account` is the namespace and name of the account that acts
    /// instead of the user.
    fn authorize_resource(
        &self,
        service_account: Option<(&str, &str)>,
        attributes: &ResourceAttributes,
        verb: &str,
    ) -> Decision;

    /// Decides about a request for a path that is no resource.
    fn authorize_path(&self, service_account: Option<(&str, &str)>, path: &str, verb: &str) -> Decision;
}

/// The resource of an action.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of Kubernetes' authorization attributes")]
pub struct ResourceAttributes {
    pub group: Box<str>,
    pub resource: Box<str>,
    pub subresource: Box<str>,
    pub namespace: Box<str>,
    pub name: Box<str>,
    /// The text of the selector, which may be invalid.
    pub field_selector: Option<Box<str>>,
    /// The text of the selector, which may be invalid.
    pub label_selector: Option<Box<str>>,
}

impl ResourceAttributes {
    fn size(&self) -> usize {
        let Self { group, resource, subresource, namespace, name, field_selector, label_selector } = self;
        let texts = [group, resource, subresource, namespace, name].into_iter();
        texts.chain(field_selector).chain(label_selector).map(|text| text.len()).sum()
    }
}

/// The answer of an [`Authorizer`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether the action is allowed.
    pub is_allowed: bool,
    /// The reason.
    pub reason: Box<str>,
    /// The error that prevented an answer.
    pub error: Option<Box<str>>,
}

/// A value of the library: the authorizer, or a question or answer in the making.
#[derive(Clone, Debug)]
pub struct AuthorizerValue {
    authorizer: Arc<dyn Authorizer>,
    service_account: Option<Arc<(Box<str>, Box<str>)>>,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Authorizer,
    Path(Arc<str>),
    Group(Arc<str>),
    Resource(Arc<ResourceAttributes>),
    Decision(Arc<Decision>),
}

/// The result of a method.
pub(crate) enum Answer {
    Value(AuthorizerValue),
    Bool(bool),
    Text(Box<str>),
}

impl AuthorizerValue {
    /// The value of the variable `authorizer`.
    #[must_use]
    pub fn new(authorizer: Arc<dyn Authorizer>) -> Self {
        Self { authorizer, service_account: None, state: State::Authorizer }
    }

    /// The type of the variable `authorizer`.
    #[must_use]
    pub fn declared_type() -> Type {
        Type::Object("kubernetes.authorization.Authorizer".into())
    }

    /// The value of the variable `authorizer.requestResource`: the resource of the request.
    #[must_use]
    pub fn for_resource(authorizer: Arc<dyn Authorizer>, attributes: ResourceAttributes) -> Self {
        Self { authorizer, service_account: None, state: State::Resource(Arc::new(attributes)) }
    }

    /// The type of the variable `authorizer.requestResource`.
    #[must_use]
    pub fn declared_resource_type() -> Type {
        Type::Object("kubernetes.authorization.ResourceCheck".into())
    }

    pub(crate) fn type_name(&self) -> &'static str {
        match self.state {
            State::Authorizer => "kubernetes.authorization.Authorizer",
            State::Path(_) => "kubernetes.authorization.PathCheck",
            State::Group(_) => "kubernetes.authorization.GroupCheck",
            State::Resource(_) => "kubernetes.authorization.ResourceCheck",
            State::Decision(_) => "kubernetes.authorization.Decision",
        }
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.service_account == other.service_account
            && match (&self.state, &other.state) {
                (State::Authorizer, State::Authorizer) => true,
                (State::Path(a), State::Path(b)) | (State::Group(a), State::Group(b)) => a == b,
                (State::Resource(a), State::Resource(b)) => a == b,
                (State::Decision(a), State::Decision(b)) => a == b,
                _ => false,
            }
    }

    /// The bytes of its texts.
    pub(crate) fn size(&self) -> usize {
        match &self.state {
            State::Authorizer => 0,
            State::Path(text) | State::Group(text) => text.len(),
            State::Resource(attributes) => attributes.size(),
            State::Decision(decision) => {
                decision.reason.len() + decision.error.as_ref().map_or(0, |error| error.len())
            }
        }
    }

    fn with(&self, state: State) -> Answer {
        Answer::Value(Self { state, ..self.clone() })
    }

    /// Calls a method of the library.
    pub(crate) fn call(&self, method: &str, arguments: &[&str]) -> Result<Answer, Failure> {
        match (&self.state, method, arguments) {
            (State::Authorizer, "path", [""]) => Err(Failure::error("path must not be empty")),
            (State::Authorizer, "path", [path]) => Ok(self.with(State::Path((*path).into()))),
            (State::Authorizer, "group", [group]) => Ok(self.with(State::Group((*group).into()))),
            (State::Authorizer, "serviceAccount", [namespace, name]) => {
                if !super::NamedFormat::SUBDOMAIN.faults(name).is_empty() {
                    return Err(Failure::error("Invalid service account name"));
                }
                if !super::NamedFormat::LABEL.faults(namespace).is_empty() {
                    return Err(Failure::error("Invalid service account namespace"));
                }
                let account = Arc::new(((*namespace).into(), (*name).into()));
                let value = Self { service_account: Some(account), ..self.clone() };
                Ok(Answer::Value(value))
            }
            (State::Group(_), "resource", [""]) => Err(Failure::error("resource must not be empty")),
            (State::Group(group), "resource", [resource]) => {
                let attributes = ResourceAttributes {
                    group: (&**group).into(),
                    resource: (*resource).into(),
                    ..Default::default()
                };
                Ok(self.with(State::Resource(Arc::new(attributes))))
            }
            (State::Resource(attributes), "check", [verb]) => {
                let decision = self.authorizer.authorize_resource(self.account(), attributes, verb);
                Ok(self.with(State::Decision(Arc::new(decision))))
            }
            (State::Path(path), "check", [verb]) => {
                let decision = self.authorizer.authorize_path(self.account(), path, verb);
                Ok(self.with(State::Decision(Arc::new(decision))))
            }
            (State::Resource(attributes), _, [value]) => {
                let mut attributes = (**attributes).clone();
                let value: Box<str> = (*value).into();
                match method {
                    "subresource" => attributes.subresource = value,
                    "namespace" => attributes.namespace = value,
                    "name" => attributes.name = value,
                    "fieldSelector" => attributes.field_selector = Some(value),
                    "labelSelector" => attributes.label_selector = Some(value),
                    _ => return Err(Failure::no_such_overload()),
                }
                Ok(self.with(State::Resource(Arc::new(attributes))))
            }
            (State::Decision(decision), _, []) => match method {
                "allowed" => Ok(Answer::Bool(decision.is_allowed)),
                "reason" => Ok(Answer::Text(decision.reason.clone())),
                "errored" => Ok(Answer::Bool(decision.error.is_some())),
                "error" => Ok(Answer::Text(decision.error.clone().unwrap_or_default())),
                _ => Err(Failure::no_such_overload()),
            },
            _ => Err(Failure::no_such_overload()),
        }
    }

    fn account(&self) -> Option<(&str, &str)> {
        self.service_account.as_deref().map(|(namespace, name)| (&**namespace, &**name))
    }
}
