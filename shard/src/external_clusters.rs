//! Logical clusters of other shards, reached through the gateway by a credential of the group
//! `system:kcp:external-logical-cluster-admin`.

use std::path::Path;

use bytes::Bytes;
use fairlead_client::{
    Client, ClientError, ClientOptions, CredentialsError, Kubeconfig, KubeconfigError, PatchType,
    UnverifiedTls, WriteOptions,
};
use serde::de::IgnoredAny;
use serde_json::Value;

/// The context of the kubeconfig; its current context if it has none of this name.
const CONTEXT: &str = "external-logical-cluster-admin";

/// A client of all logical clusters.
pub(crate) struct ExternalClusters(Client);

/// The kubeconfig cannot be used; the operator has to correct it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExternalClustersError {
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

impl ExternalClusters {
    /// The server and the credential of a kubeconfig.
    pub(crate) fn new(kubeconfig: &Path) -> Result<Self, ExternalClustersError> {
        let kubeconfig = Kubeconfig::load(kubeconfig)?;
        let context = kubeconfig.resolve(Some(CONTEXT)).or_else(|_| kubeconfig.resolve(None))?;
        Ok(Self(Client::from_context(&context, UnverifiedTls::Refuse, ClientOptions::default())?))
    }

    /// The object at a path of a logical cluster, as JSON; `None` if it does not exist.
    pub(crate) async fn get(&self, cluster: &str, path: &str) -> Result<Option<Bytes>, ClientError> {
        match self.0.get(&format!("/clusters/{cluster}{path}")).await {
            Ok(response) => Ok(Some(response.body)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Applies a configuration to an object at a path of a logical cluster, as a field manager (server-side apply). Returns
    /// whether the object exists.
    pub(crate) async fn apply(
        &self,
        cluster: &str,
        path: &str,
        configuration: &Value,
        field_manager: &str,
    ) -> Result<bool, ClientError> {
        let options = WriteOptions { field_manager: Some(field_manager.to_owned()), dry_run: false };
        let path = format!("/clusters/{cluster}{path}");
        let applied: Result<IgnoredAny, _> =
            self.0.patch(&path, PatchType::Apply, configuration, &options).await;
        match applied {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// A server in this process that records requests, for tests.
#[cfg(test)]
pub(crate) mod test_server {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::{Value, json};
    use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

    use super::ExternalClusters;

    /// Method and path of a request, and its body.
    pub(crate) type RecordedRequest = (String, Value);

    /// A client of a server that responds to every request with this status code and an empty object, and the requests.
    pub(crate) async fn recording(code: u16) -> (ExternalClusters, UnboundedReceiver<RecordedRequest>) {
        let (url, requests) = serve(code, json!({})).await;
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "external-logical-cluster-admin",
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "external-logical-cluster-admin", "context": {"cluster": "c", "user": "u"}}],
        });
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), kubeconfig.to_string()).unwrap();
        (ExternalClusters::new(file.path()).unwrap(), requests)
    }

    /// The URL of a server that responds to every request with this status code and object, and the requests.
    pub(crate) async fn serve(code: u16, object: Value) -> (String, UnboundedReceiver<RecordedRequest>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sender, requests) = unbounded_channel();
        let body = object.to_string();
        let response = format!(
            "HTTP/1.1 {code} Code\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(respond(stream, response.clone(), sender.clone()));
            }
        });
        (url, requests)
    }

    async fn respond(stream: TcpStream, response: String, requests: UnboundedSender<RecordedRequest>) {
        let mut stream = BufReader::new(stream);
        loop {
            let mut lines = Vec::new();
            loop {
                let mut line = String::new();
                if stream.read_line(&mut line).await.unwrap_or_default() == 0 {
                    return;
                }
                match line.trim_end() {
                    "" => break,
                    line => lines.push(line.to_ascii_lowercase()),
                }
            }
            let length = lines.iter().find_map(|line| line.strip_prefix("content-length: "));
            let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
            stream.read_exact(&mut body).await.unwrap();
            let line = lines[0].strip_suffix(" http/1.1").unwrap().to_owned();
            let _ = requests.send((line, serde_json::from_slice(&body).unwrap_or_default()));
            stream.get_mut().write_all(response.as_bytes()).await.unwrap();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::test_server::recording;

    #[tokio::test]
    async fn a_configuration_is_applied_by_its_field_manager() {
        for (code, expected) in [(200, Some(true)), (404, Some(false)), (403, None)] {
            let (client, mut requests) = recording(code).await;
            let applied = client.apply("abc", "/apis/g/v1/rs/a/status", &json!({"kind": "R"}), "s 1").await;
            assert_eq!(applied.ok(), expected, "{code}");
            let (line, body) = requests.recv().await.unwrap();
            assert_eq!(line, "patch /clusters/abc/apis/g/v1/rs/a/status?fieldmanager=s%201");
            assert_eq!(body, json!({"kind": "R"}));
        }
    }
}
