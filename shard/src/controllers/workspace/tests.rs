//! Tests of the pure steps: placements, phases and pauses.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use fairlead_api::{Condition, Phase, Severity, annotation, condition_type, finalizer, label, set_condition};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::deletion::mirror_deletion;
use super::phase::{ClusterPhase, MISSING_GRACE_PERIOD, apply_cluster_phase, read_pause};
use super::scheduling::{record_placement, retry_pause};
use super::{RECHECK_INTERVAL, recorded_placement};
use crate::controller_runtime::ReconcileOutcome;
use crate::placement::ShardInfo;

fn workspace(phase: &str) -> Value {
    json!({
        "metadata": {"name": "w", "creationTimestamp": "1970-01-01T00:00:00Z", "labels": {label::REGION: "old"}},
        "spec": {}, "status": {"phase": phase},
    })
}

fn known(phase: Phase, initializers: &[&str]) -> ClusterPhase {
    ClusterPhase::Known {
        phase: Some(phase),
        initializers: initializers.iter().map(|one| (*one).to_owned()).collect(),
        terminators: Vec::new(),
    }
}

#[test]
fn the_retry_pause_grows_with_the_waiting_time() {
    let now = Timestamp::from_second(1_000_000).unwrap();
    for (waited, pause) in [(0, 500), (1, 500), (8, 4_000), (100_000, 30_000)] {
        let mut conditions = Vec::new();
        let unmet = Condition::unmet(
            condition_type::WORKSPACE_SCHEDULED,
            Severity::Error,
            "Unschedulable",
            "no shard fits",
        );
        set_condition(&mut conditions, unmet, Timestamp::from_second(1_000_000 - waited).unwrap());
        assert_eq!(retry_pause(&conditions, now), Duration::from_millis(pause), "{waited}");
    }
    assert_eq!(retry_pause(&[], now), Duration::from_millis(500));
}

#[test]
fn the_state_of_an_old_logical_cluster_is_read_less_often() {
    for (age, pause) in [(0, 100), (1_000, 200), (10_000, 2_000), (600_000, 10_000)] {
        assert_eq!(read_pause(Duration::from_millis(age)), Duration::from_millis(pause), "{age}");
    }
}

#[test]
fn a_workspace_of_a_shard_that_is_not_watched_is_checked_rarely_when_it_is_ready() {
    let now = Timestamp::from_second(10).unwrap();
    for (phase, pause) in [
        ("Scheduling", RECHECK_INTERVAL),
        ("Initializing", RECHECK_INTERVAL),
        ("Unavailable", RECHECK_INTERVAL),
        ("Ready", MISSING_GRACE_PERIOD),
        ("Inactive", MISSING_GRACE_PERIOD),
    ] {
        let next = apply_cluster_phase(&mut workspace(phase), &ClusterPhase::NotSynced, now);
        assert_eq!(next, ReconcileOutcome::RequeueAfter(pause), "{phase}");
    }
}

#[test]
fn the_phase_follows_the_logical_cluster() {
    let soon = Timestamp::from_second(10).unwrap();
    let late = Timestamp::from_second(100).unwrap();
    for (before, state, now, after) in [
        ("Scheduling", known(Phase::Scheduling, &[]), soon, "Scheduling"),
        ("Scheduling", known(Phase::Initializing, &["a"]), soon, "Initializing"),
        ("Scheduling", known(Phase::Ready, &[]), soon, "Ready"),
        ("Scheduling", ClusterPhase::NotSynced, soon, "Scheduling"),
        ("Scheduling", ClusterPhase::Missing, soon, "Scheduling"),
        ("Scheduling", ClusterPhase::Missing, late, "Unavailable"),
        ("Initializing", known(Phase::Initializing, &["a"]), soon, "Initializing"),
        ("Initializing", known(Phase::Ready, &[]), soon, "Ready"),
        ("Initializing", ClusterPhase::Missing, soon, "Initializing"),
        ("Initializing", ClusterPhase::Missing, late, "Unavailable"),
        ("Ready", ClusterPhase::Missing, soon, "Unavailable"),
        ("Unavailable", known(Phase::Initializing, &["a"]), late, "Initializing"),
        ("Unavailable", known(Phase::Ready, &[]), late, "Ready"),
        ("Ready", ClusterPhase::NotSynced, late, "Ready"),
        ("Ready", known(Phase::Inactive, &[]), late, "Inactive"),
    ] {
        let mut workspace = workspace(before);
        apply_cluster_phase(&mut workspace, &state, now);
        assert_eq!(workspace["status"]["phase"], after, "{before} {state:?}");
        assert_eq!(workspace["metadata"]["labels"][label::PHASE], after);
    }
}

#[test]
fn a_deleted_workspace_shows_the_terminators_of_its_logical_cluster() {
    for (terminators, phase) in [(json!(["root:t"]), "Terminating"), (json!([]), "Deleting")] {
        let mut workspace = workspace("Ready");
        workspace["status"]["terminators"] = json!(["root:gone"]);
        let conditions = json!([{
            "type": condition_type::WORKSPACE_CONTENT_DELETED, "status": "False", "severity": "Info",
            "reason": "SomeResourcesRemain", "lastTransitionTime": "1970-01-01T00:00:00Z",
        }]);
        let logical_cluster = json!({"status": {"terminators": terminators, "conditions": conditions}});
        mirror_deletion(&mut workspace, &logical_cluster, Timestamp::UNIX_EPOCH);
        assert_eq!(workspace["status"]["phase"], phase);
        assert_eq!(workspace["metadata"]["labels"][label::PHASE], phase);
        let mirrored = workspace["status"].get("terminators").cloned().unwrap_or_else(|| json!([]));
        assert_eq!(mirrored, terminators);
        assert_eq!(workspace["status"]["conditions"][0]["reason"], "SomeResourcesRemain");
    }
}

#[test]
fn recording_a_placement_twice_changes_nothing() {
    let info = ShardInfo { name: "shard-1".into(), ..ShardInfo::default() };
    let mut object = workspace("Scheduling");
    record_placement(&mut object, &info, "abc");
    record_placement(&mut object, &info, "abc");
    assert_eq!(recorded_placement(&object), Some(("shard-1".into(), "abc".into())));
    assert_eq!(object["metadata"]["annotations"][annotation::SHARD_HASH], "2e1tfbst");
    assert_eq!(object["metadata"]["finalizers"], json!([finalizer::WORKSPACE]));
    assert_eq!(object["metadata"]["labels"], json!({}));
}
