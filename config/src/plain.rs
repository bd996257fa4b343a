//! Files that somebody has named, and that may be anything.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

/// What a setting names is smaller: certificates, kubeconfigs, lists of networks.
const MOST: u64 = 16 << 20;

/// What is in an ordinary file; `None` for what cannot be read, has no end (a device), does not begin before somebody writes (a
/// FIFO), or is larger than any file that settings name.
pub fn read_plain(file: &Path) -> Option<Vec<u8>> {
    let is_plain = fs::metadata(file).is_ok_and(|metadata| metadata.is_file() && metadata.len() <= MOST);
    if !is_plain {
        return None;
    }
    let mut content = Vec::new();
    File::open(file).ok()?.take(MOST + 1).read_to_end(&mut content).ok()?;
    Some(content).filter(|content| content.len() as u64 <= MOST)
}
