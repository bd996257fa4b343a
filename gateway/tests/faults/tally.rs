//! Outcomes of the requests to a shard, and of its watches.

use serde_json::Value;
use tokio::sync::watch;

use crate::world::Answer;

/// Descriptions of unexpected outcomes that are kept.
const MOST_DESCRIBED: usize = 5;

/// Counted since the last case began.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    pub sent: u64,
    pub good: u64,
    /// 503 with a `Status` and `Retry-After`: nothing was executed, and a retry helps.
    pub refused: u64,
    /// 502 or 504 with a `Status`: the shard may have received the request before the connection broke.
    pub broken: u64,
    /// Watches that ended between two events, and not by their clients.
    pub ended: u64,
    /// Watches that got 502, 503 or 504.
    pub turned_away: u64,
    pub events: u64,
    pub missed: u64,
    pub doubled: u64,
    /// All other outcomes; the first few are described, with the reasons of refused watches.
    pub wrong: u64,
    pub described: Vec<String>,
    /// Watches that are open now.
    pub watching: usize,
}

/// The permitted effect of a fault on a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// No request and no watch notices.
    Nothing,
    /// Requests are refused in a way that makes clients try again; those that the shard may have had already are
    /// reported as lost, unless they can be repeated. Watches end and are resumed.
    Interrupted,
    /// No request notices. Watches end as watches end, and are resumed.
    Reopened,
}

pub struct Tally(watch::Sender<Figures>);

impl Tally {
    pub fn new() -> Self {
        Self(watch::Sender::default())
    }

    pub fn count(&self, count: impl FnOnce(&mut Figures)) {
        self.0.send_modify(count);
    }

    pub fn wrong(&self, what: String) {
        self.count(|figures| {
            figures.wrong += 1;
            figures.describe(what);
        });
    }

    pub fn turned_away(&self, why: String) {
        self.count(|figures| {
            figures.turned_away += 1;
            figures.describe(why);
        });
    }

    pub fn figures(&self) -> Figures {
        self.0.borrow().clone()
    }

    /// Begins to count anew; what is open stays so.
    pub fn reset(&self) {
        self.count(|figures| *figures = Figures { watching: figures.watching, ..Figures::default() });
    }

    pub async fn until(&self, condition: impl FnMut(&Figures) -> bool) {
        crate::world::until(&self.0, condition).await;
    }
}

impl Figures {
    fn describe(&mut self, what: String) {
        if self.described.len() < MOST_DESCRIBED {
            self.described.push(what);
        }
    }

    /// Whether every request has been answered.
    pub fn is_answered(&self) -> bool {
        self.sent <= self.good + self.refused + self.broken + self.wrong
    }

    /// The results that are worse than allowed.
    pub fn complaint(&self, harm: Harm) -> Option<String> {
        let never = [("missed", self.missed), ("doubled", self.doubled), ("wrong", self.wrong)];
        let seldom = [
            ("refused", self.refused),
            ("broken", self.broken),
            ("ended", self.ended),
            ("turned away", self.turned_away),
        ];
        let seldom = match harm {
            Harm::Nothing => &seldom[..],
            Harm::Interrupted => &[],
            Harm::Reopened => &[seldom[0], seldom[1], seldom[3]][..],
        };
        let mut complaints: Vec<String> = never
            .iter()
            .chain(seldom)
            .filter(|(_, count)| *count > 0)
            .map(|(what, count)| format!("{count} {what}"))
            .collect();
        if self.sent == 0 || self.events == 0 {
            complaints.push("nothing was asked for".to_owned());
        }
        if harm == Harm::Reopened && self.ended == 0 {
            complaints.push("no watch has ended".to_owned());
        }
        if harm == Harm::Interrupted && self.refused + self.broken + self.ended == 0 {
            complaints.push("nothing has happened to it".to_owned());
        }
        (!complaints.is_empty()).then(|| format!("{}: {:?}", complaints.join(", "), self.described))
    }
}

/// A refusal by the gateway in place of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    TryAgain,
    Broken,
}

impl Refusal {
    /// `None` for a response that the gateway should never send.
    pub fn of(answer: &Answer) -> Option<Self> {
        let status: Value = serde_json::from_str(&answer.text).ok()?;
        let is_status = status["kind"] == "Status" && status["code"] == answer.status;
        match answer.status {
            503 if is_status && answer.headers.contains_key("retry-after") => Some(Self::TryAgain),
            502 | 504 if is_status => Some(Self::Broken),
            _ => None,
        }
    }
}
