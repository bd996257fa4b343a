//! The audit policy: the file that decides which requests are recorded, and how much of them.
//!
//! The format is `audit.k8s.io/v1`, `Policy`. The file is read strictly: an unknown field or value is an error with its line.

use std::path::{Path, PathBuf};

use fairlead_authn::UserInfo;
use serde::Deserialize;

use super::event::{Level, Stage};
use crate::host::Action;

/// The rules of a policy file, in their order.
#[derive(Debug)]
pub struct Policy {
    rules: Vec<Rule>,
    omit_stages: Vec<Stage>,
    omit_managed_fields: bool,
}

/// The treatment of one request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Treatment {
    pub(super) level: Level,
    pub(super) omit_stages: Vec<Stage>,
    pub(super) omit_managed_fields: bool,
}

impl Policy {
    /// Reads a policy file.
    ///
    /// # Errors
    /// [`PolicyError`] with file and line.
    pub fn load(file: &Path) -> Result<Self, PolicyError> {
        let text = std::fs::read_to_string(file)
            .map_err(|source| PolicyError::Read { file: file.to_path_buf(), source })?;
        Self::parse(&text, file)
    }

    /// Parses the text of a policy file.
    ///
    /// # Errors
    /// [`PolicyError`] with file and line.
    pub fn parse(text: &str, file: &Path) -> Result<Self, PolicyError> {
        let wire: WirePolicy = serde_saphyr::from_str(text).map_err(|error| PolicyError::Malformed {
            file: file.to_path_buf(),
            line: error.location().map_or(1, |location| location.line()),
            reason: error.without_snippet().to_string(),
        })?;
        if wire.rules.is_empty() {
            let reason = "loaded illegal policy with 0 rules".to_owned();
            return Err(PolicyError::Malformed { file: file.to_path_buf(), line: 1, reason });
        }
        Ok(Self {
            rules: wire.rules,
            omit_stages: wire.omit_stages,
            omit_managed_fields: wire.omit_managed_fields,
        })
    }

    /// The treatment by the first rule that matches; without one, a request is not recorded. Costs a comparison of each rule's fields.
    pub(super) fn evaluate(&self, user: Option<&UserInfo>, action: &Action<'_>) -> Treatment {
        let Some(rule) = self.rules.iter().find(|rule| rule.matches(user, action)) else {
            return Treatment {
                level: Level::None,
                omit_stages: Vec::new(),
                omit_managed_fields: self.omit_managed_fields,
            };
        };
        let mut omit_stages = self.omit_stages.clone();
        omit_stages.extend(&rule.omit_stages);
        Treatment {
            level: rule.level,
            omit_stages,
            omit_managed_fields: rule.omit_managed_fields.unwrap_or(self.omit_managed_fields),
        }
    }
}

/// An invalid policy file; the operator has to fix it.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The file cannot be read.
    #[error("the audit policy {} cannot be read", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The file is no policy.
    #[error("{}:{line}: {reason}", file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// The line of the fault.
        line: u64,
        /// The fault.
        reason: String,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WirePolicy {
    #[serde(rename = "apiVersion")]
    _api_version: ApiVersion,
    #[serde(rename = "kind")]
    _kind: PolicyKind,
    /// Standard metadata; it has no meaning here.
    #[serde(rename = "metadata", default)]
    _metadata: serde::de::IgnoredAny,
    #[serde(default)]
    rules: Vec<Rule>,
    #[serde(default)]
    omit_stages: Vec<Stage>,
    #[serde(default)]
    omit_managed_fields: bool,
}

#[derive(Deserialize)]
enum ApiVersion {
    #[serde(rename = "audit.k8s.io/v1")]
    V1,
}

#[derive(Deserialize)]
enum PolicyKind {
    Policy,
}

/// A rule. Empty lists match everything.
#[derive(Debug, Deserialize)]
#[serde(try_from = "WireRule")]
struct Rule {
    level: Level,
    users: Vec<String>,
    user_groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    non_resource_urls: Vec<UrlPattern>,
    omit_stages: Vec<Stage>,
    omit_managed_fields: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WireRule {
    level: Level,
    #[serde(default)]
    users: Vec<String>,
    #[serde(default)]
    user_groups: Vec<String>,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    resources: Vec<GroupResources>,
    #[serde(default)]
    namespaces: Vec<String>,
    #[serde(default, rename = "nonResourceURLs")]
    non_resource_urls: Vec<UrlPattern>,
    #[serde(default)]
    omit_stages: Vec<Stage>,
    #[serde(default)]
    omit_managed_fields: Option<bool>,
}

impl TryFrom<WireRule> for Rule {
    type Error = &'static str;

    fn try_from(wire: WireRule) -> Result<Self, Self::Error> {
        let is_for_resources = !(wire.resources.is_empty() && wire.namespaces.is_empty());
        if is_for_resources && !wire.non_resource_urls.is_empty() {
            return Err(
                "nonResourceURLs: rules cannot apply to both regular resources and non-resource URLs",
            );
        }
        if wire.resources.iter().any(|own| !own.resource_names.is_empty() && own.resources.is_empty()) {
            return Err("resourceNames: using resourceNames requires at least one resource");
        }
        Ok(Self {
            level: wire.level,
            users: wire.users,
            user_groups: wire.user_groups,
            verbs: wire.verbs,
            resources: wire.resources,
            namespaces: wire.namespaces,
            non_resource_urls: wire.non_resource_urls,
            omit_stages: wire.omit_stages,
            omit_managed_fields: wire.omit_managed_fields,
        })
    }
}

impl Rule {
    fn matches(&self, user: Option<&UserInfo>, action: &Action<'_>) -> bool {
        let is_user = |user: &UserInfo| self.users.contains(&user.name);
        let is_member = |user: &UserInfo| user.groups.iter().any(|group| self.user_groups.contains(group));
        if !(self.users.is_empty() || user.is_some_and(is_user))
            || !(self.user_groups.is_empty() || user.is_some_and(is_member))
        {
            return false;
        }
        let (Action::Resource { verb, .. } | Action::NonResource { verb, .. }) = *action;
        if !(self.verbs.is_empty() || self.verbs.iter().any(|own| own == verb)) {
            return false;
        }
        let is_for_resources = !(self.namespaces.is_empty() && self.resources.is_empty());
        match *action {
            Action::Resource { namespace, .. } => {
                self.non_resource_urls.is_empty()
                    // Resources without a namespace have the empty one.
                    && (self.namespaces.is_empty()
                        || self.namespaces.iter().any(|own| own == namespace.unwrap_or_default()))
                    && (self.resources.is_empty() || self.resources.iter().any(|own| own.matches(action)))
            }
            Action::NonResource { path, .. } => {
                !is_for_resources
                    && (self.non_resource_urls.is_empty()
                        || self.non_resource_urls.iter().any(|pattern| pattern.matches(path)))
            }
        }
    }
}

/// Resources of one group, with subresources `resource/subresource`, `*/subresource` and `resource/*`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GroupResources {
    #[serde(default)]
    group: GroupName,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
}

impl GroupResources {
    fn matches(&self, action: &Action<'_>) -> bool {
        let Action::Resource { group, resource, subresource, name, .. } = *action else { return false };
        if self.group.0 != "*" && self.group.0 != group {
            return false;
        }
        let has_name = self.resource_names.is_empty()
            || self.resource_names.iter().any(|own| own == name.unwrap_or_default());
        let names = |pattern: &String| {
            let (own, own_subresource) =
                pattern.split_once('/').map_or((&**pattern, None), |(own, sub)| (own, Some(sub)));
            match (own, own_subresource) {
                ("*", None) => true,
                ("*", Some(own)) => subresource == Some(own),
                (own, Some("*")) => own == resource,
                (own, own_subresource) => own == resource && own_subresource == subresource,
            }
        };
        self.resources.is_empty() || (has_name && self.resources.iter().any(names))
    }
}

/// An API group without a version, or `*` for all of them.
#[derive(Debug, Default, Deserialize)]
#[serde(try_from = "String")]
struct GroupName(String);

impl TryFrom<String> for GroupName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let is_label = |label: &str| {
            !label.is_empty()
                && label
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        if text.is_empty() || text == "*" || text.split('.').all(is_label) {
            return Ok(Self(text));
        }
        Err(format!(
            "group: Invalid value: {text:?}: a group is a lower-case DNS subdomain without a version"
        ))
    }
}

/// A path, or its beginning followed by `*`.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
struct UrlPattern(String);

impl TryFrom<String> for UrlPattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        if text != "*" && !text.starts_with('/') {
            return Err(format!(
                "nonResourceURLs: Invalid value: {text:?}: non-resource URL rules must begin with a '/' character"
            ));
        }
        if text.find('*').is_some_and(|at| at + 1 < text.len()) {
            return Err(format!(
                "nonResourceURLs: Invalid value: {text:?}: non-resource URL wildcards '*' must be the final character of \
                 the rule"
            ));
        }
        Ok(Self(text))
    }
}

impl UrlPattern {
    fn matches(&self, path: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(beginning) => path.starts_with(beginning),
            None => self.0 == path,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(rules: &str) -> Policy {
        let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n{rules}");
        Policy::parse(&text, Path::new("policy.yaml")).unwrap()
    }

    fn resource<'a>(
        verb: &'a str,
        path: &'a str,
        namespace: Option<&'a str>,
        name: Option<&'a str>,
    ) -> Action<'a> {
        let (group, resource) = path.split_once(':').unwrap_or(("", path));
        let (resource, subresource) =
            resource.split_once('/').map_or((resource, None), |(resource, sub)| (resource, Some(sub)));
        Action::Resource { verb, group, version: "v1", resource, subresource, namespace, name }
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let policy = policy(
            "- {level: None, users: [system:robot]}\n\
             - {level: RequestResponse, userGroups: [admins], verbs: [delete]}\n\
             - {level: Metadata, resources: [{group: '', resources: [secrets, configmaps, serviceaccounts/token]}]}\n\
             - {level: Request, resources: [{group: apps, resources: ['*/scale', 'deployments/*']}]}\n\
             - {level: Request, namespaces: [kube-system]}\n\
             - {level: Metadata, resources: [{group: x, resources: [boats], resourceNames: [argo]}]}\n\
             - {level: Metadata, resources: [{group: y}]}\n\
             - {level: Metadata, namespaces: ['']}\n\
             - {level: Request, resources: [{group: '*', resources: [leases]}]}\n\
             - {level: Request, nonResourceURLs: ['/healthz*', /version]}\n",
        );
        let alice = UserInfo { name: "alice".into(), groups: vec!["admins".into()], ..UserInfo::default() };
        let bob = UserInfo { name: "bob".into(), ..UserInfo::default() };
        let robot =
            UserInfo { name: "system:robot".into(), groups: vec!["admins".into()], ..UserInfo::default() };
        let url = |path| Action::NonResource { verb: "get", path };
        for (user, action, level) in [
            (Some(&robot), resource("delete", "pods", Some("n"), Some("a")), Level::None),
            (Some(&alice), resource("delete", "pods", Some("n"), Some("a")), Level::RequestResponse),
            (Some(&bob), resource("delete", "pods", Some("n"), Some("a")), Level::None),
            (None, resource("delete", "pods", Some("n"), Some("a")), Level::None),
            (Some(&bob), resource("get", "secrets", Some("n"), Some("a")), Level::Metadata),
            (Some(&bob), resource("get", "secrets/status", Some("n"), Some("a")), Level::None),
            (Some(&bob), resource("create", "serviceaccounts/token", Some("n"), Some("a")), Level::Metadata),
            (Some(&bob), resource("create", "serviceaccounts", Some("n"), Some("a")), Level::None),
            (Some(&bob), resource("update", "apps:statefulsets/scale", Some("n"), None), Level::Request),
            (Some(&bob), resource("update", "apps:statefulsets", Some("n"), None), Level::None),
            (Some(&bob), resource("update", "apps:deployments", Some("n"), None), Level::Request),
            (Some(&bob), resource("update", "apps:deployments/status", Some("n"), None), Level::Request),
            (Some(&bob), resource("list", "pods", Some("kube-system"), None), Level::Request),
            (Some(&bob), resource("get", "x:boats", Some("n"), Some("argo")), Level::Metadata),
            (Some(&bob), resource("get", "x:boats", Some("n"), Some("other")), Level::None),
            (Some(&bob), resource("get", "y:anything/status", Some("n"), Some("other")), Level::Metadata),
            (Some(&bob), resource("list", "z:clusterwide", None, None), Level::Metadata),
            (Some(&bob), resource("get", "any.io:leases", Some("n"), None), Level::Request),
            (Some(&bob), url("/healthz/ping"), Level::Request),
            (Some(&bob), url("/version"), Level::Request),
            (Some(&bob), url("/version/x"), Level::None),
        ] {
            assert_eq!(policy.evaluate(user, &action).level, level, "{action:?}");
        }
    }

    #[test]
    fn stages_add_up_and_rules_override_managed_fields() {
        let policy = Policy::parse(
            "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nomitManagedFields: true\n\
             rules:\n- level: Request\n  omitManagedFields: false\n  omitStages: [Panic]\n  verbs: [get]\n\
             - level: Metadata\n",
            Path::new("p"),
        )
        .unwrap();
        let got = policy.evaluate(None, &resource("get", "pods", None, None));
        assert_eq!(got.omit_stages, [Stage::RequestReceived, Stage::Panic]);
        assert!(!got.omit_managed_fields);
        let other = policy.evaluate(None, &resource("list", "pods", None, None));
        assert_eq!((other.level, other.omit_managed_fields), (Level::Metadata, true));
    }

    #[test]
    fn faults_are_reported_with_file_and_line() {
        let head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n";
        for (text, line, part) in [
            ("kind: Policy\nrules: [{level: None}]\n".to_owned(), 2, "apiVersion"),
            ("apiVersion: audit.k8s.io/v1beta1\nkind: Policy\n".to_owned(), 1, "audit.k8s.io/v1"),
            (head.to_owned(), 1, "0 rules"),
            (format!("{head}rules:\n- level: Everything\n"), 4, "Everything"),
            (format!("{head}rules:\n- level: None\n  verb: [get]\n"), 5, "verb"),
            (format!("{head}rules:\n- verbs: [get]\n"), 4, "level"),
            (
                format!("{head}rules:\n- level: None\n  nonResourceURLs:\n  - healthz\n"),
                6,
                "must begin with a '/'",
            ),
            (format!("{head}rules:\n- level: None\n  nonResourceURLs:\n  - /a*b\n"), 6, "final character"),
            (
                format!("{head}rules:\n- level: None\n  resources:\n  - group: apps/v1\n"),
                6,
                "without a version",
            ),
            (
                format!("{head}rules:\n- level: None\n  namespaces: [a]\n  nonResourceURLs: [/a]\n"),
                4,
                "both regular resources",
            ),
            (format!("{head}omitStages: [Never]\nrules:\n- level: None\n"), 3, "Never"),
        ] {
            let error = Policy::parse(&text, Path::new("policy.yaml")).unwrap_err().to_string();
            assert!(error.starts_with(&format!("policy.yaml:{line}: ")), "{text}: {error}");
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
