//! Runs the pattern of two gateways, tries kubectl with each identity at each gateway, and prints the results.

use std::process::ExitCode;

use fairlead_tests::comer::{ACTIONS, Comer, ComerError, READ_LIMIT, Row, check_idle_watch, matrix};

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

/// Returns whether all outcomes are the documented ones.
async fn run() -> Result<bool, ComerError> {
    let directory = tempfile::tempdir().map_err(ComerError::no_directory)?;
    let comer = Comer::start(directory.path()).await?;
    println!("Two shards, a cache server, an issuer, and two gateways run here:\n");
    println!("  clients -> CDN {} -> edge gateway {}", comer.cdn_url(), comer.edge_url());
    println!("  clients -> internal gateway {}\n", comer.internal_url());
    let rows = matrix(&comer).await?;
    print_table(&rows);
    let wrong: Vec<&Row> = rows.iter().filter(|row| row.found != row.expected).collect();
    for row in &wrong {
        println!("UNEXPECTED: {} at {}: {:?}, not {:?}", row.identity, row.gateway, row.found, row.expected);
    }
    let watch = check_idle_watch(&comer).await?;
    println!(
        "\nA watch of kubectl through the CDN, which aborts responses that pause for {READ_LIMIT:?}, was idle for {:?} \
         and then received its event.",
        watch.idle
    );
    if wrong.is_empty() {
        println!("All {} outcomes are as documented.", rows.len() * ACTIONS.len());
    }
    Ok(wrong.is_empty())
}

fn print_table(rows: &[Row]) {
    println!(
        "{:28} {:24} {:16} {:18} {:14} {}",
        "identity", "gateway", ACTIONS[0], ACTIONS[1], ACTIONS[2], ACTIONS[3]
    );
    let mut last = "";
    for row in rows {
        let identity = if row.identity == last { "" } else { row.identity };
        last = row.identity;
        print!("{identity:28} {:24}", row.gateway);
        for (finding, width) in row.found.iter().zip([16, 18, 14, 1]) {
            print!(" {finding:width$}");
        }
        println!();
    }
}
