//! The time until a bound API can be used.

use super::super::LoadError;
use super::super::report::Figure;
use super::super::run::{Size, millis};
use super::consumers::{bind as bind_all, workspaces};
use super::published::{KINDS, Published};
use super::site::{FAR, NEAR, Site};

/// An export and the workspaces that have bound it.
pub(super) struct Shared {
    pub(super) published: Published,
    /// The paths of the consumers' logical clusters on the shard of the provider.
    pub(super) near: Vec<String>,
    /// Those on the other shard.
    pub(super) far: Vec<String>,
}

/// Publishes the API and binds it, in many workspaces of the same shard and in some of another one.
pub(super) async fn bind(site: &Site, size: Size) -> Result<(Shared, Vec<Figure>), LoadError> {
    /// Bindings at a time.
    const WORKERS: usize = 2;
    let (near, far) = (size.of(20, 2_000, 10_000), size.of(10, 500, 1_000));
    let provider = workspaces(site, "provider", NEAR, 1).await?;
    let provider = provider.first().map_or("", String::as_str);
    let published = Published::publish(site.user(provider)?, "root:provider-0").await?;
    let near = workspaces(site, "near", NEAR, near).await?;
    let far = workspaces(site, "far", FAR, far).await?;
    let mut figures = Vec::new();
    for (place, consumers, goal) in [("same shard", &near, 100.0), ("other shard", &far, 200.0)] {
        let mut times = bind_all(site, &published, consumers, WORKERS).await?;
        figures.push(
            Figure::new(format!("bind to first object, {place}: p99"), millis(times.percentile(99.0)), "ms")
                .at_most(goal)
                .conditions(format!(
                    "{} workspaces, {KINDS} kinds, {WORKERS} at a time through the gateway, with the object's creation; {}",
                    consumers.len(),
                    times.summary()
                )),
        );
    }
    Ok((Shared { published, near, far }, figures))
}
