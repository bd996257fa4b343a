//! The registry of service accounts: the store's, with the subresource `token`.

use std::sync::Arc;

use async_trait::async_trait;
use fairlead_apiserver::registry::{
    Admission, AppliedConfiguration, Change, DeleteResult, DeletedCollection, ListCursor, ObjectStore,
    OpenWatch, Registry, StoredObject, SubresourceCreate, Target, WatchEnd, WriteResult,
};
use fairlead_apiserver::request::{DeleteOptions, ListOptions, WriteOptions};
use fairlead_process::{GroupResource, Status, StatusReason};
use fairlead_store::Revision;
use jiff::Timestamp;
use serde_json::Value;

use super::TokenIssuer;
use super::token_request::{self, TokenRequest, TokenSubject};
use crate::names::{BUILT_IN, SECRETS, SERVICE_ACCOUNTS};

/// Serves service accounts and issues their tokens.
pub(crate) struct ServiceAccountRegistry {
    pub(crate) stored: Arc<dyn Registry>,
    pub(crate) objects: ObjectStore,
    pub(crate) admission: Arc<dyn Admission>,
    pub(crate) issuer: Arc<TokenIssuer>,
}

impl ServiceAccountRegistry {
    /// Issues a token in the order of Kubernetes: mutating admission, the service account, the fields of the request,
    /// validating admission, the object that the token is bound to.
    async fn issue(
        &self,
        target: &Target,
        mut request: Value,
        options: &WriteOptions,
    ) -> Result<Value, Status> {
        let Some(signer) = &self.issuer.signer else {
            let message = "this server has no key that signs tokens of service accounts";
            return Err(Status::new(501, StatusReason::Unknown, message));
        };
        let scope = target.scope()?;
        let name = target.name.as_deref().unwrap_or_default();
        let Some(namespace) = target.namespace.as_deref() else {
            return Err(Status::bad_request("namespace is required"));
        };
        token_request::set_defaults(&mut request);
        let create = SubresourceCreate::new(&*self.admission, self.objects.annotations(), target, options);
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
impl Registry for ServiceAccountRegistry {
    async fn create(
        &self,
        target: &Target,
        object: Value,
        options: &WriteOptions,
    ) -> Result<WriteResult, Status> {
        match target.subresource.as_deref() {
            Some("token") => Ok(WriteResult::NotStored(self.issue(target, object, options).await?)),
            _ => self.stored.create(target, object, options).await,
        }
    }

    async fn get(
        &self,
        target: &Target,
        name: &str,
        at_least: Option<Revision>,
    ) -> Result<StoredObject, Status> {
        self.stored.get(target, name, at_least).await
    }

    async fn list(&self, target: &Target, options: &ListOptions) -> Result<Box<dyn ListCursor>, Status> {
        self.stored.list(target, options).await
    }

    async fn watch(
        &self,
        target: &Target,
        options: &ListOptions,
        until: WatchEnd,
    ) -> Result<OpenWatch, Status> {
        self.stored.watch(target, options, until).await
    }

    async fn update(
        &self,
        target: &Target,
        name: &str,
        change: &Change<'_>,
        options: &WriteOptions,
    ) -> Result<WriteResult, Status> {
        self.stored.update(target, name, change, options).await
    }

    async fn apply(
        &self,
        target: &Target,
        name: &str,
        configuration: &AppliedConfiguration<'_>,
        options: &WriteOptions,
    ) -> Result<WriteResult, Status> {
        self.stored.apply(target, name, configuration, options).await
    }

    async fn delete(
        &self,
        target: &Target,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<DeleteResult, Status> {
        self.stored.delete(target, name, options).await
    }

    async fn delete_collection(
        &self,
        target: &Target,
        selection: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<DeletedCollection, Status> {
        self.stored.delete_collection(target, selection, options).await
    }
}

#[cfg(test)]
mod tests;
