//! Reads the recordings.

use std::io::Read;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;

/// The directory of the recordings.
#[derive(Clone)]
pub struct Recordings(PathBuf);

/// One line of a transcript.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Record {
    Http(Box<Exchange>),
    /// Begins a command: its requests follow.
    CommandStart,
    /// Ends it.
    Command,
    #[serde(other)]
    Note,
}

/// A request and what it was answered.
#[derive(Deserialize)]
pub struct Exchange {
    pub seq: u32,
    /// Since the beginning of the transcript.
    pub t_ms: u64,
    #[serde(default)]
    pub duration_ms: u64,
    pub request: RecordedRequest,
    pub response: RecordedResponse,
}

#[derive(Deserialize)]
pub struct RecordedRequest {
    pub method: String,
    pub url: String,
    pub headers: Vec<(String, String)>,
    body: Option<Text>,
    body_b64: Option<String>,
}

#[derive(Deserialize)]
pub struct RecordedResponse {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    body: Option<Text>,
    body_b64: Option<String>,
    /// The recorder left the body out, because it is long and recorded elsewhere.
    #[serde(default)]
    pub body_omitted: Option<Value>,
    frames: Option<Vec<Frame>>,
    pub ended_by: Option<String>,
}

/// The recorder wrote JSON bodies as text.
type Text = String;

#[derive(Deserialize)]
struct Frame {
    data: Option<String>,
    data_b64: Option<String>,
}

impl Recordings {
    /// Beside the repository, if there are any.
    pub fn find() -> Option<Self> {
        let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/golden");
        beside.join("transcripts").is_dir().then_some(Self(beside))
    }

    /// The lines of a transcript.
    pub fn transcript(&self, name: &str) -> Vec<Record> {
        let path = self.0.join("transcripts").join(format!("{name}.jsonl"));
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// A JSON document, compressed or not, if it was recorded.
    pub fn document(&self, path: &str) -> Option<Value> {
        let plain = self.0.join(path);
        if let Ok(bytes) = std::fs::read(&plain) {
            return Some(serde_json::from_slice(&bytes).unwrap());
        }
        let file = std::fs::File::open(self.0.join(format!("{path}.gz"))).ok()?;
        let mut text = String::new();
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
        Some(serde_json::from_str(&text).unwrap())
    }

    /// The names of a folder's files, without `.json` and `.gz`, sorted.
    pub fn names(&self, folder: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.join(folder)).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .map(|name| name.trim_end_matches(".gz").trim_end_matches(".json").to_owned())
            .collect();
        names.sort();
        names
    }
}

impl Exchange {
    pub fn subject(&self) -> String {
        format!("{} {}", self.request.method, self.request.url)
    }

    pub fn is_watch(&self) -> bool {
        self.response.frames.is_some()
    }
}

impl RecordedRequest {
    pub fn body(&self) -> Bytes {
        bytes(self.body.as_deref(), self.body_b64.as_deref())
    }
}

impl RecordedResponse {
    /// The body; of a watch that was refused, its only frame.
    pub fn body(&self) -> Bytes {
        match &self.frames {
            Some(frames) => {
                frames.iter().flat_map(|f| bytes(f.data.as_deref(), f.data_b64.as_deref())).collect()
            }
            None => bytes(self.body.as_deref(), self.body_b64.as_deref()),
        }
    }

    /// The events of a watch.
    pub fn events(&self) -> Vec<Value> {
        let frames = self.frames.iter().flatten();
        frames.filter_map(|frame| serde_json::from_str(frame.data.as_deref()?).ok()).collect()
    }
}

fn bytes(text: Option<&str>, encoded: Option<&str>) -> Bytes {
    match (text, encoded) {
        (_, Some(encoded)) => STANDARD.decode(encoded).unwrap().into(),
        (Some(text), None) => text.to_owned().into(),
        (None, None) => Bytes::new(),
    }
}
