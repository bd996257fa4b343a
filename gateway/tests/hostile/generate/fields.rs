//! Header fields, mostly forged identities.

use crate::random::Random;

/// A name and a value, not yet in any syntax.
pub type Field = (Vec<u8>, Vec<u8>);

const IDENTITY: &[&str] = &[
    "X-Remote-User",
    "X-Remote-Group",
    "X-Remote-Uid",
    "X-Remote-Extra-Scopes",
    "X-Remote-Extra-Authentication.kcp.io%2fscopes",
    "X-Remote-Extra-Authorization.kcp.io%2fwarrant",
    "X-Remote-Extra-Authentication.kubernetes.io%2fcredential-id",
    "X-Remote-Extra-",
];

/// Other fields that some server may interpret.
const OTHERS: &[(&str, &str)] = &[
    ("Impersonate-User", "root"),
    ("Impersonate-Group", "system:masters"),
    ("Impersonate-Uid", "0"),
    ("Impersonate-Extra-Authentication.kcp.io%2fscopes", "*"),
    ("X-Custom-User", "root"),
    ("X-Forwarded-User", "root"),
    ("X-Forwarded-For", "127.0.0.1, ::1, unknown"),
    ("X-Forwarded-Host", "evil.example"),
    ("X-Forwarded-Client-Cert", "Hash=00;Subject=\"CN=root\""),
    ("X-Original-URL", "/clusters/root/admin"),
    ("X-Rewrite-URL", "/clusters/root/admin"),
    ("X-HTTP-Method-Override", "DELETE"),
    ("X-Kubernetes-Sharded-Request", "1"),
    ("X-Kcp-Internal-Deep-SubjectAccessReview", "true"),
    ("Forwarded", "for=127.0.0.1;host=evil.example"),
    ("Via", "1.1 evil"),
    ("Authorization", "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJyb290In0."),
    ("Authorization", "Bearer "),
    ("Authorization", "Basic cm9vdDpyb290"),
    ("Sec-WebSocket-Protocol", "base64url.bearer.authorization.k8s.io.cm9vdA"),
    ("Proxy-Authorization", "Basic cm9vdDpyb290"),
    ("Expect", "100-continue"),
    ("Expect", "200-ok"),
    ("TE", "trailers, gzip;q=0.5"),
    ("Trailer", "X-Remote-User, X-Remote-Group"),
    ("Keep-Alive", "timeout=0, max=1"),
    ("Upgrade", "h2c"),
    ("Upgrade", "websocket, h2c"),
    ("Upgrade", "TLS/1.3"),
    ("HTTP2-Settings", "AAMAAABkAARAAAAAAAIAAAAA"),
    ("Proxy-Connection", "X-Remote-User"),
    ("Range", "bytes=0-0,0-0,0-0,0-0,0-0,0-0,0-0,0-0"),
    ("Cookie", "a=b; X-Remote-User=root"),
    ("Accept", "*/*;q=\u{ff}"),
];

const VALUES: &[&[u8]] = &[
    b"root",
    b"kcp-admin",
    b"system:masters",
    b"system:kcp:admin",
    b"*",
    b"",
    b" ",
    b"root, alice",
    b"\xff\xfe",
    b"r\xc3\xb6\xc3\xb6t",
    b"=?utf-8?q?root?=",
    b"%0d%0aX-Remote-User: root",
];

/// Bytes that end a field for lenient parsers.
const BREAKING: &[&[u8]] = &[
    b"\r\nX-Remote-User: root",
    b"\nX-Remote-Group: system:masters",
    b"\rX-Remote-User: root",
    b"\0X-Remote-User: root",
    b"\x0bX-Remote-User: root",
    b"\x85X-Remote-User: root",
];

/// One to six fields, some of them hostile.
pub fn hostile(random: &mut Random) -> Vec<Field> {
    (0..=random.below(6)).flat_map(|_| one(random)).collect()
}

/// A claim that a trailer may make as well.
pub fn claim(random: &mut Random) -> Field {
    let name = random.one_of(IDENTITY);
    let value = if random.percent(98) { random.one_of(VALUES) } else { random.one_of(BREAKING) };
    (spelled(random, name), value.to_vec())
}

fn one(random: &mut Random) -> Vec<Field> {
    match random.below(100) {
        0..50 => {
            let claim = claim(random);
            vec![claim; 1 + random.below(3)]
        }
        50..65 => vec![(b"Connection".to_vec(), nominations(random))],
        65..95 => {
            let (name, value) = OTHERS[random.below(OTHERS.len())];
            let name = if random.percent(30) { spelled(random, name) } else { name.as_bytes().to_vec() };
            vec![(name, value.as_bytes().to_vec())]
        }
        95 => vec![(b"X-Long".to_vec(), vec![b'x'; random.length(80 << 10)])],
        96..98 => (0..random.length(300)).map(|n| (format!("X-{n}").into_bytes(), b"y".to_vec())).collect(),
        _ => vec![(
            b"Host".to_vec(),
            random.one_of(&[&b"evil.example"[..], b"", b"a b", b"a@b", b"localhost"]).to_vec(),
        )],
    }
}

/// Fields that a `Connection` header wants removed.
fn nominations(random: &mut Random) -> Vec<u8> {
    const NAMED: &[&str] = &[
        "close",
        "keep-alive",
        "Upgrade",
        "Host",
        "Content-Length",
        "Transfer-Encoding",
        "Authorization",
        "X-Forwarded-For",
        "\"X-Remote-User\"",
        "",
    ];
    let names: Vec<Vec<u8>> = (0..=random.below(4))
        .map(|_| {
            let name = if random.percent(60) { random.one_of(IDENTITY) } else { random.one_of(NAMED) };
            if random.percent(30) { spelled(random, name) } else { name.as_bytes().to_vec() }
        })
        .collect();
    names.join(*random.one_of(&[&&b", "[..], &&b","[..], &&b" ,\t"[..], &&b",,"[..], &&b"; "[..]]))
}

/// The name as careless readers might still understand it.
fn spelled(random: &mut Random, name: &str) -> Vec<u8> {
    let mut name = name.as_bytes().to_vec();
    match random.below(60) {
        0..8 => name.make_ascii_lowercase(),
        8..16 => name.make_ascii_uppercase(),
        16..24 => name.iter_mut().filter(|byte| **byte == b'-').for_each(|byte| *byte = b'_'),
        24..40 => {
            for byte in &mut name {
                if random.percent(50) {
                    byte.make_ascii_uppercase();
                } else {
                    byte.make_ascii_lowercase();
                }
                if *byte == b'-' && random.percent(50) {
                    *byte = *random.one_of(&[&b'_', &b'.', &b'-']);
                }
            }
        }
        40 => name.push(*random.one_of(&[&b' ', &b'\t', &b'\0', &b':', &b'\x0b'])),
        41 => name.insert(0, *random.one_of(&[&b' ', &b'\t', &b':', &b'\0'])),
        42 => {
            let at = random.below(name.len().max(1));
            name.splice(
                at..at,
                random
                    .one_of(&[&b" "[..], b"\xc2\xad", b"\xe2\x80\x8b", b"%2d", b"\0", b"/", b"\""])
                    .iter()
                    .copied(),
            );
        }
        43 => {
            let at = random.below(name.len().max(1));
            name.splice(at..at, random.one_of(&[&b"\xd0\xb5"[..], b"\xef\xbc\xad", b"\xff"]).iter().copied());
        }
        _ => {}
    }
    name
}
