//! Request histograms and counters as JSON, for the admin page, which parses JSON more easily than the
//! exposition format. Values count from the start of the process; the page computes rates from two responses.

use std::time::{SystemTime, UNIX_EPOCH};

use prometheus::proto::{Metric, MetricFamily, MetricType};
use serde_json::{Map, Value, json};

/// The exported metric families.
const EXPORTED: [&str; 9] = [
    "fairlead_connections_open",
    "fairlead_gateway_local_responses_total",
    "fairlead_gateway_first_byte_duration_seconds",
    "fairlead_gateway_limited_total",
    "fairlead_gateway_stage_duration_seconds",
    "fairlead_gateway_request_duration_seconds",
    "fairlead_gateway_requests_open",
    "fairlead_tls_handshakes_total",
    "proxy_request_duration_seconds",
];

/// The response of `/services/fairlead/v1/stats`.
pub(crate) fn stats(families: &[MetricFamily], now: SystemTime) -> Value {
    let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let exported = families.iter().filter(|family| EXPORTED.contains(&family.name()));
    let series = |family: &MetricFamily| {
        let kind = family.get_field_type();
        family.get_metric().iter().map(|metric| series_json(metric, kind)).collect::<Vec<_>>()
    };
    let families: Map<String, Value> =
        exported.map(|family| (family.name().to_owned(), series(family).into())).collect();
    json!({"time": seconds, "families": families})
}

fn series_json(metric: &Metric, kind: MetricType) -> Value {
    let labels: Map<String, Value> =
        metric.get_label().iter().map(|label| (label.name().to_owned(), label.value().into())).collect();
    match kind {
        MetricType::HISTOGRAM => {
            let histogram = metric.get_histogram();
            // The bucket of +Inf is omitted, because its count is the total count.
            let buckets: Vec<_> = histogram
                .get_bucket()
                .iter()
                .filter(|bucket| bucket.upper_bound().is_finite())
                .map(|bucket| (bucket.upper_bound(), bucket.cumulative_count()))
                .collect();
            let (count, sum) = (histogram.get_sample_count(), histogram.get_sample_sum());
            json!({"labels": labels, "count": count, "sum": sum, "buckets": buckets})
        }
        MetricType::COUNTER => json!({"labels": labels, "value": metric.get_counter().get_value()}),
        _ => json!({"labels": labels, "value": metric.get_gauge().get_value()}),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::time::Duration;

    use prometheus::{HistogramOpts, HistogramVec, IntGauge, Registry};

    use super::*;

    #[test]
    fn exported_families_are_reported_and_others_are_not() {
        let registry = Registry::new();
        let options = HistogramOpts::new(EXPORTED[4], "h").buckets(vec![0.1, 1.0]);
        let stages = HistogramVec::new(options, &["stage"]).unwrap();
        [0.05, 0.5, 5.0].iter().for_each(|took| stages.with_label_values(&["a\"<b>"]).observe(*took));
        let (exported, other) =
            (IntGauge::new(EXPORTED[0], "g").unwrap(), IntGauge::new("other", "g").unwrap());
        exported.set(3);
        registry.register(Box::new(stages)).unwrap();
        registry.register(Box::new(exported)).unwrap();
        registry.register(Box::new(other)).unwrap();
        let found = stats(&registry.gather(), UNIX_EPOCH + Duration::from_millis(1500));
        let expected = json!({"time": 1.5, "families": {
            EXPORTED[0]: [{"labels": {}, "value": 3.0}],
            EXPORTED[4]: [{"labels": {"stage": "a\"<b>"}, "count": 3, "sum": 5.55, "buckets": [[0.1, 1], [1.0, 2]]}],
        }});
        assert_eq!(found, expected);
    }
}
