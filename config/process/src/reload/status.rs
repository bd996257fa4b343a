//! Metrics of values made from files: time and result of loads, age of the files, expiry of the certificates in them.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus::{GaugeVec, IntCounterVec, IntGaugeVec};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::metrics::{Metrics, MetricsError};

/// Values of the label `kind` of certificates.
const KINDS: [&str; 2] = ["authority", "certificate"];

/// Metrics with the label `object`, the registered name: seven series per value, those of certificates only if it has any.
#[derive(Clone)]
pub(super) struct ReloadMetrics {
    outcomes: IntCounterVec,
    failing: IntGaugeVec,
    loaded_at: GaugeVec,
    modified_at: GaugeVec,
    not_after: GaugeVec,
}

impl ReloadMetrics {
    pub(super) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        Ok(Self {
            outcomes: metrics.counters(
                "fairlead_reload_total",
                "Attempts to load a changed file, by object and result (success, failure).",
                &["object", "result"],
            )?,
            failing: metrics.int_gauges(
                "fairlead_reload_failing",
                "1 while the files of an object cannot be loaded and its last good value is in effect.",
                &["object"],
            )?,
            loaded_at: metrics.gauges(
                "fairlead_reload_last_success_timestamp_seconds",
                "Time at which the value in effect was loaded, in seconds since the epoch.",
                &["object"],
            )?,
            modified_at: metrics.gauges(
                "fairlead_file_modified_timestamp_seconds",
                "Modification time of the newest file of an object, in seconds since the epoch.",
                &["object"],
            )?,
            not_after: metrics.gauges(
                "fairlead_certificate_not_after_timestamp_seconds",
                "Earliest expiry of the certificates in the files of an object, in seconds since the epoch, by kind (authority, \
                 certificate).",
                &["object", "kind"],
            )?,
        })
    }

    pub(super) fn success(&self, object: &str, files: &[PathBuf]) {
        self.outcomes.with_label_values(&[object, "success"]).inc();
        self.failing.with_label_values(&[object]).set(0);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.loaded_at.with_label_values(&[object]).set(now.as_secs_f64());
        self.record_modified(object, files);
        for (kind, end) in earliest_expiries(files) {
            match end {
                Some(end) => self.not_after.with_label_values(&[object, kind]).set(end as f64),
                // The files have no certificate of that kind.
                None => _ = self.not_after.remove_label_values(&[object, kind]),
            }
        }
    }

    pub(super) fn failure(&self, object: &str) {
        self.outcomes.with_label_values(&[object, "failure"]).inc();
        self.failing.with_label_values(&[object]).set(1);
    }

    /// Removes all series of a value. Series that do not exist are ignored.
    pub(super) fn remove(&self, object: &str) {
        for result in ["success", "failure"] {
            let _ = self.outcomes.remove_label_values(&[object, result]);
        }
        for kind in KINDS {
            let _ = self.not_after.remove_label_values(&[object, kind]);
        }
        let _ = self.failing.remove_label_values(&[object]);
        for times in [&self.loaded_at, &self.modified_at] {
            let _ = times.remove_label_values(&[object]);
        }
    }

    /// Records the modification time of the files, whether their content has changed or not.
    pub(super) fn record_modified(&self, object: &str, files: &[PathBuf]) {
        let written = |metadata: Metadata| metadata.mtime() as f64 + metadata.mtime_nsec() as f64 / 1e9;
        let times = files.iter().filter_map(|file| std::fs::metadata(file).ok()).map(written);
        if let Some(youngest) = times.reduce(f64::max) {
            self.modified_at.with_label_values(&[object]).set(youngest);
        }
    }
}

/// Earliest expiry of authority certificates and of other certificates. Invalid certificates are skipped: the load function
/// reports them.
fn earliest_expiries(files: &[PathBuf]) -> [(&'static str, Option<i64>); 2] {
    let (mut authority, mut certificate) = (None, None);
    for file in files {
        let Ok(content) = std::fs::read(file) else { continue };
        for der in CertificateDer::pem_slice_iter(&content).flatten() {
            let Ok((_, parsed)) = X509Certificate::from_der(&der) else { continue };
            let end = parsed.validity().not_after.timestamp();
            let first = if parsed.is_ca() { &mut authority } else { &mut certificate };
            *first = Some(first.map_or(end, |before: i64| before.min(end)));
        }
    }
    let [authorities, others] = KINDS;
    [(authorities, authority), (others, certificate)]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};

    use super::*;

    fn pem(year: i32, is_ca: IsCa) -> String {
        let mut params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        params.not_after = date_time_ymd(year, 1, 1);
        params.is_ca = is_ca;
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    }

    #[test]
    fn the_earliest_expiry_is_found_by_kind() {
        let folder = tempfile::tempdir().unwrap();
        let [chain, bundle, other] = ["chain.crt", "ca.crt", "list.txt"].map(|name| folder.path().join(name));
        let authority = || IsCa::Ca(BasicConstraints::Unconstrained);
        std::fs::write(&chain, pem(2032, IsCa::NoCa) + &pem(2031, authority())).unwrap();
        std::fs::write(&bundle, pem(2040, authority()) + &pem(2030, authority())).unwrap();
        std::fs::write(&other, "192.0.2.0/24\n").unwrap();
        let year = |year: i32| Some(date_time_ymd(year, 1, 1).unix_timestamp());
        for (files, authority, certificate) in [
            (vec![&other], None, None),
            (vec![&chain], year(2031), year(2032)),
            (vec![&chain, &bundle, &other], year(2030), year(2032)),
            (vec![&bundle], year(2030), None),
        ] {
            let files: Vec<_> = files.into_iter().cloned().collect();
            let ends = [("authority", authority), ("certificate", certificate)];
            assert_eq!(earliest_expiries(&files), ends, "{files:?}");
        }
    }

    #[test]
    fn metrics_follow_the_files() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.crt");
        let metrics = Metrics::new("test", "0").unwrap();
        let reloads = ReloadMetrics::new(&metrics).unwrap();
        let has = |line: &str| {
            let text = String::from_utf8(metrics.text().unwrap().to_vec()).unwrap();
            text.lines().any(|found| found.starts_with(line))
        };
        std::fs::write(&file, pem(2032, IsCa::NoCa)).unwrap();
        reloads.success("a", std::slice::from_ref(&file));
        assert!(has("fairlead_reload_failing{object=\"a\"} 0"));
        assert!(has("fairlead_file_modified_timestamp_seconds{object=\"a\"} "));
        let end =
            "fairlead_certificate_not_after_timestamp_seconds{kind=\"certificate\",object=\"a\"} 1956528000";
        assert!(has(end));
        reloads.failure("a");
        assert!(
            has("fairlead_reload_failing{object=\"a\"} 1") && has(end),
            "the last good value is in effect"
        );
        std::fs::write(&file, "nothing").unwrap();
        reloads.success("a", std::slice::from_ref(&file));
        assert!(has("fairlead_reload_failing{object=\"a\"} 0"));
        assert!(
            !has("fairlead_certificate_not_after_timestamp_seconds{"),
            "the file has no certificate any more"
        );
        reloads.remove("a");
        let left = String::from_utf8(metrics.text().unwrap().to_vec()).unwrap();
        assert!(!left.contains("object=\"a\""), "{left}");
    }
}
