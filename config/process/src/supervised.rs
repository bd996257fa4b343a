//! A process that another one has started, and that must not outlive it.

use std::io::Read;

/// Set by whoever starts a server with a pipe as its standard input.
const SUPERVISED: &str = "FAIRLEAD_SUPERVISED";

/// If a supervisor has started this process, ends it as soon as the supervisor is gone, however that went: nobody would
/// look after it, and its successor needs its port and its files. Ends at once and without a drain, because the
/// supervisor's own orderly end is SIGTERM to us.
///
/// The thread that waits is neither awaited nor stopped: it is there for the moments in which nothing else works.
pub(crate) fn end_with_supervisor() -> std::io::Result<()> {
    if std::env::var_os(SUPERVISED).is_none() {
        return Ok(());
    }
    let watch = || {
        wait_for_end(std::io::stdin().lock());
        tracing::warn!("the supervisor is gone: exiting at once");
        std::process::exit(1);
    };
    std::thread::Builder::new().name("supervisor".to_owned()).spawn(watch).map(drop)
}

/// The supervisor sends nothing; its end is the end of the stream, and an unreadable line is as good as none.
fn wait_for_end(mut line: impl Read) {
    let mut ignored = [0; 64];
    loop {
        match line.read(&mut ignored) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::io::Write;

    use super::*;

    #[test]
    fn only_the_end_of_the_line_counts() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let waiting = std::thread::spawn(move || wait_for_end(reader));
        writer.write_all(&[b'x'; 1000]).unwrap();
        assert!(!waiting.is_finished());
        drop(writer);
        waiting.join().unwrap();
    }
}
