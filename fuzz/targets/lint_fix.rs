//! `plumb lint --fix`: the edits end, and what they leave can be read again.
#![no_main]

mod lint_input;

use evidence::submission::Submission;
use rules::lint::Given;

/// Far more than an input needs whose edits overlap.
const ROUNDS: usize = 200;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some(mut file) = lint_input::submission(bytes) else { return };
    for _ in 0..ROUNDS {
        let found = rules::lint::lint(std::slice::from_ref(&file), &Given::default());
        let edits: Vec<_> = found.iter().flat_map(|it| it.finding.edits.iter().cloned()).collect();
        let after = rules::lint::apply(&file.text, &edits);
        if after == *file.text {
            return;
        }
        file = match Submission::read(&file.name, &after) {
            Ok(it) => it,
            Err(trouble) => panic!("{:?} became {after:?}: {trouble:?}", file.text),
        };
    }
    panic!("the edits do not end: {:?}", file.text);
});
