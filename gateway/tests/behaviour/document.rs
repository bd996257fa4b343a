//! Documents that name tests: every test that they name must exist.

use std::fs;
use std::path::{Path, PathBuf};

/// The tables of CONTRACT.md and their numbers of rows, so that a lost row is noticed.
const TABLES: [(&str, usize); 6] = [
    ("## Outcomes", 21),
    ("## Events", 15),
    ("## Shard lifecycle", 8),
    ("## Not covered by kcp's tests", 28),
    ("## Data plane pitfalls", 14),
    ("## Deliberate differences", 20),
];

/// A test that a table's last column names.
#[derive(Debug)]
struct TestReference {
    file: PathBuf,
    test: String,
}

impl TestReference {
    /// `a::b` is the test `b` in `behaviour/a.rs`; `hostile/…`, `faults/…` and `src/…` are in this crate, `/…` in the repository.
    fn parse(text: &str) -> Self {
        let (module, test) = text.rsplit_once("::").unwrap_or_else(|| panic!("{text:?} names no test"));
        let gateway = Path::new(env!("CARGO_MANIFEST_DIR"));
        let file = match module {
            path if path.starts_with('/') => gateway.join(format!("..{path}.rs")),
            path if path.starts_with("src/") => gateway.join(format!("{path}.rs")),
            path if path.contains('/') => gateway.join(format!("tests/{path}.rs")),
            path => gateway.join(format!("tests/behaviour/{path}.rs")),
        };
        Self { file, test: test.to_owned() }
    }

    /// The reason why the reference is wrong.
    fn fault(&self) -> Option<&'static str> {
        let Ok(source) = fs::read_to_string(&self.file) else { return Some("there is no such file") };
        let lines: Vec<&str> = source.lines().map(str::trim).collect();
        let heads = [format!("fn {}(", self.test), format!("async fn {}(", self.test)];
        let Some(at) = lines.iter().position(|line| heads.iter().any(|head| line.starts_with(head))) else {
            return Some("there is no such function");
        };
        let attributes =
            lines[..at].iter().rev().take_while(|line| line.starts_with("#[")).collect::<Vec<_>>();
        if !attributes.iter().any(|line| line.starts_with("#[test") || line.starts_with("#[tokio::test")) {
            return Some("it is no test");
        }
        attributes.iter().any(|line| line.starts_with("#[ignore")).then_some("it is not run")
    }
}

/// The parts of `text` between backticks.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn cells(row: &str) -> Vec<&str> {
    row.trim().trim_matches('|').split('|').map(str::trim).collect()
}

#[test]
fn every_row_of_the_contract_names_tests_that_exist() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/CONTRACT.md");
    let document = fs::read_to_string(document).unwrap();
    let mut faults = Vec::new();
    for (title, count) in TABLES {
        let section = document.split("\n## ").find(|section| title[3..] == *section.lines().next().unwrap());
        let section = section.unwrap_or_else(|| panic!("there is no section {title:?}"));
        // Skips the table's header and the line below it.
        let rows: Vec<&str> = section.lines().filter(|line| line.starts_with('|')).skip(2).collect();
        assert_eq!(rows.len(), count, "rows of {title:?}");
        for row in rows {
            let cells = cells(row);
            assert!(cells.iter().all(|cell| !cell.is_empty()), "an empty cell: {row}");
            let named: Vec<TestReference> = code(cells[cells.len() - 1]).map(TestReference::parse).collect();
            if named.is_empty() {
                faults.push(format!("no test is named: {row}"));
            }
            for named in named {
                faults.extend(named.fault().map(|fault| format!("{named:?}: {fault}")));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// With `panic = "abort"` a panic of a parser over one client's certificate would end the gateway.
#[test]
fn a_panic_ends_one_task() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
    let manifest = fs::read_to_string(manifest).unwrap();
    assert!(manifest.contains("[profile.release]"));
    assert!(manifest.contains("panic = \"unwind\"") && !manifest.contains("\"abort\""), "{manifest}");
}

/// Every behaviour of kcp that a switch restores has a row with the switch's name in the configuration.
#[test]
fn every_switch_is_in_the_contract() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/CONTRACT.md");
    let document = fs::read_to_string(document).unwrap();
    for switch in crate::matrix::EVERYTHING {
        let name = serde_json::to_string(&switch).unwrap();
        let name = format!("`kcpCompatibility: {}`", name.trim_matches('"'));
        assert!(document.contains(&name), "{name}");
    }
}

/// The tables of differences from kcp-front-proxy name tests in their last column.
#[test]
fn every_test_in_the_list_of_differences_exists() {
    let gateway = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = fs::read_to_string(gateway.join("../docs/gateway-differences.md")).unwrap();
    let (differences, _) = document.split_once("\n## Known weaknesses").unwrap();
    let mut sources = String::new();
    read_all(&gateway.join("tests"), &mut sources);
    read_all(&gateway.join("src"), &mut sources);
    let mut count = 0;
    for row in differences.lines().filter(|line| line.starts_with('|')) {
        let last = *cells(row).last().unwrap();
        let names = code(last).filter_map(|code| Some(code.rsplit_once("::")?.1));
        for name in names.filter(|name| !name.contains('…')) {
            count += 1;
            assert!(sources.contains(&format!("fn {name}(")), "{name}, in {row}");
        }
    }
    assert!(count > 30, "{count} names were found");
}

fn read_all(folder: &Path, sources: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_all(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

/// The table of attacks is in the test program `hostile`.
#[test]
fn every_attack_has_a_test_that_exists() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let table = fs::read_to_string(tests.join("hostile/main.rs")).unwrap();
    let mut sources = String::new();
    read_all(&tests, &mut sources);
    let mut count = 0;
    for row in table.lines().filter(|line| line.starts_with("//! | ")).skip(1) {
        let last = *cells(&row["//! ".len()..]).last().unwrap();
        for name in code(last).filter_map(|code| Some(code.rsplit_once("::")?.1)) {
            count += 1;
            assert!(sources.contains(&format!("fn {name}(")), "{name}, in {row}");
        }
    }
    assert!(count > 30, "{count} names were found");
}
