//! The limit of the operating system on open files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Number of files and sockets that the process may have open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenFiles {
    /// The limit in effect; `u64::MAX` if there is none.
    pub limit: u64,
    /// A warning for the operator if the limit is lower than required.
    pub warning: Option<String>,
}

/// Raises the soft limit on open files to the hard one, and warns if that is less than `wanted`.
pub fn check_open_files(wanted: u64) -> OpenFiles {
    let before = getrlimit(Resource::Nofile);
    // On failure (the limit may have been lowered in between) the soft limit stays.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: before.maximum, maximum: before.maximum });
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let warning = (limit < wanted).then(|| {
        format!(
            "the limit of {limit} open files is below {wanted}: connections will be refused under load; \
             raise it with `ulimit -n {wanted}` or LimitNOFILE={wanted}"
        )
    });
    OpenFiles { limit, warning }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_is_raised_and_a_low_one_named() {
        let enough = check_open_files(1);
        assert_eq!(enough.warning, None);
        let hard = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        assert_eq!(enough.limit, hard);
        if hard < u64::MAX {
            let warning = check_open_files(hard + 1).warning.unwrap_or_default();
            assert!(warning.contains(&hard.to_string()) && warning.contains("ulimit -n"), "{warning}");
        }
    }
}
