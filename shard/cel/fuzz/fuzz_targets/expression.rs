#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| fairlead_cel::fuzz(text));
