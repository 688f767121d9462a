//! libFuzzer's entry point for [`redbolt_fuzz::address`].

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| redbolt_fuzz::address::body(input));
