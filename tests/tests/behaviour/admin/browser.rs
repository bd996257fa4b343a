//! A headless Chromium, driven by WebDriver.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use fairlead_tests::harness::{Process, Program, free_port, tool};
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::installation::{until, within};

/// A page, and the browser that shows it.
pub struct Browser {
    port: u16,
    session: String,
    _driver: Process,
}

/// The preferred colour scheme.
#[derive(Clone, Copy, Debug)]
pub enum Scheme {
    Light,
    Dark,
}

/// WebDriver's key of an element reference.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

impl Browser {
    pub async fn start(folder: &Path) -> Self {
        let port = free_port().unwrap();
        let driver = Program::at(program("chromedriver"), "chromedriver", folder);
        let driver = driver.args([format!("--port={port}")]).start().unwrap();
        let mut browser = Self { port, session: String::new(), _driver: driver };
        until("chromedriver", || async {
            browser.try_call(Method::GET, "/status", None).await.map_err(|error| error.to_string())
        })
        .await;
        let data = folder.join("profile");
        let wishes = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
            "goog:chromeOptions": {"binary": program("chromium"), "args": [
                "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
                "--window-size=1440,1000", "--force-color-profile=srgb",
                format!("--user-data-dir={}", data.display()),
            ]},
        }}});
        let session = browser.call(Method::POST, "/session", wishes).await;
        browser.session = format!("/session/{}", session["sessionId"].as_str().unwrap());
        browser
    }

    pub async fn open(&self, url: &str) {
        self.command("/url", json!({"url": url})).await;
    }

    /// Runs a script and returns its result.
    pub async fn run(&self, script: &str) -> Value {
        self.command("/execute/sync", json!({"script": script, "args": []})).await
    }

    pub async fn click(&self, selector: &str) {
        let element = self.element(selector).await;
        self.command(&format!("/element/{element}/click"), json!({})).await;
    }

    pub async fn fill(&self, selector: &str, text: &str) {
        let element = self.element(selector).await;
        self.command(&format!("/element/{element}/clear"), json!({})).await;
        self.command(&format!("/element/{element}/value"), json!({"text": text})).await;
    }

    pub async fn prefer(&self, scheme: Scheme) {
        let value = match scheme {
            Scheme::Light => "light",
            Scheme::Dark => "dark",
        };
        let parameters = json!({"features": [{"name": "prefers-color-scheme", "value": value}]});
        self.command("/goog/cdp/execute", json!({"cmd": "Emulation.setEmulatedMedia", "params": parameters}))
            .await;
    }

    /// Emulates the window of a small device.
    pub async fn narrow(&self) {
        let parameters = json!({"width": 420, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.command(
            "/goog/cdp/execute",
            json!({"cmd": "Emulation.setDeviceMetricsOverride", "params": parameters}),
        )
        .await;
    }

    /// Saves a picture of the whole page.
    pub async fn picture(&self, file: &Path) {
        let parameters = json!({"format": "png", "captureBeyondViewport": true, "fromSurface": true});
        let taken = self
            .command("/goog/cdp/execute", json!({"cmd": "Page.captureScreenshot", "params": parameters}))
            .await;
        std::fs::write(file, STANDARD.decode(taken["data"].as_str().unwrap()).unwrap()).unwrap();
    }

    /// The errors and warnings in the browser's log.
    pub async fn faults(&self) -> Vec<String> {
        let log = self.command("/se/log", json!({"type": "browser"})).await;
        log.as_array().unwrap().iter().map(|entry| entry["message"].as_str().unwrap().to_owned()).collect()
    }

    /// The URLs of all requests so far.
    pub async fn requested_urls(&self) -> Vec<String> {
        let log = self.command("/se/log", json!({"type": "performance"})).await;
        let messages = log.as_array().unwrap().iter().map(|entry| {
            serde_json::from_str::<Value>(entry["message"].as_str().unwrap()).unwrap()["message"].clone()
        });
        let requests: Vec<String> = messages
            .filter(|message| message["method"] == "Network.requestWillBeSent")
            .map(|message| message["params"]["request"]["url"].as_str().unwrap().to_owned())
            .collect();
        assert!(
            requests.iter().filter(|url| url.starts_with("http")).count() > 5,
            "the log of requests is missing: {requests:?}"
        );
        requests
    }

    async fn element(&self, selector: &str) -> String {
        let found = self.command("/element", json!({"using": "css selector", "value": selector})).await;
        found[ELEMENT].as_str().unwrap_or_else(|| panic!("{selector}: {found}")).to_owned()
    }

    async fn command(&self, path: &str, body: Value) -> Value {
        self.call(Method::POST, &format!("{}{path}", self.session), body).await
    }

    async fn call(&self, method: Method, path: &str, body: Value) -> Value {
        let response = within(path, self.try_call(method, path, Some(body))).await.unwrap();
        assert_eq!(response["value"]["error"], Value::Null, "{path}: {response}");
        response["value"].clone()
    }

    async fn try_call(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Value, Box<dyn std::error::Error>> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let body = body.map_or(String::new(), |body| body.to_string());
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", format!("127.0.0.1:{}", self.port))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))?;
        let response = sender.send_request(request).await?;
        Ok(serde_json::from_slice(&response.into_body().collect().await?.to_bytes())?)
    }
}

/// The path of an installed program.
fn program(name: &str) -> PathBuf {
    tool(name).unwrap_or_else(|error| panic!("{error}"))
}
