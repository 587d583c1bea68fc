//! Cutting a stream into chunks, of a size that the first byte gives.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((&size, text)) = bytes.split_first() else { return };
    let mut chunks = evidence::Chunks::new(text, usize::from(size));
    let (mut spare, mut all) = (Vec::new(), Vec::new());
    while let Some(chunk) = chunks.next_chunk(spare).expect("memory can be read") {
        assert!(!chunk.bytes().is_empty());
        all.extend_from_slice(chunk.bytes());
        spare = chunk.recycle();
    }
    // Only what is longer than a line may be is cut.
    if text.split(|it| *it == b'\n').all(|it| it.len() < evidence::Chunks::<&[u8]>::LINE_LIMIT) {
        assert_eq!(all, text);
    }
});
