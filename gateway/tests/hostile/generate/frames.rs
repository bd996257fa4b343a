//! Requests over HTTP/2, frame by frame.

use super::{fields, paths};
use crate::frames::{
    CANCEL, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PADDED, PING, PRIORITY,
    PUSH_PROMISE, RST_STREAM, RawHttp2, SETTINGS, WINDOW_UPDATE, block, frame, headers, integer,
};
use crate::random::Random;

/// Frames to send, and the streams on which something has to come back.
pub struct Frames {
    pub bytes: Vec<u8>,
    pub streams: Vec<u32>,
}

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

pub fn frames(random: &mut Random, connection: &mut RawHttp2) -> Frames {
    match random.below(100) {
        0..80 => request(random, connection),
        80..87 => pseudo_headers(random, connection),
        87..90 => compression(random, connection),
        90..96 => out_of_order(random, connection),
        _ => cancelled(random, connection),
    }
}

fn head(method: &[u8], path: &[u8]) -> Fields {
    [(&b":method"[..], method), (b":scheme", b"https"), (b":authority", b"localhost"), (b":path", path)]
        .into_iter()
        .map(|(name, value)| (name.to_vec(), value.to_vec()))
        .collect()
}

fn write(stream: u32, flags: u8, fields: &Fields) -> Vec<u8> {
    headers(stream, flags, &block(fields.iter().map(|(name, value)| (&name[..], &value[..]))))
}

/// A request with hostile paths, fields, bodies or trailers.
fn request(random: &mut Random, connection: &mut RawHttp2) -> Frames {
    let stream = connection.open();
    let method = random.one_of(&[
        "GET", "GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "TRACE", "PUT", "PATCH", "get", "G T",
    ]);
    let path = if random.percent(30) { paths::hostile(random) } else { paths::honest(random) };
    let mut fields = head(method.as_bytes(), &path);
    if random.percent(60) {
        for (mut name, value) in fields::hostile(random) {
            // Names in upper case are refused at once; that is tried often enough.
            if random.percent(99) {
                name.make_ascii_lowercase();
            }
            fields.push((name, value));
        }
    }
    if random.percent(5) {
        let (name, value) = [
            ("connection", "x-remote-user"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("te", "gzip"),
            ("keep-alive", "1"),
            ("proxy-connection", "close"),
            ("content-length", "5, 6"),
            ("content-length", "+5"),
            ("content-length", "6"),
            ("content-length", "4"),
            ("content-length", "99999999999999999999"),
        ][random.below(11)];
        fields.push((name.into(), value.into()));
    }
    match random.below(10) {
        0..6 => Frames { bytes: write(stream, END_STREAM, &fields), streams: vec![stream] },
        6..8 => {
            let bytes = [write(stream, 0, &fields), frame(DATA, END_STREAM, stream, b"hello")].concat();
            Frames { bytes, streams: vec![stream] }
        }
        _ => {
            let mut trailers = Fields::new();
            for _ in 0..=random.below(4) {
                let (mut name, value) = fields::claim(random);
                name.make_ascii_lowercase();
                trailers.push((name, value));
            }
            if random.percent(5) {
                trailers.push((b":path".to_vec(), b"/x".to_vec()));
            }
            let end = if random.percent(95) { END_STREAM } else { 0 };
            let mut bytes =
                [write(stream, 0, &fields), frame(DATA, 0, stream, b"hello"), write(stream, end, &trailers)]
                    .concat();
            if end == 0 {
                bytes.extend(frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes()));
                return Frames { bytes, streams: Vec::new() };
            }
            Frames { bytes, streams: vec![stream] }
        }
    }
}

/// The part of the head that is not fields.
fn pseudo_headers(random: &mut Random, connection: &mut RawHttp2) -> Frames {
    let stream = connection.open();
    let path = paths::honest(random);
    let mut fields = head(b"GET", &path);
    let at = random.below(fields.len());
    match random.below(12) {
        0 => {
            fields.remove(at);
        }
        1 => fields.push(fields[at].clone()),
        2 => fields.insert(0, (b"x-remote-user".to_vec(), b"root".to_vec())),
        3 => fields.push((
            random.one_of(&[&b":status"[..], b":foo", b":", b":protocol", b":Path"]).to_vec(),
            b"200".to_vec(),
        )),
        4 => {
            fields[3].1 = random
                .one_of(&[
                    &b""[..],
                    b"x",
                    b"*",
                    b"http://evil.example/",
                    b"//evil/x",
                    b"/a b",
                    b"/a\r\nX: y",
                    b"/a\0",
                ])
                .to_vec()
        }
        5 => {
            let authority: &[u8] = random.one_of(&[
                &b""[..],
                b"evil.example",
                b"user@localhost",
                b"local host",
                b"localhost\r\nX-Remote-User: root",
                b"[::1",
                b"\xff",
            ]);
            fields[2].1 = authority.to_vec();
            if random.percent(50) {
                fields.push((b"host".to_vec(), b"localhost".to_vec()));
            }
        }
        6 => fields.push((b"host".to_vec(), b"evil.example".to_vec())),
        7 => {
            fields[1].1 =
                random.one_of(&[&b"http"[..], b"", b"javascript", b"https\r\nX: y", b"\xff"]).to_vec()
        }
        8 => {
            fields[0].1 = random
                .one_of(&[
                    &b"CONNECT"[..],
                    b"GET / HTTP/1.1\r\nX-Remote-User: root\r\n\r\nGET",
                    b"\xff",
                    b" GET",
                ])
                .to_vec()
        }
        9 => {
            fields[0].1 = b"CONNECT".to_vec();
            fields.push((b":protocol".to_vec(), b"websocket".to_vec()));
            fields.rotate_right(1);
        }
        10 => {
            fields = vec![
                (b":method".to_vec(), b"CONNECT".to_vec()),
                (b":authority".to_vec(), b"localhost:1".to_vec()),
            ]
        }
        _ => fields[at].0.make_ascii_uppercase(),
    }
    Frames { bytes: write(stream, END_STREAM, &fields), streams: vec![stream] }
}

/// Blocks that do not decompress, or to too much.
fn compression(random: &mut Random, connection: &mut RawHttp2) -> Frames {
    let stream = connection.open();
    let mut broken =
        block(head(b"GET", &paths::honest(random)).iter().map(|(name, value)| (&name[..], &value[..])));
    match random.below(8) {
        0 => broken.push(0x80),
        1 => integer(&mut broken, 0x80, 7, 500),
        2 => broken.extend([0xff; 12]),
        3 => integer(&mut broken, 0x20, 5, 1 << 20),
        4 => broken.extend([0, 0x83, 0xff, 0xff, 0xff, 0]),
        5 => broken.truncate(random.below(broken.len())),
        6 => broken.extend([0, 0x7f, 0xff, 0xff, 0xff, 0x07]),
        _ => {
            // One large entry of the dynamic table, referenced many times.
            broken.push(0x40);
            integer(&mut broken, 0, 7, 1);
            broken.push(b'x');
            integer(&mut broken, 0, 7, 3000);
            broken.extend(vec![b'y'; 3000]);
            broken.extend(vec![0xbe; random.length(4000)]);
        }
    }
    Frames { bytes: headers(stream, END_STREAM, &broken), streams: vec![stream] }
}

/// Frames in an invalid state of the connection or stream.
fn out_of_order(random: &mut Random, connection: &mut RawHttp2) -> Frames {
    let stream = connection.open();
    let get = write(stream, END_STREAM, &head(b"GET", b"/clusters/root:org/api"));
    let post = write(stream, 0, &head(b"POST", b"/clusters/root:org/api"));
    let number = u32::to_be_bytes;
    let bytes = match random.below(24) {
        0 => frame(DATA, END_STREAM, 0, b"x"),
        1 => frame(DATA, END_STREAM, stream + 100, b"x"),
        2 => frame(HEADERS, END_HEADERS, 0, b"x"),
        3 => frame(HEADERS, END_HEADERS | END_STREAM, stream + 1, b"\x82\x87\x84"),
        4 => [get, frame(DATA, 0, stream, b"late")].concat(),
        5 => [get.clone(), get].concat(),
        6 => frame(WINDOW_UPDATE, 0, 0, &number(0)),
        7 => [post, frame(WINDOW_UPDATE, 0, stream, &number(0))].concat(),
        8 => frame(WINDOW_UPDATE, 0, 0, &number((1 << 31) - 1)),
        9 => frame(RST_STREAM, 0, stream + 2, &number(CANCEL)),
        10 => frame(RST_STREAM, 0, 0, &number(CANCEL)),
        11 => frame(SETTINGS, 0, 0, &[0, 4, 0xff, 0xff, 0xff, 0xff]),
        12 => frame(SETTINGS, 0, 0, b"odd"),
        13 => frame(SETTINGS, 1, 0, b"123456"),
        14 => frame(SETTINGS, 0, 0, &[0, 5, 0, 0, 0, 1]),
        15 => frame(PING, 0, 0, b"short"),
        16 => frame(PRIORITY, 0, stream, &[0, 0, 0, (stream & 255) as u8, 0]),
        17 => frame(PUSH_PROMISE, END_HEADERS, stream, b"\0\0\0\x02"),
        18 => frame(CONTINUATION, END_HEADERS, stream, b"x"),
        19 => [frame(HEADERS, 0, stream, b"\x82"), frame(PING, 0, 0, &[0; 8])].concat(),
        20 => frame(HEADERS, END_HEADERS | PADDED, stream, &[255, 0x82]),
        21 => [post, frame(DATA, PADDED | END_STREAM, stream, &[200, 0])].concat(),
        22 => [get, frame(200, 255, stream, b"unknown"), frame(GOAWAY, 0, 0, &[0; 8])].concat(),
        // More than a frame may hold.
        _ => [&[0, 0x50, 0, DATA, 0][..], &number(stream), &[0; 0x5000]].concat(),
    };
    Frames { bytes, streams: Vec::new() }
}

/// Requests that are taken back.
fn cancelled(random: &mut Random, connection: &mut RawHttp2) -> Frames {
    let mut bytes = Vec::new();
    for _ in 0..=random.below(4) {
        let stream = connection.open();
        let method = random.one_of(&[&b"GET"[..], b"POST"]);
        bytes.extend(write(stream, 0, &head(method, &paths::honest(random))));
        if random.percent(50) {
            bytes.extend(frame(DATA, 0, stream, b"half"));
        }
        bytes.extend(frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes()));
    }
    Frames { bytes, streams: Vec::new() }
}
