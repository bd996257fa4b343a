//! Conditions in the style of Cluster API: a plain list with a severity, `Ready` first.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::keys::condition_type::READY;

/// One observation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// What the observation is about.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// How bad it is; only when `status` is false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub severity: Option<Severity>,
    /// RFC 3339 in whole seconds, UTC.
    pub last_transition_time: String,
    /// Cause in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Details.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not.
    False,
    /// Nobody knows.
    #[default]
    Unknown,
}

/// How bad a false condition is, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Severity {
    /// Somebody has to act.
    Error,
    /// Works, but not as it should.
    Warning,
    /// Just takes time.
    Info,
}

impl Condition {
    /// A condition that holds.
    pub fn met(kind: &str) -> Self {
        Self { kind: kind.to_owned(), status: ConditionStatus::True, ..Self::default() }
    }

    /// A condition that does not hold, and why.
    pub fn unmet(kind: &str, severity: Severity, reason: &str, message: impl Into<String>) -> Self {
        Self {
            kind: kind.to_owned(),
            status: ConditionStatus::False,
            severity: Some(severity),
            reason: Some(reason.to_owned()),
            message: Some(message.into()).filter(|text| !text.is_empty()),
            ..Self::default()
        }
    }

    fn says_the_same(&self, other: &Self) -> bool {
        self.status == other.status
            && self.severity == other.severity
            && self.reason == other.reason
            && self.message == other.message
    }
}

/// Puts `condition` into the list and says whether anything changed. The time is kept where status, severity,
/// reason and message are the same; otherwise it becomes `now`. The list ends up with `Ready` first and the rest
/// sorted by type.
pub fn set_condition(conditions: &mut Vec<Condition>, condition: Condition, now: Timestamp) -> bool {
    let stamped = Condition { last_transition_time: format_time(now), ..condition };
    match conditions.iter_mut().find(|present| present.kind == stamped.kind) {
        Some(present) if present.says_the_same(&stamped) => return false,
        Some(present) => *present = stamped,
        None => conditions.push(stamped),
    }
    conditions.sort_by(|a, b| (a.kind != READY, &a.kind).cmp(&(b.kind != READY, &b.kind)));
    true
}

/// Derives `Ready` from the conditions of the given types: the worst of them decides (false before true before
/// unknown, errors before warnings before information; among equals the one named first). Without any of them
/// nothing is set.
pub fn set_summary(conditions: &mut Vec<Condition>, of: &[&str], now: Timestamp) -> bool {
    let rank = |condition: &Condition| match (condition.status, condition.severity) {
        (ConditionStatus::False, severity) => severity.unwrap_or(Severity::Error) as u8,
        (ConditionStatus::True, _) => 3,
        (ConditionStatus::Unknown, _) => 4,
    };
    let Some(worst) =
        of.iter().filter_map(|kind| find_condition(conditions, kind)).min_by_key(|condition| rank(condition))
    else {
        return false;
    };
    let summary = Condition { kind: READY.to_owned(), ..worst.clone() };
    set_condition(conditions, summary, now)
}

/// The condition of that type.
pub fn find_condition<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.kind == kind)
}

/// Whether the condition of that type is there and true.
pub fn is_condition_true(conditions: &[Condition], kind: &str) -> bool {
    find_condition(conditions, kind).is_some_and(|condition| condition.status == ConditionStatus::True)
}

/// `status.conditions` of an object; entries that are not conditions are left out.
pub fn conditions_of(object: &Value) -> Vec<Condition> {
    object["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|condition| Condition::deserialize(condition).ok())
        .collect()
}

/// Replaces `status.conditions` of an object; no conditions, no field.
pub fn write_conditions(object: &mut Value, conditions: &[Condition]) {
    let Value::Object(object) = object else { return };
    let status = object.entry("status").or_insert_with(|| Value::Object(serde_json::Map::new()));
    let Value::Object(status) = status else { return };
    if conditions.is_empty() {
        status.remove("conditions");
    } else if let Ok(list) = serde_json::to_value(conditions) {
        status.insert("conditions".to_owned(), list);
    }
}

/// As Kubernetes writes times: RFC 3339, whole seconds, UTC.
pub fn format_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn ready_comes_first_and_the_rest_is_sorted() {
        let mut conditions = Vec::new();
        for kind in ["WorkspaceScheduled", "Ready", "APIExportValid"] {
            assert!(set_condition(&mut conditions, Condition::met(kind), at(0)));
        }
        let kinds: Vec<&str> = conditions.iter().map(|condition| condition.kind.as_str()).collect();
        assert_eq!(kinds, ["Ready", "APIExportValid", "WorkspaceScheduled"]);
    }

    #[test]
    fn the_time_moves_only_with_the_content() {
        let mut conditions = Vec::new();
        let waiting = |message: &str| Condition::unmet("Ready", Severity::Info, "Waiting", message);
        set_condition(&mut conditions, waiting("for a"), at(1));
        assert!(!set_condition(&mut conditions, waiting("for a"), at(2)));
        assert_eq!(conditions[0].last_transition_time, "1970-01-01T00:00:01Z");
        assert!(set_condition(&mut conditions, waiting("for b"), at(3)));
        assert_eq!(conditions[0].last_transition_time, "1970-01-01T00:00:03Z");
    }

    #[test]
    fn the_summary_is_the_worst_of_its_parts() {
        let info = || Condition::unmet("B", Severity::Info, "Slow", "takes time");
        let error = || Condition::unmet("C", Severity::Error, "Broken", "is broken");
        type Summary = Option<(ConditionStatus, Option<&'static str>)>;
        let cases: Vec<(Vec<Condition>, Summary)> = vec![
            (vec![], None),
            (vec![Condition::met("X")], None),
            (vec![Condition::met("A")], Some((ConditionStatus::True, None))),
            (vec![Condition::met("A"), info()], Some((ConditionStatus::False, Some("Slow")))),
            (vec![Condition::met("A"), info(), error()], Some((ConditionStatus::False, Some("Broken")))),
        ];
        for (mut conditions, expected) in cases {
            set_summary(&mut conditions, &["A", "B", "C"], at(0));
            let ready = find_condition(&conditions, "Ready")
                .map(|condition| (condition.status, condition.reason.as_deref()));
            assert_eq!(ready, expected, "{conditions:?}");
        }
    }

    #[test]
    fn conditions_travel_through_json_as_kcp_writes_them() {
        let list = json!([
            {"type": "Ready", "status": "False", "severity": "Info", "reason": "R", "message": "m",
             "lastTransitionTime": "2026-11-21T13:11:04Z"},
            {"type": "A", "status": "True", "lastTransitionTime": "2026-11-21T13:11:04Z"},
        ]);
        let mut object = json!({"status": {"phase": "Ready", "conditions": list}});
        let conditions = conditions_of(&object);
        assert!(is_condition_true(&conditions, "A"));
        assert!(!is_condition_true(&conditions, "Ready"));
        let before = object.clone();
        write_conditions(&mut object, &conditions);
        assert_eq!(object, before);
        write_conditions(&mut object, &[]);
        assert_eq!(object, json!({"status": {"phase": "Ready"}}));
    }
}
