//! A file through everything: reading, all rules, every format, redaction.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let case = evidence::read_texts([("job.log", bytes)]);
    let mut doctor = report::Doctor::new(&case, &rules::diagnose(&case), report::Options { matrix: true });
    write(&doctor);
    // Redaction takes longer than all the rest: some inputs are enough.
    if bytes.len().is_multiple_of(16) {
        report::redact(&mut doctor);
        write(&doctor);
    }
});

fn write(doctor: &report::Doctor) {
    let style = report::Style { colour: true, width: 80, verbose: true };
    report::text(doctor, style, &mut std::io::sink()).expect("a sink takes all");
    report::junit(doctor, Some(rules::Severity::Warning), &mut std::io::sink()).expect("a sink takes all");
    let (mut json, mut sarif) = (Vec::new(), Vec::new());
    report::json(doctor, &mut json).expect("memory takes all");
    report::sarif(doctor, &mut sarif).expect("memory takes all");
    for document in [json, sarif] {
        assert!(serde_json::from_slice::<serde_json::Value>(&document).is_ok());
    }
}
