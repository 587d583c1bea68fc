//! The beginning of an NCCL line: launchers, hosts, times.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = evidence::prefix::time(bytes);
    let _ = evidence::prefix::thread(bytes);
    if let Some(line) = evidence::prefix::Anchor::default().split(bytes) {
        assert!(bytes.ends_with(line.message));
        let _ = evidence::prefix::time(line.before);
        let _ = evidence::prefix::thread(line.thread);
    }
});
