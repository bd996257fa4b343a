//! Sends the requests of a transcript again and compares the responses.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use fairlead_tests::recordings::{Body, Exchange, Recordings, Response as Recorded};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::compare::{Difference, compare, compare_responses};
use super::normalize::Normalizer;
use super::raw_client::{RawClient, RawRequest, Response, WatchStream};
use super::report::Report;
use super::response::{self, document};
use super::watches::{histories, is_complete};

/// Time that controllers have until a response is as recorded.
const CONTROLLER_TIMEOUT: Duration = Duration::from_secs(2);

/// Replays a transcript. The place of its differences is the letter with which its name begins.
pub async fn replay(
    recordings: &Recordings,
    name: &str,
    client: &mut RawClient,
    names: &mut NamePairs,
    report: &mut Report,
) {
    let place = name.split('-').next().unwrap();
    let exchanges = recordings.transcript(name).unwrap();
    let mut replay = Replay { place, client, names, report, watches: Vec::new() };
    for (index, exchange) in exchanges.iter().enumerate() {
        replay.end_watches(exchange.start_ms).await;
        if is_watch(exchange) {
            replay.watch(exchange).await;
        } else if is_intermediate(&exchanges[index..]) {
            replay.poll(exchange).await;
        } else {
            replay.exchange(exchange).await;
        }
    }
    replay.end_watches(u64::MAX).await;
}

/// Names of both installations, and which generated name of kcp corresponds to which of Fairlead.
pub struct NamePairs {
    pub theirs: Normalizer,
    pub ours: Normalizer,
    aliases: BTreeMap<String, String>,
}

impl NamePairs {
    pub fn new(theirs: Normalizer, ours: Normalizer) -> Self {
        Self { theirs, ours, aliases: BTreeMap::new() }
    }
}

struct Replay<'a> {
    place: &'a str,
    client: &'a mut RawClient,
    names: &'a mut NamePairs,
    report: &'a mut Report,
    watches: Vec<RunningWatch<'a>>,
}

/// A watch that stays open during later requests of the transcript.
struct RunningWatch<'a> {
    exchange: &'a Exchange,
    stream: WatchStream,
    head: Vec<Difference>,
}

fn recorded(exchange: &Exchange) -> &Recorded {
    exchange.response.as_ref().expect("replayed transcripts have all responses")
}

fn is_watch(exchange: &Exchange) -> bool {
    recorded(exchange).watch.is_some()
}

/// Whether the same GET follows: a client that waits repeats its request.
fn is_intermediate(exchanges: &[Exchange]) -> bool {
    let [this, later @ ..] = exchanges else { return false };
    let next = later.iter().find(|exchange| !exchange.url.contains("/version"));
    next.is_some_and(|next| this.method == "GET" && !is_watch(next) && this.subject() == next.subject())
}

impl<'a> Replay<'a> {
    /// Compares only the status. The body seen while waiting depends on timing.
    async fn poll(&mut self, exchange: &Exchange) {
        let response = self.client.send(&self.request(exchange)).await;
        let theirs = json!({"status": recorded(exchange).status});
        let ours = json!({"status": response.status.as_u16()});
        let found = compare_responses(&theirs, &ours);
        self.report.add(self.place, exchange.seq, &exchange.subject(), &found);
    }

    async fn exchange(&mut self, exchange: &Exchange) {
        let subject = exchange.subject();
        let deadline = Instant::now() + CONTROLLER_TIMEOUT;
        let mut pause = Duration::from_millis(5);
        loop {
            let request = self.request(exchange);
            let response = self.client.send(&request).await;
            let (found, bodies) = self.compare(exchange, &response);
            let is_explained = Report::is_explained(self.place, exchange.seq, &subject, &found);
            // Only a GET may be repeated, and only bodies and statuses are changed by controllers.
            let may_change = exchange.method == "GET"
                && found.iter().any(|d| d.at.starts_with("/body") || d.at == "/status");
            if is_explained || !may_change || Instant::now() >= deadline {
                if let Some((theirs, ours)) = &bodies {
                    pair(theirs, ours, "", &mut self.names.aliases);
                }
                pair_header(exchange, &response.headers, &mut self.names.aliases);
                self.report.add(self.place, exchange.seq, &subject, &found);
                return;
            }
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(200));
        }
    }

    fn compare(
        &mut self,
        exchange: &Exchange,
        response: &Response,
    ) -> (Vec<Difference>, Option<(Value, Value)>) {
        let (their_head, their_body) = response::recorded(recorded(exchange));
        let (our_head, our_body) = response::received(response);
        if let Body::Json(body) = &their_body {
            self.names.theirs.learn(body);
        }
        if let Body::Json(body) = &our_body {
            self.names.ours.learn(body);
        }
        let mut theirs = document(&self.names.theirs, &their_head, &their_body, &our_body);
        let mut ours = document(&self.names.ours, &our_head, &our_body, &their_body);
        if recorded(exchange).is_body_omitted {
            theirs["body"] = Value::Null;
            ours["body"] = Value::Null;
        }
        let found = compare_responses(&theirs, &ours);
        let bodies = match (their_body, our_body) {
            (Body::Json(theirs), Body::Json(ours)) => Some((theirs, ours)),
            _ => None,
        };
        (found, bodies)
    }

    async fn watch(&mut self, exchange: &'a Exchange) {
        let request = self.request(exchange);
        let (stream, head) = match self.client.watch(&request).await {
            Ok(stream) => {
                let (theirs, _) = response::recorded(recorded(exchange));
                let ours = response::received_head(stream.status.as_u16(), &stream.headers);
                (stream, compare_responses(&theirs, &ours))
            }
            Err(response) => {
                let (found, _) = self.compare(exchange, &response);
                self.report.add(self.place, exchange.seq, &exchange.subject(), &found);
                return;
            }
        };
        self.watches.push(RunningWatch { exchange, stream, head });
        // During each watch by the recorder itself, another client of the recorder changed an object.
        if exchange.headers.iter().any(|(_, value)| value.starts_with("golden-rec")) {
            self.change_an_object(&request).await;
        }
    }

    /// Repeats the changes that the recorder's other client made during a watch.
    async fn change_an_object(&mut self, watch: &RawRequest) {
        let path = watch.path.split(['?']).next().unwrap().replace("/watch/", "/");
        let path = path.strip_suffix("/w1").unwrap_or(&path).to_owned();
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "w1", "labels": {"p": "9"}}});
        let changes = [
            ("POST", path.clone(), "application/json", object),
            ("PATCH", format!("{path}/w1"), "application/merge-patch+json", json!({"data": {"x": "1"}})),
            (
                "PATCH",
                format!("{path}/w1"),
                "application/merge-patch+json",
                json!({"metadata": {"labels": {"p": "8"}}}),
            ),
            ("DELETE", format!("{path}/w1"), "application/json", json!({})),
        ];
        for (method, path, content_type, body) in changes {
            let headers = vec![("Content-Type".to_owned(), content_type.to_owned())];
            let request =
                RawRequest { method: method.to_owned(), path, headers, body: Bytes::from(body.to_string()) };
            let response = self.client.send(&request).await;
            assert!(response.status.is_success(), "{method}: {}", String::from_utf8_lossy(&response.body));
        }
        self.end_watches(u64::MAX).await;
    }

    /// Ends the watches that had ended at this time of the transcript.
    async fn end_watches(&mut self, t_ms: u64) {
        let (ended, running): (Vec<_>, Vec<_>) = std::mem::take(&mut self.watches)
            .into_iter()
            .partition(|watching| watching.exchange.start_ms + watching.exchange.duration_ms <= t_ms);
        self.watches = running;
        for watching in ended {
            self.end_watch(watching).await;
        }
    }

    async fn end_watch(&mut self, mut watching: RunningWatch<'a>) {
        let watch = recorded(watching.exchange).watch.as_ref().unwrap();
        let recorded = &watch.events;
        recorded.iter().for_each(|event| self.names.theirs.learn(event));
        let ends_itself = watch.ended_by_server;
        let mut seen: Vec<Value> = Vec::new();
        let wait = timeout(2 * CONTROLLER_TIMEOUT, async {
            while let Some(event) =
                match ends_itself || !is_complete(recorded, &seen, &self.names.theirs, &self.names.ours) {
                    true => watching.stream.events.recv().await,
                    false => None,
                }
            {
                self.names.ours.learn(&event);
                seen.push(event);
            }
        });
        let in_time = wait.await.is_ok();
        let mut found = watching.head;
        let (theirs, ours) = (histories(&self.names.theirs, recorded), histories(&self.names.ours, &seen));
        compare("/events", &theirs, &ours, &mut found);
        if !in_time {
            found.push(Difference { at: "/in-time".to_owned(), theirs: Some(true.into()), ours: None });
        }
        let exchange = watching.exchange;
        self.report.add(self.place, exchange.seq, &exchange.subject(), &found);
    }

    /// The recorded request with Fairlead's names in place of kcp's.
    fn request(&self, exchange: &Exchange) -> RawRequest {
        const DROPPED: [&str; 5] =
            ["host", "accept-encoding", "content-length", "connection", "if-modified-since"];
        let headers = exchange
            .headers
            .iter()
            .filter(|(name, _)| !DROPPED.contains(&name.to_ascii_lowercase().as_str()))
            .map(|(name, value)| (name.clone(), self.alias(value)))
            .collect();
        let body = match &exchange.body {
            Body::Text(text) => self.alias_in(text, &['"']).into(),
            body => body.to_bytes().into(),
        };
        let path = self.alias_in(&exchange.url, &['/', '?', '&', '=', '%']);
        RawRequest { method: exchange.method.clone(), path, headers, body }
    }

    fn alias(&self, text: &str) -> String {
        self.names.aliases.get(text).cloned().unwrap_or_else(|| text.to_owned())
    }

    /// Replaces the words between these separators.
    fn alias_in(&self, text: &str, separators: &[char]) -> String {
        let mut result = String::with_capacity(text.len());
        for piece in text.split_inclusive(separators) {
            let word = piece.trim_end_matches(separators);
            // An escape such as `%3D` leaves two digits at the start of the word.
            let (escape, word) = match separators.contains(&'%') && result.ends_with('%') && word.len() > 2 {
                true => word.split_at(2),
                false => ("", word),
            };
            result.push_str(escape);
            // A limit or a timeout is no revision, even if the number is equal to one.
            match result.ends_with("limit=") || result.ends_with("timeoutSeconds=") {
                true => result.push_str(word),
                false => result.push_str(&self.alias(word)),
            }
            result.push_str(&piece[escape.len() + word.len()..]);
        }
        result
    }
}

/// Learns which of kcp's generated names corresponds to which of Fairlead's: those at the same place in both bodies.
fn pair(theirs: &Value, ours: &Value, key: &str, aliases: &mut BTreeMap<String, String>) {
    match (theirs, ours) {
        (Value::Object(theirs), Value::Object(ours)) => {
            let generated = theirs.contains_key("generateName");
            for (key, theirs) in theirs {
                if let Some(ours) = ours.get(key) {
                    let key = if key == "name" && generated { "generated name" } else { key };
                    pair(theirs, ours, key, aliases);
                }
            }
        }
        (Value::Array(theirs), Value::Array(ours)) => {
            let name = |item: &Value| {
                let row = item.pointer("/object/metadata/name");
                row.or(item.pointer("/metadata/name")).cloned()
            };
            for (index, theirs) in theirs.iter().enumerate() {
                let same = ours.iter().find(|ours| name(ours).is_some() && name(ours) == name(theirs));
                if let Some(ours) = same.or_else(|| ours.get(index).filter(|_| name(theirs).is_none())) {
                    pair(theirs, ours, "", aliases);
                }
            }
        }
        (Value::String(theirs), Value::String(ours)) => {
            let is_name =
                ["uid", "resourceVersion", "continue", "generated name", "serverRelativeURL"].contains(&key);
            if is_name && theirs != ours && theirs.len() > 1 {
                // URLs of OpenAPI documents contain a hash.
                let hash = |url: &str| url.rsplit_once("hash=").map(|(_, hash)| hash.to_owned());
                match (hash(theirs), hash(ours)) {
                    (Some(theirs), Some(ours)) => aliases.insert(theirs, ours),
                    _ => aliases.insert(theirs.clone(), ours.clone()),
                };
            }
        }
        _ => {}
    }
}

fn pair_header(exchange: &Exchange, ours: &http::HeaderMap, aliases: &mut BTreeMap<String, String>) {
    let theirs = recorded(exchange).headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("etag"));
    let ours = ours.get("etag").and_then(|value| value.to_str().ok());
    if let (Some((_, theirs)), Some(ours)) = (theirs, ours) {
        aliases.insert(theirs.clone(), ours.to_owned());
    }
}
