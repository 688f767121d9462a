//! libFuzzer's entry point for [`redbolt_fuzz::command_line`].

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| redbolt_fuzz::command_line::body(input));
