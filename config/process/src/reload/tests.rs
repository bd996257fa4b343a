#![allow(clippy::unwrap_used, reason = "tests")]
use std::fs;
use std::num::ParseIntError;
use std::path::Path;

use fairlead_config::DrainConfig;

use super::*;

struct Fixture {
    dir: tempfile::TempDir,
    metrics: Metrics,
    reloads: Reloads,
}

impl Fixture {
    fn new() -> Self {
        let metrics = Metrics::new("test", "0").unwrap();
        let reloads = Reloads::new(&metrics).unwrap();
        Self { dir: tempfile::tempdir().unwrap(), metrics, reloads }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("number")
    }

    /// Replaces the file as an atomic writer does, so that its inode changes.
    fn write(&self, text: &str) {
        let new = self.dir.path().join("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.path()).unwrap();
    }

    fn number(&self) -> Result<Arc<Reloadable<u32>>, LoadError> {
        let path = self.path();
        self.reloads.register("number", [self.path()], move || read_number(&path))
    }

    fn count(&self, result: &str) -> Option<String> {
        let text = String::from_utf8(self.metrics.text().unwrap().to_vec()).unwrap();
        let name = format!("fairlead_reload_total{{object=\"number\",result=\"{result}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&name).map(str::to_owned))
    }
}

fn read_number(path: &Path) -> Result<u32, ParseIntError> {
    fs::read_to_string(path).unwrap_or_default().trim().parse()
}

#[tokio::test]
async fn a_held_value_is_reloaded_after_the_hold() {
    let fixture = Fixture::new();
    fixture.write("1");
    let number = fixture.number().unwrap();
    let (one, other) = (fixture.reloads.hold("number"), fixture.reloads.hold("number"));
    fixture.write("2");
    fixture.reloads.check_now();
    drop(one);
    fixture.reloads.check_now();
    assert_eq!(*number.load(), 1);
    drop(other);
    // The check that was triggered meanwhile happens now.
    fixture.reloads.trigger().fired().await;
    fixture.reloads.check(Check::Stamps);
    assert_eq!(*number.load(), 2);
}

#[test]
fn a_changed_file_replaces_the_value_and_a_bad_one_does_not() {
    let fixture = Fixture::new();
    fixture.write("1");
    let number = fixture.number().unwrap();
    let early = number.load();
    assert_eq!((*early, number.generation()), (1, 1));

    fixture.reloads.check(Check::Stamps);
    assert_eq!(number.generation(), 1, "nothing has changed");

    fixture.write("2");
    fixture.reloads.check(Check::Stamps);
    assert_eq!((*number.load(), number.generation(), *early), (2, 2, 1));

    for bad in ["x", "y"] {
        fixture.write(bad);
        fixture.reloads.check(Check::Stamps);
        assert_eq!((*number.load(), number.generation()), (2, 2));
    }
    fs::remove_file(fixture.path()).unwrap();
    fixture.reloads.check_now();
    assert_eq!(*number.load(), 2);

    fixture.write("3");
    fixture.reloads.check_now();
    assert_eq!((*number.load(), number.generation()), (3, 3));
    assert_eq!(fixture.count("success").as_deref(), Some("3"));
    assert_eq!(fixture.count("failure").as_deref(), Some("3"));
}

#[test]
fn files_named_by_a_file_are_watched() {
    let fixture = Fixture::new();
    let folder = fixture.dir.path().to_owned();
    let (path, first, second) = (fixture.path(), folder.join("first"), folder.join("second"));
    fs::write(&first, "1").unwrap();
    fs::write(&second, "2").unwrap();
    fixture.write("first");
    let load = move || {
        let named = folder.join(fs::read_to_string(&path).unwrap_or_default());
        Ok::<_, ParseIntError>((read_number(&named)?, vec![path.clone(), named]))
    };
    let number = fixture.reloads.register_naming("number", [fixture.path()], load).unwrap();
    assert_eq!(*number.load(), 1);
    fs::write(&first, "11").unwrap();
    fixture.reloads.check_now();
    assert_eq!(*number.load(), 11, "the named file is watched");
    fixture.write("second");
    fixture.reloads.check_now();
    assert_eq!(*number.load(), 2, "another file is named");
    fs::write(&second, "x").unwrap();
    fixture.reloads.check_now();
    let failures = fixture.reloads.failures();
    assert_eq!((*number.load(), failures.len(), failures[0].0.as_str()), (2, 1, "number"));
    fs::write(&second, "22").unwrap();
    fixture.reloads.check_now();
    assert_eq!((*number.load(), fixture.reloads.failures()), (22, Vec::new()));
}

#[test]
fn the_same_content_in_a_new_file_is_no_change() {
    let fixture = Fixture::new();
    fixture.write("1");
    let number = fixture.number().unwrap();
    fixture.write("1");
    fixture.reloads.check(Check::Stamps);
    fixture.reloads.check_now();
    assert_eq!(number.generation(), 1);
}

#[test]
fn a_fault_outside_the_files_is_tried_again() {
    let fixture = Fixture::new();
    fixture.write("1");
    let other = fixture.dir.path().join("other");
    fs::write(&other, "1").unwrap();
    let (first, second) = (fixture.path(), other.clone());
    let load = move || Ok::<_, ParseIntError>(read_number(&first)? + read_number(&second)?);
    let sum = fixture.reloads.register("sum", [fixture.path()], load).unwrap();
    fixture.write("2");
    fs::write(&other, "x").unwrap();
    fixture.reloads.check(Check::Stamps);
    assert_eq!(*sum.load(), 2);
    fs::write(&other, "5").unwrap();
    fixture.reloads.check(Check::Stamps);
    assert_eq!(*sum.load(), 7);
}

#[test]
fn a_value_without_its_owner_is_not_reloaded_and_has_no_series() {
    let fixture = Fixture::new();
    fixture.write("1");
    let owner = Arc::new(());
    let path = fixture.path();
    let owned = fixture.reloads.owned_by(&owner);
    let number = owned.register("number", [fixture.path()], move || read_number(&path)).unwrap();
    fixture.write("x");
    fixture.reloads.check_now();
    assert_eq!((fixture.reloads.failures().len(), fixture.count("failure").as_deref()), (1, Some("1")));
    drop(owner);
    fixture.write("2");
    fixture.reloads.check_now();
    assert_eq!((*number.load(), fixture.reloads.failures().len()), (1, 0));
    assert_eq!((fixture.count("failure"), fixture.count("success")), (None, None));
}

#[test]
fn a_load_function_may_register_and_follow() {
    let fixture = Fixture::new();
    fixture.write("1");
    let (reloads, path, other) = (fixture.reloads.clone(), fixture.path(), fixture.path());
    let load = move || {
        reloads.follow("other", &[]);
        let other = other.clone();
        let _ = reloads.register("other", [], move || read_number(&other));
        read_number(&path)
    };
    let number = fixture.reloads.register("number", [fixture.path()], load).unwrap();
    fixture.write("2");
    fixture.reloads.check_now();
    assert_eq!(*number.load(), 2);
}

#[test]
fn at_the_start_a_bad_file_is_an_error_that_names_it() {
    let fixture = Fixture::new();
    let error = fixture.number().unwrap_err();
    assert_eq!(error.to_string(), "number cannot be loaded: cannot parse integer from empty string");
}

#[tokio::test]
async fn a_trigger_starts_a_check_and_receivers_are_notified() {
    let fixture = Fixture::new();
    fixture.write("1");
    let number = fixture.number().unwrap();
    let mut changes = number.changes();
    let shutdown = Shutdown::new(&DrainConfig { window: "0s".parse().unwrap(), ..DrainConfig::default() });
    let task = tokio::spawn(fixture.reloads.clone().run(shutdown.clone()));
    fixture.write("2");
    fixture.reloads.trigger().fire();
    changes.changed().await.unwrap();
    assert_eq!(*number.load(), 2);
    shutdown.begin();
    shutdown.run().await;
    task.await.unwrap();
}
