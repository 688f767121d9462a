//! libFuzzer's entry point for [`redbolt_fuzz::decoder`].

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| redbolt_fuzz::decoder::body(input));
