//! Messages of the aws-ofi-nccl plugin.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut text = Vec::new();
    for line in bytes.split(|it| *it == b'\n') {
        text.extend_from_slice(b"node-0:1:2 [0] NCCL INFO NET/OFI ");
        text.extend_from_slice(line);
        text.push(b'\n');
    }
    evidence::read_texts([("ofi.log", text.as_slice())]);
});
