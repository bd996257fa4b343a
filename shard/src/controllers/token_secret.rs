//! Fills secrets of type `kubernetes.io/service-account-token`, and deletes them with their service account.

use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fairlead_apiserver::hub::{ObjectChange, ObjectEvent};
use fairlead_apiserver::registry::{ObjectStore, StoredObject};
use fairlead_apiserver::{Scope, ScopeSelector};
use fairlead_process::Status;
use serde_json::Value;

use super::deletion::{commit, mark_for_deletion};
use crate::controller_runtime::{Controller, ReconcileOutcome};
use crate::index::Definitions;
use crate::names::{BUILT_IN, SECRETS, SERVICE_ACCOUNTS};
use crate::service_accounts::TokenIssuer;
use crate::writes::Writes;

const TOKEN_TYPE: &str = "kubernetes.io/service-account-token";
const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";

/// A secret, or a service account whose secrets are checked.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct TokenKey {
    cluster: Box<str>,
    namespace: Box<str>,
    object: TokenObject,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum TokenObject {
    Secret(Box<str>),
    /// Removed or created again, with another UID.
    Account,
}

/// Controller of token secrets.
pub(crate) struct TokenSecrets {
    pub(crate) objects: ObjectStore,
    pub(crate) definitions: Arc<Definitions>,
    pub(crate) issuer: Arc<TokenIssuer>,
    /// PEM bundle for `ca.crt`.
    pub(crate) serving_ca: String,
}

impl TokenSecrets {
    /// The secrets to check after an event of a secret or of a service account.
    pub(crate) fn key_of(event: &ObjectEvent) -> Option<TokenKey> {
        let object = if event.resource == *SECRETS {
            let is_relevant = !event.is_deletion() && may_have_token(event.object().json());
            is_relevant.then(|| TokenObject::Secret(event.name.clone()))
        } else {
            matches!(event.change, ObjectChange::Deleted(_)).then_some(TokenObject::Account)
        };
        Some(TokenKey {
            cluster: (*event.scope).into(),
            namespace: event.namespace.clone()?,
            object: object?,
        })
    }

    /// All token secrets. Reads all secrets.
    pub(crate) fn all(&self) -> Vec<TokenKey> {
        let mut keys = Vec::new();
        let visited = self.objects.for_each(&SECRETS, &BUILT_IN, &ScopeSelector::all(), &mut |listed| {
            if !may_have_token(listed.object.json()) {
                return;
            }
            let Ok(meta) = fairlead_apiserver::object::ObjectMetaRef::parse(listed.object) else { return };
            keys.push(TokenKey {
                cluster: listed.scope.into(),
                namespace: meta.namespace.as_deref().unwrap_or_default().into(),
                object: TokenObject::Secret(meta.name.as_ref().into()),
            });
        });
        if let Err(status) = visited {
            tracing::error!(%status, "secrets cannot be read");
        }
        keys
    }
}

#[async_trait]
impl Controller for TokenSecrets {
    type Key = TokenKey;

    const NAME: &'static str = "service-account-token";
    const WORKERS: usize = 4;

    async fn reconcile(&self, key: &TokenKey) -> Result<ReconcileOutcome, Status> {
        let scope = Scope::new(&key.cluster);
        let secrets = match &key.object {
            TokenObject::Secret(name) => {
                let stored = self.objects.get(&SECRETS, &BUILT_IN, &scope, Some(&key.namespace), name)?;
                stored.into_iter().collect()
            }
            TokenObject::Account => {
                let one = ScopeSelector::One(scope);
                self.objects.list(&SECRETS, &BUILT_IN, &one, Some(&key.namespace))?
            }
        };
        for stored in secrets.iter().filter(|stored| may_have_token(stored.object.as_object().json())) {
            if self.check(&key.namespace, stored).await? == ReconcileOutcome::Retry {
                return Ok(ReconcileOutcome::Retry);
            }
        }
        Ok(ReconcileOutcome::Done)
    }
}

impl TokenSecrets {
    async fn check(&self, namespace: &str, stored: &StoredObject) -> Result<ReconcileOutcome, Status> {
        let old = self.objects.tree(stored)?;
        if old["type"] != TOKEN_TYPE || old["metadata"]["deletionTimestamp"].is_string() {
            return Ok(ReconcileOutcome::Done);
        }
        let annotation = |key: &str| old["metadata"]["annotations"][key].as_str().unwrap_or_default();
        let (account_name, account_uid) = (annotation(ACCOUNT_NAME), annotation(ACCOUNT_UID));
        let account =
            self.objects.get(&SERVICE_ACCOUNTS, &BUILT_IN, &stored.scope, Some(namespace), account_name)?;
        let account = account.map(|account| self.objects.tree(&account)).transpose()?;
        let account =
            account.filter(|account| account_uid.is_empty() || account["metadata"]["uid"] == account_uid);
        let mut writes = Writes::new(&self.objects, &self.definitions);
        let resource = writes.resource_of(&old)?;
        match account {
            Some(account) => {
                let Some(new) = self.filled(stored.scope.as_str(), namespace, &old, &account).await? else {
                    return Ok(ReconcileOutcome::Done);
                };
                writes.replace(&resource, stored, new)?;
            }
            None if has_finalizers(&old) => {
                let mut new = old.clone();
                mark_for_deletion(&mut new);
                writes.replace(&resource, stored, new)?;
            }
            None => writes.remove(&resource, stored, &old),
        }
        Ok(if commit(writes).await?.is_some() { ReconcileOutcome::Done } else { ReconcileOutcome::Retry })
    }

    /// The secret with all that it lacks; `None` if this server has no key that signs tokens.
    async fn filled(
        &self,
        cluster: &str,
        namespace: &str,
        old: &Value,
        account: &Value,
    ) -> Result<Option<Value>, Status> {
        let mut new = old.clone();
        if !new["data"].is_object() {
            new["data"] = Value::Object(serde_json::Map::new());
        }
        new["metadata"]["annotations"][ACCOUNT_UID] = account["metadata"]["uid"].clone();
        new["data"]["ca.crt"] = STANDARD.encode(&self.serving_ca).into();
        new["data"]["namespace"] = STANDARD.encode(namespace).into();
        if new["data"]["token"].as_str().is_none_or(str::is_empty) {
            let secret = old["metadata"]["name"].as_str().unwrap_or_default();
            let Some(token) = self.issuer.legacy_token(cluster, namespace, account, secret).await? else {
                return Ok(None);
            };
            new["data"]["token"] = STANDARD.encode(token).into();
        }
        Ok(Some(new))
    }
}

/// Whether a secret may have this type, by a search in its bytes.
fn may_have_token(json: &[u8]) -> bool {
    memchr::memmem::find(json, TOKEN_TYPE.as_bytes()).is_some()
}

fn has_finalizers(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::super::testing::{SERVING_CA, Shard};
    use super::*;

    fn secret(account: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": TOKEN_TYPE,
            "metadata": {"name": "t", "namespace": "default", "annotations": {ACCOUNT_NAME: account}},
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_secret_is_filled_and_deleted_with_its_account() {
        let shard = Shard::start().await;
        shard.workspace("abc").await;
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a", "namespace": "default"}});
        shard.create("abc", "serviceaccounts", account).await.unwrap();
        shard.create("abc", "secrets", secret("a")).await.unwrap();
        let read = || shard.get("abc", "secrets", Some("default"), "t");
        shard.until("it is filled", || read().unwrap()["data"]["token"].is_string()).await;
        let filled = read().unwrap();
        let text = |key: &str| {
            String::from_utf8(STANDARD.decode(filled["data"][key].as_str().unwrap()).unwrap()).unwrap()
        };
        assert_eq!((text("ca.crt").as_str(), text("namespace").as_str()), (SERVING_CA, "default"));
        let token = text("token");
        let claims =
            base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap());
        let claims: Value = serde_json::from_slice(&claims.unwrap()).unwrap();
        let account = shard.get("abc", "serviceaccounts", Some("default"), "a").unwrap();
        assert_eq!(claims["kubernetes.io/serviceaccount/service-account.uid"], account["metadata"]["uid"]);
        assert_eq!(claims["kubernetes.io/serviceaccount/clusterName"], "abc");
        assert_eq!(filled["metadata"]["annotations"][ACCOUNT_UID], account["metadata"]["uid"]);
        shard.delete("abc", "serviceaccounts", Some("default"), "a").await;
        shard.until("it is deleted", || read().is_none()).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_secret_of_a_missing_account_is_deleted() {
        let shard = Shard::start().await;
        shard.workspace("abc").await;
        shard.create("abc", "secrets", secret("nobody")).await.unwrap();
        shard.until("it is deleted", || shard.get("abc", "secrets", Some("default"), "t").is_none()).await;
    }
}
