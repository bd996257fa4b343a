//! Every setting of every process, typed, with defaults, lint rules and kcp flag names.
