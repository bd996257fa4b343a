//! Reduces recordings of a running kcp to the data that the tests compare with.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use fairlead_tests::recordings::{Reduced, reduce};

#[derive(Parser)]
struct Arguments {
    /// Folder of the recordings
    recordings: PathBuf,
    /// Folder of the reduced data
    #[arg(long, default_value = "tests/data/kcp")]
    out: PathBuf,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match reduce(&arguments.recordings, &arguments.out) {
        Ok(files) => {
            for Reduced { path, records, bytes } in files {
                println!("{}: {records} records, {bytes} bytes", path.display());
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
