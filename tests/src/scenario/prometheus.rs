//! A Prometheus that scrapes an installation, and its query API.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use fairlead_certs::{CertificateFiles, Client as Role};
use fairlead_client::{Client, Credentials, Request, TrustRoots};
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::site::{Site, client};
use super::{ScenarioError, until};
use crate::harness::{HarnessError, Process, Program, encoded, free_port, tool};

/// A running Prometheus.
pub struct Prometheus {
    client: Client,
    // The process ends when it is dropped.
    _process: Process,
}

/// A time series.
#[derive(Clone, Debug, Deserialize)]
pub struct Series {
    /// The labels.
    #[serde(rename = "metric")]
    pub labels: BTreeMap<String, String>,
    /// Present in results of instant queries.
    #[serde(default)]
    value: Option<Sample>,
    /// Present in results of range queries.
    #[serde(default)]
    values: Vec<Sample>,
}

/// A timestamp in seconds since the epoch, and a value.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "(f64, String)")]
pub struct Sample {
    /// The timestamp.
    pub at: f64,
    /// The value; it may be infinite or NaN.
    pub value: f64,
}

impl From<(f64, String)> for Sample {
    fn from((at, text): (f64, String)) -> Self {
        Self { at, value: text.parse().unwrap_or(f64::NAN) }
    }
}

impl Series {
    /// All samples, in order.
    pub fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.values.iter().chain(&self.value)
    }
}

impl Prometheus {
    /// Starts Prometheus with these rules and this scrape interval for all servers of an installation.
    pub(crate) async fn start(
        folder: &Path,
        site: &Site,
        interval: Duration,
        rules: &Path,
    ) -> Result<Self, ScenarioError> {
        let config = folder.join("prometheus.json");
        site.write(&config, &configuration(site, interval, rules)?.to_string())?;
        let port = free_port()?;
        let arguments = [
            format!("--config.file={}", config.display()),
            format!("--storage.tsdb.path={}", folder.join("prometheus").display()),
            format!("--web.listen-address=127.0.0.1:{port}"),
            "--log.level=warn".to_owned(),
        ];
        let program = Program::at(tool("prometheus")?, "prometheus", folder).args(arguments);
        let mut process = program.start()?;
        let client = client(&format!("http://127.0.0.1:{port}"), Credentials::new(TrustRoots::Nothing)?)?;
        process.until(|| async { client.get("/-/ready").await.map(drop) }).await?;
        let prometheus = Self { client, _process: process };
        until("all servers to be scraped", || prometheus.all_up()).await?;
        Ok(prometheus)
    }

    /// The current value of an expression.
    pub async fn query(&self, expr: &str) -> Result<Vec<Series>, ScenarioError> {
        let response = self.call("/api/v1/query", &[("query", expr)]).await?;
        Ok(match response["resultType"].as_str() {
            Some("scalar") => vec![json!({ "metric": {}, "value": response["result"] })],
            _ => response["result"].as_array().cloned().unwrap_or_default(),
        }
        .into_iter()
        .filter_map(|series| serde_json::from_value(series).ok())
        .collect())
    }

    /// The values of an expression in a range of time, with this step in seconds.
    pub async fn query_range(
        &self,
        expr: &str,
        from: f64,
        to: f64,
        step: f64,
    ) -> Result<Vec<Series>, ScenarioError> {
        let [from, to, step] = [from, to, step].map(|number| format!("{number:.3}"));
        let parameters = [("query", expr), ("start", &from), ("end", &to), ("step", &step)];
        let response = self.call("/api/v1/query_range", &parameters).await?;
        let all = response["result"].as_array().cloned().unwrap_or_default();
        Ok(all.into_iter().filter_map(|series| serde_json::from_value(series).ok()).collect())
    }

    /// The number of series of a selector in the last hour.
    pub async fn series(&self, selector: &str) -> Result<usize, ScenarioError> {
        let response = self.call("/api/v1/series", &[("match[]", selector)]).await?;
        Ok(response.as_array().map_or(0, Vec::len))
    }

    /// The names of all metrics.
    pub async fn metrics(&self) -> Result<Vec<String>, ScenarioError> {
        let response = self.call("/api/v1/label/__name__/values", &[]).await?;
        let names = response.as_array().into_iter().flatten();
        Ok(names.filter_map(|name| name.as_str().map(str::to_owned)).collect())
    }

    /// Rules that cannot be evaluated, with their errors.
    pub async fn failing_rules(&self) -> Result<Vec<String>, ScenarioError> {
        let response = self.call("/api/v1/rules", &[]).await?;
        let groups = response["groups"].as_array().into_iter().flatten();
        let rules = groups.flat_map(|group| group["rules"].as_array().into_iter().flatten());
        let failing = rules.filter(|rule| rule["health"] == "err");
        Ok(failing.map(|rule| format!("{}: {}", rule["name"], rule["lastError"])).collect())
    }

    async fn all_up(&self) -> Result<(), String> {
        let up = self.query("up").await.map_err(|error| error.to_string())?;
        let down = up.iter().filter(|series| series.samples().all(|sample| sample.value < 1.0));
        let down: Vec<_> = down.map(|series| &series.labels).collect();
        if up.len() >= 5 && down.is_empty() {
            Ok(())
        } else {
            Err(format!("{} known, down: {down:?}", up.len()))
        }
    }

    async fn call(&self, path: &str, parameters: &[(&str, &str)]) -> Result<Value, ScenarioError> {
        let fields: Vec<_> =
            parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let body = encoded(&fields);
        let request = match body.is_empty() {
            true => Request::new(Method::GET, path),
            false => Request::new(Method::POST, path).with_body("application/x-www-form-urlencoded", body),
        };
        // The label values API supports GET only.
        let response = self.client.request_any_status(request).await?;
        let mut reply: Value = serde_json::from_slice(&response.body).unwrap_or_default();
        match reply["status"] == "success" {
            true => Ok(reply["data"].take()),
            false => Err(ScenarioError::missing(
                format!("{path} {parameters:?}"),
                String::from_utf8_lossy(&response.body),
            )),
        }
    }
}

/// The configuration of `deploy/dashboards/README.md` with other addresses.
fn configuration(site: &Site, interval: Duration, rules: &Path) -> Result<Value, ScenarioError> {
    let layout = site.layout();
    let rules = std::fs::canonicalize(rules).map_err(HarnessError::system("finding the rules"))?;
    let tls = |role: &Role| {
        let CertificateFiles { certificate, key } = layout.client_cert(role);
        json!({ "ca_file": layout.serving_ca(), "cert_file": certificate, "key_file": key })
    };
    let job = |name: &str, role: &Role, servers: Vec<(String, String)>| {
        let servers = servers
            .into_iter()
            .map(|(instance, address)| json!({ "targets": [address], "labels": { "instance": instance } }));
        json!({
            "job_name": name, "scheme": "https", "tls_config": tls(role),
            "static_configs": servers.collect::<Vec<_>>(),
        })
    };
    let mut shards = Vec::new();
    let mut jobs =
        vec![job("fairlead-gateway", &Role::Admin, vec![("gateway".to_owned(), site.operators())])];
    for (name, server) in site.servers()? {
        let address = server.address().to_owned();
        match name.as_str() {
            "gateway" => {}
            "cache" | "issuer" => {
                jobs.push(job(&format!("fairlead-{name}"), &Role::ShardAdmin, vec![(name, address)]));
            }
            _ => shards.push((name, address)),
        }
    }
    jobs.push(job("fairlead-shard", &Role::ShardAdmin, shards));
    let every = format!("{}ms", interval.as_millis());
    Ok(json!({
        "global": { "scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every },
        "rule_files": [rules],
        "scrape_configs": jobs,
    }))
}
