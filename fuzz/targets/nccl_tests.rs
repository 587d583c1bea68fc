//! Tables and JSON of nccl-tests.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    evidence::read_texts([("tests.txt", bytes)]);
    let document = [b"{\"nccl_version\":".as_slice(), bytes].concat();
    evidence::read_texts([("tests.json", document.as_slice())]);
});
