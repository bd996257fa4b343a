//! Health endpoints, printed as Kubernetes prints them: `/livez`, `/readyz`, `/healthz`, and each check by name.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};

use crate::lifecycle::Shutdown;

/// The named checks of a process. Cloning gives another handle.
#[derive(Clone, Default)]
pub struct Health {
    checks: Arc<ArcSwap<Vec<Check>>>,
}

/// A health endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// `/livez`: the process has to be restarted if it fails.
    Live,
    /// `/readyz`: the process must get no requests while it fails.
    Ready,
    /// `/healthz`: both, for old clients.
    Health,
}

/// All endpoints, for [`Health::check`].
pub const ALL_PROBES: &[Probe] = &[Probe::Live, Probe::Ready, Probe::Health];

/// A check with a flag that the process sets, for example after the first sync.
#[derive(Clone, Debug, Default)]
pub struct ReadyFlag(Arc<AtomicBool>);

impl ReadyFlag {
    /// Makes the check pass from now on.
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Makes the check fail from now on.
    pub fn clear(&self) {
        self.0.store(false, Ordering::Release);
    }

    /// Whether the check passes.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

#[derive(Clone)]
struct Check {
    name: String,
    probes: Vec<Probe>,
    severity: Severity,
    run: Arc<dyn Fn() -> Result<(), String> + Send + Sync>,
}

/// Effect of a failing check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Severity {
    /// The endpoint fails.
    Required,
    /// The failure is shown only.
    Informational,
}

impl Health {
    /// No checks: everything passes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check to some endpoints; checks print in the order in which they were added. `run` must not block; its
    /// error is shown only to requests for this check by name; it must have no secrets.
    pub fn check(
        &self,
        name: impl Into<String>,
        probes: &[Probe],
        run: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.add(Check {
            name: name.into(),
            probes: probes.to_vec(),
            severity: Severity::Required,
            run: Arc::new(run),
        });
    }

    fn add(&self, check: Check) {
        self.checks.rcu(|checks| {
            let mut checks = Vec::clone(checks);
            checks.push(check.clone());
            checks
        });
    }

    /// Adds an informational check: it always passes, and `?verbose` shows the text of `run` in place of `ok`. Every client may
    /// see it.
    pub fn note(
        &self,
        name: impl Into<String>,
        probes: &[Probe],
        run: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) {
        let run = move || run().map_or(Ok(()), Err);
        self.add(Check {
            name: name.into(),
            probes: probes.to_vec(),
            severity: Severity::Informational,
            run: Arc::new(run),
        });
    }

    /// Adds Kubernetes' `ping`, which always passes.
    pub fn ping(&self, probes: &[Probe]) {
        self.check("ping", probes, || Ok(()));
    }

    /// Adds a check that fails until its flag is set.
    pub fn flag(&self, name: impl Into<String>, probes: &[Probe]) -> ReadyFlag {
        let flag = ReadyFlag::default();
        let seen = flag.clone();
        self.check(name, probes, move || if seen.is_set() { Ok(()) } else { Err("not yet".to_owned()) });
        flag
    }

    /// Adds Kubernetes' `shutdown`: not ready any more once a shutdown is announced. Add it last.
    pub fn shutdown(&self, shutdown: &Shutdown) {
        let shutdown = shutdown.clone();
        self.check("shutdown", &[Probe::Ready], move || {
            if shutdown.is_announced() { Err("process is shutting down".to_owned()) } else { Ok(()) }
        });
    }

    /// Whether every check of an endpoint passes.
    pub fn passes(&self, probe: Probe) -> bool {
        self.checks
            .load()
            .iter()
            .filter(|check| check.probes.contains(&probe) && check.severity == Severity::Required)
            .all(|check| (check.run)().is_ok())
    }

    /// The response to a request for a health endpoint (`/readyz`, `/readyz/<check>`), whatever its method; `None` if
    /// the path is no endpoint or names no check. `query` as in the URI: `verbose`, `exclude=<check>`.
    pub fn respond(&self, path: &str, query: Option<&str>) -> Option<Response<Bytes>> {
        let (probe, endpoint, rest) =
            [(Probe::Live, "livez"), (Probe::Ready, "readyz"), (Probe::Health, "healthz")]
                .into_iter()
                .find_map(|(probe, name)| Some((probe, name, path.strip_prefix('/')?.strip_prefix(name)?)))?;
        let checks = self.checks.load();
        let mut checks = checks.iter().filter(|check| check.probes.contains(&probe));
        if rest.is_empty() {
            return Some(all(endpoint, checks, query.unwrap_or_default()));
        }
        let name = rest.strip_prefix('/')?;
        let check = checks.find(|check| check.name == name)?;
        Some(match (check.run)() {
            Ok(()) => text(StatusCode::OK, "ok".to_owned()),
            Err(note) if check.severity == Severity::Informational => text(StatusCode::OK, note),
            Err(reason) => {
                text(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {reason}\n"))
            }
        })
    }
}

fn all<'a>(endpoint: &str, checks: impl Iterator<Item = &'a Check>, query: &str) -> Response<Bytes> {
    let parameter = |name: &'static str| {
        query.split('&').filter_map(move |pair| match pair.split_once('=') {
            Some((key, value)) => (key == name).then_some(value),
            None => (pair == name).then_some(""),
        })
    };
    let decode = |value: &str| value.replace("%2F", "/").replace("%2f", "/");
    let mut excluded: Vec<String> = parameter("exclude").map(decode).collect();
    excluded.sort_unstable();
    excluded.dedup();

    let mut report = String::new();
    let mut failed = Vec::new();
    // Writing to a `String` cannot fail.
    for check in checks {
        if let Some(index) = excluded.iter().position(|name| *name == check.name) {
            excluded.remove(index);
            let _ = writeln!(report, "[+]{} excluded: ok", check.name);
        } else if let Err(reason) = (check.run)() {
            if check.severity == Severity::Informational {
                let _ = writeln!(report, "[!]{} {reason}", check.name);
                continue;
            }
            // The reason is for the log and for requests for the single check; every client may request all checks.
            tracing::debug!(endpoint, check = check.name, reason, "check failed");
            let _ = writeln!(report, "[-]{} failed: reason withheld", check.name);
            failed.push(&check.name);
        } else {
            let _ = writeln!(report, "[+]{} ok", check.name);
        }
    }
    if !excluded.is_empty() {
        let names: Vec<_> = excluded.iter().map(|name| format!("\"{name}\"")).collect();
        let _ = writeln!(
            report,
            "warn: some health checks cannot be excluded: no matches for {}",
            names.join(", ")
        );
    }
    if !failed.is_empty() {
        return text(StatusCode::INTERNAL_SERVER_ERROR, format!("{report}{endpoint} check failed\n"));
    }
    if parameter("verbose").next().is_none() {
        return text(StatusCode::OK, "ok".to_owned());
    }
    text(StatusCode::OK, format!("{report}{endpoint} check passed\n"))
}

fn text(code: StatusCode, body: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use fairlead_config::DrainConfig;

    use super::*;

    fn response(health: &Health, path: &str, query: Option<&str>) -> Option<(u16, String)> {
        let response = health.respond(path, query)?;
        assert_eq!(response.headers()[CONTENT_TYPE], "text/plain; charset=utf-8");
        assert_eq!(response.headers()[X_CONTENT_TYPE_OPTIONS], "nosniff");
        Some((response.status().as_u16(), String::from_utf8(response.body().to_vec()).unwrap()))
    }

    fn ok(body: &str) -> Option<(u16, String)> {
        Some((200, body.to_owned()))
    }

    fn failed(body: &str) -> Option<(u16, String)> {
        Some((500, body.to_owned()))
    }

    #[test]
    fn endpoints_print_as_kubernetes_does() {
        let shutdown = Shutdown::new(&DrainConfig::default());
        let health = Health::new();
        health.ping(ALL_PROBES);
        let synced = health.flag("informer-sync", &[Probe::Ready]);
        health.shutdown(&shutdown);
        let failing =
            "[+]ping ok\n[-]informer-sync failed: reason withheld\n[+]shutdown ok\nreadyz check failed\n";

        assert_eq!(response(&health, "/livez", None), ok("ok"));
        assert_eq!(response(&health, "/livez", Some("verbose")), ok("[+]ping ok\nlivez check passed\n"));
        assert_eq!(response(&health, "/healthz", Some("verbose=")), ok("[+]ping ok\nhealthz check passed\n"));
        assert_eq!(response(&health, "/readyz", None), failed(failing));
        assert_eq!(
            response(&health, "/readyz/informer-sync", None),
            failed("internal server error: not yet\n")
        );
        assert_eq!(response(&health, "/readyz", Some("exclude=informer-sync")), ok("ok"));
        assert_eq!(
            response(&health, "/readyz", Some("verbose&exclude=informer-sync&exclude=x%2Fy")),
            ok("[+]ping ok\n[+]informer-sync excluded: ok\n[+]shutdown ok\n\
                warn: some health checks cannot be excluded: no matches for \"x/y\"\nreadyz check passed\n")
        );

        synced.set();
        health.note("reloads", &[Probe::Ready], || Some("the last good one is in effect: x".to_owned()));
        assert_eq!(response(&health, "/readyz", None), ok("ok"));
        assert_eq!(
            response(&health, "/readyz", Some("verbose")),
            ok("[+]ping ok\n[+]informer-sync ok\n[+]shutdown ok\n\
                [!]reloads the last good one is in effect: x\nreadyz check passed\n")
        );
        assert_eq!(response(&health, "/readyz/informer-sync", None), ok("ok"));
        shutdown.begin();
        assert!(!health.passes(Probe::Ready));
        assert!(health.passes(Probe::Live), "a draining process must not be restarted");
    }

    #[test]
    fn other_paths_are_not_handled() {
        let health = Health::new();
        health.ping(&[Probe::Live]);
        for path in ["/", "/livezz", "/livez/", "/livez/other", "/readyz/ping", "livez", "/livez/ping/x"] {
            assert_eq!(response(&health, path, None), None, "{path}");
        }
    }
}
