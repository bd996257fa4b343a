//! Sends the requests of a transcript again, and compares the answers.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::answer::{self, Body, document};
use super::compare::{Difference, compare, compare_answers};
use super::normal::Side;
use super::observed::Observer;
use super::recording::{Exchange, Record, Recordings};
use super::watches::{has_ended_as, histories};
use super::wire::{Ask, Stream, Wire};

/// How long controllers may take until an answer is as recorded.
const PATIENCE: Duration = Duration::from_secs(2);

/// Replays a transcript.
pub async fn replay(
    recordings: &Recordings,
    name: &str,
    wire: &mut Wire,
    sides: &mut Sides,
    observer: &mut Observer,
) {
    let place = name.split('-').next().unwrap();
    let records = recordings.transcript(name);
    let exchanges: Vec<&Exchange> = records
        .iter()
        .filter_map(|record| match record {
            Record::Http(exchange) => Some(exchange.as_ref()),
            _ => None,
        })
        .collect();
    let mut replay = Replay { place, wire, sides, observer, watches: Vec::new() };
    for (index, exchange) in exchanges.iter().enumerate() {
        replay.end_watches(exchange.t_ms).await;
        if exchange.is_watch() {
            replay.watch(exchange).await;
        } else if is_intermediate(&exchanges[index..]) {
            replay.poll(exchange).await;
        } else {
            replay.exchange(exchange).await;
        }
    }
    replay.end_watches(u64::MAX).await;
}

/// What is known of both installations, and which name of theirs is which of ours.
pub struct Sides {
    pub theirs: Side,
    pub ours: Side,
    aliases: BTreeMap<String, String>,
}

impl Sides {
    pub fn new(theirs: Side, ours: Side) -> Self {
        Self { theirs, ours, aliases: BTreeMap::new() }
    }
}

struct Replay<'a> {
    place: &'a str,
    wire: &'a mut Wire,
    sides: &'a mut Sides,
    observer: &'a mut Observer,
    watches: Vec<Watching<'a>>,
}

/// A watch during which other requests of the transcript happen.
struct Watching<'a> {
    exchange: &'a Exchange,
    stream: Stream,
    head: Vec<Difference>,
}

/// A client that waits asks the same again and again.
fn is_intermediate(exchanges: &[&Exchange]) -> bool {
    let [this, later @ ..] = exchanges else { return false };
    let next = later.iter().find(|exchange| !exchange.request.url.contains("/version"));
    next.is_some_and(|next| {
        this.request.method == "GET" && !next.is_watch() && this.subject() == next.subject()
    })
}

impl<'a> Replay<'a> {
    /// Compares only the status: what is seen while waiting depends on who is faster.
    async fn poll(&mut self, exchange: &Exchange) {
        let answer = self.wire.send(&self.ask(exchange)).await;
        let theirs = json!({"status": exchange.response.status});
        let ours = json!({"status": answer.status.as_u16()});
        let found = compare_answers(&theirs, &ours);
        self.observer.note(self.place, exchange.seq, &exchange.subject(), &found);
    }

    async fn exchange(&mut self, exchange: &Exchange) {
        let subject = exchange.subject();
        let deadline = Instant::now() + PATIENCE;
        let mut pause = Duration::from_millis(5);
        loop {
            let ask = self.ask(exchange);
            let answer = self.wire.send(&ask).await;
            let (found, bodies) = self.compare(exchange, &answer);
            let is_explained = Observer::is_explained(self.place, exchange.seq, &subject, &found);
            // Only what changes nothing can be asked again, and only what controllers change is worth it.
            let may_change = exchange.request.method == "GET" && found.iter().any(|d| changes(&d.at));
            if is_explained || !may_change || Instant::now() >= deadline {
                if let Some((theirs, ours)) = &bodies {
                    pair(theirs, ours, "", &mut self.sides.aliases);
                }
                pair_header(exchange, &answer.headers, &mut self.sides.aliases);
                self.observer.note(self.place, exchange.seq, &subject, &found);
                self.stand_in(exchange, &ask, answer.status.as_u16()).await;
                return;
            }
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(200));
        }
    }

    fn compare(
        &mut self,
        exchange: &Exchange,
        answer: &super::wire::Answer,
    ) -> (Vec<Difference>, Option<(Value, Value)>) {
        let (their_head, their_body) = answer::recorded(exchange);
        let (our_head, our_body) = answer::received(answer);
        if let Body::Json(body) = &their_body {
            self.sides.theirs.learn(body);
        }
        if let Body::Json(body) = &our_body {
            self.sides.ours.learn(body);
        }
        let mut theirs = document(&self.sides.theirs, &their_head, &their_body, &our_body);
        let mut ours = document(&self.sides.ours, &our_head, &our_body, &their_body);
        if exchange.response.body_omitted.is_some() {
            theirs["body"] = Value::Null;
            ours["body"] = Value::Null;
        }
        let found = compare_answers(&theirs, &ours);
        let bodies = match (their_body, our_body) {
            (Body::Json(theirs), Body::Json(ours)) => Some((theirs, ours)),
            _ => None,
        };
        (found, bodies)
    }

    /// Server-side apply is a later issue. What it would have made is made in another way, so that the requests
    /// that follow find it.
    async fn stand_in(&mut self, exchange: &Exchange, ask: &Ask, status: u16) {
        let is_apply = exchange.request.headers.iter().any(|(_, value)| value.contains("apply-patch"));
        if !is_apply || exchange.response.status >= 300 || status < 300 {
            return;
        }
        let path = ask.path.split('?').next().unwrap().to_owned();
        let mut object: Value = serde_json::from_slice(&exchange.response.body()).unwrap();
        for key in ["uid", "resourceVersion", "managedFields", "creationTimestamp"] {
            object["metadata"].as_object_mut().unwrap().remove(key);
        }
        let (method, path) = match exchange.response.status {
            201 => ("POST", path.rsplit_once('/').unwrap().0.to_owned()),
            _ => ("PUT", path),
        };
        let headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
        let body = Bytes::from(object.to_string());
        let made = self.wire.send(&Ask { method: method.to_owned(), path, headers, body }).await;
        assert!(made.status.is_success(), "{method}: {}", String::from_utf8_lossy(&made.body));
    }

    async fn watch(&mut self, exchange: &'a Exchange) {
        let ask = self.ask(exchange);
        let (stream, head) = match self.wire.watch(&ask).await {
            Ok(stream) => {
                let (theirs, _) = answer::recorded(exchange);
                let ours = answer::received_head(stream.status.as_u16(), &stream.headers);
                (stream, compare_answers(&theirs, &ours))
            }
            Err(answer) => {
                let (found, _) = self.compare(exchange, &answer);
                self.observer.note(self.place, exchange.seq, &exchange.subject(), &found);
                return;
            }
        };
        self.watches.push(Watching { exchange, stream, head });
        // The recorder watched without kubectl, and changed an object while it did.
        if exchange.request.headers.iter().any(|(_, value)| value.starts_with("golden-rec")) {
            self.change_an_object(&ask).await;
        }
    }

    /// What the recorder's other client does during a watch.
    async fn change_an_object(&mut self, watch: &Ask) {
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
            let ask = Ask { method: method.to_owned(), path, headers, body: Bytes::from(body.to_string()) };
            let answer = self.wire.send(&ask).await;
            assert!(answer.status.is_success(), "{method}: {}", String::from_utf8_lossy(&answer.body));
        }
        self.end_watches(u64::MAX).await;
    }

    /// Ends the watches that had ended at a time of the transcript.
    async fn end_watches(&mut self, t_ms: u64) {
        let (ended, running): (Vec<_>, Vec<_>) = std::mem::take(&mut self.watches)
            .into_iter()
            .partition(|watching| watching.exchange.t_ms + watching.exchange.duration_ms <= t_ms);
        self.watches = running;
        for watching in ended {
            self.end_watch(watching).await;
        }
    }

    async fn end_watch(&mut self, mut watching: Watching<'a>) {
        let recorded = watching.exchange.response.events();
        recorded.iter().for_each(|event| self.sides.theirs.learn(event));
        let ends_itself = watching.exchange.response.ended_by.as_deref() == Some("server");
        let mut seen: Vec<Value> = Vec::new();
        let wait = timeout(2 * PATIENCE, async {
            while let Some(event) =
                match ends_itself || !has_ended_as(&recorded, &seen, &self.sides.theirs, &self.sides.ours) {
                    true => watching.stream.events.recv().await,
                    false => None,
                }
            {
                self.sides.ours.learn(&event);
                seen.push(event);
            }
        });
        let in_time = wait.await.is_ok();
        let mut found = watching.head;
        let (theirs, ours) = (histories(&self.sides.theirs, &recorded), histories(&self.sides.ours, &seen));
        compare("/events", &theirs, &ours, &mut found);
        if !in_time {
            found.push(Difference { at: "/in-time".to_owned(), theirs: Some(true.into()), ours: None });
        }
        let exchange = watching.exchange;
        self.observer.note(self.place, exchange.seq, &exchange.subject(), &found);
    }

    /// The recorded request with our names in place of theirs.
    fn ask(&self, exchange: &Exchange) -> Ask {
        const DROPPED: [&str; 5] =
            ["host", "accept-encoding", "content-length", "connection", "if-modified-since"];
        let request = &exchange.request;
        let headers = request
            .headers
            .iter()
            .filter(|(name, _)| !DROPPED.contains(&name.to_ascii_lowercase().as_str()))
            .map(|(name, value)| (name.clone(), self.alias(value)))
            .collect();
        let body = match String::from_utf8(request.body().to_vec()) {
            Ok(text) => Bytes::from(self.alias_in(&text, &['"'])),
            Err(_) => request.body(),
        };
        let path = self.alias_in(&request.url, &['/', '?', '&', '=', '%']);
        Ask { method: request.method.clone(), path, headers, body }
    }

    fn alias(&self, text: &str) -> String {
        self.sides.aliases.get(text).cloned().unwrap_or_else(|| text.to_owned())
    }

    /// Replaces words, which these characters part.
    fn alias_in(&self, text: &str, separators: &[char]) -> String {
        let mut result = String::with_capacity(text.len());
        for piece in text.split_inclusive(separators) {
            let word = piece.trim_end_matches(separators);
            // `%3D` and the like leave two digits at the beginning of the word.
            let (escape, word) = match separators.contains(&'%') && result.ends_with('%') && word.len() > 2 {
                true => word.split_at(2),
                false => ("", word),
            };
            result.push_str(escape);
            // A number that counts is no revision, although one may look like it.
            match result.ends_with("limit=") || result.ends_with("timeoutSeconds=") {
                true => result.push_str(word),
                false => result.push_str(&self.alias(word)),
            }
            result.push_str(&piece[escape.len() + word.len()..]);
        }
        result
    }
}

/// Whether somebody changes this after the request that asked for it.
fn changes(at: &str) -> bool {
    at.starts_with("/body") || at == "/status"
}

/// Learns which name of theirs is which of ours, where both answers have them at the same place.
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
                // OpenAPI documents are asked for with a hash.
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
    let theirs = exchange.response.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("etag"));
    let ours = ours.get("etag").and_then(|value| value.to_str().ok());
    if let (Some((_, theirs)), Some(ours)) = (theirs, ours) {
        aliases.insert(theirs.clone(), ours.to_owned());
    }
}
