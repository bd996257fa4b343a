//! Names, labels, paths and URLs that kcp derives from other names.

use std::collections::BTreeMap;

use fairlead_names::{
    default_binding_suffix, export_hash, initializer_label, sha224_base62, terminator_label,
};
use serde_json::{Map, Value};

use crate::keys::label;
use crate::{ObjectMeta, PermissionClaim, UserInfo, claimed_group, keys::annotation};

/// The name of a default APIBinding in `cluster`: the export's name, truncated for a suffix of five characters.
pub fn default_binding_name(cluster: &str, export_path: &str, export: &str) -> String {
    let mut end = export.len().min(247);
    while !export.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}-{}", &export[..end], default_binding_suffix(cluster, export_path, export))
}

/// The labels of an APIBinding: the hash of its export, and the claim through which the export sees its own bindings.
pub fn binding_labels(export_cluster: &str, export: &str) -> BTreeMap<String, String> {
    let hash = export_hash(export_cluster, export);
    BTreeMap::from([
        (format!("{}{hash}", label::CLAIMED_PREFIX), label::REFLEXIVE_CLAIM.to_owned()),
        (label::EXPORT.to_owned(), hash),
    ])
}

/// Key and value of the label on objects that `export` may see because of `claim`. Verbs and selectors do not enter the value.
/// Claims on the events of both groups have one value, because they are the same objects.
pub fn claim_label(export_cluster: &str, export: &str, claim: &PermissionClaim) -> (String, String) {
    let mut parts = Vec::new();
    let group = claimed_group(&claim.group, &claim.resource);
    if !group.is_empty() {
        parts.push(format!(r#""group":{}"#, Value::from(group)));
    }
    parts.push(format!(r#""resource":{}"#, Value::from(claim.resource.as_str())));
    parts.push(r#""verbs":null"#.to_owned());
    if !claim.identity_hash.is_empty() {
        parts.push(format!(r#""identityHash":{}"#, Value::from(claim.identity_hash.as_str())));
    }
    (
        format!("{}{}", label::CLAIMED_PREFIX, export_hash(export_cluster, export)),
        sha224_base62(&format!("{{{}}}", parts.join(","))),
    )
}

/// The labels of a LogicalCluster in this state: the phase, and one label per pending initializer and terminator.
pub fn life_cycle_labels(
    phase: &str,
    initializers: &[String],
    terminators: &[String],
) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::from([(label::PHASE.to_owned(), phase.to_owned())]);
    labels.extend(initializers.iter().map(|name| initializer_label(name)));
    labels.extend(terminators.iter().map(|name| terminator_label(name)));
    labels
}

/// Whether a label key is one that [`life_cycle_labels`] manages.
pub fn is_life_cycle_label(key: &str) -> bool {
    key == label::PHASE
        || key.starts_with(label::INITIALIZER_PREFIX)
        || key.starts_with(label::TERMINATOR_PREFIX)
}

/// The canonical path of the workspace that holds an object: its path annotation, or its logical cluster if it has none.
pub fn canonical_path<'a>(metadata: &'a ObjectMeta, cluster: &'a str) -> &'a str {
    metadata.annotation(annotation::PATH).filter(|path| !path.is_empty()).unwrap_or(cluster)
}

/// The URL of a workspace or logical cluster below `base`.
pub fn workspace_url(base: &str, path: &str) -> String {
    format!("{}/clusters/{path}", base.trim_end_matches('/'))
}

/// The URL of a virtual workspace, for example `initializingworkspaces` of `root:universal` or `apiexport` of
/// `root/tenancy.kcp.io`.
pub fn virtual_workspace_url(base: &str, name: &str, subject: &str) -> String {
    format!("{}/services/{name}/{subject}", base.trim_end_matches('/'))
}

/// The JSON of the owner annotation: user name, UID, groups and extra. Empty fields are left out.
pub fn owner_annotation(user: &UserInfo) -> String {
    // The fields are written one by one, in the order of UserInfo as in kcp. A map would sort them alphabetically.
    let mut parts = Vec::new();
    if !user.username.is_empty() {
        parts.push(format!(r#""username":{}"#, Value::from(user.username.as_str())));
    }
    if !user.uid.is_empty() {
        parts.push(format!(r#""uid":{}"#, Value::from(user.uid.as_str())));
    }
    if !user.groups.is_empty() {
        parts.push(format!(r#""groups":{}"#, Value::from(user.groups.clone())));
    }
    if !user.extra.is_empty() {
        let extra: Map<String, Value> =
            user.extra.iter().map(|(key, values)| (key.clone(), Value::from(values.clone()))).collect();
        parts.push(format!(r#""extra":{}"#, Value::Object(extra)));
    }
    format!("{{{}}}", parts.join(","))
}

/// The owner annotation of a workspace that is ready: the user name only. `None` if `owner` is not JSON.
pub fn username_only_owner_annotation(owner: &str) -> Option<String> {
    let user: UserInfo = serde_json::from_str(owner).ok()?;
    Some(owner_annotation(&UserInfo { username: user.username, ..UserInfo::default() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_binding_names_equal_the_recorded_ones() {
        let cases = [
            ("root", "tenancy.kcp.io", "tenancy.kcp.io-by23s"),
            ("root", "topology.kcp.io", "topology.kcp.io-a0zte"),
            ("puoirgi47r0swyej", "tenancy.kcp.io", "tenancy.kcp.io-7pcuj"),
            ("puoirgi47r0swyej", "topology.kcp.io", "topology.kcp.io-3id8t"),
        ];
        for (cluster, export, expected) in cases {
            assert_eq!(default_binding_name(cluster, "root", export), expected);
        }
        assert_eq!(default_binding_name("root", "root", &"é".repeat(200)).len(), 246 + 6);
    }

    #[test]
    fn binding_labels_hold_the_export_hash_twice() {
        let labels = binding_labels("root", "tenancy.kcp.io");
        let expected = [
            (
                "claimed.internal.apis.kcp.io/bmCdly9xXiUpEHe3ypvDwvXMTfoVZUE92mqAQf",
                "LstvmbbzVDDOn90ZbhzSQO5U3DMCf88h1pZ",
            ),
            ("internal.apis.kcp.io/export", "bmCdly9xXiUpEHe3ypvDwvXMTfoVZUE92mqAQf"),
        ];
        let found: Vec<(&str, &str)> =
            labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn claim_labels_hash_group_resource_and_identity() {
        let configmaps = PermissionClaim {
            resource: "configmaps".to_owned(),
            verbs: vec!["*".to_owned()],
            ..PermissionClaim::default()
        };
        let deployments = PermissionClaim {
            group: "apps".to_owned(),
            resource: "deployments".to_owned(),
            identity_hash: "deadbeef".to_owned(),
            ..PermissionClaim::default()
        };
        let key = "claimed.internal.apis.kcp.io/phGj1BkmdNY3LKTrtFc1KGLYTBs8Nt50p8PIU".to_owned();
        for (claim, value) in [
            (configmaps, "3QVjs6pfBjMpLEVYYhysJnroYGsQGlWm05E4qe"),
            (deployments, "4CpOMiJ5JL9ZC4cG8ne7nGNQbSOEUiwZ89KHal"),
        ] {
            assert_eq!(claim_label("abcd1234", "my-export", &claim), (key.clone(), value.to_owned()));
        }
        let events = |group: &str| PermissionClaim {
            group: group.to_owned(),
            resource: "events".to_owned(),
            ..PermissionClaim::default()
        };
        assert_eq!(claim_label("a", "b", &events("events.k8s.io")), claim_label("a", "b", &events("")));
    }

    #[test]
    fn pending_initializers_and_terminators_are_labels() {
        let labels = life_cycle_labels("Initializing", &["pluto".to_owned()], &["pluto".to_owned()]);
        let value = "2eadcbf778956517ec99fd1c1c32a9b13cbae759770fc37c341c7fe8";
        assert_eq!(
            labels,
            BTreeMap::from([
                ("tenancy.kcp.io/phase".to_owned(), "Initializing".to_owned()),
                (
                    "initializer.internal.kcp.io/2eadcbf778956517ec99fd1c1c32a9b13cb".to_owned(),
                    value.to_owned()
                ),
                (
                    "terminator.internal.kcp.io/2eadcbf778956517ec99fd1c1c32a9b13cba".to_owned(),
                    value.to_owned()
                ),
            ])
        );
        assert!(labels.keys().all(|key| is_life_cycle_label(key)));
        assert!(!is_life_cycle_label("region"));
    }

    #[test]
    fn owner_annotations_have_the_field_order_of_user_info() {
        let user = UserInfo {
            username: "alice".to_owned(),
            uid: "1".to_owned(),
            groups: vec!["system:authenticated".to_owned()],
            extra: BTreeMap::from([("k".to_owned(), vec!["v".to_owned()])]),
        };
        let json = owner_annotation(&user);
        assert_eq!(
            json,
            r#"{"username":"alice","uid":"1","groups":["system:authenticated"],"extra":{"k":["v"]}}"#
        );
        assert_eq!(username_only_owner_annotation(&json).as_deref(), Some(r#"{"username":"alice"}"#));
        assert_eq!(username_only_owner_annotation("alice"), None);
    }

    #[test]
    fn urls_have_one_slash_between_their_parts() {
        assert_eq!(workspace_url("https://a:6443/", "root:b"), "https://a:6443/clusters/root:b");
        assert_eq!(
            virtual_workspace_url("https://a", "initializingworkspaces", "root:home"),
            "https://a/services/initializingworkspaces/root:home"
        );
    }
}
