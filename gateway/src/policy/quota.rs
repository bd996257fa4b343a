//! The quotas of a door, and the ticket that a request holds while it counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use fairlead_config::{DoorQuotasConfig, QuotaConfig};
use fairlead_process::{AddressQuotas, Counting, Meter, Meters, Pace};

/// What is open of it is counted apart.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// Has an end of its own.
    Request = 0,
    /// Watches and followed logs.
    Watch = 1,
    /// Tunnels.
    Upgrade = 2,
}

impl Kind {
    /// What is open of it while it is being asked for. Anybody can say of any request that it wants an upgrade.
    fn counts_as(self) -> &'static [Self] {
        match self {
            Self::Request => &[Self::Request],
            Self::Watch => &[Self::Watch],
            Self::Upgrade => &[Self::Upgrade, Self::Request],
        }
    }
}

/// Whose quota it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Scope {
    /// Everybody's together.
    All,
    /// The user's.
    Identity,
    /// The logical cluster's.
    Workspace,
    /// The address's, before anybody is known.
    Address,
}

/// What there is too much of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum What {
    Rate,
    Bytes,
    Open(Kind),
    /// New ones and open ones.
    Connections,
    /// Credentials that do not count.
    Failures,
}

/// A quota is used up. A retry helps after `wait`.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("too many {}: {} may have no more {}", what.noun(), scope.noun(), what.unit())]
pub(crate) struct Exceeded {
    /// Whose.
    pub(crate) scope: Scope,
    /// Which.
    pub(crate) what: What,
    /// After which it may be there again.
    pub(crate) wait: Duration,
}

impl Exceeded {
    /// That of an address.
    pub(crate) fn of_address(what: What, wait: Duration) -> Self {
        Self { scope: Scope::Address, what, wait }
    }
}

impl Scope {
    /// The word in metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Identity => "identity",
            Self::Workspace => "workspace",
            Self::Address => "address",
        }
    }

    fn noun(self) -> &'static str {
        match self {
            Self::All => "all users of this address together",
            Self::Identity => "you",
            Self::Workspace => "all users of this workspace together",
            Self::Address => "all clients at your address together",
        }
    }
}

impl What {
    /// The word in metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Bytes => "bytes",
            Self::Open(Kind::Request) => "concurrent",
            Self::Open(Kind::Watch) => "watches",
            Self::Open(Kind::Upgrade) => "upgrades",
            Self::Connections => "connections",
            Self::Failures => "failures",
        }
    }

    fn noun(self) -> &'static str {
        match self {
            Self::Rate => "requests",
            Self::Bytes => "bytes",
            Self::Open(Kind::Request) => "requests at a time",
            Self::Open(Kind::Watch) => "open watches",
            Self::Open(Kind::Upgrade) => "upgraded connections",
            Self::Connections => "connections",
            Self::Failures => "credentials that do not count",
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::Rate | Self::Bytes | Self::Failures => "for now",
            Self::Open(_) | Self::Connections => "until others end",
        }
    }
}

/// Who asks, and where, as far as quotas tell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whom<'w> {
    /// The user's name, or the address of whom nobody here has judged.
    pub(crate) identity: &'w str,
    /// Groups that the user is in.
    pub(crate) groups: &'w [String],
    /// The id of the logical cluster, if it is about one.
    pub(crate) workspace: Option<&'w str>,
}

/// The quotas of a door.
#[derive(Debug)]
pub(crate) struct DoorQuotas {
    rules: ArcSwap<Rules>,
    /// What makes a door without quotas cheap.
    counts: AtomicBool,
    began: Instant,
    all: Arc<Meter>,
    identities: Meters,
    workspaces: Meters,
    /// What addresses may do before anybody is known.
    pub(crate) addresses: AddressQuotas,
}

#[derive(Debug, Default)]
struct Rules {
    all: Quota,
    identity: Quota,
    workspace: Quota,
    exempt: Vec<String>,
}

/// One quota, in the form in which it is compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Quota {
    requests: Option<Pace>,
    bytes: Option<Pace>,
    open: [Option<u32>; 3],
}

impl Rules {
    fn exempt(&self, whom: &Whom<'_>) -> bool {
        whom.groups.iter().any(|group| self.exempt.contains(group))
    }
}

impl Quota {
    fn new(config: &QuotaConfig) -> Self {
        let requests = config.requests_per_second.map(|rate| {
            let burst = config.burst.unwrap_or(rate);
            Pace::new(rate.into(), burst.into())
        });
        let bytes =
            config.bytes_per_second.map(|rate| Pace::new(rate.bytes(), rate.bytes().saturating_mul(2)));
        Self { requests, bytes, open: [config.concurrent, config.watches, config.upgrades] }
    }

    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl DoorQuotas {
    /// Those that settings make.
    pub(crate) fn new(config: &DoorQuotasConfig) -> Self {
        let quotas = Self {
            rules: ArcSwap::default(),
            counts: AtomicBool::new(false),
            began: Instant::now(),
            all: Arc::default(),
            identities: Meters::default(),
            workspaces: Meters::default(),
            addresses: AddressQuotas::new(&config.per_address),
        };
        quotas.set(config);
        quotas
    }

    /// Other ones from now on; what was asked before still counts.
    pub(crate) fn set(&self, config: &DoorQuotasConfig) {
        let rules = Rules {
            all: Quota::new(&config.all),
            identity: Quota::new(&config.per_identity),
            workspace: Quota::new(&config.per_workspace),
            exempt: config.exempt_groups.clone(),
        };
        let counts =
            [&rules.all, &rules.identity, &rules.workspace].into_iter().any(|quota| !quota.is_none());
        self.rules.store(Arc::new(rules));
        self.counts.store(counts, Ordering::Relaxed);
        self.addresses.set(&config.per_address);
    }

    /// Whether anything is counted here.
    pub(crate) fn count(&self) -> bool {
        self.counts.load(Ordering::Relaxed)
    }

    /// Counts a request of which nothing more is known, for everybody together. Before anything is done for it.
    ///
    /// # Errors
    /// [`Exceeded`], which then has cost nearly nothing.
    pub(crate) fn arrive(&self, counting: Counting) -> Result<(), Exceeded> {
        if !self.count() {
            return Ok(());
        }
        match self.rules.load().all.requests {
            Some(pace) => self.all.requests.take(pace, self.now(), counting).map_err(|wait| Exceeded {
                scope: Scope::All,
                what: What::Rate,
                wait,
            }),
            None => Ok(()),
        }
    }

    /// Counts a request of somebody, until the ticket is dropped. `None` where nothing is counted. One that asks for an upgrade
    /// counts among requests, too, until it has one ([`Ticket::switched`]).
    ///
    /// # Errors
    /// [`Exceeded`]; nothing of it is counted as open then.
    pub(crate) fn admit(
        self: &Arc<Self>,
        kind: Kind,
        whom: &Whom<'_>,
        counting: Counting,
    ) -> Result<Option<Ticket>, Exceeded> {
        if !self.count() {
            return Ok(None);
        }
        let (rules, now) = (self.rules.load(), self.now());
        let request = Asking { kind, now, counting };
        let everybody = request.hold(Scope::All, &rules.all, || Arc::clone(&self.all))?;
        let (mut identity, mut workspace) = (None, None);
        if (!rules.identity.is_none() || !rules.workspace.is_none()) && !rules.exempt(whom) {
            identity =
                request.hold(Scope::Identity, &rules.identity, || self.identities.of(whom.identity, now))?;
            if let Some(id) = whom.workspace {
                let meter = || self.workspaces.of(id, now);
                workspace = request.hold(Scope::Workspace, &rules.workspace, meter)?;
            }
        }
        Ok(Some(Ticket { held: [everybody, identity, workspace], quotas: Arc::clone(self) }))
    }

    /// What is left of each quota that counts for somebody, in words.
    pub(crate) fn standing(&self, kind: Kind, whom: &Whom<'_>) -> Vec<String> {
        let (rules, now) = (self.rules.load(), self.now());
        let mut told = Vec::new();
        let mut tell = |scope: Scope, meter: &Meter, quota: &Quota| {
            if let Some(pace) = quota.requests {
                let (left, per_second) = (meter.requests.left(pace, now), pace.per_second());
                told.push(format!("{}: {left} more requests at once, {per_second} per second", scope.noun()));
            }
            if let Some(pace) = quota.bytes {
                let (left, per_second) = (meter.bytes.left(pace, now), pace.per_second());
                told.push(format!("{}: {left} more bytes at once, {per_second} per second", scope.noun()));
            }
            for kind in kind.counts_as() {
                if let Some(most) = quota.open[*kind as usize] {
                    let open = meter.open[*kind as usize].load(Ordering::Relaxed);
                    told.push(format!("{}: {open} of {most} {} now", scope.noun(), What::Open(*kind).noun()));
                }
            }
        };
        tell(Scope::All, &self.all, &rules.all);
        if rules.exempt(whom) {
            told.push("a group of the user is exempt from quotas of its own".to_owned());
            return told;
        }
        if !rules.identity.is_none() {
            tell(Scope::Identity, &self.identities.of(whom.identity, now), &rules.identity);
        }
        if let (Some(workspace), false) = (whom.workspace, rules.workspace.is_none()) {
            tell(Scope::Workspace, &self.workspaces.of(workspace, now), &rules.workspace);
        }
        told
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// When to try again where nobody can know.
const A_MOMENT: Duration = Duration::from_secs(1);

/// A request that is to be counted.
#[derive(Clone, Copy)]
struct Asking {
    kind: Kind,
    now: u64,
    counting: Counting,
}

impl Asking {
    /// Counts it for one meter, until what is returned is dropped. `None` where there is no quota.
    fn hold(
        self,
        scope: Scope,
        quota: &Quota,
        meter: impl FnOnce() -> Arc<Meter>,
    ) -> Result<Option<Held>, Exceeded> {
        if quota.is_none() {
            return Ok(None);
        }
        let Self { kind, now, counting } = self;
        let exceeded = |what, wait| Exceeded { scope, what, wait };
        // Whatever is opened is closed again if there is too much of something else.
        let mut held = Held { meter: meter(), open: &[], bytes: quota.bytes };
        if let Some(pace) = quota.bytes {
            held.meter.bytes.check(pace, now).map_err(|wait| exceeded(What::Bytes, wait))?;
        }
        let kinds = kind.counts_as();
        for (place, kind) in kinds.iter().enumerate() {
            if !held.meter.open(*kind as usize, quota.open[*kind as usize], counting) {
                return Err(exceeded(What::Open(*kind), A_MOMENT));
            }
            if counting == Counting::Real {
                held.open = &kinds[..=place];
            }
        }
        // Everybody's were taken when it arrived.
        if let Some(pace) = quota.requests.filter(|_| scope != Scope::All) {
            let taken = held.meter.requests.take(pace, now, counting);
            taken.map_err(|wait| exceeded(What::Rate, wait))?;
        }
        Ok((counting == Counting::Real).then_some(held))
    }
}

/// A request that counts until this is dropped. Nothing in it is allocated, and each meter is found and referred to once:
/// they are shared by all threads.
#[derive(Debug)]
pub(crate) struct Ticket {
    /// Everybody's, the user's, the workspace's.
    held: [Option<Held>; 3],
    quotas: Arc<DoorQuotas>,
}

#[derive(Debug)]
struct Held {
    meter: Arc<Meter>,
    /// What it is counted as.
    open: &'static [Kind],
    /// If bytes are counted.
    bytes: Option<Pace>,
}

impl Ticket {
    /// Counts bytes that were carried for it.
    pub(crate) fn carried(&self, bytes: u64) {
        let charged = self.held.iter().flatten().filter_map(|held| Some((&held.meter, held.bytes?)));
        let mut now = None;
        for (meter, pace) in charged {
            meter.bytes.charge(pace, bytes, *now.get_or_insert_with(|| self.quotas.now()));
        }
    }

    /// It is a tunnel from now on, and no request any more.
    pub(crate) fn switched(&mut self) {
        for held in self.held.iter_mut().flatten() {
            if held.open == Kind::Upgrade.counts_as() {
                held.open = &[Kind::Upgrade];
                held.meter.close(Kind::Request as usize);
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.open.iter().for_each(|kind| self.meter.close(*kind as usize));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use fairlead_config::ByteSize;

    use super::*;

    fn quotas(config: DoorQuotasConfig) -> Arc<DoorQuotas> {
        Arc::new(DoorQuotas::new(&config))
    }

    fn whom<'w>(identity: &'w str, workspace: &'w str) -> Whom<'w> {
        Whom { identity, groups: &[], workspace: Some(workspace) }
    }

    fn exceeded(outcome: Result<Option<Ticket>, Exceeded>) -> (Scope, What) {
        let exceeded = outcome.unwrap_err();
        assert!(!exceeded.wait.is_zero());
        (exceeded.scope, exceeded.what)
    }

    #[test]
    fn without_a_quota_nothing_is_counted() {
        let quotas = quotas(DoorQuotasConfig::default());
        assert!(quotas.arrive(Counting::Real).is_ok());
        assert!(quotas.admit(Kind::Watch, &whom("bob", "a"), Counting::Real).unwrap().is_none());
    }

    #[test]
    fn each_user_and_each_workspace_has_a_count_of_its_own() {
        let two = QuotaConfig { concurrent: Some(2), watches: Some(1), ..QuotaConfig::default() };
        let three = QuotaConfig { concurrent: Some(3), ..QuotaConfig::default() };
        let quotas = quotas(DoorQuotasConfig {
            per_identity: two,
            per_workspace: three,
            exempt_groups: vec!["operators".to_owned()],
            ..DoorQuotasConfig::default()
        });
        let admit = |user, workspace| quotas.admit(Kind::Request, &whom(user, workspace), Counting::Real);
        let open: Vec<_> = (0..2).map(|_| admit("bob", "a").unwrap()).collect();
        assert_eq!(exceeded(admit("bob", "b")), (Scope::Identity, What::Open(Kind::Request)));
        let eve = admit("eve", "a").unwrap();
        assert_eq!(exceeded(admit("eve", "a")), (Scope::Workspace, What::Open(Kind::Request)));
        assert!(admit("eve", "b").is_ok(), "one that was refused is not open");

        let watch = quotas.admit(Kind::Watch, &whom("bob", "a"), Counting::Real).unwrap();
        let again = quotas.admit(Kind::Watch, &whom("bob", "a"), Counting::Real);
        assert_eq!(exceeded(again), (Scope::Identity, What::Open(Kind::Watch)));
        let operators = ["operators".to_owned()];
        let operator = Whom { groups: &operators, ..whom("bob", "a") };
        assert!(quotas.admit(Kind::Watch, &operator, Counting::Real).is_ok());
        drop((open, eve, watch));
        assert!(admit("bob", "a").is_ok());
    }

    #[test]
    fn rates_are_each_users_own_and_everybodys_are_counted_on_arrival() {
        let rate = |rate| QuotaConfig { requests_per_second: Some(rate), ..QuotaConfig::default() };
        let quotas = quotas(DoorQuotasConfig {
            all: rate(20),
            per_identity: QuotaConfig { burst: Some(3), ..rate(1) },
            ..DoorQuotasConfig::default()
        });
        let ask = |user| quotas.admit(Kind::Request, &whom(user, "a"), Counting::Real);
        assert_eq!((0..10).filter(|_| ask("bob").is_ok()).count(), 3);
        assert_eq!(exceeded(ask("bob")), (Scope::Identity, What::Rate));
        assert_eq!((0..10).filter(|_| ask("eve").is_ok()).count(), 3);
        let arrived = (0..200).filter(|_| quotas.arrive(Counting::Real).is_ok()).count();
        assert!((20..=25).contains(&arrived), "{arrived}");
        let exceeded = (0..100).find_map(|_| quotas.arrive(Counting::Real).err()).unwrap();
        assert_eq!((exceeded.scope, exceeded.what), (Scope::All, What::Rate));
    }

    #[test]
    fn bytes_that_were_carried_hold_up_the_next_request() {
        let bytes = QuotaConfig { bytes_per_second: Some(ByteSize::mib(1)), ..QuotaConfig::default() };
        let quotas = quotas(DoorQuotasConfig { per_workspace: bytes, ..DoorQuotasConfig::default() });
        let ticket = quotas.admit(Kind::Watch, &whom("bob", "a"), Counting::Real).unwrap().unwrap();
        ticket.carried(100 << 20);
        assert_eq!(
            exceeded(quotas.admit(Kind::Request, &whom("eve", "a"), Counting::Real)),
            (Scope::Workspace, What::Bytes)
        );
        assert!(quotas.admit(Kind::Request, &whom("eve", "b"), Counting::Real).is_ok());
    }

    #[test]
    fn other_quotas_count_what_is_open_already() {
        let most = |most| DoorQuotasConfig {
            per_identity: QuotaConfig { watches: Some(most), ..QuotaConfig::default() },
            ..DoorQuotasConfig::default()
        };
        let quotas = quotas(most(5));
        let open: Vec<_> =
            (0..5).map(|_| quotas.admit(Kind::Watch, &whom("bob", "a"), Counting::Real).unwrap()).collect();
        quotas.set(&most(2));
        assert!(quotas.admit(Kind::Watch, &whom("bob", "a"), Counting::Real).is_err());
        drop(open);
        assert!(quotas.admit(Kind::Watch, &whom("bob", "a"), Counting::Real).is_ok());
    }
}
