//! The types of Kubernetes' libraries, with their operations. They know no other values.

mod authorizer;
mod go_text;
mod named_format;
mod net;
mod quantity;
mod regex;
mod repetitions;
mod semver;
mod time;
mod url;

pub(crate) use authorizer::Answer;
pub use authorizer::{Authorizer, AuthorizerValue, Decision, ResourceAttributes};
pub(crate) use go_text::{quoted, quoted_for_go};
pub use named_format::NamedFormat;
pub use net::Cidr;
pub(crate) use net::{parse_cidr, parse_ip};
pub use quantity::Quantity;
pub(crate) use regex::Pattern;
pub use regex::rust_pattern;
pub use semver::SemanticVersion;
pub(crate) use time::Getter;
pub use time::{Duration, Timestamp};
pub use url::Url;
pub(crate) use url::is_request_uri;
