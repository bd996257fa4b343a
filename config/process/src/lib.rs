//! What every server process is: reloadable TLS listeners, readiness, drain, metrics registry, logs, limits on bad peers, `Status` errors.
