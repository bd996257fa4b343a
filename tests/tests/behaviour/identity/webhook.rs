//! A webhook that reviews access, over TLS.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::tls_server::TlsServer;

/// A webhook whose verdict can be changed. It keeps the reviews that it gets.
pub(super) struct Webhook {
    pub(super) kubeconfig: PathBuf,
    state: Arc<Mutex<State>>,
    _server: TlsServer,
}

struct State {
    status: Value,
    reviews: Vec<Value>,
}

impl Webhook {
    pub(super) async fn start(folder: &Path, status: Value) -> Self {
        let state = Arc::new(Mutex::new(State { status, reviews: Vec::new() }));
        let shared = Arc::clone(&state);
        let server = TlsServer::start(|_| move |path: &str, body: &[u8]| review(path, body, &shared)).await;
        let (ca, kubeconfig) = (folder.join("webhook.crt"), folder.join("webhook.kubeconfig"));
        std::fs::write(&ca, &server.certificate).unwrap();
        let context = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "w",
            "clusters": [{"name": "w", "cluster": {
                "server": format!("{}/review", server.url), "certificate-authority": ca,
            }}],
            "contexts": [{"name": "w", "context": {"cluster": "w", "user": ""}}],
        });
        std::fs::write(&kubeconfig, context.to_string()).unwrap();
        Self { kubeconfig, state, _server: server }
    }

    /// Sets the status of all further reviews; `null` for a response that is no review.
    pub(super) fn set_status(&self, status: Value) {
        self.state.lock().unwrap().status = status;
    }

    /// The reviews since the last call.
    pub(super) fn take_reviews(&self) -> Vec<Value> {
        std::mem::take(&mut self.state.lock().unwrap().reviews)
    }
}

fn review(path: &str, body: &[u8], state: &Mutex<State>) -> (u16, String) {
    assert_eq!(path, "/review");
    let mut review: Value = serde_json::from_slice(body).unwrap();
    let mut state = state.lock().unwrap();
    state.reviews.push(review.clone());
    if state.status.is_null() {
        return (418, String::new());
    }
    review["status"] = state.status.clone();
    (200, review.to_string())
}
