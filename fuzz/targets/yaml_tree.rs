//! YAML and JSON: every value has a span inside the text, between characters.
#![no_main]

use std::collections::BTreeSet;

use evidence::yaml::Tree;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let Ok(tree) = Tree::read(text) else { return };
    let mut open = tree.documents.clone();
    // An alias names a node again, so the tree is a graph.
    let mut seen = BTreeSet::new();
    while let Some(id) = open.pop() {
        if !seen.insert(id) {
            continue;
        }
        let span = &tree.node(id).span;
        assert!(text.get(span.range.clone()).is_some(), "{span:?} of {} bytes", text.len());
        assert!(span.line >= 1 && span.column >= 1, "{span:?}");
        open.extend(tree.items(id));
        for (key, value) in tree.entries(id) {
            open.extend([*key, *value]);
        }
        let _ = (tree.get(id, "<<"), tree.at(id, &["a", "b"]), tree.bool(id), tree.integer(id), tree.is_null(id));
    }
});
