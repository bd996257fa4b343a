//! What is told of things that are made from files: when they were loaded, whether that fails, how old the files are, and
//! until when the certificates in them are good.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus::{GaugeVec, IntCounterVec, IntGaugeVec};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::metrics::{Metrics, MetricsError};

/// Certificates that are told apart.
const KINDS: [&str; 2] = ["authority", "certificate"];

/// Metrics by `what` was registered: seven series each, those of certificates only where there are any.
#[derive(Clone)]
pub(super) struct Told {
    outcomes: IntCounterVec,
    failing: IntGaugeVec,
    loaded_at: GaugeVec,
    modified_at: GaugeVec,
    not_after: GaugeVec,
}

impl Told {
    pub(super) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        Ok(Self {
            outcomes: metrics.counters(
                "fairlead_reload_total",
                "Attempts to load a changed file, by what it is and the result (success or failure).",
                &["what", "result"],
            )?,
            failing: metrics.int_gauges(
                "fairlead_reload_failing",
                "1 while what is in effect is the last good one, because its files cannot be loaded.",
                &["what"],
            )?,
            loaded_at: metrics.gauges(
                "fairlead_reload_last_success_timestamp_seconds",
                "When what is in effect was loaded, in seconds since the epoch.",
                &["what"],
            )?,
            modified_at: metrics.gauges(
                "fairlead_file_modified_timestamp_seconds",
                "When the youngest of its files was written, in seconds since the epoch.",
                &["what"],
            )?,
            not_after: metrics.gauges(
                "fairlead_certificate_not_after_timestamp_seconds",
                "Until when the certificates in its files are good, in seconds since the epoch: the first that ends, of \
                 authorities and of others (kind: authority, certificate).",
                &["what", "kind"],
            )?,
        })
    }

    pub(super) fn success(&self, what: &str, files: &[PathBuf]) {
        self.outcomes.with_label_values(&[what, "success"]).inc();
        self.failing.with_label_values(&[what]).set(0);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.loaded_at.with_label_values(&[what]).set(now.as_secs_f64());
        self.looked_at(what, files);
        for (kind, end) in first_ends(files) {
            match end {
                Some(end) => self.not_after.with_label_values(&[what, kind]).set(end as f64),
                // There is none of that kind any more, or there was none.
                None => _ = self.not_after.remove_label_values(&[what, kind]),
            }
        }
    }

    pub(super) fn failure(&self, what: &str) {
        self.outcomes.with_label_values(&[what, "failure"]).inc();
        self.failing.with_label_values(&[what]).set(1);
    }

    /// There is no such thing any more. What has not happened to it has no series.
    pub(super) fn forget(&self, what: &str) {
        for result in ["success", "failure"] {
            let _ = self.outcomes.remove_label_values(&[what, result]);
        }
        for kind in KINDS {
            let _ = self.not_after.remove_label_values(&[what, kind]);
        }
        let _ = self.failing.remove_label_values(&[what]);
        for times in [&self.loaded_at, &self.modified_at] {
            let _ = times.remove_label_values(&[what]);
        }
    }

    /// The files were written, whether they say something new or not.
    pub(super) fn looked_at(&self, what: &str, files: &[PathBuf]) {
        let written = |metadata: Metadata| metadata.mtime() as f64 + metadata.mtime_nsec() as f64 / 1e9;
        let times = files.iter().filter_map(|file| std::fs::metadata(file).ok()).map(written);
        if let Some(youngest) = times.reduce(f64::max) {
            self.modified_at.with_label_values(&[what]).set(youngest);
        }
    }
}

/// When the first certificate ends that is an authority's, and the first that is not. What is no certificate is passed over:
/// whoever loads the files complains of it.
fn first_ends(files: &[PathBuf]) -> [(&'static str, Option<i64>); 2] {
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
    let [of_authorities, of_others] = KINDS;
    [(of_authorities, authority), (of_others, certificate)]
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
    fn the_certificate_that_ends_first_is_told_by_kind() {
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
            assert_eq!(first_ends(&files), ends, "{files:?}");
        }
    }

    #[test]
    fn what_is_told_follows_the_files() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.crt");
        let metrics = Metrics::new("test", "0").unwrap();
        let told = Told::new(&metrics).unwrap();
        let has = |line: &str| {
            let text = String::from_utf8(metrics.text().unwrap().to_vec()).unwrap();
            text.lines().any(|found| found.starts_with(line))
        };
        std::fs::write(&file, pem(2032, IsCa::NoCa)).unwrap();
        told.success("a", std::slice::from_ref(&file));
        assert!(has("fairlead_reload_failing{what=\"a\"} 0"));
        assert!(has("fairlead_file_modified_timestamp_seconds{what=\"a\"} "));
        let end =
            "fairlead_certificate_not_after_timestamp_seconds{kind=\"certificate\",what=\"a\"} 1956528000";
        assert!(has(end));
        told.failure("a");
        assert!(has("fairlead_reload_failing{what=\"a\"} 1") && has(end), "the last good one is in effect");
        std::fs::write(&file, "nothing").unwrap();
        told.success("a", std::slice::from_ref(&file));
        assert!(has("fairlead_reload_failing{what=\"a\"} 0"));
        assert!(
            !has("fairlead_certificate_not_after_timestamp_seconds{"),
            "there is no certificate any more"
        );
        told.forget("a");
        let left = String::from_utf8(metrics.text().unwrap().to_vec()).unwrap();
        assert!(!left.contains("what=\"a\""), "{left}");
    }
}
