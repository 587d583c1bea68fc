//! A file through everything: reading, all rules, every format, redaction.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let case = evidence::read_texts([("job.log", bytes)]);
    let mut doctor = report::Doctor::new(&case, report::Options { matrix: true });
    for _ in 0..2 {
        let style = report::Style { colour: true, width: 80, verbose: true };
        report::text(&doctor, style, &mut std::io::sink()).expect("a sink takes all");
        let mut json = Vec::new();
        report::json(&doctor, &mut json).expect("memory takes all");
        assert!(serde_json::from_slice::<serde_json::Value>(&json).is_ok());
        let mut sarif = Vec::new();
        report::sarif(&doctor, &mut sarif).expect("memory takes all");
        assert!(serde_json::from_slice::<serde_json::Value>(&sarif).is_ok());
        report::junit(&doctor, &mut std::io::sink()).expect("a sink takes all");
        report::redact(&mut doctor);
    }
});
