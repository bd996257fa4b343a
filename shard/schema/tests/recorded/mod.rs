//! Recorded answers of other implementations: files of JSON lines, compressed or plain.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde_json::Value;

/// The path of a file in `tests/data`.
pub(crate) fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// The lines of a file. A file whose name ends in `.gz` is compressed.
pub(crate) fn lines(path: &Path) -> Vec<String> {
    let file = std::fs::File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut text = String::new();
    if path.extension().is_some_and(|extension| extension == "gz") {
        GzDecoder::new(file).read_to_string(&mut text).unwrap();
    } else {
        std::io::BufReader::new(file).read_to_string(&mut text).unwrap();
    }
    text.lines().map(str::to_owned).collect()
}

/// What comparing cases has found.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// The number of compared cases of each kind.
    pub(crate) compared: BTreeMap<String, usize>,
    /// The number of explained differences of each reason.
    pub(crate) explained: BTreeMap<&'static str, usize>,
    /// Differences without an explanation.
    pub(crate) differences: Vec<String>,
}

impl Report {
    pub(crate) fn count(&mut self, kind: impl Into<String>) {
        *self.compared.entry(kind.into()).or_default() += 1;
    }

    pub(crate) fn explain(&mut self, reason: &'static str) {
        *self.explained.entry(reason).or_default() += 1;
    }

    /// Compares lines in parallel.
    pub(crate) fn of(lines: &[String], compare: impl Fn(&str, &mut Self) + Sync) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let reports: Vec<Self> = std::thread::scope(|scope| {
            let compare = &compare;
            let running: Vec<_> = (0..threads)
                .map(|first| {
                    scope.spawn(move || {
                        let mut report = Self::default();
                        lines.iter().skip(first).step_by(threads).for_each(|line| compare(line, &mut report));
                        report
                    })
                })
                .collect();
            running.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let mut all = Self::default();
        for report in reports {
            for (kind, count) in report.compared {
                *all.compared.entry(kind).or_default() += count;
            }
            for (reason, count) in report.explained {
                *all.explained.entry(reason).or_default() += count;
            }
            all.differences.extend(report.differences);
        }
        all
    }

    /// Prints the numbers, and fails if there are differences without an explanation.
    pub(crate) fn finish(&self) {
        println!("compared: {:?}", self.compared);
        for (reason, count) in &self.explained {
            println!("{count} differ because {reason}");
        }
        let mut shortest: Vec<&String> = self.differences.iter().collect();
        shortest.sort_by_key(|text| text.len());
        let shown: Vec<String> = shortest.iter().take(12).map(|text| (*text).clone()).collect();
        assert!(
            self.differences.is_empty(),
            "{} other differences:\n{}",
            self.differences.len(),
            shown.join("\n\n")
        );
    }

    /// Fails if a reason explains nothing any more.
    pub(crate) fn assert_used<'r>(&self, reasons: impl IntoIterator<Item = &'r str>) {
        for reason in reasons {
            assert!(self.explained.contains_key(reason), "no difference has this reason any more: {reason}");
        }
    }
}

/// Whether two values are equal as JSON, where `1` equals `1.0`.
pub(crate) fn is_same_json(one: &Value, two: &Value) -> bool {
    match (one, two) {
        (Value::Number(one), Value::Number(two)) => one == two || one.as_f64() == two.as_f64(),
        (Value::Array(one), Value::Array(two)) => {
            one.len() == two.len() && one.iter().zip(two).all(|(one, two)| is_same_json(one, two))
        }
        (Value::Object(one), Value::Object(two)) => {
            one.len() == two.len()
                && one.iter().all(|(name, one)| two.get(name).is_some_and(|two| is_same_json(one, two)))
        }
        _ => one == two,
    }
}
