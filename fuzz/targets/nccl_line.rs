//! One message of NCCL.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = evidence::nccl::parse(bytes);
    let _ = evidence::nccl::describe(bytes);
    if let Ok(text) = str::from_utf8(bytes) {
        // What was read is written as it is read.
        if let Some(transport) = evidence::nccl::transport(text) {
            assert_eq!(evidence::nccl::transport(&transport.to_string()), Some(transport), "{text}");
        }
    }
});
