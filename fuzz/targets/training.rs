//! Output of trainers, DeepSpeed, PyTorch and launchers.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let case = evidence::read_texts([("train.log", bytes)]);
    let _ = case.training.is_empty();
});
