//! The settings of the access log.

use serde::{Deserialize, Serialize};

use crate::check::Checker;
use crate::setting::{plain_settings, settings};
use crate::units::{ByteSize, Fraction, Timespan};
use crate::values::OwnPath;

settings! {
    /// A line of JSON for every request, or for some of them. docs/gateway-observability.md has its fields.
    pub struct AccessLogConfig {
        /// Where it goes: off, stdout or file.
        to ("to"): AccessLogTarget = AccessLogTarget::Off;
        /// The file. SIGUSR1 opens it anew, for whoever moves it away.
        file ("file"): OwnPath = "access.log".into();
        /// The share of requests that get a line: 1 is all, 0.01 one in a hundred, 0 none but those below.
        sample ("sample"): Fraction = Fraction::ALL;
        /// Which requests get one in any case: errors (codes from 400 on, and clients that left), serverErrors (from 500 on),
        /// slow, localResponses (what no shard was asked about), writes. Those that are traced do, too.
        always ("always"): Vec<AlwaysLogged> = vec![AlwaysLogged::Errors, AlwaysLogged::Slow];
        /// From when on a request is slow; watches and upgrades never are.
        slow_threshold ("slowThreshold"): Timespan = Timespan::from_secs(1);
        /// When the file would become larger it is moved to file.1, and a new one begun.
        max_size ("maxSize"): ByteSize = ByteSize::mib(100);
        /// How many of those are kept: file.1, the youngest, to file.5.
        max_files ("maxFiles"): u32 = 5;
        /// Lines that wait to be written, in bytes. What finds no room is dropped and counted: no request ever waits.
        buffer ("buffer"): ByteSize = ByteSize::mib(1);
    }
}

/// Where the access log goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessLogTarget {
    /// Nowhere.
    Off,
    /// Standard output; the other log goes to standard error.
    Stdout,
    /// A file.
    File,
}

/// Requests that are logged whatever the sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AlwaysLogged {
    /// Codes from 400 on, and clients that left.
    Errors,
    /// Codes from 500 on.
    ServerErrors,
    /// What took long.
    Slow,
    /// What the gateway answered itself.
    LocalResponses,
    /// What may have changed something.
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
                "more than 1000 files are too many to move for one",
                "use a larger maxSize",
            );
        }
        if self.to == AccessLogTarget::File && self.file.file_name().is_none() {
            let message = format!("{} names no file", self.file.display());
            checker.fault("file", &message, "such as access.log");
        }
    }
}
