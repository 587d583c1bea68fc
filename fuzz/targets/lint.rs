//! Every rule of `plumb lint` over a file, with and without a machine, and every format of the answer.
#![no_main]

mod lint_input;

use report::lint::Lint;
use rules::lint::Given;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some(file) = lint_input::submission(bytes) else { return };
    let files = [file];
    for instance in [None, fabric::catalogue::find("p5.48xlarge")] {
        let found = rules::lint::lint(&files, &Given { instance, ..Given::default() });
        let lint = Lint::new(&files, &[], &found);
        let style = report::Style { colour: false, width: 80, verbose: true };
        let mut text = Vec::new();
        report::lint::text(&lint, style, &mut text).expect("memory takes all");
        let text = String::from_utf8(text).expect("UTF-8");
        assert!(text.chars().all(|it| it == '\n' || !it.is_control()), "{text:?}");
        report::lint::junit(&lint, Some(rules::Severity::Warning), &mut std::io::sink()).expect("a sink takes all");
        let (mut json, mut sarif) = (Vec::new(), Vec::new());
        lint.json(&mut json).expect("memory takes all");
        report::lint::sarif(&lint, &mut sarif).expect("memory takes all");
        for document in [json, sarif] {
            assert!(serde_json::from_slice::<serde_json::Value>(&document).is_ok());
        }
    }
});
