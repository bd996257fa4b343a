//! The processes that a process has started.

use std::collections::BTreeMap;

/// The process IDs of a process and its current descendants, from `/proc`. The process itself comes first.
pub fn with_descendants(root: u32) -> std::io::Result<Vec<u32>> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // Other processes may end meanwhile.
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        // The name in parentheses may contain any character (proc(5)).
        let parent =
            stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(1)?.parse().ok());
        children.entry(parent.unwrap_or_default()).or_default().push(pid);
    }
    let mut members = vec![root];
    let mut next = 0;
    while let Some(pid) = members.get(next).copied() {
        members.extend(children.remove(&pid).unwrap_or_default());
        next += 1;
    }
    Ok(members)
}
