//! What launchers and collectors put before a line, lines that were broken, and their encoding.
#![no_main]

use std::io::Read as _;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let bare = evidence::strip::bare(bytes);
    assert!(bytes.ends_with(bare));
    let _ = evidence::is_broken(bytes);
    let mut text = Vec::new();
    let mut source = evidence::encoding::text(Box::new(bytes)).expect("memory can be read");
    source.read_to_end(&mut text).expect("memory can be read");
    let _ = evidence::read_texts([("a", text.as_slice())]);
});
