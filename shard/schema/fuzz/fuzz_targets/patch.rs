#![no_main]

libfuzzer_sys::fuzz_target!(|input: &str| fairlead_schema::fuzzing::patch(input));
