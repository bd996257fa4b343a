//! The functions of Kubernetes' libraries on values. Each module is one library; none charges costs.

mod authorizer;
mod format;
mod lists;
mod named_format;
mod net;
mod quantity;
mod regex;
mod semver;
mod strings;
mod time;
mod url;

pub use authorizer::{Authorizer, AuthorizerValue, Decision, ResourceAttributes};
pub(crate) use format::{Clause, FormatFault, format, parse_format};
pub(crate) use lists::{
    MAX_RANGE, distinct, extreme, flatten, index_of, is_sorted, last_index_of, range, reverse, slice,
    sort_by_keys, sum,
};
pub use named_format::NamedFormat;
pub use net::Cidr;
pub(crate) use net::{parse_cidr, parse_ip};
pub use quantity::Quantity;
pub(crate) use regex::Pattern;
pub use semver::SemanticVersion;
pub(crate) use strings::{
    char_at, find_text, join, lower_ascii, quote, quoted_for_go, replace, split, substring, trim, upper_ascii,
};
pub(crate) use time::Getter;
pub use time::{Duration, Timestamp};
pub use url::Url;
pub(crate) use url::is_request_uri;
