//! The time until a bound API can be used.

use super::super::report::Figure;
use super::super::run::{Size, millis};
use super::super::{Latencies, LoadError};
use super::consumers::{bind as bind_all, workspaces};
use super::published::{KINDS, Published};
use super::site::{FAR, NEAR, Site};

/// An export and the workspaces that have bound it.
pub(super) struct Shared {
    pub(super) published: Published,
    /// The paths of the consumers' logical clusters on the shard of the provider.
    pub(super) near: Vec<String>,
    /// Those on the other shard, if there is one.
    pub(super) far: Vec<String>,
}

/// Publishes the API and binds it, in many workspaces of the same shard and in some of another one.
pub(super) async fn bind(site: &Site, size: Size) -> Result<(Shared, Vec<Figure>), LoadError> {
    /// Bindings at a time.
    const WORKERS: usize = 2;
    let near = site.amount(size, [20, 2_000, 10_000], [5, 50, 50]);
    let far = site.amount(size, [10, 500, 1_000], [0; 3]);
    // kcp creates the definitions of all kinds at the first binding; its few bindings would show nothing else.
    let unmeasured = site.amount(size, [0; 3], [1; 3]);
    let provider = workspaces(site, "provider", NEAR, 1).await?;
    let provider = provider.first().map_or("", String::as_str);
    let published = Published::publish(site.user(provider)?, "root:provider-0").await?;
    let near = workspaces(site, "near", NEAR, near).await?;
    let far = workspaces(site, "far", FAR, far).await?;
    let (first, others) = near.split_at(unmeasured);
    let mut first = bind_all(site, &published, first, 1).await?;
    let mut note = format!("{KINDS} kinds, {WORKERS} at a time {}, with the object's creation", site.entry());
    if first.count() > 0 {
        let time = millis(first.percentile(100.0));
        note = format!("{note}, after a first one that took {time:.0} ms");
    }
    let figure = |place: &str, goal: f64, mut times: Latencies| {
        let quantity = format!("bind to first object, {place}: p99");
        if times.count() == 0 {
            return Figure::absent(quantity, "one shard").at_most(goal);
        }
        Figure::new(quantity, millis(times.percentile(99.0)), "ms").at_most(goal).conditions(format!(
            "{} workspaces, {note}; {}",
            times.count(),
            times.summary()
        ))
    };
    let figures = vec![
        figure("same shard", 100.0, bind_all(site, &published, others, WORKERS).await?),
        figure("other shard", 200.0, bind_all(site, &published, &far, WORKERS).await?),
    ];
    Ok((Shared { published, near, far }, figures))
}
