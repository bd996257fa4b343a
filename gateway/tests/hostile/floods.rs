//! Attacks by the number, the order or the size of HTTP/2 frames. During each, an honest client is served, a shard never has more
//! requests than one connection may have open streams, and afterwards the gateway is in the same state as before.

use std::sync::atomic::Ordering;

use fairlead_config::Timespan;
use http::Method;
use tokio::time::timeout;

use crate::attacks::{FAULTS, MOST_STREAMS, WAIT, bomb};
use crate::frames::{
    CANCEL, CONTINUATION, DATA, END_STREAM, End, HEADERS, PING, PRIORITY, RST_STREAM, RawHttp2, SETTINGS,
    WINDOW_UPDATE, block, frame, headers, request_block,
};
use crate::target::{LIMIT, Target};
use crate::world::request;

/// Sends until the server ends the connection; fails if it bears all of it.
async fn until_ended(
    connection: &mut RawHttp2,
    rounds: usize,
    mut frames: impl FnMut(&mut RawHttp2) -> Vec<u8>,
) {
    for _ in 0..rounds {
        let bytes = frames(connection);
        connection.write(&bytes).await;
        if connection.ended {
            return;
        }
    }
    let end = async { while connection.next().await.is_some() {} };
    timeout(LIMIT, end).await.expect("the attack is borne");
}

/// Sends without reading until an honest client has been served often enough.
async fn while_others_are_served(target: &Target, connection: &mut RawHttp2, flood: &[u8]) {
    let honest = target.honest().await;
    let attack = async {
        while !connection.ended {
            connection.write(flood).await;
        }
        std::future::pending::<()>().await
    };
    let served = async {
        for _ in 0..200 {
            let answer = honest.get("/clusters/root:org/api").await;
            assert_eq!(answer.status, 200);
        }
    };
    let both = async {
        tokio::select! {
            () = served => {}
            () = attack => {}
        }
    };
    timeout(LIMIT, both).await.expect("an honest client is not served");
}

async fn assert_shard_was_spared(target: &Target) {
    let most = target.world.alpha.state.most_waiting.load(Ordering::SeqCst);
    // Streams of the last connection may still be open when the next one begins.
    assert!(most <= 2 * MOST_STREAMS, "{most} requests at a shard at the same time");
    let mut waiting = target.world.alpha.state.waiting.subscribe();
    let over = waiting.wait_for(|waiting| *waiting == 0);
    timeout(LIMIT, over).await.expect("a shard still works for somebody who left").unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rapid_reset_cve_2023_44487() {
    let mut target = Target::start().await;
    let before = target.at_rest().await;
    for _ in 0..5 {
        let mut connection = target.http2(None).await;
        until_ended(&mut connection, 2_000, |connection| {
            let request = request_block(b"GET", WAIT);
            let pair = |stream| {
                [headers(stream, END_STREAM, &request), frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes())]
                    .concat()
            };
            (0..50).flat_map(|_| pair(connection.open())).collect()
        })
        .await;
    }
    assert_shard_was_spared(&target).await;
    target.assert_unharmed(&before).await;
}

/// Six faults of a client that make the server reset the stream while the request continues at the shard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn made_you_reset_cve_2025_8671() {
    let mut target = Target::start().await;
    let before = target.at_rest().await;
    for primitive in FAULTS {
        let mut connection = target.http2(None).await;
        // A fault that is none to this server leaves its requests open, up to the limit.
        for _ in 0..40 {
            let bytes: Vec<u8> = (0..50)
                .flat_map(|_| {
                    let stream = connection.open();
                    [headers(stream, 0, &request_block(b"POST", WAIT)), primitive(stream)].concat()
                })
                .collect();
            connection.write(&bytes).await;
        }
    }
    assert_shard_was_spared(&target).await;
    target.assert_unharmed(&before).await;
}

/// A head that never ends, in pieces that are full, small or empty.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn continuation_flood_2024() {
    let mut target = Target::start().await;
    let before = target.at_rest().await;
    let field = block([(&b"x-a"[..], &[b'y'; 100][..])]);
    for piece in [&field.repeat(100)[..], &field, b""] {
        let mut connection = target.http2(None).await;
        let stream = connection.open();
        connection.write(&frame(HEADERS, 0, stream, &request_block(b"GET", WAIT))).await;
        let flood = frame(CONTINUATION, 0, stream, piece).repeat(20);
        until_ended(&mut connection, 20_000, |_| flood.clone()).await;
    }
    target.assert_unharmed(&before).await;
}

/// Heads that are small on the wire and large in memory, held open on every stream: by a client that stops at the first refusal, and
/// by one that continues and gets a GOAWAY, and is disconnected if it ignores that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http2_bomb_cve_2026_49975() {
    const CONNECTIONS: usize = 10;
    // Memory of a hostile connection, and of one with ordinary requests on all its streams. It includes the allocator's share and the
    // larger tasks of unoptimized builds.
    const HOSTILE_KIB: u64 = 1 << 10;
    const ORDINARY_KIB: u64 = 3 << 9;
    // Refused requests after which a connection takes no more, in batches of ten.
    const UNTIL_CUT: usize = 60;
    let mut target = Target::start().await;
    let before = target.at_rest().await;
    let mut after_the_first = None;
    for (size, references, goes_on, cut, most_kib) in [
        (3_900, 6, false, Cut::Not, HOSTILE_KIB),
        (1, 110, false, Cut::Not, HOSTILE_KIB),
        (1, 110, true, Cut::GoAway, HOSTILE_KIB),
        (1, 40, false, Cut::Not, ORDINARY_KIB),
        (1, 0, false, Cut::Not, ORDINARY_KIB),
        (3_900, 4_000, true, Cut::Ended, ORDINARY_KIB),
    ] {
        let bomb = bomb(size, references);
        let (mut connections, mut borne, mut sent) = (Vec::new(), 0, 0);
        let (mut served, mut asked) = (0, 0);
        let honest = target.honest().await;
        for _ in 0..CONNECTIONS {
            let mut connection = target.http2(None).await;
            let dropped = drop_bombs(&mut connection, &bomb, goes_on).await;
            (borne, sent) = (borne + dropped.borne, sent + dropped.sent);
            assert_eq!(connection.ended, cut == Cut::Ended, "{dropped:?}");
            if cut != Cut::Not {
                assert!(dropped.sent <= dropped.borne + UNTIL_CUT, "{dropped:?}");
            }
            if cut == Cut::GoAway {
                assert_no_more_is_taken(&mut connection).await;
            }
            connections.push(connection);
            for _ in 0..10 {
                asked += 1;
                served += usize::from(honest.get("/clusters/root:org/api").await.status == 200);
            }
        }
        let pinned = target.memory_kib().saturating_sub(before.memory_kib) / CONNECTIONS as u64;
        println!(
            "{pinned} KiB per connection: {references} fields of {size} bytes, {} on the wire; of {} streams {} borne",
            bomb.len(),
            sent / CONNECTIONS,
            borne / CONNECTIONS,
        );
        assert!(pinned <= most_kib, "{pinned} KiB per connection");
        assert!(served * 100 >= asked * 95, "{served} of {asked} honest requests served");
        drop((connections, honest));
        // Memory that the allocator keeps after the first round is not kept again.
        let at_rest = target.at_rest().await;
        target.assert_unharmed(after_the_first.get_or_insert(at_rest)).await;
    }
}

/// Requests with much header memory whose bodies never come end with 408. The connection stays, because it may be that of a CDN.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bombs_that_are_held_open_end_with_the_body_timeout() {
    const STREAMS: usize = 200;
    let mut target = Target::with(|config| {
        config.slow_clients.request_body_timeout = Timespan::from_millis(500);
    })
    .await;
    let before = target.at_rest().await;
    let mut connection = target.http2(None).await;
    let streams: Vec<u32> = (0..STREAMS).map(|_| connection.open()).collect();
    let bomb = bomb(1, 40);
    let requests: Vec<u8> = streams.iter().flat_map(|stream| headers(*stream, 0, &bomb)).collect();
    connection.write(&requests).await;
    let ends = timeout(LIMIT, connection.settle(&streams)).await.expect("bombs stay open").unwrap();
    assert_eq!(ends, [End::Answered(408); STREAMS]);
    assert_eq!((connection.goaway, connection.ended), (None, false));
    drop(connection);
    target.assert_unharmed(&before).await;
}

/// A client that ignores GOAWAY and continues on the connection loses the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_ignores_goaway_is_disconnected() {
    let mut target = Target::start().await;
    let before = target.at_rest().await;
    let bomb = bomb(1, 110);
    let mut connection = target.http2(None).await;
    until_ended(&mut connection, 200, |connection| {
        (0..10).flat_map(|_| headers(connection.open(), 0, &bomb)).collect()
    })
    .await;
    drop(connection);
    target.assert_unharmed(&before).await;
}

/// Each is answered, and each was read to its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_requests_with_too_much_header_get_a_goaway() {
    let mut target = Target::start().await;
    let before = target.at_rest().await;
    let fields = block(std::iter::repeat_n((&b"x"[..], &b"y"[..]), 200));
    let too_large = [request_block(b"GET", b"/clusters/root:org/must-not-arrive"), fields].concat();
    let fine = request_block(b"GET", b"/clusters/root:org/api");
    let mut connection = target.http2(None).await;
    // An open stream keeps the connection open.
    let open = headers(connection.open(), 0, &request_block(b"POST", WAIT));
    connection.write(&open).await;
    let mut ask = async |block: &[u8], times: usize| {
        for _ in 0..times {
            let stream = connection.open();
            connection.write(&headers(stream, END_STREAM, block)).await;
            assert!(matches!(connection.settle(&[stream]).await.unwrap()[..], [End::Answered(_)]));
        }
        connection.goaway
    };
    // A request as those of other clients on a shared connection resets the count.
    assert_eq!(ask(&too_large, 49).await, None);
    assert_eq!(ask(&fine, 1).await, None);
    assert_eq!(ask(&too_large, 49).await, None);
    ask(&too_large, 1).await;
    assert_no_more_is_taken(&mut connection).await;
    drop(connection);
    target.forget();
    target.assert_unharmed(&before).await;
}

/// The client acknowledges the GOAWAY's ping, so that later requests have no effect, and one of its requests stays open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_acknowledges_goaway_and_continues_is_disconnected() {
    let mut target = Target::start().await;
    let before = target.at_rest().await;
    let bomb = bomb(1, 110);
    let mut connection = target.http2(None).await;
    let open = headers(connection.open(), 0, &request_block(b"POST", WAIT));
    connection.write(&open).await;
    while connection.goaway.is_none() {
        let bombs: Vec<u8> = (0..10).flat_map(|_| headers(connection.open(), 0, &bomb)).collect();
        connection.write(&bombs).await;
        connection.settle(&[]).await.unwrap();
    }
    assert_no_more_is_taken(&mut connection).await;
    until_ended(&mut connection, 500, |connection| {
        (0..10).flat_map(|_| headers(connection.open(), 0, &bomb)).collect()
    })
    .await;
    drop(connection);
    target.assert_unharmed(&before).await;
}

/// The end of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Cut {
    /// It stays open.
    Not,
    /// Open streams continue, new ones are refused.
    GoAway,
    /// The server closes it.
    Ended,
}

/// Open streams continue; new ones have no effect.
async fn assert_no_more_is_taken(connection: &mut RawHttp2) {
    // The first goodbye is final when its ping is answered.
    for _ in 0..2 {
        connection.settle(&[]).await.unwrap();
    }
    let late = connection.open();
    let request = request_block(b"GET", b"/clusters/root:org/api");
    connection.write(&headers(late, END_STREAM, &request)).await;
    connection.settle(&[]).await.unwrap();
    assert_eq!((connection.goaway, connection.ended, connection.end_of(late)), (Some(0), false, None));
}

/// The number of streams that were sent, and of those before the first refusal or the end of the connection.
#[derive(Debug)]
struct Dropped {
    sent: usize,
    borne: usize,
}

/// Opens streams with this head, as many as there may be.
async fn drop_bombs(connection: &mut RawHttp2, bomb: &[u8], goes_on: bool) -> Dropped {
    const BATCH: usize = 10;
    let mut streams = Vec::new();
    let mut borne = None;
    while streams.len() < MOST_STREAMS
        && !connection.ended
        && connection.goaway.is_none()
        && (goes_on || borne.is_none())
    {
        let before = streams.len();
        for _ in 0..BATCH {
            let stream = connection.open();
            connection.write(&headers(stream, 0, bomb)).await;
            streams.push(stream);
        }
        connection.settle(&[]).await.unwrap();
        if connection.ended || streams.iter().any(|stream| connection.end_of(*stream).is_some()) {
            borne.get_or_insert(before);
        }
    }
    Dropped { sent: streams.len(), borne: borne.unwrap_or(streams.len()) }
}

/// Frames that want an answer, from a client that reads none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ping_and_settings_floods_cve_2019_9512_and_9515() {
    let mut target = Target::start().await;
    let before = target.at_rest().await;
    for flood in
        [frame(PING, 0, 0, &[7; 8]), frame(SETTINGS, 0, 0, &[]), frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0])]
    {
        let mut connection = target.http2(None).await;
        while_others_are_served(&target, &mut connection, &flood.repeat(1_000)).await;
        drop(connection);
        target.assert_unharmed(&before).await;
    }
}

/// Frames that cost nothing to send and something to receive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_of_empty_and_useless_frames_cve_2019_9518_9513_and_rustsec_2026_0258() {
    let mut target = Target::start().await;
    let before = target.at_rest().await;
    let useless: [fn(u32) -> Vec<u8>; 6] = [
        |stream| frame(DATA, 0, stream, b""),
        |stream| frame(DATA, 8, stream, b"\0"),
        |stream| frame(DATA, 0, stream, b"x"),
        |stream| frame(WINDOW_UPDATE, 0, stream, &1_u32.to_be_bytes()),
        |stream| frame(PRIORITY, 0, stream + 2, &[0, 0, 0, 1, 255]),
        |stream| frame(200, 0, stream, b"unknown"),
    ];
    for frames in useless {
        for path in [WAIT, b"/clusters/root:nope/api"] {
            let mut connection = target.http2(None).await;
            let stream = connection.open();
            connection.write(&headers(stream, 0, &request_block(b"POST", path))).await;
            while_others_are_served(&target, &mut connection, &frames(stream).repeat(1_000)).await;
        }
        target.assert_unharmed(&before).await;
    }
    assert_shard_was_spared(&target).await;
}

/// Fields without a name or a value.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_header_fields_cve_2019_9516_and_2023_25725() {
    let mut target = Target::start().await;
    let before = target.at_rest().await;
    for field in [(&b""[..], &b""[..]), (b"", b"x"), (b"x", b"")] {
        let mut connection = target.http2(None).await;
        for _ in 0..100 {
            let stream = connection.open();
            let fields = block(std::iter::repeat_n(field, 1_000));
            let head = [request_block(b"GET", b"/clusters/root:org/must-not-arrive"), fields].concat();
            connection.write(&headers(stream, END_STREAM, &head)).await;
        }
    }
    let mut http1 = target.http1(None).await;
    let message = "GET /clusters/root:org/must-not-arrive HTTP/1.1\r\nHost: localhost\r\n: x\r\nContent-Length: 0\r\n\r\n";
    if let Ok(answer) = http1.ask(message).await {
        assert_eq!(answer.code, 400);
    }
    drop(http1);
    target.forget();
    target.assert_unharmed(&before).await;
}

/// Responses that the client does not read, or reads byte by byte.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_responses_cve_2019_9511_and_9517() {
    let target = Target::start().await;
    let before = target.at_rest().await;
    let mut connection = target.http2(None).await;
    // No window for streams, all of it for the connection.
    connection.write(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])).await;
    let streams: Vec<u32> = (0..MOST_STREAMS).map(|_| connection.open()).collect();
    for stream in &streams {
        connection
            .write(&headers(*stream, END_STREAM, &request_block(b"GET", b"/clusters/root:org/big")))
            .await;
    }
    // Not so often that it is the windows for which the connection is closed.
    for _ in 0..20 {
        let bytes = streams.iter().flat_map(|stream| frame(WINDOW_UPDATE, 0, *stream, &1_u32.to_be_bytes()));
        let bytes: Vec<u8> = bytes.collect();
        connection.write(&bytes).await;
    }
    let honest = target.honest().await;
    for _ in 0..50 {
        let answer =
            timeout(LIMIT, honest.send(request(Method::GET, "/clusters/root:org/api", &[], ""))).await;
        assert_eq!(answer.expect("not served").status, 200);
    }
    // The windows towards the shard, and what waits for the client.
    let most = target.memory_kib().saturating_sub(before.memory_kib);
    // Sixteen windows are no more than may wait.
    let mut cut = 0;
    while cut < MOST_STREAMS - 16 {
        let frame = timeout(LIMIT, connection.next()).await.expect("answers wait for ever").unwrap();
        cut += usize::from(frame.kind == RST_STREAM);
    }
    // The allocator gives back what is free when it is asked for something.
    let held = || target.memory_kib().saturating_sub(before.memory_kib);
    let given_back = async {
        while held() > 8 << 10 {
            honest.get("/clusters/root:org/api").await;
        }
    };
    timeout(LIMIT, given_back)
        .await
        .unwrap_or_else(|_| panic!("{} KiB for answers that nobody takes", held()));
    println!(
        "{most} KiB for {MOST_STREAMS} answers that are not taken, and {} KiB for those that are left",
        held()
    );
    drop((connection, honest));
    target.at_rest().await;
}

/// The settings that say how much a client may ask for at once (pingora's own defaults do not hold for who builds options).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limits_of_http2_are_announced() {
    let target = Target::start().await;
    let mut connection = target.http2(None).await;
    let settings = loop {
        let frame = connection.next().await.unwrap();
        if frame.kind == SETTINGS && frame.flags == 0 {
            break frame.payload;
        }
    };
    let setting = |name: u8| {
        let found = settings.chunks(6).find(|setting| setting[..2] == [0, name]);
        found.map(|setting| u32::from_be_bytes(setting[2..].try_into().unwrap()))
    };
    assert_eq!((setting(3), setting(6)), (Some(250), Some(64 << 10)));
    // One stream more than allowed is refused; the others stay open.
    let bytes: Vec<u8> = (0..=MOST_STREAMS)
        .flat_map(|_| headers(connection.open(), 0, &request_block(b"POST", WAIT)))
        .collect();
    connection.write(&bytes).await;
    let refused = loop {
        let frame = connection.next().await.unwrap();
        if frame.kind == RST_STREAM {
            break frame;
        }
    };
    assert_eq!((refused.stream, refused.payload), (501, 7_u32.to_be_bytes().to_vec()));
}
