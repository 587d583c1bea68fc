//! Kubernetes manifests.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let document = [b"apiVersion: v1\nkind: Pod\n".as_slice(), bytes].concat();
    evidence::read_texts([("pod.yaml", document.as_slice())]);
});
