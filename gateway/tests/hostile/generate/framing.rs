//! Whole messages over HTTP/1.1: lines, framing, bytes after the end.

use super::fields::{self, Field};
use super::{Message, paths};
use crate::random::Random;

/// Requests whose head alone must be refused go here; a shard that sees it has been deceived.
pub const NEVER: &str = "/clusters/root:org/must-not-arrive";

const METHODS: &[&str] = &["GET", "GET", "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];
const ODD_METHODS: &[&str] = &[
    "TRACE",
    "CONNECT",
    "PROPFIND",
    "get",
    "",
    "G@T",
    "GET ",
    " GET",
    "\u{ff}",
    "PRI",
    "GET\t",
    "A_VERY_LONG_METHOD_NAME_THAT_NOBODY_KNOWS",
];
const ODD_VERSIONS: &[&str] = &[
    "HTTP/1.0",
    "HTTP/1.0",
    "HTTP/1.0",
    "HTTP/0.9",
    "HTTP/1.2",
    "HTTP/2.0",
    "http/1.1",
    "HTTP/1.1 ",
    "HTTP/01.1",
    "",
    "HTTP/1.1\u{0}",
];

/// A request that an attacker wanted to hide in a body.
const HIDDEN: &str = "GET /clusters/root:org/hidden HTTP/1.1\r\nHost: localhost\r\nX-Remote-User: root\r\nX-Remote-Group: system:masters\r\n\r\n";

/// The framing of a message's body, and its bytes.
struct Body {
    lines: Vec<u8>,
    bytes: Vec<u8>,
    /// The head has to be refused, whatever follows.
    refused: bool,
    unfinished: bool,
    doubtful: bool,
}

pub fn message(random: &mut Random) -> Message {
    let (odd_line, odd_path, odd_fields, odd_body) = respects(random);
    let mut method = random.one_of(METHODS);
    let mut version = "HTTP/1.1";
    if odd_line && random.percent(50) {
        method = random.one_of(ODD_METHODS);
    } else if odd_line {
        version = random.one_of(ODD_VERSIONS);
    }
    let body = if odd_body { odd(random) } else { plain(random, method) };
    let path = match (body.refused, odd_path) {
        (true, _) => NEVER.as_bytes().to_vec(),
        (false, true) => paths::hostile(random),
        (false, false) => paths::honest(random),
    };
    let mut bytes = [method.as_bytes(), b" ", &path, b" ", version.as_bytes(), b"\r\n"].concat();
    let host: &[u8] = if odd_line && random.percent(20) { b"" } else { b"Host: localhost\r\n" };
    let mut blocks = vec![host.to_vec(), body.lines.clone()];
    let mut doubtful = body.doubtful || odd_line || path.iter().any(|byte| *byte <= b' ' || *byte == 0x7f);
    if odd_fields {
        for field in fields::hostile(random) {
            let line = line(random, &field);
            doubtful |= !is_ordinary(&line);
            blocks.push(line);
        }
    }
    // The order must not matter.
    let first = random.below(blocks.len());
    blocks.rotate_left(first);
    blocks.into_iter().for_each(|block| bytes.extend(block));
    bytes.extend_from_slice(if odd_line && random.percent(10) { b"\n" } else { b"\r\n" });
    bytes.extend(&body.bytes);
    let mut unfinished = body.unfinished;
    if odd_body && random.percent(10) {
        bytes.truncate(random.below(bytes.len()));
        unfinished = true;
    }
    doubtful |= unfinished;
    Message { bytes, head: method == "HEAD", unfinished, doubtful }
}

/// In which respects a message is hostile: line, path, fields, body.
fn respects(random: &mut Random) -> (bool, bool, bool, bool) {
    loop {
        let respects = (random.percent(5), random.percent(30), random.percent(60), random.percent(20));
        if respects != (false, false, false, false) {
            return respects;
        }
    }
}

/// Whether every reader sees the same one field.
fn is_ordinary(line: &[u8]) -> bool {
    let Some((name, value)) = line.strip_suffix(b"\r\n").and_then(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        Some((&line[..colon], &line[colon..]))
    }) else {
        return false;
    };
    let is_control = |byte: &u8| byte.is_ascii_control() && *byte != b'\t';
    !name.is_empty()
        && name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.%".contains(byte))
        && !value.iter().any(is_control)
        && !name.eq_ignore_ascii_case(b"host")
}

fn line(random: &mut Random, (name, value): &Field) -> Vec<u8> {
    // Rarely, because one such line spoils the message.
    let separator = match random.below(500) {
        0 => &b" : "[..],
        1 => b":",
        2 => b":\t",
        3 => b"\t:",
        4 => b" ",
        5 => b":\r\n ",
        6 => b":\n\t",
        7 => b": \r\n\tfolded ",
        _ => b": ",
    };
    let end: &[u8] = match random.below(500) {
        0 => b"\n",
        1 => b"\r",
        2 => b"\r\r\n",
        3 => b" \r\n",
        _ => b"\r\n",
    };
    [name, separator, value, end].concat()
}

fn plain(random: &mut Random, method: &str) -> Body {
    let has_body = matches!(method, "POST" | "PUT" | "PATCH") || random.percent(5);
    if !has_body {
        return body(b"", b"");
    }
    if random.percent(50) {
        body(b"Content-Length: 5\r\n", b"hello")
    } else {
        body(b"Transfer-Encoding: chunked\r\n", b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n")
    }
}

fn body(lines: &[u8], bytes: &[u8]) -> Body {
    Body { lines: lines.to_vec(), bytes: bytes.to_vec(), refused: false, unfinished: false, doubtful: false }
}

fn refused(lines: &[u8], bytes: &[u8]) -> Body {
    Body { refused: true, doubtful: true, ..body(lines, bytes) }
}

fn doubtful(lines: &[u8], bytes: &[u8]) -> Body {
    Body { doubtful: true, ..body(lines, bytes) }
}

const CHUNKED: &[u8] = b"Transfer-Encoding: chunked\r\n";

fn odd(random: &mut Random) -> Body {
    match random.below(10) {
        0..2 => two_lengths(random),
        2..4 => odd_encoding(random),
        4..6 => odd_chunks(random),
        6 => trailers(random),
        7 => breaking_off(random),
        _ => following(random),
    }
}

/// Lengths that contradict each other, or are none.
fn two_lengths(random: &mut Random) -> Body {
    let hidden = HIDDEN.as_bytes();
    let chunks = [b"0\r\n\r\n", hidden].concat();
    match random.below(6) {
        0 => refused(&[b"Content-Length: 3\r\n", CHUNKED].concat(), &chunks),
        1 => refused(&[CHUNKED, b"Content-Length: 300\r\n"].concat(), &chunks),
        2 => refused(b"Content-Length: 0\r\nContent-Length: 5\r\n", hidden),
        3 => refused(b"Content-Length: 5, 6\r\n", hidden),
        4 => body(b"Content-Length: 5\r\nContent-Length: 5\r\n", b"hello"),
        _ => {
            let length = random.one_of(&[
                "+5",
                "-5",
                "0x5",
                "5.0",
                "5;5",
                "\"5\"",
                "5 5",
                "99999999999999999999",
                "18446744073709551621",
                "\u{ff15}",
                "five",
            ]);
            refused(format!("Content-Length: {length}\r\n").as_bytes(), hidden)
        }
    }
}

/// Encodings that one reader takes for chunked and another does not.
fn odd_encoding(random: &mut Random) -> Body {
    let lines = random.one_of(&[
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding: \u{b}chunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding: chunked;q=1\r\n",
        "Transfer-Encoding: \"chunked\"\r\n",
        "Transfer-Encoding: chunked\u{0}\r\n",
        "Transfer-Encoding:\r\n chunked\r\n",
        " Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: cow\r\n",
    ]);
    let chunks = ["0\r\n\r\n", HIDDEN].concat();
    if random.percent(20) {
        // Names that only resemble the field.
        let lines = random.one_of(&[
            "Transfer_Encoding: chunked\r\nContent-Length: 5\r\n",
            "X-Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        ]);
        return body(lines.as_bytes(), b"hello");
    }
    refused(lines.as_bytes(), chunks.as_bytes())
}

fn odd_chunks(random: &mut Random) -> Body {
    let chunks = random.one_of(&[
        "5;name=value\r\nhello\r\n0\r\n\r\n",
        "5 ; name=\"a\r\nb\"\r\nhello\r\n0\r\n\r\n",
        "005\r\nhello\r\n000\r\n\r\n",
        "g\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "5\nhello\n0\n\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhelloX\r\n0\r\n\r\n",
        "fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        "ffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        "8000000000000005\r\nhello\r\n0\r\n\r\n",
        "5\r\nhel",
        "\r\n5\r\nhello\r\n0\r\n\r\n",
        "5;\u{0}\r\nhello\r\n0\r\n\r\n",
    ]);
    let mut bytes = chunks.as_bytes().to_vec();
    if random.percent(20) {
        let extension = vec![b'x'; random.length(64 << 10)];
        bytes.splice(0..0, [b"1;", &extension[..], b"\r\na\r\n"].concat());
    }
    doubtful(CHUNKED, &bytes)
}

fn trailers(random: &mut Random) -> Body {
    let mut bytes = b"5\r\nhello\r\n0\r\n".to_vec();
    for _ in 0..=random.below(4) {
        let claim = fields::claim(random);
        bytes.extend(line(random, &claim));
    }
    bytes.extend_from_slice(b"\r\n");
    doubtful(CHUNKED, &bytes)
}

fn breaking_off(random: &mut Random) -> Body {
    let cut = match random.below(3) {
        0 => body(b"Content-Length: 500\r\n", b"hello"),
        1 => body(CHUNKED, b"5\r\nhello\r\n"),
        _ => body(CHUNKED, b"500\r\nhello"),
    };
    Body { unfinished: true, doubtful: true, ..cut }
}

/// A second request right behind the first.
fn following(random: &mut Random) -> Body {
    let hidden = HIDDEN.as_bytes();
    match random.below(4) {
        0 => doubtful(b"", hidden),
        1 => doubtful(b"Content-Length: 5\r\n", &[b"hello", hidden].concat()),
        2 => doubtful(CHUNKED, &[b"5\r\nhello\r\n0\r\n\r\n", hidden].concat()),
        _ => doubtful(b"Expect: 100-continue\r\nContent-Length: 5\r\n", &[b"hello", hidden].concat()),
    }
}
