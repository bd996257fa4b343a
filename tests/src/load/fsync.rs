//! The cost of a durable write on this disk, as the reference for all figures about writes.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Instant;

use super::{Latencies, LoadError, Table};

/// Writes and syncs 4 KiB many times, to a file in this directory that is removed afterwards.
pub fn measure_fsync(directory: &Path) -> Result<Table, LoadError> {
    const ROUNDS: usize = 200;
    let path = directory.join(format!(".fsync-{}", std::process::id()));
    let result = write_rounds(&path, ROUNDS);
    let removed = std::fs::remove_file(&path);
    let disk = |source| LoadError::Disk { path: path.clone(), source };
    let mut latencies = result.map_err(disk)?;
    removed.map_err(disk)?;
    let mut table = Table::default();
    let note = format!("p50 / p90 / p99 / max of {ROUNDS}; 4 KiB + fdatasync in {}", directory.display());
    table.push("durable write of the disk", latencies.summary(), note);
    Ok(table)
}

fn write_rounds(path: &Path, rounds: usize) -> std::io::Result<Latencies> {
    let mut file = File::create(path)?;
    let mut latencies = Latencies::default();
    for round in 0..rounds {
        let block = [round as u8; 4096];
        let start = Instant::now();
        file.seek(SeekFrom::Start((round as u64 % 64) * 4096))?;
        file.write_all(&block)?;
        file.sync_data()?;
        latencies.add(start.elapsed());
    }
    Ok(latencies)
}
