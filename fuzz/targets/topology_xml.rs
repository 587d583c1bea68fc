//! NCCL's topology XML.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let document = [b"<system version=\"1\">\n".as_slice(), bytes].concat();
    evidence::read_texts([("topo.xml", document.as_slice())]);
});
