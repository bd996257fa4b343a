#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fairlead_apiserver::fuzzing::webhook(input));
