//! Commands in a shell text: every word has a range inside the text, one after the other.
#![no_main]

use evidence::submission::words;

libfuzzer_sys::fuzz_target!(|text: &str| {
    const BASE: usize = 7;
    let mut last = BASE;
    for word in words(text, BASE).iter().flatten() {
        assert!(word.range.start >= last && word.range.end > word.range.start, "{word:?} after {last}");
        assert!(text.get(word.range.start - BASE..word.range.end - BASE).is_some(), "{word:?}");
        last = word.range.end;
    }
});
