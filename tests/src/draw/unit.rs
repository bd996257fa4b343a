//! Formats numbers for people.

/// A value in one of Grafana's units.
pub(super) fn shown(value: f64, unit: &str, decimals: Option<usize>) -> String {
    if value.is_nan() {
        return "–".to_owned();
    }
    if value.is_infinite() {
        return "∞".to_owned();
    }
    match unit {
        "s" => seconds(value),
        "d" => format!("{} d", rounded(value, decimals)),
        "percentunit" => format!("{} %", rounded(value * 100.0, decimals)),
        "bytes" => steps(value, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"]),
        "Bps" => steps(value, 1000.0, &["B/s", "kB/s", "MB/s", "GB/s", "TB/s"]),
        "reqps" => format!("{} req/s", short(value, decimals)),
        "cps" => format!("{}/s", short(value, decimals)),
        _ => short(value, decimals),
    }
}

fn seconds(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        0.0 => return "0 s".to_owned(),
        small if small < 1e-3 => (value * 1e6, "µs"),
        small if small < 1.0 => (value * 1e3, "ms"),
        some if some < 120.0 => (value, "s"),
        some if some < 7200.0 => (value / 60.0, "min"),
        some if some < 172_800.0 => (value / 3600.0, "h"),
        _ => (value / 86_400.0, "d"),
    };
    format!("{} {unit}", rounded(scaled, None))
}

fn steps(value: f64, factor: f64, units: &[&str]) -> String {
    let mut scaled = value;
    let mut units = units.iter();
    let mut unit = units.next().copied().unwrap_or_default();
    while scaled.abs() >= factor {
        let Some(next) = units.next() else { break };
        (scaled, unit) = (scaled / factor, next);
    }
    format!("{} {unit}", rounded(scaled, None))
}

fn short(value: f64, decimals: Option<usize>) -> String {
    match value.abs() {
        large if large >= 1e6 => format!("{} M", rounded(value / 1e6, None)),
        large if large >= 1e4 => format!("{} k", rounded(value / 1e3, None)),
        _ => rounded(value, decimals),
    }
}

/// Rounds to three significant digits, or to a number of decimals.
fn rounded(value: f64, decimals: Option<usize>) -> String {
    let decimals = decimals.unwrap_or(match value.abs() {
        large if large >= 100.0 => 0,
        some if some >= 10.0 => 1,
        some if some >= 1.0 => 2,
        _ => 3,
    });
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_in_their_units() {
        for (value, unit, expected) in [
            (0.000_012_34, "s", "12.3 µs"),
            (0.25, "s", "250 ms"),
            (90.0, "s", "90 s"),
            (5400.0, "s", "90 min"),
            (31_536_000.0, "s", "365 d"),
            (0.999, "percentunit", "99.9 %"),
            (2048.0, "bytes", "2 KiB"),
            (1_500_000.0, "Bps", "1.5 MB/s"),
            (12_345.0, "reqps", "12.3 k req/s"),
            (0.0, "none", "0"),
            (f64::INFINITY, "s", "∞"),
            (f64::NAN, "s", "–"),
        ] {
            assert_eq!(shown(value, unit, None), expected);
        }
        assert_eq!(shown(364.9, "d", Some(0)), "365 d");
    }
}
