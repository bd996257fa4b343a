//! The subresource `token` of service accounts.

use std::sync::Arc;

use async_trait::async_trait;
use fairlead_apiserver::registry::{ObjectStore, SubresourceCreate, SubresourceCreator};
use fairlead_process::{GroupResource, Status, StatusReason};
use jiff::Timestamp;
use serde_json::Value;

use super::TokenIssuer;
use super::token_request::{self, TokenRequest, TokenSubject};
use crate::names::{BUILT_IN, SECRETS, SERVICE_ACCOUNTS};

/// Issues the tokens of service accounts.
pub(crate) struct ServiceAccountTokens {
    pub(crate) objects: ObjectStore,
    pub(crate) issuer: Arc<TokenIssuer>,
}

impl ServiceAccountTokens {
    /// Issues a token in the order of Kubernetes: mutating admission, the service account, the fields of the request,
    /// validating admission, the object that the token is bound to.
    async fn issue(&self, create: &SubresourceCreate<'_>, mut request: Value) -> Result<Value, Status> {
        let Some(signer) = &self.issuer.signer else {
            let message = "this server has no key that signs tokens of service accounts";
            return Err(Status::new(501, StatusReason::Unknown, message));
        };
        let target = create.target();
        let scope = target.scope()?;
        let name = target.name.as_deref().unwrap_or_default();
        let Some(namespace) = target.namespace.as_deref() else {
            return Err(Status::bad_request("namespace is required"));
        };
        token_request::set_defaults(&mut request);
        create.mutate(&mut request).await?;
        let stored = self.objects.get(&SERVICE_ACCOUNTS, &BUILT_IN, scope, Some(namespace), name)?;
        let stored =
            stored.ok_or_else(|| Status::not_found(GroupResource::new("", "serviceaccounts"), name))?;
        let account = self.objects.tree(&stored)?;
        let now = Timestamp::now();
        let subject = TokenSubject { cluster: scope.as_str(), namespace, account: &account, now };
        let request = TokenRequest::new(request, &subject, &self.issuer)?;
        create.validate(&request.response).await?;
        let request = request.limited(self.issuer.max_seconds);
        let secret = match request.bound_secret()? {
            None => None,
            Some(bound) => {
                let stored = self.objects.get(&SECRETS, &BUILT_IN, scope, Some(namespace), bound.name)?;
                let stored =
                    stored.ok_or_else(|| Status::not_found(GroupResource::new("", "secrets"), bound.name))?;
                let secret = self.objects.tree(&stored)?;
                let own = secret["metadata"]["uid"].as_str().unwrap_or_default();
                if !bound.uid.is_empty() && bound.uid != own {
                    let reason = format!(
                        "the UID in the bound object reference ({}) does not match the UID in record. The object might \
                         have been deleted and then recreated",
                        bound.uid
                    );
                    return Err(Status::conflict(GroupResource::new("", "Secret"), bound.name, reason));
                }
                Some(secret)
            }
        };
        let id = uuid::Uuid::new_v4().to_string();
        let claims = request.claims(&subject, &self.issuer, secret.as_ref(), &id);
        let signer = signer.load();
        // With RSA of 4096 bits a signature takes 4 ms.
        let token = tokio::task::spawn_blocking(move || signer.sign(&claims)).await;
        let token = token.map_err(Status::internal)?.map_err(Status::internal)?;
        Ok(request.issued(token, now))
    }
}

#[async_trait]
impl SubresourceCreator for ServiceAccountTokens {
    async fn create(&self, create: &SubresourceCreate<'_>, object: Value) -> Result<Option<Value>, Status> {
        match create.target().subresource.as_deref() {
            Some("token") => self.issue(create, object).await.map(Some),
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests;
