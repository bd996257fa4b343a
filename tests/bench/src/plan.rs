//! The measurements of a run, their order and their extent.

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::contestants::{Contestants, Cores, Environment, Kind};
use crate::error::BenchError;
use crate::measure::{
    Effort, UserCredential, a_million_workspaces, at_fixed_rate, cost_of_parts, cpu_per_get,
    handshakes_per_core, idle_watches, move_to, rate_on_one_core, slow_list, split,
};
use crate::report::Report;
use crate::wire::Protocol;

/// The options of a run.
#[derive(Args, Clone, Debug)]
pub(crate) struct Plan {
    /// Run one short round of everything, for a first impression.
    #[arg(long)]
    quick: bool,
    /// Only these measurements, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Subject>,
    /// Only these contestants, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',')]
    among: Vec<Kind>,
    /// Rounds per measurement.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Idle watches.
    #[arg(long, default_value_t = 10_000)]
    watches: usize,
    /// Size of the long list.
    #[arg(long, default_value_t = 1024)]
    list_mebibytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Subject {
    Cpu,
    Parts,
    Tokens,
    Cores,
    Latency,
    Watches,
    Handshakes,
    List,
    Million,
}

const BOTH: [Protocol; 2] = [Protocol::Http1, Protocol::Http2];

impl Plan {
    /// Runs the selected measurements. The results before a failure are kept.
    pub(crate) async fn carry_out(&self) -> (Report, Result<(), BenchError>) {
        let mut report = Report::default();
        let outcome = self.measure(&mut report).await;
        report.notes.push(machine());
        (report, outcome)
    }

    async fn measure(&self, report: &mut Report) -> Result<(), BenchError> {
        let environment = Environment::new()?;
        let contestants = self.start(&environment, &Cores::default(), report).await?;
        self.everywhere(&environment, &contestants, report).await?;
        contestants.stop().await?;
        if self.is_selected(Subject::Cores) {
            self.on_one_core(&environment, report).await?;
        }
        // Processes do not always return freed memory, so each memory measurement starts new ones.
        for per_connection in [100, 1].into_iter().filter(|_| self.is_selected(Subject::Watches)) {
            let contestants = self.start(&environment, &Cores::default(), report).await?;
            let count = if self.quick { self.watches / 5 } else { self.watches };
            let (rows, notes) = idle_watches(&environment, &contestants, count, per_connection).await?;
            report.rows.extend(rows);
            report.notes.extend(notes);
            contestants.stop().await?;
        }
        for protocol in BOTH.into_iter().filter(|_| self.is_selected(Subject::List)) {
            let contestants = self.start(&environment, &Cores::default(), report).await?;
            let mebibytes = if self.quick { self.list_mebibytes / 8 } else { self.list_mebibytes };
            let slow_for = Duration::from_secs(if self.quick { 1 } else { 3 });
            let (row, notes) = slow_list(&environment, &contestants, protocol, mebibytes, slow_for).await?;
            report.rows.push(row);
            report.notes.extend(notes);
            contestants.stop().await?;
        }
        if self.is_selected(Subject::Million) {
            let (rows, note) = a_million_workspaces().await?;
            report.rows.extend(rows);
            report.notes.extend(note);
        }
        Ok(())
    }

    async fn everywhere(
        &self,
        environment: &Environment,
        contestants: &Contestants,
        report: &mut Report,
    ) -> Result<(), BenchError> {
        let effort = self.effort();
        for (subject, credential) in
            [(Subject::Cpu, UserCredential::Certificate), (Subject::Tokens, UserCredential::Token)]
        {
            for protocol in BOTH.into_iter().filter(|_| self.is_selected(subject)) {
                report.rows.push(cpu_per_get(environment, contestants, effort, protocol, credential).await?);
            }
        }
        for protocol in BOTH.into_iter().filter(|_| self.is_selected(Subject::Parts)) {
            report.rows.extend(cost_of_parts(environment, contestants, effort, protocol).await?);
        }
        for protocol in BOTH.into_iter().filter(|_| self.is_selected(Subject::Latency)) {
            report.rows.extend(at_fixed_rate(environment, contestants, effort.brief(), protocol).await?);
        }
        for credential in [UserCredential::Token, UserCredential::Certificate]
            .into_iter()
            .filter(|_| self.is_selected(Subject::Handshakes))
        {
            report
                .rows
                .push(handshakes_per_core(environment, contestants, effort.brief(), credential).await?);
        }
        Ok(())
    }

    async fn on_one_core(&self, environment: &Environment, report: &mut Report) -> Result<(), BenchError> {
        let Some(cores) = split() else {
            report.notes.push("One core: requests/s on one core need another one for the load.".to_owned());
            return Ok(());
        };
        let contestants = self.start(environment, &cores, report).await?;
        let all = format!("0-{}", std::thread::available_parallelism().map_or(1, usize::from) - 1);
        move_to(cores.backend.as_deref().unwrap_or(&all))?;
        for protocol in BOTH {
            let (row, note) =
                rate_on_one_core(environment, &contestants, self.effort().brief(), protocol).await?;
            report.rows.push(row);
            report.notes.extend(note);
        }
        move_to(&all)?;
        contestants.stop().await
    }

    /// Starts new processes. Missing contestants are noted once.
    async fn start(
        &self,
        environment: &Environment,
        cores: &Cores,
        report: &mut Report,
    ) -> Result<Contestants, BenchError> {
        let kinds = if self.among.is_empty() { &Kind::USUAL[..] } else { &self.among };
        let contestants = environment.start_all(kinds, cores).await?;
        for missing in &contestants.missing {
            let note = format!("Not measured: {missing}.");
            if !report.notes.contains(&note) {
                report.notes.push(note);
            }
        }
        Ok(contestants)
    }

    fn effort(&self) -> Effort {
        if self.quick {
            Effort { rounds: 1, warm_up: Duration::from_millis(300), duration: Duration::from_secs(1) }
        } else {
            let (warm_up, duration) = (Duration::from_millis(500), Duration::from_secs(2));
            Effort { rounds: self.rounds, warm_up, duration }
        }
    }

    fn is_selected(&self, subject: Subject) -> bool {
        self.only.is_empty() || self.only.contains(&subject)
    }
}

/// Date and machine of the run.
fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let text = read("/proc/cpuinfo");
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown processor", |(_, model)| model);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    let load = read("/proc/loadavg");
    let load = load.split(' ').next().unwrap_or_default();
    let date = jiff::Timestamp::now().strftime("%F %H:%M UTC");
    format!("{date}; {model}, {cores} cores, Linux {}; load average at the end {load}.", kernel.trim())
}
