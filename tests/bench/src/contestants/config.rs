//! Configuration of the contestants: the same certificates and protocols for all, and no costs that are not measured.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use fairlead_certs::{CertificateFiles, Client, Layout, Server};
use serde_json::{Value, json};

use crate::error::BenchError;

/// Directory, certificates and ports of a contestant.
pub(super) struct Setup<'a> {
    pub(super) directory: &'a Path,
    pub(super) layout: &'a Layout,
    pub(super) port: u16,
    pub(super) backend: u16,
}

/// Number of connections that each contestant must support.
const CONNECTIONS: usize = 20_000;

impl Setup<'_> {
    /// The gateway with additional settings.
    pub(super) fn gateway(&self, further: &[Value]) -> Result<Vec<OsString>, BenchError> {
        let (serving, upstream) = (self.serving(), self.upstream());
        let shards = self.kubeconfig()?;
        let mut config = json!({
            "listeners": [{
                "name": "internal",
                "serving": {
                    "address": format!("127.0.0.1:{}", self.port),
                    "certificate": serving.certificate, "privateKey": serving.key,
                },
                "clientCA": self.layout.client_ca(),
            }],
            "index": {"rootShardKubeconfig": shards, "shardsKubeconfig": shards},
            "upstream": {
                "certificate": upstream.certificate, "privateKey": upstream.key,
                "serverCA": self.layout.serving_ca(),
            },
            "limits": {"maxConnections": CONNECTIONS},
        });
        further.iter().for_each(|further| put_into(&mut config, further));
        // YAML is a superset of JSON.
        let path = self.write("gateway.yaml", &config.to_string())?;
        Ok(vec!["--config".into(), path.into()])
    }

    /// Settings for an access log with all requests, and traces of one in a hundred. The backend accepts spans like any other
    /// request.
    pub(super) fn observed(&self) -> Value {
        json!({
            "accessLog": {"to": "file", "file": self.directory.join("access.log")},
            "tracing": {
                "sample": 0.01,
                "interval": "400ms",
                "otlpEndpoint": self.backend_url(),
                "serverCA": self.layout.serving_ca(),
            },
        })
    }

    /// Settings that count every request for its listener, its user and its workspace, and queue it before the shard. No limit is
    /// reached: the load is that of one user in one workspace.
    pub(super) fn limited(&self) -> Value {
        let much = json!({
            "requestsPerSecond": 10_000_000, "burst": 10_000_000, "concurrent": 1_000_000, "watches": 1_000_000,
            "upgrades": 1_000_000, "bytesPerSecond": "1024GiB",
        });
        json!({
            "listeners": [{"quotas": {"all": much, "perIdentity": much, "perWorkspace": much}}],
            "upstream": {"concurrency": {"policy": "fixed", "maxLimit": 20_000}},
        })
    }

    /// kcp-front-proxy. Tokens pass through, as in the gateway.
    pub(super) fn kcp_front_proxy(&self) -> Result<Vec<OsString>, BenchError> {
        let (serving, upstream) = (self.serving(), self.upstream());
        let shards = self.kubeconfig()?;
        let mapping = json!([{
            "path": "/clusters/",
            "backend": self.backend_url(),
            "backend_server_ca": self.layout.serving_ca(),
            "proxy_client_cert": upstream.certificate,
            "proxy_client_key": upstream.key,
        }]);
        let mapping = self.write("mapping.yaml", &mapping.to_string())?;
        let flag = |name: &str, path: &Path| {
            let mut flag = OsString::from(format!("--{name}="));
            flag.push(path);
            flag
        };
        Ok(vec![
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={}", self.port).into(),
            "--v=0".into(),
            flag("root-directory", self.directory),
            flag("mapping-file", &mapping),
            flag("root-kubeconfig", &shards),
            flag("shards-kubeconfig", &shards),
            flag("client-ca-file", &self.layout.client_ca()),
            flag("tls-cert-file", &serving.certificate),
            flag("tls-private-key-file", &serving.key),
        ])
    }

    pub(super) fn haproxy(&self) -> Result<Vec<OsString>, BenchError> {
        let serving = self.both_in_one("serving.pem", &self.serving())?;
        let upstream = self.both_in_one("upstream.pem", &self.upstream())?;
        let (clients, servers) = (self.layout.client_ca(), self.layout.serving_ca());
        let config = format!(
            "global
  maxconn {CONNECTIONS}
  no strict-limits
  ssl-default-bind-options ssl-min-ver TLSv1.3
  ssl-default-server-options ssl-min-ver TLSv1.3
defaults
  mode http
  timeout connect 5s
  timeout client 1h
  timeout server 1h
  timeout http-keep-alive 1h
frontend f
  bind 127.0.0.1:{} ssl crt {} ca-file {} verify optional alpn h2,http/1.1
  default_backend b
backend b
  http-reuse always
  server s 127.0.0.1:{} ssl crt {} ca-file {} verify required alpn h2 sni str(localhost)
",
            self.port,
            serving.display(),
            clients.display(),
            self.backend,
            upstream.display(),
            servers.display(),
        );
        let path = self.write("haproxy.cfg", &config)?;
        Ok(vec!["-db".into(), "-f".into(), path.into()])
    }

    /// nginx does not support HTTP/2 to backends.
    pub(super) fn nginx(&self) -> Result<Vec<OsString>, BenchError> {
        let (serving, upstream) = (self.serving(), self.upstream());
        let directory = self.directory.display();
        let config = format!(
            "daemon off;
user root;
pid {directory}/nginx.pid;
error_log stderr crit;
worker_processes auto;
worker_rlimit_nofile 20000;
events {{ worker_connections {CONNECTIONS}; }}
http {{
  access_log off;
  client_body_temp_path {directory}; proxy_temp_path {directory}; fastcgi_temp_path {directory};
  uwsgi_temp_path {directory}; scgi_temp_path {directory};
  ssl_protocols TLSv1.3;
  keepalive_requests 1000000000;
  keepalive_timeout 1h;
  upstream b {{
    server 127.0.0.1:{backend};
    keepalive 1024;
    keepalive_requests 1000000000;
  }}
  server {{
    listen 127.0.0.1:{port} ssl http2;
    ssl_certificate {certificate};
    ssl_certificate_key {key};
    ssl_client_certificate {clients};
    ssl_verify_client optional;
    http2_max_concurrent_streams 1000;
    location / {{
      proxy_pass https://b;
      proxy_http_version 1.1;
      proxy_set_header Connection \"\";
      proxy_buffering off;
      proxy_read_timeout 1h;
      proxy_ssl_verify on;
      proxy_ssl_protocols TLSv1.3;
      proxy_ssl_name localhost;
      proxy_ssl_trusted_certificate {servers};
      proxy_ssl_certificate {proxy_certificate};
      proxy_ssl_certificate_key {proxy_key};
    }}
  }}
}}
",
            backend = self.backend,
            port = self.port,
            certificate = serving.certificate.display(),
            key = serving.key.display(),
            clients = self.layout.client_ca().display(),
            servers = self.layout.serving_ca().display(),
            proxy_certificate = upstream.certificate.display(),
            proxy_key = upstream.key.display(),
        );
        let path = self.write("nginx.conf", &config)?;
        Ok(vec!["-p".into(), self.directory.into(), "-c".into(), path.into()])
    }

    pub(super) fn pingora(&self) -> Vec<OsString> {
        let (serving, upstream) = (self.serving(), self.upstream());
        let files = [
            ("--certificate", serving.certificate),
            ("--private-key", serving.key),
            ("--client-ca", self.layout.client_ca()),
            ("--upstream-certificate", upstream.certificate),
            ("--upstream-private-key", upstream.key),
            ("--server-ca", self.layout.serving_ca()),
        ];
        let ports = [("--port", self.port), ("--backend", self.backend)];
        let files = files.into_iter().map(|(flag, path)| [OsString::from(flag), path.into()]);
        let ports = ports.into_iter().map(|(flag, port)| [flag.into(), port.to_string().into()]);
        files.chain(ports).flatten().collect()
    }

    /// This program as the bare forwarder.
    pub(super) fn forwarder(&self) -> Vec<OsString> {
        vec![
            "forward".into(),
            "--port".into(),
            self.port.to_string().into(),
            "--backend".into(),
            self.backend.to_string().into(),
            "--pki".into(),
            self.layout.directory().into(),
        ]
    }

    fn serving(&self) -> CertificateFiles {
        self.layout.serving_cert(&Server::Gateway)
    }

    fn upstream(&self) -> CertificateFiles {
        self.layout.client_cert(&Client::FrontProxy)
    }

    fn backend_url(&self) -> String {
        format!("https://127.0.0.1:{}", self.backend)
    }

    /// The credentials of the index.
    fn kubeconfig(&self) -> Result<PathBuf, BenchError> {
        let admin = self.layout.client_cert(&Client::ShardAdmin);
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "s", "user": "u"}}],
            "clusters": [{"name": "s", "cluster": {
                "server": self.backend_url(), "certificate-authority": self.layout.serving_ca(),
            }}],
            "users": [{"name": "u", "user": {
                "client-certificate": admin.certificate, "client-key": admin.key,
            }}],
        });
        self.write("shards.kubeconfig", &kubeconfig.to_string())
    }

    fn both_in_one(&self, name: &str, files: &CertificateFiles) -> Result<PathBuf, BenchError> {
        let read =
            |path: &Path| std::fs::read_to_string(path).map_err(BenchError::system("reading a certificate"));
        self.write(name, &(read(&files.certificate)? + &read(&files.key)?))
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf, BenchError> {
        let path = self.directory.join(name);
        std::fs::write(&path, text).map_err(BenchError::system(format!("writing {}", path.display())))?;
        Ok(path)
    }
}

/// Merges settings into others: objects by key, lists by position; other values are replaced.
fn put_into(settings: &mut Value, further: &Value) {
    match (settings, further) {
        (Value::Object(settings), Value::Object(further)) => {
            for (key, value) in further {
                put_into(settings.entry(key).or_insert(Value::Null), value);
            }
        }
        (Value::Array(settings), Value::Array(further)) => {
            for (setting, value) in settings.iter_mut().zip(further) {
                put_into(setting, value);
            }
        }
        (setting, value) => *setting = value.clone(),
    }
}
