//! libFuzzer's entry point for [`redbolt_fuzz::core`].

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| redbolt_fuzz::core::body(input));
