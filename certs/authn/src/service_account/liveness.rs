//! Checks that a service account, and the objects that its token is bound to, still exist.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures_util::FutureExt;

use super::{
    FoundObject, LookupError, ObjectReference, ReferencedKind, ServiceAccountLookup,
    claims::{NamedObject, SecretBinding, ServiceAccount},
};
use crate::{BearerToken, Reason, TokenError, single_flight::SingleFlight, ttl_cache::TtlCache};

/// The longest time that a token stays valid after a deletion, in addition to the cache of the token union.
const FOUND_TTL: Duration = Duration::from_secs(10);
/// Short, but a client with a revoked token does not cause a look-up for every request.
const MISSING_TTL: Duration = Duration::from_secs(1);
const CACHE_SIZE: usize = 65_536;

/// Limit for one look-up.
const DEADLINE: Duration = Duration::from_secs(10);

/// As in Kubernetes: a bound token stays valid for this time after the deletion timestamp of its object.
const GRACE_AFTER_DELETION: Duration = Duration::from_secs(60);

/// The tokens whose objects must still exist (`--service-account-lookup`).
#[derive(Clone)]
pub enum LookupPolicy {
    /// No tokens: signature and times decide.
    Nothing,
    /// Bound tokens.
    Bound(Arc<dyn ServiceAccountLookup>),
    /// Bound and legacy tokens; a legacy token must also be the content of its secret.
    All(Arc<dyn ServiceAccountLookup>),
}

/// Looks objects up and caches the results.
pub(super) struct LivenessChecker {
    lookup_policy: LookupPolicy,
    cache: TtlCache<Option<FoundObject>>,
    in_flight: SingleFlight<Result<Option<FoundObject>, LookupError>>,
}

impl LivenessChecker {
    pub(super) fn new(lookup_policy: LookupPolicy) -> Self {
        Self { lookup_policy, cache: TtlCache::with_capacity(CACHE_SIZE), in_flight: SingleFlight::new() }
    }

    pub(super) async fn check(
        &self,
        account: &ServiceAccount,
        token: &BearerToken<'_>,
        now: SystemTime,
    ) -> Result<(), Reason> {
        let legacy = matches!(account.secret, SecretBinding::Containing(_));
        let lookup = match &self.lookup_policy {
            LookupPolicy::All(lookup) => lookup,
            LookupPolicy::Bound(lookup) if !legacy => lookup,
            LookupPolicy::Nothing | LookupPolicy::Bound(_) => return Ok(()),
        };
        let exists = async |kind, name: &str, uid: Option<&str>, gone: &'static str| {
            let namespace = match kind {
                ReferencedKind::Node => String::new(),
                _ => account.namespace.clone(),
            };
            let object =
                ObjectReference { cluster: account.cluster.clone(), kind, namespace, name: name.to_owned() };
            let found = self.find(lookup, object, uid, now).await?;
            let in_time = |found: &FoundObject| match found.deleted {
                None => true,
                Some(deleted) => !legacy && now < deleted + GRACE_AFTER_DELETION,
            };
            found.filter(in_time).ok_or(Reason::from(TokenError::Revoked(gone)))
        };
        let is =
            async |kind, named: &NamedObject, gone| match exists(kind, &named.name, Some(&*named.uid), gone)
                .await?
            {
                found if found.uid == named.uid => Ok(()),
                _ => Err(Reason::from(TokenError::Revoked(gone))),
            };
        match &account.secret {
            SecretBinding::None => {}
            SecretBinding::Bound(secret) => is(ReferencedKind::Secret, secret, "its secret is gone").await?,
            SecretBinding::Containing(name) => {
                let secret = exists(ReferencedKind::Secret, name, None, "its secret is gone").await?;
                if secret.token.as_ref() != Some(token.digest()) {
                    return Err(TokenError::Revoked("its secret contains another token").into());
                }
            }
        }
        is(ReferencedKind::ServiceAccount, &account.account, "its service account is gone").await?;
        match (&account.pod, &account.node) {
            // The node of a pod is informational and need not exist.
            (Some(pod), _) => is(ReferencedKind::Pod, pod, "its pod is gone").await,
            (None, Some(node)) => is(ReferencedKind::Node, node, "its node is gone").await,
            (None, None) => Ok(()),
        }
    }

    async fn find(
        &self,
        lookup: &Arc<dyn ServiceAccountLookup>,
        object: ObjectReference,
        uid: Option<&str>,
        now: SystemTime,
    ) -> Result<Option<FoundObject>, LookupError> {
        let key = object.digest(uid.unwrap_or_default());
        if let Some(known) = self.cache.get(&key, now) {
            return Ok(known);
        }
        let lookup = Arc::clone(lookup);
        let call = || {
            async move {
                tokio::time::timeout(DEADLINE, lookup.find(&object))
                    .await
                    .unwrap_or_else(|_| Err(LookupError::new(&object, "no response in time")))
            }
            .boxed()
        };
        let found = self.in_flight.join(key, call).await?;
        let is_found = found.as_ref().is_some_and(|found| uid.is_none_or(|uid| found.uid == uid));
        let ttl = if is_found { FOUND_TTL } else { MISSING_TTL };
        self.cache.insert(key, found.clone(), now, ttl, None);
        Ok(found)
    }
}
