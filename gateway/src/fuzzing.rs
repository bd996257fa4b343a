//! Fuzz targets: pure parsers of input from clients and administrators, with invariants that hold for any input.
//!
//! `make fuzz` runs them guided by coverage; the tests below run them over the corpus and over random input.

pub use crate::forward::fuzzing::headers;
pub use crate::http::http1::fuzzing::http1;
pub use crate::request::fuzzing::path;
pub use crate::routing::mapping::fuzzing::mapping;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    type Target = fn(&[u8]);

    const TARGETS: [(&str, Target); 4] =
        [("path", path), ("headers", headers), ("mapping", mapping), ("http1", http1)];

    #[test]
    fn nothing_in_the_corpus_fails() {
        for (name, target) in TARGETS {
            let folder = format!("{}/fuzz/corpus/{name}", env!("CARGO_MANIFEST_DIR"));
            let inputs: Vec<_> =
                std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
            assert!(inputs.len() >= 5, "{folder} has lost its corpus");
            for input in inputs {
                println!("{}", input.display());
                target(&std::fs::read(input).unwrap());
            }
        }
    }

    proptest! {
        #[test]
        fn no_bytes_fail(input in proptest::collection::vec(any::<u8>(), 0..200)) {
            TARGETS.iter().for_each(|(_, target)| target(&input));
        }

        #[test]
        fn no_path_fails(input in "/(clusters|services)?/?[a-z:%/.2efE\\\\0-9 *?#;{}\u{e4}]{0,40}") {
            path(input.as_bytes());
        }

        #[test]
        fn no_headers_fail(input in "((Connection|X-Remote-User|x_remote_group|Upgrade|TE|X-Forwarded-For|X-Custom_User|X-Remote-Extra-a):[a-zA-Z0-9,%_ -]{0,40}\r\n){0,8}") {
            headers(input.as_bytes());
        }
    }
}
