//! What can be seen of requests: phases by door.

use http::Method;

use crate::world::{Answer, World, request};

/// The metrics once they have all of these lines: what a request took is told when it has ended, which its client may
/// notice first.
pub async fn metrics_with(world: &World, lines: &[&str]) -> String {
    let client = world.http2(Some(&world.operator())).await;
    loop {
        let text = client.get("/metrics").await.text;
        if lines.iter().all(|line| text.contains(line)) {
            return text;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn phases_are_told_by_door_and_what_a_shard_takes_by_shard_and_class() {
    let world = World::new().await;
    let user = world.user();
    let path = "/clusters/root:org/api";
    assert_eq!(world.get(Some(&user), path).await.status, 200);
    let mut http1 = world.http1(Some(&user)).await;
    let post = request(Method::POST, path, &[("host", "localhost")], "a body");
    assert_eq!(Answer::of(http1.send_request(post).await.unwrap()).await.status, 200);
    assert_eq!(world.get(Some(&user), "/clusters/root:nope/api").await.status, 403);

    let text = metrics_with(
        &world,
        &[
            // The unknown workspace is found nowhere, and nobody asks who it is.
            "fairlead_gateway_phase_duration_seconds_count{listener=\"internal\",phase=\"route\"} 3\n",
            "fairlead_gateway_phase_duration_seconds_count{listener=\"internal\",phase=\"upstream_connect\"} 2\n",
            "fairlead_gateway_first_byte_duration_seconds_count{class=\"read\",listener=\"internal\",shard=\"alpha\"} 1\n",
            "fairlead_gateway_first_byte_duration_seconds_count{class=\"write\",listener=\"internal\",shard=\"alpha\"} 1\n",
            "fairlead_gateway_request_duration_seconds_count{class=\"read\",listener=\"internal\",shard=\"alpha\"} 1\n",
            "fairlead_gateway_request_duration_seconds_count{class=\"write\",listener=\"internal\",shard=\"alpha\"} 1\n",
        ],
    )
    .await;
    for phase in ["accept", "tls", "auth"] {
        let name = "fairlead_gateway_phase_duration_seconds_count";
        let line = format!("{name}{{listener=\"internal\",phase=\"{phase}\"}} ");
        let count = text.lines().find_map(|found| found.strip_prefix(&line)).unwrap();
        assert!(count.parse::<u64>().unwrap() >= 2, "{phase}: {count}");
    }
}
