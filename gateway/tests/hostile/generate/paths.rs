//! Request targets.

use crate::random::Random;

/// Paths of honest requests: a shard, one without HTTP/2, virtual workspaces, and the gateway itself.
pub const HONEST: &[&str] = &[
    "/clusters/root:org/api/v1/namespaces",
    "/clusters/root:org/apis/apps/v1/deployments?limit=500",
    "/clusters/0rg0000000000001/api",
    "/clusters/root:old/api/v1/configmaps",
    "/clusters/root/version",
    "/services/x/clusters/root:org/api",
    "/services/apiexport/root/x/clusters/*/apis",
    "/readyz",
    "/clusters/root:unknown/api",
];

/// Bytes inserted anywhere into a path.
const INSERTED: &[&[u8]] = &[
    b"%00",
    b"%0d%0a",
    b"%0A",
    b"%2f",
    b"%2F",
    b"%5c",
    b"\\",
    b"/",
    b"//",
    b"/./",
    b"/../",
    b"/..",
    b"..",
    b"%2e%2e",
    b"%2E%2e/",
    b"/%2e%2e%2f",
    b"..%2f..%2f",
    b"....//",
    b"..;/",
    b";",
    b";x=y",
    b";/",
    b"%3b",
    b"%",
    b"%2",
    b"%zz",
    b"%u002f",
    b"%25",
    b"%252e%252e%252f",
    b"%252f",
    b"%c0%af",
    b"%c0%ae%c0%ae/",
    b"%e0%80%af",
    b"%f0%80%80%af",
    b"%fc%80%80%80%80%af",
    b"\xc0\xaf",
    b"\xff",
    b"\xfe\xff",
    b"%ff",
    b"\xc3\xa4",
    b"%c3%a4",
    b"\xe2\x81\x84",
    b"%e2%80%8b",
    b"\xef\xbc\x8f",
    b"%ef%bc%8e",
    b"?",
    b"??",
    b"#",
    b"&",
    b"*",
    b"~",
    b"@",
    b":",
    b"::",
    b":system:admin",
    b"+",
    b"{",
    b"}",
    b"|",
    b"^",
    b"`",
    b"<",
    b">",
    b"\"",
    b"'",
    b"%20",
    b"%09",
    b"%7f",
    b"%80",
    b"$",
    b",",
    b"=",
    b"http://",
    b"[::1]",
    b"/clusters/root/",
    b"/clusters/*/",
    b"/clusters/system:admin/",
    b"/services/",
    b"/metrics",
    b"/readyz",
    b"user:",
    b"Root",
];

/// Not allowed in a request line at all.
const UNWRITABLE: &[&[u8]] =
    &[b" ", b"\t", b"\0", b"\x01", b"\x0b", b"\x7f", b"\x1b[2J", b"\r", b"\n", b"\r\nX-Remote-User: root"];

pub fn honest(random: &mut Random) -> Vec<u8> {
    random.one_of(HONEST).as_bytes().to_vec()
}

pub fn hostile(random: &mut Random) -> Vec<u8> {
    if random.percent(2) {
        return random
            .one_of(&[
                &b"*"[..],
                b"",
                b"/",
                b"clusters/root/api",
                b"http://localhost/clusters/root:org/api",
                b"https://evil.example/clusters/root:org/api",
                b"http://user:secret@localhost/clusters/root:org/api",
                b"//localhost/clusters/root:org/api",
                b"localhost:443",
                b"/clusters",
                b"/clusters/",
                b"javascript:alert(1)",
            ])
            .to_vec();
    }
    let mut path = honest(random);
    for _ in 0..=random.below(3) {
        mutate(random, &mut path);
    }
    path
}

fn mutate(random: &mut Random, path: &mut Vec<u8>) {
    let at = random.below(path.len() + 1);
    match random.below(100) {
        0..60 => insert(path, at, random.one_of(INSERTED)),
        60..64 => insert(path, at, random.one_of(UNWRITABLE)),
        64..72 if at < path.len() => {
            let escaped = format!("%{:02x}", path[at]);
            path.splice(at..=at, escaped.bytes());
        }
        72..78 if at < path.len() => {
            path.remove(at);
        }
        78..82 => path.truncate(at.max(1)),
        82..88 if at < path.len() => path[at] = path[at].to_ascii_uppercase(),
        88..92 => {
            let long = vec![*random.one_of(&[&b'a', &b'/', &b'%', &b':', &b'.']); random.length(16 << 10)];
            insert(path, at, &long);
        }
        92..96 => path.extend_from_slice(random.one_of(&[
            &b"?watch=true"[..],
            b"?watch=0&x=%00",
            b"?a=b?c#d",
            b"?\xff=%zz",
        ])),
        _ if at < path.len() => path[at] = (random.next() & 0xff) as u8,
        _ => {}
    }
}

fn insert(path: &mut Vec<u8>, at: usize, what: &[u8]) {
    path.splice(at..at, what.iter().copied());
}
