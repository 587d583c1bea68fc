//! All templates of all signals over one line.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for found in evidence::signals::book().find(bytes) {
        assert!(found.captures.iter().all(|it| it.text.len() <= bytes.len()));
    }
});
