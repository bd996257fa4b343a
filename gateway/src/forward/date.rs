//! The value of the Date header, formatted once per second and thread.

use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

use http::HeaderValue;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;

thread_local! {
    static WRITTEN: RefCell<(u64, HeaderValue)> = const { RefCell::new((0, HeaderValue::from_static(""))) };
}

/// The current time as a header value.
pub(crate) fn now() -> HeaderValue {
    let second = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    WRITTEN.with_borrow_mut(|(written, value)| {
        if *written != second {
            *written = second;
            *value = write(second);
        }
        value.clone()
    })
}

fn write(second: u64) -> HeaderValue {
    let timestamp = i64::try_from(second).ok().and_then(|second| Timestamp::from_second(second).ok());
    let text = timestamp.and_then(|at| DateTimePrinter::new().timestamp_to_rfc9110_string(&at).ok());
    text.and_then(|text| HeaderValue::from_maybe_shared(bytes::Bytes::from(text)).ok())
        .unwrap_or(HeaderValue::from_static("Thu, 01 Jan 1970 00:00:00 GMT"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_is_written_as_http_wants_it() {
        assert_eq!(write(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert!(now().to_str().is_ok_and(|text| text.ends_with(" GMT")));
    }
}
