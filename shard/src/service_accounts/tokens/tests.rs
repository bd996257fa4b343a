#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fairlead_api::annotation;
use fairlead_apiserver::hub::{Hub, HubOptions};
use fairlead_apiserver::registry::{
    Admission, AdmissionRequest, Registry, StoreRegistry, Target, WriteResult, built_in_resources,
    is_built_in,
};
use fairlead_apiserver::request::{RequestFlags, WriteOptions};
use fairlead_apiserver::resource::Verb;
use fairlead_apiserver::{Scope, ScopeSelector};
use fairlead_authn::{AuthenticationMethod, Identity, ServiceAccountSigner, UserInfo};
use fairlead_names::KeyCodec;
use fairlead_process::Reloadable;
use fairlead_store::{MemoryStore, Mutation, Store};
use serde_json::json;

use super::*;

/// Sets audiences and validity of tokens for the audience `change`, and refuses those for `refuse`.
struct AudienceAdmission;

#[async_trait]
impl Admission for AudienceAdmission {
    async fn mutate(
        &self,
        write: &AdmissionRequest<'_>,
        object: &mut Value,
        _old: Option<&Value>,
    ) -> Result<Vec<Mutation>, Status> {
        if write.subresource == Some("token") && object["spec"]["audiences"] == json!(["change"]) {
            assert_eq!(object["spec"]["expirationSeconds"], 3600, "admission sees the default");
            object["spec"] = json!({"audiences": ["changed"], "expirationSeconds": 7200});
        }
        Ok(Vec::new())
    }

    async fn validate(
        &self,
        write: &AdmissionRequest<'_>,
        object: Option<&Value>,
        _old: Option<&Value>,
    ) -> Result<Vec<Mutation>, Status> {
        let object = object.unwrap_or(&Value::Null);
        if write.subresource == Some("token") && object["spec"]["audiences"] == json!(["refuse"]) {
            assert_eq!(object["metadata"]["name"], "bot", "the request is complete");
            return Err(Status::forbidden(GroupResource::new("", "serviceaccounts"), write.name, "no"));
        }
        Ok(Vec::new())
    }
}

fn target(registry: &Arc<dyn Registry>, subresource: Option<&str>) -> Target {
    let resources = built_in_resources(|_| Some(registry.clone()));
    let resource = resources.into_iter().find(|one| one.name == *SERVICE_ACCOUNTS).unwrap();
    let user = UserInfo { name: "alice".to_owned(), ..UserInfo::default() };
    Target {
        version: resource.versions.storage.name.clone(),
        resource,
        scopes: ScopeSelector::One(Scope::new("abc")),
        namespace: Some("default".into()),
        name: subresource.map(|_| "bot".into()),
        subresource: subresource.map(Into::into),
        verb: Verb::Create,
        identity: Arc::new(Identity::new(user, AuthenticationMethod::ClientCertificate, None)),
        spans_origins: false,
        flags: RequestFlags::default(),
    }
}

/// The registry with the service account `bot`, and an issuer whose tokens are valid for at most 5000 s.
async fn registry() -> Arc<dyn Registry> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let codec = KeyCodec::new("/registry", 1, is_built_in);
    let objects = ObjectStore::new(store.clone(), codec, &[annotation::CLUSTER]);
    let hub = Hub::new(store, codec, HubOptions::default());
    let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let issuer = TokenIssuer {
        issuers: vec!["https://kcp.default.svc".to_owned()],
        audiences: vec!["own".to_owned()],
        max_seconds: Some(5000),
        keys_url: String::new(),
        signer: Some(Arc::new(Reloadable::new(ServiceAccountSigner::from_pem(key.as_bytes()).unwrap()))),
        keys: Arc::new(Reloadable::new(Default::default())),
    };
    let registry = StoreRegistry::new(objects.clone(), hub, Arc::new(AudienceAdmission));
    let tokens = ServiceAccountTokens { objects, issuer: Arc::new(issuer) };
    let registry: Arc<dyn Registry> = Arc::new(registry.with_subresources(Arc::new(tokens)));
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bot"}});
    let created = registry.create(&target(&registry, None), account, &WriteOptions::default()).await;
    assert!(matches!(created, Ok(WriteResult::Created(_))), "{:?}", created.err());
    registry
}

#[tokio::test]
async fn a_token_is_issued_for_the_request_that_admission_leaves() {
    let registry = registry().await;
    for (audience, expected) in [
        ("keep", Ok(("keep", 3600))),
        // The limit of the issuer applies afterwards.
        ("change", Ok(("changed", 5000))),
        ("refuse", Err((403, "serviceaccounts \"bot\" is forbidden: no"))),
    ] {
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": [audience]},
        });
        let target = target(&registry, Some("token"));
        let issued = registry.create(&target, request, &WriteOptions::default()).await;
        match (issued, expected) {
            (Ok(WriteResult::NotStored(response)), Ok((audience, seconds))) => {
                let token = response["status"]["token"].as_str().unwrap();
                let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
                let claims: Value = serde_json::from_slice(&claims).unwrap();
                assert_eq!(claims["aud"], json!([audience]));
                let validity = claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap();
                assert_eq!(validity, seconds, "{audience}");
                assert_eq!(response["spec"], json!({"audiences": [audience], "expirationSeconds": seconds}));
            }
            (Err(status), Err((code, message))) => {
                assert_eq!((status.code, &*status.message), (code, message));
            }
            (issued, expected) => panic!("{audience}: {:?} instead of {expected:?}", issued.err()),
        }
    }
}
