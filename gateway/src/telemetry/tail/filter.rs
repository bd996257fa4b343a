//! Filters of the requests that a subscriber receives.

use std::sync::Arc;

use percent_encoding::percent_decode_str;

use crate::telemetry::access_log::{Line, workspace};

/// A filter. All named conditions must hold.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Filter {
    /// The workspace as given in the query: a path, or the id of a logical cluster.
    pub(crate) workspace: Option<String>,
    /// The logical cluster of the path at the time of the subscription.
    pub(crate) cluster: Option<Arc<str>>,
    user: Option<String>,
    listener: Option<String>,
    shard: Option<String>,
    status: Option<Codes>,
    errors: bool,
}

/// One status code, or a class of them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Codes {
    from: u16,
    until: u16,
}

/// The filter is invalid; the client must correct it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum InvalidFilter {
    #[error("{0:?} is none of workspace, user, listener, shard, status and errors")]
    Parameter(String),
    #[error("status {0:?} is neither a code such as 404 nor a class such as 5xx")]
    Status(String),
}

impl Filter {
    /// Parses a query.
    pub(crate) fn of_query(query: &str) -> Result<Self, InvalidFilter> {
        let mut filter = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_decode_str(&value.replace('+', " ")).decode_utf8_lossy().into_owned();
            match name {
                "workspace" => filter.workspace = Some(value),
                "user" => filter.user = Some(value),
                "listener" => filter.listener = Some(value),
                "shard" => filter.shard = Some(value),
                "status" => filter.status = Some(Codes::parse(&value).ok_or(InvalidFilter::Status(value))?),
                "errors" => filter.errors = !matches!(value.as_str(), "0" | "false"),
                // Parameters that make the request a watch.
                "watch" | "follow" => {}
                other => return Err(InvalidFilter::Parameter(other.to_owned())),
            }
        }
        Ok(filter)
    }

    /// True if the line matches the filter.
    pub(super) fn matches(&self, line: &Line<'_>) -> bool {
        let is = |wanted: &Option<String>, found: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| found == Some(wanted))
        };
        is(&self.user, line.user)
            && is(&self.listener, Some(line.listener))
            && is(&self.shard, line.shard)
            && (!self.errors || line.code >= 400)
            && self.status.is_none_or(|codes| (codes.from..codes.until).contains(&line.code))
            && self.is_workspace(line)
    }

    fn is_workspace(&self, line: &Line<'_>) -> bool {
        let Some(wanted) = self.workspace.as_deref() else { return true };
        // The workspace matches by its path or by its id.
        let named = line.request.and_then(|request| workspace(request.path));
        named == Some(wanted)
            || line.cluster == Some(wanted)
            || (self.cluster.is_some() && line.cluster == self.cluster.as_deref())
    }
}

impl Codes {
    fn parse(text: &str) -> Option<Self> {
        if let Some(class) = text.strip_suffix("xx") {
            let class: u16 = class.parse().ok().filter(|class| (1..=5).contains(class))?;
            return Some(Self { from: class * 100, until: (class + 1) * 100 });
        }
        let code: u16 = text.parse().ok().filter(|code| (100..600).contains(code))?;
        Some(Self { from: code, until: code + 1 })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::telemetry::access_log::a_line;

    #[test]
    fn each_condition_counts_and_all_of_them_together() {
        // The line is of user alice at listener internal, for shard alpha and logical cluster 0rg0000000000001.
        for (query, path, code, expected) in [
            ("", "/x", 200, true),
            ("watch=1", "/x", 200, true),
            ("user=alice", "/x", 200, true),
            ("user=bob", "/x", 200, false),
            ("listener=internal&shard=alpha", "/x", 200, true),
            ("listener=edge", "/x", 200, false),
            ("shard=beta", "/x", 200, false),
            ("status=404", "/x", 404, true),
            ("status=404", "/x", 405, false),
            ("status=4xx", "/x", 499, true),
            ("status=4xx", "/x", 500, false),
            ("errors=1", "/x", 399, false),
            ("errors", "/x", 400, true),
            ("workspace=root:org", "/clusters/root:org/api", 200, true),
            ("workspace=root%3Aorg", "/clusters/root:org", 200, true),
            ("workspace=root:org", "/clusters/root:org2/api", 200, false),
            ("workspace=0rg0000000000001", "/clusters/root:org/api", 200, true),
            ("workspace=root:org&status=5xx", "/clusters/root:org/api", 200, false),
        ] {
            let filter = Filter::of_query(query).unwrap();
            assert_eq!(filter.matches(&a_line(path, code)), expected, "{query} {path} {code}");
        }
        let mut filter = Filter::of_query("workspace=root:org").unwrap();
        filter.cluster = Some("0rg0000000000001".into());
        assert!(filter.matches(&a_line("/clusters/0rg0000000000001/api", 200)), "by its id");
    }

    #[test]
    fn invalid_filters_name_the_error() {
        for (query, expected) in [
            ("user=a&colour=red", InvalidFilter::Parameter("colour".to_owned())),
            ("status=6xx", InvalidFilter::Status("6xx".to_owned())),
            ("status=", InvalidFilter::Status(String::new())),
            ("status=99", InvalidFilter::Status("99".to_owned())),
        ] {
            assert_eq!(Filter::of_query(query), Err(expected), "{query}");
        }
    }
}
