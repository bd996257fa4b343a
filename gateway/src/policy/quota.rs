//! The quotas of a listener, and the guard that counts a request while it is open.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use fairlead_config::{ListenerQuotasConfig, QuotaConfig};
use fairlead_process::{AddressQuotas, Counting, Meter, Meters, Rate, network_of};

/// Kinds of requests that are counted separately while they are open.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum RequestKind {
    /// An ordinary request, which ends by itself.
    Request = 0,
    /// Watches and followed logs.
    Watch = 1,
    /// An upgraded connection.
    Upgrade = 2,
}

impl RequestKind {
    /// The kinds that a request counts as before it has a response. Any request can ask for an upgrade, so an upgrade request also
    /// counts as a request.
    fn counts_as(self) -> &'static [Self] {
        match self {
            Self::Request => &[Self::Request],
            Self::Watch => &[Self::Watch],
            Self::Upgrade => &[Self::Upgrade, Self::Request],
        }
    }
}

/// The requests that a quota applies to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LimitScope {
    /// All requests of the listener together.
    All,
    /// The requests of one user.
    Identity,
    /// The requests for one logical cluster.
    Workspace,
    /// The requests of one address, before authentication.
    Address,
}

/// The limit that was exceeded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LimitKind {
    Rate,
    Bytes,
    Open(RequestKind),
    /// New and open connections.
    Connections,
    /// Failed authentications.
    Failures,
}

/// A quota is exceeded. A retry helps after `wait`.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("too many {}: {} may have no more {}", limit.noun(), scope.noun(), limit.unit())]
pub(crate) struct Exceeded {
    /// The scope of the quota.
    pub(crate) scope: LimitScope,
    /// The limit.
    pub(crate) limit: LimitKind,
    /// Time after which it may be available again.
    pub(crate) wait: Duration,
}

impl Exceeded {
    /// The quota of an address.
    pub(crate) fn of_address(limit: LimitKind, wait: Duration) -> Self {
        Self { scope: LimitScope::Address, limit, wait }
    }
}

impl LimitScope {
    /// The label value in metrics.
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

impl LimitKind {
    /// The label value in metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Bytes => "bytes",
            Self::Open(RequestKind::Request) => "concurrent",
            Self::Open(RequestKind::Watch) => "watches",
            Self::Open(RequestKind::Upgrade) => "upgrades",
            Self::Connections => "connections",
            Self::Failures => "failures",
        }
    }

    fn noun(self) -> &'static str {
        match self {
            Self::Rate => "requests",
            Self::Bytes => "bytes",
            Self::Open(RequestKind::Request) => "requests at a time",
            Self::Open(RequestKind::Watch) => "open watches",
            Self::Open(RequestKind::Upgrade) => "upgraded connections",
            Self::Connections => "connections",
            Self::Failures => "failed authentications",
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::Rate | Self::Bytes | Self::Failures => "for now",
            Self::Open(_) | Self::Connections => "until others end",
        }
    }
}

/// The subjects whose quotas a request counts against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuotaSubject<'w> {
    /// The identity.
    pub(crate) identity: QuotaIdentity<'w>,
    /// Groups of the user.
    pub(crate) groups: &'w [String],
    /// Id of the logical cluster, if there is one.
    pub(crate) workspace: Option<&'w str>,
}

/// The subject of the quota per identity. A user, a user of a workspace's own issuers and an address never share a quota,
/// however they are spelled.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum QuotaIdentity<'w> {
    /// A user of the whole installation, by name.
    User(&'w str),
    /// A user from the issuers of a workspace: the id of its logical cluster, and the name.
    WorkspaceUser(&'w str, &'w str),
    /// Address of a client that was not authenticated here.
    Address(IpAddr),
}

/// The quotas of a listener.
#[derive(Debug)]
pub(crate) struct ListenerQuotas {
    rules: ArcSwap<Rules>,
    /// True if there is any quota; makes a listener without quotas cheap.
    has_quotas: AtomicBool,
    began: Instant,
    all: Arc<Meter>,
    identities: Meters,
    workspaces: Meters,
    /// Health probes, by address.
    probes: Meters,
    /// Limits per address before authentication.
    pub(crate) addresses: AddressQuotas,
}

#[derive(Debug, Default)]
struct Rules {
    all: Quota,
    identity: Quota,
    workspace: Quota,
    exempt: Vec<String>,
}

/// One quota, in the form that requests are compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Quota {
    requests: Option<Rate>,
    bytes: Option<Rate>,
    open: [Option<u32>; 3],
}

impl Rules {
    fn exempt(&self, subject: &QuotaSubject<'_>) -> bool {
        subject.groups.iter().any(|group| self.exempt.contains(group))
    }
}

impl Quota {
    fn new(config: &QuotaConfig) -> Self {
        let requests = config.requests_per_second.map(|rate| {
            let burst = config.burst.unwrap_or(rate);
            Rate::new(rate.into(), burst.into())
        });
        let bytes =
            config.bytes_per_second.map(|rate| Rate::new(rate.bytes(), rate.bytes().saturating_mul(2)));
        Self { requests, bytes, open: [config.concurrent, config.watches, config.upgrades] }
    }

    fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }
}

impl ListenerQuotas {
    /// The quotas in these settings.
    pub(crate) fn new(config: &ListenerQuotasConfig) -> Self {
        let quotas = Self {
            rules: ArcSwap::default(),
            has_quotas: AtomicBool::new(false),
            began: Instant::now(),
            all: Arc::default(),
            identities: Meters::default(),
            workspaces: Meters::default(),
            probes: Meters::default(),
            addresses: AddressQuotas::new(&config.per_address),
        };
        quotas.set(config);
        quotas
    }

    /// Changes the limits; what was counted before still counts.
    pub(crate) fn set(&self, config: &ListenerQuotasConfig) {
        let rules = Rules {
            all: Quota::new(&config.all),
            identity: Quota::new(&config.per_identity),
            workspace: Quota::new(&config.per_workspace),
            exempt: config.exempt_groups.clone(),
        };
        let has_quotas =
            [&rules.all, &rules.identity, &rules.workspace].into_iter().any(|quota| !quota.is_unlimited());
        self.rules.store(Arc::new(rules));
        self.has_quotas.store(has_quotas, Ordering::Relaxed);
        self.addresses.set(&config.per_address);
    }

    /// True if there is any quota.
    pub(crate) fn has_quotas(&self) -> bool {
        self.has_quotas.load(Ordering::Relaxed)
    }

    /// Counts a request against the listener's rate, before anything is done for it.
    ///
    /// # Errors
    /// [`Exceeded`], at nearly no cost.
    pub(crate) fn admit_request(&self, counting: Counting) -> Result<(), Exceeded> {
        if !self.has_quotas() {
            return Ok(());
        }
        match self.rules.load().all.requests {
            Some(rate) => self.all.requests.take(rate, self.now(), counting).map_err(|wait| Exceeded {
                scope: LimitScope::All,
                limit: LimitKind::Rate,
                wait,
            }),
            None => Ok(()),
        }
    }

    /// Counts a health probe. Probes do not count against other quotas, so that a listener at its limit stays healthy; each address
    /// has a rate of its own for them, whatever is configured.
    ///
    /// # Errors
    /// [`Exceeded`], at nearly no cost.
    pub(crate) fn probe(&self, address: IpAddr, counting: Counting) -> Result<(), Exceeded> {
        let (now, rate) = (self.now(), Rate::new(PROBES_PER_SECOND, 2 * PROBES_PER_SECOND));
        let taken = self.probes.of(&network_of(address), now).requests.take(rate, now, counting);
        taken.map_err(|wait| Exceeded { scope: LimitScope::Address, limit: LimitKind::Rate, wait })
    }

    /// Counts a request of this subject until the guard is dropped; `None` where nothing is counted. An upgrade request counts as a
    /// request, too, until the protocol was switched ([`QuotaGuard::switched`]).
    ///
    /// # Errors
    /// [`Exceeded`]; the request then does not count as open.
    pub(crate) fn admit(
        self: &Arc<Self>,
        kind: RequestKind,
        subject: &QuotaSubject<'_>,
        counting: Counting,
    ) -> Result<Option<QuotaGuard>, Exceeded> {
        if !self.has_quotas() {
            return Ok(None);
        }
        let (rules, now) = (self.rules.load(), self.now());
        let request = Admission { kind, now, counting };
        let all_clients = request.acquire(LimitScope::All, &rules.all, || Arc::clone(&self.all))?;
        let (mut identity, mut workspace) = (None, None);
        if (!rules.identity.is_unlimited() || !rules.workspace.is_unlimited()) && !rules.exempt(subject) {
            identity = request.acquire(LimitScope::Identity, &rules.identity, || {
                self.identities.of(&subject.identity, now)
            })?;
            if let Some(id) = subject.workspace {
                let meter = || self.workspaces.of(id, now);
                workspace = request.acquire(LimitScope::Workspace, &rules.workspace, meter)?;
            }
        }
        Ok(Some(QuotaGuard { guards: [all_clients, identity, workspace], quotas: Arc::clone(self) }))
    }

    /// Describes what is left of each quota of a subject, for explain.
    pub(crate) fn remaining(&self, kind: RequestKind, subject: &QuotaSubject<'_>) -> Vec<String> {
        let (rules, now) = (self.rules.load(), self.now());
        let mut descriptions = Vec::new();
        let mut describe = |scope: LimitScope, meter: &Meter, quota: &Quota| {
            if let Some(rate) = quota.requests {
                let (left, per_second) = (meter.requests.remaining(rate, now), rate.per_second());
                descriptions
                    .push(format!("{}: {left} more requests at once, {per_second} per second", scope.noun()));
            }
            if let Some(rate) = quota.bytes {
                let (left, per_second) = (meter.bytes.remaining(rate, now), rate.per_second());
                descriptions
                    .push(format!("{}: {left} more bytes at once, {per_second} per second", scope.noun()));
            }
            for kind in kind.counts_as() {
                if let Some(most) = quota.open[*kind as usize] {
                    let open = meter.open[*kind as usize].load(Ordering::Relaxed);
                    descriptions.push(format!(
                        "{}: {open} of {most} {} now",
                        scope.noun(),
                        LimitKind::Open(*kind).noun()
                    ));
                }
            }
        };
        describe(LimitScope::All, &self.all, &rules.all);
        if rules.exempt(subject) {
            descriptions.push("a group of the user is exempt from identity quotas".to_owned());
            return descriptions;
        }
        if !rules.identity.is_unlimited() {
            describe(LimitScope::Identity, &self.identities.of(&subject.identity, now), &rules.identity);
        }
        if let (Some(workspace), false) = (subject.workspace, rules.workspace.is_unlimited()) {
            describe(LimitScope::Workspace, &self.workspaces.of(workspace, now), &rules.workspace);
        }
        descriptions
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Health probes per second and address: many times the rate of load balancers.
const PROBES_PER_SECOND: u64 = 50;

/// `Retry-After` where the end of open requests is unknown.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The admission of a request to quotas.
#[derive(Clone, Copy)]
struct Admission {
    kind: RequestKind,
    now: u64,
    counting: Counting,
}

impl Admission {
    /// Counts the request for one meter until the guard is dropped; `None` without a quota.
    fn acquire(
        self,
        scope: LimitScope,
        quota: &Quota,
        meter: impl FnOnce() -> Arc<Meter>,
    ) -> Result<Option<MeterGuard>, Exceeded> {
        if quota.is_unlimited() {
            return Ok(None);
        }
        let Self { kind, now, counting } = self;
        let exceeded = |limit, wait| Exceeded { scope, limit, wait };
        // Dropped, and so closed again, if another limit of the quota is exceeded.
        let mut guard = MeterGuard { meter: meter(), open: &[], bytes: quota.bytes };
        if let Some(rate) = quota.bytes {
            guard.meter.bytes.check(rate, now).map_err(|wait| exceeded(LimitKind::Bytes, wait))?;
        }
        let kinds = kind.counts_as();
        for (index, kind) in kinds.iter().enumerate() {
            if !guard.meter.open(*kind as usize, quota.open[*kind as usize], counting) {
                return Err(exceeded(LimitKind::Open(*kind), RETRY_INTERVAL));
            }
            if counting == Counting::Real {
                guard.open = &kinds[..=index];
            }
        }
        // The listener's rate was counted when the request arrived.
        if let Some(rate) = quota.requests.filter(|_| scope != LimitScope::All) {
            let taken = guard.meter.requests.take(rate, now, counting);
            taken.map_err(|wait| exceeded(LimitKind::Rate, wait))?;
        }
        Ok((counting == Counting::Real).then_some(guard))
    }
}

/// Counts a request while it is open. Without allocation, and with one reference per meter, because all threads share the
/// meters.
#[derive(Debug)]
pub(crate) struct QuotaGuard {
    /// Guards of the listener, the user and the workspace.
    guards: [Option<MeterGuard>; 3],
    quotas: Arc<ListenerQuotas>,
}

#[derive(Debug)]
struct MeterGuard {
    meter: Arc<Meter>,
    /// The kinds that the request counts as.
    open: &'static [RequestKind],
    /// The rate of bytes, if bytes are counted.
    bytes: Option<Rate>,
}

impl QuotaGuard {
    /// Charges transferred bytes.
    pub(crate) fn count_bytes(&self, bytes: u64) {
        let charged = self.guards.iter().flatten().filter_map(|guard| Some((&guard.meter, guard.bytes?)));
        let mut now = None;
        for (meter, rate) in charged {
            meter.bytes.charge(rate, bytes, *now.get_or_insert_with(|| self.quotas.now()));
        }
    }

    /// The request has become a tunnel, and no longer counts as a request.
    pub(crate) fn switched(&mut self) {
        for guard in self.guards.iter_mut().flatten() {
            if guard.open == RequestKind::Upgrade.counts_as() {
                guard.open = &[RequestKind::Upgrade];
                guard.meter.close(RequestKind::Request as usize);
            }
        }
    }
}

impl Drop for MeterGuard {
    fn drop(&mut self) {
        self.open.iter().for_each(|kind| self.meter.close(*kind as usize));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use fairlead_config::ByteSize;

    use super::*;

    fn quotas(config: ListenerQuotasConfig) -> Arc<ListenerQuotas> {
        Arc::new(ListenerQuotas::new(&config))
    }

    fn subject<'w>(identity: &'w str, workspace: &'w str) -> QuotaSubject<'w> {
        QuotaSubject { identity: QuotaIdentity::User(identity), groups: &[], workspace: Some(workspace) }
    }

    fn exceeded(outcome: Result<Option<QuotaGuard>, Exceeded>) -> (LimitScope, LimitKind) {
        let exceeded = outcome.unwrap_err();
        assert!(!exceeded.wait.is_zero());
        (exceeded.scope, exceeded.limit)
    }

    #[test]
    fn without_a_quota_nothing_is_counted() {
        let quotas = quotas(ListenerQuotasConfig::default());
        assert!(quotas.admit_request(Counting::Real).is_ok());
        assert!(quotas.admit(RequestKind::Watch, &subject("bob", "a"), Counting::Real).unwrap().is_none());
    }

    #[test]
    fn each_user_and_each_workspace_has_a_count_of_its_own() {
        let two = QuotaConfig { concurrent: Some(2), watches: Some(1), ..QuotaConfig::default() };
        let three = QuotaConfig { concurrent: Some(3), ..QuotaConfig::default() };
        let quotas = quotas(ListenerQuotasConfig {
            per_identity: two,
            per_workspace: three,
            exempt_groups: vec!["operators".to_owned()],
            ..ListenerQuotasConfig::default()
        });
        let admit =
            |user, workspace| quotas.admit(RequestKind::Request, &subject(user, workspace), Counting::Real);
        let open: Vec<_> = (0..2).map(|_| admit("bob", "a").unwrap()).collect();
        assert_eq!(
            exceeded(admit("bob", "b")),
            (LimitScope::Identity, LimitKind::Open(RequestKind::Request))
        );
        let eve = admit("eve", "a").unwrap();
        assert_eq!(
            exceeded(admit("eve", "a")),
            (LimitScope::Workspace, LimitKind::Open(RequestKind::Request))
        );
        assert!(admit("eve", "b").is_ok(), "one that was refused is not open");

        let watch = quotas.admit(RequestKind::Watch, &subject("bob", "a"), Counting::Real).unwrap();
        let again = quotas.admit(RequestKind::Watch, &subject("bob", "a"), Counting::Real);
        assert_eq!(exceeded(again), (LimitScope::Identity, LimitKind::Open(RequestKind::Watch)));
        let operators = ["operators".to_owned()];
        let operator = QuotaSubject { groups: &operators, ..subject("bob", "a") };
        assert!(quotas.admit(RequestKind::Watch, &operator, Counting::Real).is_ok());
        drop((open, eve, watch));
        assert!(admit("bob", "a").is_ok());
    }

    #[test]
    fn rates_are_each_users_own_and_everybodys_are_counted_on_arrival() {
        let rate = |rate| QuotaConfig { requests_per_second: Some(rate), ..QuotaConfig::default() };
        let quotas = quotas(ListenerQuotasConfig {
            all: rate(20),
            per_identity: QuotaConfig { burst: Some(3), ..rate(1) },
            ..ListenerQuotasConfig::default()
        });
        let ask = |user| quotas.admit(RequestKind::Request, &subject(user, "a"), Counting::Real);
        assert_eq!((0..10).filter(|_| ask("bob").is_ok()).count(), 3);
        assert_eq!(exceeded(ask("bob")), (LimitScope::Identity, LimitKind::Rate));
        assert_eq!((0..10).filter(|_| ask("eve").is_ok()).count(), 3);
        let arrived = (0..200).filter(|_| quotas.admit_request(Counting::Real).is_ok()).count();
        assert!((20..=25).contains(&arrived), "{arrived}");
        let exceeded = (0..100).find_map(|_| quotas.admit_request(Counting::Real).err()).unwrap();
        assert_eq!((exceeded.scope, exceeded.limit), (LimitScope::All, LimitKind::Rate));
    }

    #[test]
    fn bytes_that_were_carried_hold_up_the_next_request() {
        let bytes = QuotaConfig { bytes_per_second: Some(ByteSize::mib(1)), ..QuotaConfig::default() };
        let quotas = quotas(ListenerQuotasConfig { per_workspace: bytes, ..ListenerQuotasConfig::default() });
        let ticket = quotas.admit(RequestKind::Watch, &subject("bob", "a"), Counting::Real).unwrap().unwrap();
        ticket.count_bytes(100 << 20);
        assert_eq!(
            exceeded(quotas.admit(RequestKind::Request, &subject("eve", "a"), Counting::Real)),
            (LimitScope::Workspace, LimitKind::Bytes)
        );
        assert!(quotas.admit(RequestKind::Request, &subject("eve", "b"), Counting::Real).is_ok());
    }

    #[test]
    fn other_quotas_count_what_is_open_already() {
        let most = |most| ListenerQuotasConfig {
            per_identity: QuotaConfig { watches: Some(most), ..QuotaConfig::default() },
            ..ListenerQuotasConfig::default()
        };
        let quotas = quotas(most(5));
        let open: Vec<_> = (0..5)
            .map(|_| quotas.admit(RequestKind::Watch, &subject("bob", "a"), Counting::Real).unwrap())
            .collect();
        quotas.set(&most(2));
        assert!(quotas.admit(RequestKind::Watch, &subject("bob", "a"), Counting::Real).is_err());
        drop(open);
        assert!(quotas.admit(RequestKind::Watch, &subject("bob", "a"), Counting::Real).is_ok());
    }

    #[test]
    fn a_user_shares_no_quota_with_an_address_or_another_workspace_of_the_same_spelling() {
        let quotas = Arc::new(ListenerQuotas::new(&ListenerQuotasConfig {
            per_identity: QuotaConfig { requests_per_second: Some(1), ..QuotaConfig::default() },
            ..ListenerQuotasConfig::default()
        }));
        let address: IpAddr = "10.0.0.7".parse().unwrap();
        for identity in [
            QuotaIdentity::User("10.0.0.7"),
            QuotaIdentity::Address(address),
            QuotaIdentity::User("abc/bob"),
            QuotaIdentity::WorkspaceUser("abc", "bob"),
            QuotaIdentity::WorkspaceUser("abc/b", "ob"),
        ] {
            let subject = QuotaSubject { identity, groups: &[], workspace: None };
            let admit = || quotas.admit(RequestKind::Request, &subject, Counting::Real);
            assert!(admit().is_ok(), "{identity:?}");
            assert!(admit().is_err(), "{identity:?}");
        }
    }

    #[test]
    fn probes_have_a_rate_of_their_own_per_network() {
        let quotas = ListenerQuotas::new(&ListenerQuotasConfig::default());
        let probe = |address: &str| quotas.probe(address.parse().unwrap(), Counting::Real).is_ok();
        let admitted = (0..10 * PROBES_PER_SECOND).filter(|_| probe("2001:db8::1")).count() as u64;
        assert!((2 * PROBES_PER_SECOND..4 * PROBES_PER_SECOND).contains(&admitted), "{admitted}");
        assert!(!probe("2001:db8::2"), "the same /64");
        assert!(probe("2001:db8:0:1::1") && probe("10.0.0.7"));
    }
}
