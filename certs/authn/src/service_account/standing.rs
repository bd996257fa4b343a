//! Whether a service account, and what else its token depends on, still exists.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures_util::FutureExt;

use super::{
    FoundObject, LookupFailed, ObjectReference, ReferencedKind, ServiceAccountLookup,
    claims::{Named, Secret, ServiceAccount},
};
use crate::{BearerToken, Reason, TokenFault, flights::Flights, remembered::Remembered};

/// So long a token outlives what it depends on at most, in addition to what a union of tokens remembers.
const BELIEVE_FOUND: Duration = Duration::from_secs(10);
/// Just enough that a client with a dead token does not ask a shard with every request.
const BELIEVE_MISSING: Duration = Duration::from_secs(1);
const REMEMBER: usize = 65_536;

/// The longest that an answer is waited for.
const DEADLINE: Duration = Duration::from_secs(10);

/// As Kubernetes: a bound token stays good for so long after its object's time has come.
const AFTER_DELETION: Duration = Duration::from_secs(60);

/// About which tokens is asked whether what they depend on still exists (`--service-account-lookup`).
#[derive(Clone)]
pub enum LookUp {
    /// None: a token is good for as long as its signature and times are.
    Nothing,
    /// Bound tokens.
    Bound(Arc<dyn ServiceAccountLookup>),
    /// Bound tokens, and legacy tokens, which must stand in their secret in addition.
    All(Arc<dyn ServiceAccountLookup>),
}

/// Asks, and remembers answers.
pub(super) struct Standing {
    look_up: LookUp,
    known: Remembered<Option<FoundObject>>,
    asking: Flights<Result<Option<FoundObject>, LookupFailed>>,
}

impl Standing {
    pub(super) fn new(look_up: LookUp) -> Self {
        Self { look_up, known: Remembered::with_capacity(REMEMBER), asking: Flights::new() }
    }

    pub(super) async fn check(
        &self,
        account: &ServiceAccount,
        token: &BearerToken<'_>,
        now: SystemTime,
    ) -> Result<(), Reason> {
        let legacy = matches!(account.secret, Secret::Holding(_));
        let lookup = match &self.look_up {
            LookUp::All(lookup) => lookup,
            LookUp::Bound(lookup) if !legacy => lookup,
            LookUp::Nothing | LookUp::Bound(_) => return Ok(()),
        };
        let exists = async |kind, name: &str, gone: &'static str| {
            let namespace = match kind {
                ReferencedKind::Node => String::new(),
                _ => account.namespace.clone(),
            };
            let object =
                ObjectReference { cluster: account.cluster.clone(), kind, namespace, name: name.to_owned() };
            let found = self.find(lookup, object, now).await?;
            let in_time = |found: &FoundObject| match found.deleted {
                None => true,
                Some(deleted) => !legacy && now < deleted + AFTER_DELETION,
            };
            found.filter(in_time).ok_or(Reason::from(TokenFault::Revoked(gone)))
        };
        let is = async |kind, named: &Named, gone| match exists(kind, &named.name, gone).await? {
            found if found.uid == named.uid => Ok(()),
            _ => Err(Reason::from(TokenFault::Revoked(gone))),
        };
        match &account.secret {
            Secret::None => {}
            Secret::Bound(secret) => is(ReferencedKind::Secret, secret, "its secret is gone").await?,
            Secret::Holding(name) => {
                let secret = exists(ReferencedKind::Secret, name, "its secret is gone").await?;
                if secret.token.as_ref() != Some(token.digest()) {
                    return Err(TokenFault::Revoked("its secret holds another one").into());
                }
            }
        }
        is(ReferencedKind::ServiceAccount, &account.account, "its service account is gone").await?;
        match (&account.pod, &account.node) {
            // A pod's node is for information only, and so need not exist.
            (Some(pod), _) => is(ReferencedKind::Pod, pod, "its pod is gone").await,
            (None, Some(node)) => is(ReferencedKind::Node, node, "its node is gone").await,
            (None, None) => Ok(()),
        }
    }

    async fn find(
        &self,
        lookup: &Arc<dyn ServiceAccountLookup>,
        object: ObjectReference,
        now: SystemTime,
    ) -> Result<Option<FoundObject>, LookupFailed> {
        let key = object.digest();
        if let Some(known) = self.known.get(&key, now) {
            return Ok(known);
        }
        let lookup = Arc::clone(lookup);
        let ask = || {
            async move {
                tokio::time::timeout(DEADLINE, lookup.find(&object))
                    .await
                    .unwrap_or_else(|_| Err(LookupFailed::new(&object, "no answer in time")))
            }
            .boxed()
        };
        let found = self.asking.join(key, ask).await?;
        let at_most = if found.is_some() { BELIEVE_FOUND } else { BELIEVE_MISSING };
        self.known.put(key, found.clone(), now, at_most, None);
        Ok(found)
    }
}
