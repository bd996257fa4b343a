//! Measurements of the table (`make figures`), and assertions about them that hold on any machine.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::*;
use crate::request::Reference;

/// A table with `count` workspaces, 50 in each parent, as a shard would list them.
pub(crate) fn table_of(count: usize) -> (TableWriter, ShardIndex) {
    let mut writer = TableWriter::new();
    let spec = ShardSpec {
        name: "a".into(),
        url: "https://a.example".into(),
        labels: Arc::default(),
        cordoned: false,
        constraints: crate::routing::table::PlacementConstraints::default(),
    };
    let shard = writer.put_shard(spec).unwrap();
    writer.mark_shards_listed();
    const PAGE: usize = 2000;
    for first in (0..count).step_by(PAGE) {
        let last = (first + PAGE).min(count);
        let (is_first, is_last) = (first == 0, last == count);
        let clusters = (first..last).map(cluster_record).collect();
        let workspaces = (first..last).map(workspace_record).collect();
        writer.apply(vec![
            (shard, Change::ListClusters(Page { records: clusters, is_first, is_last })),
            (shard, Change::ListWorkspaces(Page { records: workspaces, is_first, is_last })),
        ]);
    }
    (writer, shard)
}

fn id(number: usize) -> String {
    format!("{number:016x}")
}

fn name(number: usize) -> String {
    format!("workspace-{number}")
}

fn cluster_record(number: usize) -> ClusterRecord {
    let workspace_type = Some(format!("root:type-{}", number % 20).into());
    ClusterRecord { id: id(number).into(), workspace_type, migrating: false }
}

fn workspace_record(number: usize) -> WorkspaceRecord {
    WorkspaceRecord {
        parent: id(number / 50).into(),
        name: name(number).into(),
        target: WorkspaceTarget::Cluster(id(number).into()),
        unavailable: false,
    }
}

/// References `<parent>:<name>`, spread over the whole table.
fn references(count: usize, number_of_references: usize) -> Vec<Reference<'static>> {
    let numbers = (0..number_of_references).map(|number| number * 7919 % (count - 1) + 1);
    let texts = numbers.map(|number| format!("{}:{}", id(number / 50), name(number)));
    texts.map(|text| Reference::parse(text).unwrap()).collect()
}

/// Measures look-ups in batches as small as can be measured, so that other load on the machine disturbs some batches but not
/// the median. The reference is read first: in production it has just been received and is in the CPU caches.
fn look_up(table: &RoutingTable, references: &[Reference<'_>], durations: &mut Vec<Duration>) {
    for batch in references.chunks_exact(100) {
        for reference in batch {
            black_box(reference.labels().1.map(str::len).sum::<usize>());
        }
        let began = Instant::now();
        for reference in batch {
            assert!(matches!(table.load().resolve(reference), Resolution::Found(_)));
        }
        durations.push(began.elapsed() / batch.len() as u32);
    }
}

fn median(durations: &mut [Duration]) -> Duration {
    durations.sort_unstable();
    durations[durations.len() / 2]
}

#[test]
fn a_workspace_costs_less_than_200_bytes() {
    let empty = TableWriter::new().table().load().heap_bytes();
    let count = 100_000;
    let (writer, shard) = table_of(count);
    let counts = writer.table().load().counts(shard);
    assert_eq!((counts.clusters, counts.workspaces), (count as u32, count as u32));
    let each = (writer.table().load().heap_bytes() - empty) / count;
    assert!((60..=200).contains(&each), "{each} bytes per workspace");
}

#[test]
fn a_change_copies_only_the_touched_page_and_bucket() {
    let (mut writer, shard) = table_of(100_000);
    let before = writer.table().load_full();
    let moved = WorkspaceRecord { target: WorkspaceTarget::Cluster(id(7).into()), ..workspace_record(4711) };
    writer.apply(vec![(shard, Change::PutWorkspace(moved))]);
    let after = writer.table().load_full();
    let copied = before.buckets().zip(after.buckets()).filter(|(one, two)| !one.is_same(two)).count();
    let pages = before.pages.iter().zip(&after.pages).filter(|(one, two)| !Arc::ptr_eq(one, two)).count();
    assert_eq!((pages, copied), (1, 1));
}

#[test]
#[ignore = "a measurement: make figures"]
fn figures_of_a_million_workspaces() {
    let count = 1_000_000;
    let began = Instant::now();
    let (mut writer, shard) = table_of(count);
    println!("listed in pages of 2000: {:?}", began.elapsed());
    let table = writer.table();
    println!("{} bytes per workspace", table.load().heap_bytes() / count);
    let references = references(count, 200_000);
    let busy = &references[..1000];
    let (mut spread, mut hot) = (Vec::new(), Vec::new());
    look_up(&table, &references, &mut spread);
    look_up_repeatedly(&table, busy, &mut hot);
    println!(
        "a look-up of a path with one step: {:?} from all over the table, {:?} among 1000 workspaces in use",
        median(&mut spread),
        median(&mut hot)
    );

    let began = Instant::now();
    for number in 0..1000 {
        writer.apply(vec![(shard, change(number))]);
    }
    println!("{:?} per batch of one change", began.elapsed() / 1000);

    let done = Arc::new(AtomicBool::new(false));
    let updates = Arc::new(AtomicUsize::new(0));
    let (stop, counter) = (Arc::clone(&done), Arc::clone(&updates));
    let updater = std::thread::spawn(move || {
        let began = Instant::now();
        let mut number = 0_usize;
        let mut busy = Duration::ZERO;
        while !stop.load(Ordering::Relaxed) {
            // 10,000 a second, in batches as they arrive within a millisecond.
            let due = (began.elapsed().as_secs_f64() * 10_000.0) as usize;
            let start = Instant::now();
            if number < due {
                writer.apply((number..due).map(|number| (shard, change(number))).collect());
                number = due;
                counter.store(number, Ordering::Relaxed);
            }
            busy += start.elapsed();
            std::thread::sleep(Duration::from_millis(1));
        }
        busy.as_secs_f64() / began.elapsed().as_secs_f64()
    });
    let began = Instant::now();
    let (mut spread, mut hot) = (Vec::new(), Vec::new());
    while began.elapsed() < Duration::from_secs(3) {
        look_up(&table, &references, &mut spread);
        look_up_repeatedly(&table, busy, &mut hot);
    }
    done.store(true, Ordering::Relaxed);
    let load = updater.join().unwrap();
    println!(
        "with {:.0} updates/s: {:?} from all over, {:?} among 1000 in use; the writer takes {:.0} % of a core",
        updates.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64(),
        median(&mut spread),
        median(&mut hot),
        load * 100.0
    );

    /// Repeats often enough that the caches are refilled in only few of the repetitions.
    fn look_up_repeatedly(table: &RoutingTable, references: &[Reference<'_>], durations: &mut Vec<Duration>) {
        for _ in 0..100 {
            look_up(table, references, durations);
        }
    }

    /// A change of a logical cluster's type.
    fn change(number: usize) -> Change {
        let workspace_type = Some(format!("root:type-{}", number / 7 % 20).into());
        Change::PutCluster(ClusterRecord { workspace_type, ..cluster_record(number * 7919 % 1_000_000) })
    }
}
