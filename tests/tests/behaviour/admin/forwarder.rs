//! A forwarder between browser and gateway. It presents the client certificate, for which a browser would ask its user.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use fairlead_client::Credentials;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use serde_json::json;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

use crate::installation::Installation;

/// A server on the loopback interface. Dropping it stops it.
pub struct Forwarder {
    address: SocketAddr,
    serving: tokio::task::JoinHandle<()>,
}

impl Forwarder {
    /// Forwards every connection to the gateway.
    pub async fn start(installation: &Installation, credentials: &Credentials) -> Self {
        let mut tls = rustls::ClientConfig::clone(credentials.tls_config());
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let (connector, port) = (TlsConnector::from(Arc::new(tls)), installation.port());
        Self::serve(move |mut browser| {
            let connector = connector.clone();
            async move {
                let Ok(gateway) = TcpStream::connect(("127.0.0.1", port)).await else { return };
                let name = ServerName::try_from("127.0.0.1").unwrap();
                let Ok(mut gateway) = connector.connect(name, gateway).await else { return };
                let _ = copy_bidirectional(&mut browser, &mut gateway).await;
            }
        })
        .await
    }

    /// Serves the page with data in which every text is `word`.
    pub async fn hostile(word: &'static str) -> Self {
        Self::serve(move |browser| async move {
            let service = service_fn(move |request: Request<Incoming>| async move {
                Ok::<_, Infallible>(respond(&request, word))
            });
            let _ = http1::Builder::new().serve_connection(TokioIo::new(browser), service).await;
        })
        .await
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    async fn serve<F: Future<Output = ()> + Send + 'static>(
        carry: impl Fn(TcpStream) -> F + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(async move {
            while let Ok((browser, _)) = listener.accept().await {
                tokio::spawn(carry(browser));
            }
        });
        Self { address, serving }
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn respond(request: &Request<Incoming>, word: &str) -> Response<Full<Bytes>> {
    let file = |kind: &str, text: &'static str| {
        Response::builder()
            .header("content-type", kind)
            .body(Full::new(Bytes::from_static(text.as_bytes())))
            .unwrap()
    };
    let labels = json!({"shard": word, "listener": word, "class": "read", "stage": word, "code": "200"});
    let histogram = json!([{"labels": labels, "count": 9, "sum": 1, "buckets": [[0.1, 5], [1.0, 9]]}]);
    let busy = json!([{"cluster": word, "path": word, "perSecond": 2, "open": 1, "error": 0}]);
    let body = match request.uri().path() {
        "/services/fairlead/admin/" => {
            return file("text/html", include_str!("../../../../gateway/src/admin/page/page.html"));
        }
        "/services/fairlead/admin/style.css" => {
            return file("text/css", include_str!("../../../../gateway/src/admin/page/style.css"));
        }
        "/services/fairlead/admin/script.js" => {
            return file("text/javascript", include_str!("../../../../gateway/src/admin/page/script.js"));
        }
        "/services/fairlead/v1/status" => json!({
            "version": word, "uptimeSeconds": 1, "synced": true, "draining": false,
            "listeners": [{"name": word, "address": word, "policy": [word]}],
            "shards": [{
                "name": word, "url": word, "synced": true, "watching": false, "workspaces": 1, "unschedulable": false,
                "draining": false, "excluded": word, "capacity": null, "lastError": word, "circuitOpen": false,
                "open": 1, "waiting": 0, "limit": null,
            }],
            "certificates": [{"object": word, "notAfter": null, "error": word}],
            "reloads": [{"object": word, "loaded": 1, "failure": word}],
        }),
        "/services/fairlead/v1/stats" => json!({"time": 1.0, "families": {
            "fairlead_gateway_request_duration_seconds": histogram, "proxy_request_duration_seconds": histogram,
            "fairlead_gateway_stage_duration_seconds": histogram,
        }}),
        "/services/fairlead/v1/top" => {
            json!({"requests": busy, "bytes": busy, "errors": busy, "watches": busy})
        }
        "/services/fairlead/v1/explain" => json!({
            "request": {"method": word, "url": word, "listener": word, "class": word, "client": word},
            "steps": [{"stage": word, "result": word, "message": word}],
            "user": {"name": word, "groups": [word], "authenticatedBy": word, "droppedGroups": [word]},
            "forward": {"url": word, "server": word, "headers": [[word, word]]}, "response": null,
        }),
        _ => {
            let body = json!({"kind": "Status", "message": word, "code": 403});
            return Response::builder().status(403).body(Full::new(Bytes::from(body.to_string()))).unwrap();
        }
    };
    Response::builder()
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body.to_string())))
        .unwrap()
}
