//! Supervised processes, which must not outlive the process that started them.

use std::io::Read;

/// Environment variable that a supervisor sets when it starts a server with a pipe as standard input.
const SUPERVISED: &str = "FAIRLEAD_SUPERVISED";

/// Ends this process as soon as its supervisor is gone, for whatever reason: the process would be unsupervised, and the next
/// one needs its port and its files. It exits at once without a drain, because an orderly supervisor sends SIGTERM first.
///
/// The waiting thread is neither joined nor stopped, so that it works even if the rest of the process hangs.
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

/// Waits for the end of the stream. The supervisor sends nothing; a read error counts as the end.
fn wait_for_end(mut stream: impl Read) {
    let mut ignored = [0; 64];
    loop {
        match stream.read(&mut ignored) {
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
    fn only_the_end_of_the_stream_counts() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let waiting = std::thread::spawn(move || wait_for_end(reader));
        writer.write_all(&[b'x'; 1000]).unwrap();
        assert!(!waiting.is_finished());
        drop(writer);
        waiting.join().unwrap();
    }
}
