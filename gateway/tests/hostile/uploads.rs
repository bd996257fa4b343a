//! Uploads that a shard does not read, beside other uploads on the same connection.

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use http::Method;
use tokio::time::timeout;

use crate::target::{LIMIT, Target};
use crate::world::request;

const STALLED: usize = 80;
/// Streams that may stay open: the windows of the shard and of the connection hold their data.
const MAX_STALLED: usize = 40;
const SIZE: usize = 256 << 10;
const MAX_KIB: u64 = 32 << 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uploads_to_a_stalled_shard_do_not_block_others_of_their_connection() {
    let mut target = Target::start().await;
    let before = target.at_rest().await;
    let cdn = target.honest().await;
    let body = "x".repeat(SIZE);
    let upload = async |path: &str| cdn.send(request(Method::POST, path, &[], &body)).await;
    let mut stalled: FuturesUnordered<_> = (0..STALLED).map(|_| upload("/clusters/root:org/wait")).collect();
    let others = async {
        let mut waiting = target.world.alpha.state.waiting.subscribe();
        waiting.wait_for(|waiting| *waiting == STALLED).await.unwrap();
        for _ in 0..20 {
            let answer = upload("/clusters/root/mirror").await;
            assert_eq!((answer.status, answer.text.len()), (200, SIZE));
        }
    };
    // All uploads are sent concurrently.
    let mut refused = 0;
    let mut record_refusal = |answer: crate::world::Answer| {
        assert_eq!(answer.status, 503, "{}", answer.text);
        assert!(answer.text.contains("too much unread upload data"), "{}", answer.text);
        refused += 1;
    };
    let both = async {
        let mut others = std::pin::pin!(others);
        loop {
            tokio::select! {
                biased;
                () = &mut others => return,
                answer = stalled.select_next_some() => record_refusal(answer),
            }
        }
    };
    timeout(LIMIT, both).await.expect("the other uploads are blocked");
    let held = target.memory_kib().saturating_sub(before.memory_kib);
    println!("{held} KiB with {STALLED} uploads that the shard does not read");
    assert!(held < MAX_KIB, "{held} KiB");
    // The number of stalled uploads is bounded, regardless of their time-outs.
    let bounded = async {
        while stalled.len() > MAX_STALLED {
            record_refusal(stalled.select_next_some().await);
        }
    };
    timeout(LIMIT, bounded).await.expect("no stalled upload is refused");
    println!("{refused} of them were refused");
    drop(stalled);
    drop(cdn);
    target.assert_unharmed(&before).await;
}
