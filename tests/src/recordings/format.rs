//! The format of the reduced recordings, and their reader.

use std::io::Read;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::RecordingError;

/// The folder of reduced recordings in this repository.
#[derive(Clone, Debug)]
pub struct Recordings(PathBuf);

/// A recorded request and its response.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Exchange {
    /// Number of the record in its transcript. Numbers are increasing, with gaps.
    pub seq: u32,
    /// Time from the start of the transcript to the request, in milliseconds.
    pub start_ms: u64,
    /// Time from the request to the end of the response, in milliseconds.
    pub duration_ms: u64,
    /// The client's credential.
    pub identity: String,
    /// The method of the request.
    pub method: String,
    /// Path and query of the request.
    pub url: String,
    /// Header fields of the request, in order, without those that clients set by themselves.
    pub headers: Vec<(String, String)>,
    /// The request's body, byte for byte: text or binary, never JSON.
    #[serde(default, skip_serializing_if = "Body::is_empty")]
    pub body: Body,
    /// The response. `None` in the transcript of the front proxy for requests that it forwarded to a shard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<Response>,
}

/// A recorded response.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// Header fields that are compared, in order.
    pub headers: Vec<(String, String)>,
    /// The body; of a watch, only if it was refused.
    #[serde(default, skip_serializing_if = "Body::is_empty")]
    pub body: Body,
    /// The body was not recorded (OpenAPI documents and metrics).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_body_omitted: bool,
    /// Set for watches, accepted or refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<Watch>,
}

/// The stream of a watch.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Watch {
    /// The JSON events, in order.
    pub events: Vec<Value>,
    /// Whether the server ended the stream; otherwise the client did.
    pub ended_by_server: bool,
}

/// The JSON response to a GET.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Document {
    /// The path below the logical cluster.
    pub path: String,
    /// The `Accept` header of the request.
    pub accept: String,
    /// The response's body.
    pub body: Value,
}

/// A body, by its kind.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Body {
    /// No body.
    #[default]
    Empty,
    /// A JSON or YAML document.
    Json(Value),
    /// Any other text.
    Text(String),
    /// A protobuf message; base64 in the files.
    #[serde(serialize_with = "to_base64", deserialize_with = "from_base64")]
    Binary(Vec<u8>),
}

impl Recordings {
    /// The recordings in this repository.
    #[must_use]
    pub fn of_the_repository() -> Self {
        Self(Path::new(env!("CARGO_MANIFEST_DIR")).join("data/kcp"))
    }

    /// The exchanges of a transcript, in order.
    ///
    /// # Errors
    /// If the file is missing or damaged.
    pub fn transcript(&self, name: &str) -> Result<Vec<Exchange>, RecordingError> {
        self.read("transcripts", name)
    }

    /// The discovery documents of a place (a logical cluster on a server).
    ///
    /// # Errors
    /// If the file is missing or damaged.
    pub fn discovery(&self, place: &str) -> Result<Vec<Document>, RecordingError> {
        self.read("discovery", place)
    }

    /// The lists of all resources of a place that are not empty.
    ///
    /// # Errors
    /// If the file is missing or damaged.
    pub fn objects(&self, place: &str) -> Result<Vec<Document>, RecordingError> {
        self.read("objects", place)
    }

    /// The front proxy's metrics: name, type and label names of each family.
    ///
    /// # Errors
    /// If the file is missing or damaged.
    pub fn front_proxy_metrics(&self) -> Result<Vec<(String, String, Vec<String>)>, RecordingError> {
        let path = self.0.join("metrics/front-proxy.tsv");
        let text = std::fs::read_to_string(&path).map_err(RecordingError::file(&path))?;
        let families = text.lines().map(|line| {
            let columns: Vec<&str> = line.split('\t').collect();
            let [name, kind, labels] = columns[..] else {
                return Err(RecordingError::content(&path, format!("not three columns: {line:?}")));
            };
            let labels = labels.split(',').filter(|label| !label.is_empty()).map(str::to_owned);
            Ok((name.to_owned(), kind.to_owned(), labels.collect()))
        });
        families.collect()
    }

    fn read<T: DeserializeOwned>(&self, folder: &str, name: &str) -> Result<Vec<T>, RecordingError> {
        let path = self.0.join(folder).join(format!("{name}.jsonl.gz"));
        let file = std::fs::File::open(&path).map_err(RecordingError::file(&path))?;
        let mut text = String::new();
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).map_err(RecordingError::file(&path))?;
        let lines = text.lines().enumerate();
        let records = lines
            .map(|(index, line)| serde_json::from_str(line).map_err(RecordingError::line(&path, index + 1)));
        records.collect()
    }
}

impl Exchange {
    /// Method and URL.
    #[must_use]
    pub fn subject(&self) -> String {
        format!("{} {}", self.method, self.url)
    }
}

impl Body {
    /// Classifies bytes by the content type.
    #[must_use]
    pub fn parse(content_type: &str, bytes: &[u8]) -> Self {
        if bytes.is_empty() {
            return Self::Empty;
        }
        if content_type.starts_with("application/vnd.kubernetes.protobuf") {
            return Self::Binary(bytes.to_vec());
        }
        if content_type.starts_with("application/yaml") {
            let text = String::from_utf8_lossy(bytes).into_owned();
            return serde_saphyr::from_str(&text).map_or_else(|_| Self::Text(text), Self::Json);
        }
        serde_json::from_slice(bytes)
            .map_or_else(|_| Self::Text(String::from_utf8_lossy(bytes).into_owned()), Self::Json)
    }

    /// Whether there is no body.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::Empty
    }

    /// The bytes of a text or binary body, or of a JSON document in its shortest form.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Empty => Vec::new(),
            Self::Json(value) => value.to_string().into_bytes(),
            Self::Text(text) => text.clone().into_bytes(),
            Self::Binary(bytes) => bytes.clone(),
        }
    }
}

fn to_base64<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&STANDARD.encode(bytes))
}

fn from_base64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    STANDARD.decode(text).map_err(serde::de::Error::custom)
}
