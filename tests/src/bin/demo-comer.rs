//! Runs the pattern of two gateways here, asks with kubectl as everybody at every door, and prints what came of it.

use std::process::ExitCode;

use fairlead_tests::comer::{Comer, ComerError, DEEDS, READ_LIMIT, Row, matrix, quiet_watch};

fn main() -> ExitCode {
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("demo-comer: the runtime cannot be started: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("demo-comer: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether everything was as promised.
async fn run() -> Result<bool, ComerError> {
    let directory = tempfile::tempdir().map_err(ComerError::no_directory)?;
    let comer = Comer::start(directory.path()).await?;
    println!("Two shards, a cache server, an issuer, and two gateways run here:\n");
    println!("  clients -> CDN {} -> edge gateway {}", comer.at_the_cdn(), comer.around_the_cdn());
    println!("  clients -> internal gateway {}\n", comer.internal());
    let rows = matrix(&comer).await?;
    print_table(&rows);
    let wrong: Vec<&Row> = rows.iter().filter(|row| row.found != row.expected).collect();
    for row in &wrong {
        println!("NOT AS PROMISED: {} at {}: {:?}, not {:?}", row.who, row.door, row.found, row.expected);
    }
    let seen = quiet_watch(&comer).await?;
    println!(
        "\nA watch of kubectl through the CDN, which gives up on answers that pause for {READ_LIMIT:?}, was quiet for {:?} \
         and then got its event.",
        seen.quiet
    );
    if wrong.is_empty() {
        println!("All {} answers are as promised.", rows.len() * DEEDS.len());
    }
    Ok(wrong.is_empty())
}

fn print_table(rows: &[Row]) {
    println!("{:28} {:24} {:16} {:18} {:14} {}", "who", "door", DEEDS[0], DEEDS[1], DEEDS[2], DEEDS[3]);
    let mut last = "";
    for row in rows {
        let who = if row.who == last { "" } else { row.who };
        last = row.who;
        print!("{who:28} {:24}", row.door);
        for (finding, width) in row.found.iter().zip([16, 18, 14, 1]) {
            print!(" {finding:width$}");
        }
        println!();
    }
}
