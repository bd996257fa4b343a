//! Compares the plan with the observed state and decides the steps. Pure: state and time in, steps out.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

use crate::{
    Authority, Item, Leaf, Plan, Usage,
    observe::{AuthorityState, LeafFacts, LeafState, ObservedState, ServiceAccountKeyState, State},
    plan::LEAF_LIFETIME,
};

/// The leaves that are renewed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Renewal {
    /// Leaves that need it.
    #[default]
    WhenDue,
    /// All leaves: a rotation on demand.
    EveryLeaf,
}

/// An item of the plan with its action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The item.
    pub item: Item,
    /// The action.
    pub action: Action,
    /// The reason of the action.
    pub reason: Reason,
}

/// An action for an item, planned or done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// The item did not exist and is issued.
    Issued,
    /// The item is as planned and is not changed.
    #[serde(rename = "kept")]
    Unchanged,
    /// The item existed and is replaced.
    Renewed,
}

/// The reason of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Reason {
    /// The item does not exist.
    New,
    /// The item is valid.
    Valid,
    /// Less than a third of its lifetime is left.
    ExpiresSoon,
    /// The certificate has expired.
    Expired,
    /// The certificate begins in the future: it was issued with a wrong clock.
    NotYetValid,
    /// A file of the pair is missing or unreadable.
    Damaged,
    /// The private key belongs to another certificate.
    KeyMismatch,
    /// The present authority has not signed the certificate.
    SignerChanged,
    /// The certificate has another subject than the plan.
    SubjectChanged,
    /// The certificate has other host names than the plan.
    HostsChanged,
    /// The certificate has another extended key usage than the plan.
    UsageChanged,
    /// The certificate or public half is missing and is made again from the same key.
    PublicHalfMissing,
    /// The caller has requested the renewal of all leaves.
    Requested,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Issued => "issued",
            Self::Unchanged => "kept",
            Self::Renewed => "renewed",
        })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::New => "new",
            Self::Valid => "valid",
            Self::ExpiresSoon => "expires soon",
            Self::Expired => "expired",
            Self::NotYetValid => "not yet valid",
            Self::Damaged => "damaged",
            Self::KeyMismatch => "key does not match",
            Self::SignerChanged => "signer changed",
            Self::SubjectChanged => "subject changed",
            Self::HostsChanged => "hosts changed",
            Self::UsageChanged => "usage changed",
            Self::PublicHalfMissing => "public half was missing",
            Self::Requested => "requested",
        })
    }
}

/// One step per item of the plan, in its order. `observed` must have been read for this plan.
pub(crate) fn decide(plan: &Plan, observed: &ObservedState, now: Timestamp, renewal: Renewal) -> Vec<Step> {
    plan.items()
        .iter()
        .zip(&observed.states)
        .map(|(item, state)| {
            let (action, reason) = match (item, state) {
                (Item::Leaf(leaf), State::Leaf(state)) => {
                    decide_leaf(leaf, state, observed.authority(leaf.signer), now, renewal)
                }
                (_, State::Authority(state)) => decide_authority(state, now),
                (_, State::ServiceAccountKey(state)) => decide_service_account_key(state),
                (_, State::Leaf(_)) => (Action::Issued, Reason::New),
            };
            Step { item: item.clone(), action, reason }
        })
        .collect()
}

/// A valid authority is never changed: replacing it is a rotation with phases, not a renewal. An invalid authority is signed
/// again with the same key, so that the certificates that it has signed stay valid.
fn decide_authority(state: &AuthorityState, now: Timestamp) -> (Action, Reason) {
    match (&state.certificate, &state.key) {
        (Some(certificate), _) if now > certificate.not_after => (Action::Renewed, Reason::Expired),
        (Some(certificate), _) if now < certificate.not_before => (Action::Renewed, Reason::NotYetValid),
        (Some(_), _) => (Action::Unchanged, Reason::Valid),
        (None, Some(_)) => (Action::Renewed, Reason::PublicHalfMissing),
        (None, None) => (Action::Issued, Reason::New),
    }
}

fn decide_service_account_key(state: &ServiceAccountKeyState) -> (Action, Reason) {
    match state {
        ServiceAccountKeyState { signing_key: None, .. } => (Action::Issued, Reason::New),
        ServiceAccountKeyState { is_published: false, .. } => (Action::Renewed, Reason::PublicHalfMissing),
        ServiceAccountKeyState { .. } => (Action::Unchanged, Reason::Valid),
    }
}

fn decide_leaf(
    leaf: &Leaf,
    state: &LeafState,
    signer: Option<&AuthorityState>,
    now: Timestamp,
    renewal: Renewal,
) -> (Action, Reason) {
    let facts = match state {
        LeafState::Absent => return (Action::Issued, Reason::New),
        LeafState::Damaged => return (Action::Renewed, Reason::Damaged),
        LeafState::Present(facts) => facts,
    };
    match renewal_reason(leaf, facts, signer, now) {
        Some(reason) => (Action::Renewed, reason),
        None if renewal == Renewal::EveryLeaf => (Action::Renewed, Reason::Requested),
        None => (Action::Unchanged, Reason::Valid),
    }
}

fn renewal_reason(
    leaf: &Leaf,
    facts: &LeafFacts,
    signer: Option<&AuthorityState>,
    now: Timestamp,
) -> Option<Reason> {
    // An authority that will be signed again gets the planned name.
    let valid_certificate = signer
        .and_then(|signer| signer.certificate.as_ref())
        .filter(|certificate| (certificate.not_before..=certificate.not_after).contains(&now));
    let issuer = valid_certificate
        .map_or_else(|| authority_subject(leaf.signer), |certificate| certificate.subject.clone());
    let new_expiry = leaf_expiry(now, valid_certificate.map(|certificate| certificate.not_after));
    let is_serving = matches!(leaf.usage, Usage::Serving(_));

    if !facts.key_matches {
        Some(Reason::KeyMismatch)
    } else if !facts.signed_by_authority || facts.issuer != issuer {
        Some(Reason::SignerChanged)
    } else if facts.common_names != [leaf.common_name.as_str()]
        || !facts.organizations.iter().eq(leaf.organization.as_ref())
    {
        Some(Reason::SubjectChanged)
    } else if facts.hosts.as_ref() != Some(&leaf.hosts) {
        Some(Reason::HostsChanged)
    } else if (facts.server_auth, facts.client_auth) != (is_serving, !is_serving) {
        Some(Reason::UsageChanged)
    } else if now < facts.not_before {
        Some(Reason::NotYetValid)
    } else if now > facts.not_after {
        Some(Reason::Expired)
    } else if is_due(facts, now) && new_expiry > facts.not_after {
        Some(Reason::ExpiresSoon)
    } else {
        None
    }
}

/// Whether less than a third of the lifetime is left: four months of a year, as in cert-manager.
fn is_due(facts: &LeafFacts, now: Timestamp) -> bool {
    let life = facts.not_after.duration_since(facts.not_before);
    facts.not_after.duration_since(now) < life / 3
}

/// The expiry of a leaf that is issued now: not later than its authority's, because verifiers would not accept it then.
pub(crate) fn leaf_expiry(now: Timestamp, authority_expiry: Option<Timestamp>) -> Timestamp {
    let full = now.saturating_add(LEAF_LIFETIME).unwrap_or(Timestamp::MAX);
    authority_expiry.map_or(full, |end| end.min(full))
}

pub(crate) fn authority_subject(authority: Authority) -> String {
    format!("CN={}", authority.common_name())
}
