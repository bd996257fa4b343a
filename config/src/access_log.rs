//! The settings of the access log.

use serde::{Deserialize, Serialize};

use crate::check::Checker;
use crate::setting::{plain_settings, settings};
use crate::units::{ByteSize, Fraction, Timespan};
use crate::values::OwnPath;

settings! {
    /// A line of JSON for every request, or for some of them. docs/gateway-observability.md has its fields.
    pub struct AccessLogConfig {
        /// Destination: off, stdout or file.
        to ("to"): AccessLogTarget = AccessLogTarget::Off;
        /// The file. SIGUSR1 reopens it, for external log rotation.
        file ("file"): OwnPath = "access.log".into();
        /// Share of requests that are logged: 1 is all, 0.01 one in a hundred, 0 only those of `always`.
        sample ("sample"): Fraction = Fraction::ALL;
        /// Requests that are always logged: errors (codes from 400 on, and disconnected clients), serverErrors (from 500 on), slow,
        /// localResponses (responses of the gateway itself), writes. Traced requests always are.
        always ("always"): Vec<AlwaysLogged> = vec![AlwaysLogged::Errors, AlwaysLogged::Slow];
        /// Duration from which a request is slow; watches and upgrades never are.
        slow_threshold ("slowThreshold"): Timespan = Timespan::from_secs(1);
        /// Maximum size of the file. It is then renamed to file.1, and a new one is begun.
        max_size ("maxSize"): ByteSize = ByteSize::mib(100);
        /// Number of renamed files: file.1, the newest, to file.5.
        max_files ("maxFiles"): u32 = 5;
        /// Size of the buffer of lines. Lines beyond it are dropped and counted, so that no request waits.
        buffer ("buffer"): ByteSize = ByteSize::mib(1);
    }
}

/// Destination of the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessLogTarget {
    /// No access log.
    Off,
    /// Standard output; the process log uses standard error.
    Stdout,
    /// A file.
    File,
}

/// Requests that are logged independently of `sample`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AlwaysLogged {
    /// Codes from 400 on, and disconnected clients.
    Errors,
    /// Codes from 500 on.
    ServerErrors,
    /// Slow requests.
    Slow,
    /// Responses of the gateway itself.
    LocalResponses,
    /// Requests other than reads.
    Writes,
}

plain_settings!(AccessLogTarget, AlwaysLogged);

impl AccessLogConfig {
    pub(crate) fn check(&self, checker: &mut Checker) {
        checker.at_least("maxSize", self.max_size, ByteSize::kib(64));
        checker.at_least("buffer", self.buffer, ByteSize::kib(64));
        checker.at_least("slowThreshold", self.slow_threshold, Timespan::from_millis(1));
        if self.max_files > 1000 {
            checker.fault(
                "maxFiles",
                "more than 1000 files are too many to rename at a rotation",
                "use a larger maxSize",
            );
        }
        if self.to == AccessLogTarget::File && self.file.file_name().is_none() {
            let message = format!("{} names no file", self.file.display());
            checker.fault("file", &message, "such as access.log");
        }
    }
}
