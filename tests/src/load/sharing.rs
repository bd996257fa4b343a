//! APIs that one workspace publishes and thousands of others bind, beside their goals.
//!
//! The figures are of an installation of a gateway, a cache server and two shards. The provider and most consumers are on one of
//! the shards, which is the observed process; the load runs in this process, on the same machine.

mod binding;
mod change;
mod consumers;
mod memory;
mod published;
mod site;
mod view;

use std::path::Path;

use clap::ValueEnum;
use clap::builder::PossibleValue;

use super::LoadError;
use super::report::Figure;
use super::run::{Scale, Size};
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

/// Measures what sharing an API costs, with stores in new folders of a directory, and reports figures as soon as they are known. The
/// measurement of memory has an installation of its own, because its caches are small; all others use the bindings of one.
///
/// # Errors
/// If a server cannot be started or a request fails that must not.
pub async fn measure_sharing(
    measurements: &[SharingMeasurement],
    directory: &Path,
    scale: Scale,
    report: &mut impl FnMut(Vec<Figure>),
) -> Result<(), LoadError> {
    let size = Size(scale);
    let (memory, others): (Vec<&SharingMeasurement>, Vec<&SharingMeasurement>) =
        measurements.iter().partition(|measurement| **measurement == SharingMeasurement::Memory);
    if !memory.is_empty() {
        eprintln!("memory ..");
        let site = Site::start(&directory.join("memory"), Some("1MiB")).await?;
        report(memory::binding(&site, size).await?);
        site.remove();
    }
    if others.is_empty() {
        return Ok(());
    }
    eprintln!("bind ..");
    let site = Site::start(&directory.join("shared"), None).await?;
    let (shared, figures) = binding::bind(&site, size).await?;
    report(figures);
    for measurement in others {
        eprintln!("{} ..", measurement.name());
        let figures = match measurement {
            SharingMeasurement::Memory | SharingMeasurement::Bind => continue,
            SharingMeasurement::Delivery => view::delivery(&site, &shared, size).await,
            SharingMeasurement::List => view::list(&site, &shared, size).await,
            SharingMeasurement::Idle => view::idle(&site, &shared, size).await,
            SharingMeasurement::Change => change::change(&site, &shared, size).await,
        };
        report(figures?);
    }
    site.remove();
    Ok(())
}
