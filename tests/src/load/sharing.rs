//! APIs that one workspace publishes and thousands of others bind, beside their goals.
//!
//! The figures are of an installation of a gateway, a cache server and two shards. The provider and most consumers are on one of
//! the shards, which is the observed process; the load runs in this process, on the same machine. A Go kcp beside it is one
//! process with one shard, measured with smaller amounts.

mod binding;
mod change;
mod consumers;
mod cpu;
mod memory;
mod others;
mod published;
mod site;
mod view;

use std::path::Path;

use clap::ValueEnum;
use clap::builder::PossibleValue;

use super::apiserver::ServerKind;
use super::report::Figure;
use super::run::{Scale, Size};
use super::{GoalTable, LoadError};
use site::Site;

/// A group of figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharingMeasurement {
    /// Memory of a binding.
    Memory,
    /// Time from the creation of a binding to the first object.
    Bind,
    /// Time from a write in a bound workspace to the event for the provider.
    Delivery,
    /// CPU of the provider's list of all objects.
    List,
    /// CPU of bindings and watches without a change.
    Idle,
    /// Time of a schema change, and its effect on other requests.
    Change,
}

impl SharingMeasurement {
    /// All measurements in the order of the table.
    const ALL: [Self; 6] = [Self::Memory, Self::Bind, Self::Delivery, Self::List, Self::Idle, Self::Change];

    /// The name on the command line.
    fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Bind => "bind",
            Self::Delivery => "delivery",
            Self::List => "list",
            Self::Idle => "idle",
            Self::Change => "change",
        }
    }
}

impl ValueEnum for SharingMeasurement {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()))
    }
}

/// Measures what sharing an API costs, with stores in new folders of a directory, and adds the figures to a table; those of a kcp,
/// too, if one is given. A failure of kcp is printed, because it says nothing about our servers.
///
/// # Errors
/// If a server cannot be started or a request fails that must not. The table has the figures until then.
pub async fn measure_sharing(
    measurements: &[SharingMeasurement],
    kcp: Option<&ServerKind>,
    directory: &Path,
    scale: Scale,
    table: &mut GoalTable,
) -> Result<(), LoadError> {
    let size = Size(scale);
    let mut ours = Vec::new();
    let outcome = measure(measurements, &ServerKind::Fairlead, directory, size, &mut ours).await;
    let other = match kcp {
        Some(kcp) if outcome.is_ok() => {
            let mut figures = Vec::new();
            if let Err(error) = measure(measurements, kcp, directory, size, &mut figures).await {
                eprintln!("kcp: {error}");
                let missing = ours.iter().filter(|figure| !has(&figures, figure.quantity()));
                let missing: Vec<_> =
                    missing.map(|figure| Figure::absent(figure.quantity(), "failed")).collect();
                figures.extend(missing);
            }
            Some(figures)
        }
        _ => None,
    };
    table.extend(ours, other);
    outcome
}

/// Adds the figures of one kind of server. The measurement of memory has servers of its own, because their caches are small; all
/// others use the bindings of one installation.
async fn measure(
    measurements: &[SharingMeasurement],
    kind: &ServerKind,
    directory: &Path,
    size: Size,
    figures: &mut Vec<Figure>,
) -> Result<(), LoadError> {
    let name = kind.name();
    let (memory, others): (Vec<&SharingMeasurement>, Vec<&SharingMeasurement>) =
        measurements.iter().partition(|measurement| **measurement == SharingMeasurement::Memory);
    if !memory.is_empty() {
        eprintln!("{name}: memory ..");
        let site = Site::start(kind, &directory.join(format!("{name}-memory")), Some("1MiB")).await?;
        figures.extend(memory::binding(&site, size).await?);
        site.remove();
    }
    if others.is_empty() {
        return Ok(());
    }
    eprintln!("{name}: bind ..");
    let site = Site::start(kind, &directory.join(format!("{name}-shared")), None).await?;
    let (shared, of_bind) = binding::bind(&site, size).await?;
    figures.extend(of_bind);
    for measurement in others {
        eprintln!("{name}: {} ..", measurement.name());
        figures.extend(match measurement {
            SharingMeasurement::Memory | SharingMeasurement::Bind => continue,
            SharingMeasurement::Delivery => view::delivery(&site, &shared, size).await?,
            SharingMeasurement::List => view::list(&site, &shared, size).await?,
            SharingMeasurement::Idle => view::idle(&site, &shared, size).await?,
            SharingMeasurement::Change => change::change(&site, &shared, size).await?,
        });
    }
    site.remove();
    Ok(())
}

fn has(figures: &[Figure], quantity: &str) -> bool {
    figures.iter().any(|figure| figure.quantity() == quantity)
}
