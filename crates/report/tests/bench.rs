//! What `plumb bench` writes, of a run with chosen times.

#![expect(clippy::cast_precision_loss, reason = "the numbers are small")]

use std::path::Path;

use bench::record::{Config, Context, Expected};
use bench::{
    Average, DataType, Device, Difference, Element, EngineKind, Incomparable, Operation, Oversubscribed,
    Plan, Record, Row, Run, Series, Timing, Wrong,
};
use fabric::Collective;
use report::{Style, bench as written};
use serde_json::Value;

const RANKS: usize = 4;

fn timing(seconds: f64) -> Timing {
    let samples: Vec<f64> = (0..20).map(|it| seconds * (0.98 + 0.002 * f64::from(it * 7 % 20))).collect();
    let ranks: Vec<f64> = (0..RANKS).map(|it| seconds * if it == 2 { 1.3 } else { 0.9 }).collect();
    let longest = samples.iter().map(|it| it * 1.3).collect();
    Timing {
        seconds: Average::Mean.of(&ranks),
        iterations: 20,
        samples,
        longest,
        ranks,
        wrong: Some(0),
        repeats: [1.0, 1.02, 0.985, 1.01].map(|it| it * seconds).to_vec(),
    }
}

fn run(collective: Collective, slower: f64) -> (Run, Config) {
    let plan = Plan { repeats: 4, ..Plan::new(collective) };
    let series = Series { data_type: DataType::Float, operation: Operation::Sum, root: 0 };
    let row = |bytes: u64| {
        let seconds = (2e-6 + bytes as f64 / 1e10) * slower;
        let in_place = bench::works_in_place(collective).then(|| timing(seconds * 1.1));
        Row {
            series,
            bytes,
            count: bytes / 4,
            cycle: 0,
            out_of_place: Some(timing(seconds)),
            in_place,
            time: 1_794_732_748,
        }
    };
    let device = |rank: usize| Device {
        rank,
        pid: 100 + u32::try_from(rank).expect("few"),
        host: format!("node-{}", rank / 2),
        device: rank % 2,
        bus: None,
        name: "host memory".to_owned(),
    };
    let run = Run {
        collective,
        engine: EngineKind::Host,
        version: "plumb 0.1.0".to_owned(),
        devices: (0..RANKS).map(device).collect(),
        rows: plan.sizes.all().map(row).collect(),
        paths: Some("shared memory".to_owned()),
        oversubscribed: Some(Oversubscribed { host: "node-0".to_owned(), ranks: 2, cores: 1 }),
        wrong: None,
        segments: Vec::new(),
    };
    (run, Config::new(&plan))
}

fn answer(collective: Collective, slower: f64) -> Record {
    let (run, config) = run(collective, slower);
    Record::new(&run, config, Context { started: 1_794_732_740, ended: 1_794_732_750, ..Context::default() })
}

fn table(bench: &Record) -> String {
    let mut out = Vec::new();
    written::header(bench, &mut out).expect("memory");
    for row in &bench.results {
        written::row(&bench.config, row, &mut out).expect("memory");
    }
    written::footer(bench, &mut out).expect("memory");
    String::from_utf8(out).expect("text")
}

fn text(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).expect("memory");
    String::from_utf8(out).expect("text")
}

fn json(bench: &Record) -> Value {
    serde_json::from_str(&text(|out| written::json(bench, out))).expect("JSON")
}

#[test]
fn the_text_as_a_person_sees_it() {
    let bench = answer(Collective::AllReduce, 1.0);
    let summary = text(|out| written::summary(&bench, Style { width: 80, ..Style::default() }, out));
    let plots = [true, false].map(|it| text(|out| written::plot(&bench, it, out))).concat();
    assert!(plots.lines().all(|it| it.chars().count() <= 80));
    insta::assert_snapshot!("bench_text", format!("{}{summary}{plots}", table(&bench)));
}

#[test]
fn the_picture() {
    let bench = answer(Collective::AllReduce, 1.0);
    let svg = text(|out| written::svg(&bench, out));
    roxmltree::Document::parse(&svg).expect("XML");
    insta::assert_snapshot!("bench_svg", svg);
    // Nothing to draw is drawn too.
    let (mut run, config) = run(Collective::AllReduce, 1.0);
    run.rows.clear();
    let bench = Record::new(&run, config, Context::default());
    roxmltree::Document::parse(&text(|out| written::svg(&bench, out))).expect("XML");
    assert_eq!(text(|out| written::plot(&bench, true, out)), "");
}

#[test]
fn what_reads_nccl_tests_reads_the_table() {
    for collective in Collective::ALL {
        let bench = answer(collective, 1.0);
        let case = evidence::read_texts([("bench.log", table(&bench).as_bytes())]);
        let [test] = case.tests.as_slice() else { panic!("{collective}: {} runs", case.tests.len()) };
        assert_eq!(test.program.as_deref(), Some(format!("{collective}_perf").as_str()));
        assert_eq!((test.devices.len(), test.rows.len()), (RANKS, bench.results.len()));
        assert_eq!(test.out_of_bounds, Some(0));
        assert!((test.average_bus_bandwidth.expect("a mean") / bench.average - 1.0).abs() < 1e-3);
        for (read, row) in test.rows.iter().zip(&bench.results) {
            assert_eq!((read.size, read.count), (row.bytes, row.count));
            for (read, measure) in [(read.out_of_place, &row.out_of_place), (read.in_place, &row.in_place)] {
                assert_eq!(read.is_some(), measure.is_some(), "{collective}");
                let (Some(read), Some(measure)) = (read, measure) else { continue };
                assert!((read.time - measure.time_us).abs() <= 0.006_f64.max(measure.time_us * 1e-3));
                assert!((read.busbw - measure.bus_bandwidth).abs() < 0.006);
                assert_eq!(read.wrong, Some(0.0));
            }
        }
    }
}

#[test]
fn nccl_tests_own_json_has_its_shape() {
    let bench = answer(Collective::AllReduce, 1.0);
    let arguments = ["all_reduce_perf".to_owned()];
    let told = text(|out| written::nccl_tests(&bench, &arguments, out));
    let value: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!((&value["env"], &value["version"]), (&Value::Array(Vec::new()), &Value::from(3)));
    let case = evidence::read_texts([("bench.json", told.as_bytes())]);
    let test = case.tests.first().expect("a run");
    assert_eq!((test.rows.len(), test.devices.len()), (bench.results.len(), RANKS));
    assert_eq!(test.program.as_deref(), Some("all_reduce_perf"));
    let read = bench::read(&told).expect("a result");
    assert_eq!((read.collective.as_str(), read.results.len()), ("all_reduce", bench.results.len()));
}

#[test]
fn the_schema_describes_every_answer() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/bench.schema.json");
    let schema: Value =
        serde_json::from_str(&std::fs::read_to_string(path).expect("the schema")).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let (mut run, config) = run(Collective::AllReduce, 1.0);
    let element = Element { index: 7, got: "1".to_owned(), expected: "2".to_owned() };
    let series = run.rows[0].series;
    run.wrong = Some(Wrong { rank: 3, bytes: 8, in_place: true, series, element });
    let expected = |_| Some(Expected { low: 1.0, expected: 2.0, high: 3.0 });
    let context = Context { machine: Some("p5.48xlarge"), expected: Some(&expected), ..Context::default() };
    let full = Record::new(&run, config, context);
    for bench in [full, answer(Collective::AllToAll, 1.0), answer(Collective::Broadcast, 1.0)] {
        let value = json(&bench);
        assert!(
            validator.is_valid(&value),
            "{:?}",
            validator.iter_errors(&value).map(|it| it.to_string()).collect::<Vec<_>>()
        );
        for (part, properties) in [
            (&value, &schema["properties"]),
            (&value["config"], &schema["properties"]["config"]["properties"]),
            (&value["results"][0], &schema["properties"]["results"]["items"]["properties"]),
            (&value["results"][0]["out_of_place"], &schema["$defs"]["measure"]["properties"]),
            (&value["fits"][0], &schema["properties"]["fits"]["items"]["properties"]),
        ] {
            for key in part.as_object().expect("an object").keys() {
                assert!(properties.get(key).is_some(), "the schema does not describe {key}");
            }
        }
        assert_eq!(bench::read(&value.to_string()).expect("its own"), bench);
    }
}

#[test]
fn what_changed_is_reported() {
    let check = |slower: f64| {
        bench::compare(&answer(Collective::AllReduce, 1.0), &answer(Collective::AllReduce, slower))
            .expect("the same")
    };
    let all = check(1.0).lines.len();
    assert_eq!(check(1.0).count(bench::Verdict::Same), all);
    assert_eq!(check(1.02).count(bench::Verdict::Same), all);
    assert_eq!(check(1.4).count(bench::Verdict::Slower), all);
    // Short calls vary by more.
    let by_a_fifth: Vec<_> =
        check(1.2).lines.into_iter().filter(|it| it.change.verdict == bench::Verdict::Slower).collect();
    assert!(by_a_fifth.len() < all && by_a_fifth.iter().all(|it| it.old_us > 2.5), "{by_a_fifth:?}");
    assert_eq!(check(0.7).count(bench::Verdict::Faster), all);
    assert_eq!(
        written::sentence(&check(1.4)),
        "slower in 48 of 48 measurements, faster in none; times +40.0 % on average"
    );
    let shown = text(|out| written::comparison_text(&check(1.2), Style::default(), out));
    insta::assert_snapshot!("bench_compare", shown);
    serde_json::from_str::<Value>(&text(|out| written::comparison_json(&check(0.7), out))).expect("JSON");
    assert_eq!(check(1.4).differences, []);
}

#[test]
fn changes_of_one_pass_come_with_a_doubt() {
    let at_once = |slower: f64| {
        let mut bench = answer(Collective::AllReduce, slower);
        for it in bench.results.iter_mut().flat_map(|it| [&mut it.out_of_place, &mut it.in_place]).flatten() {
            it.repeats_us.clear();
        }
        bench
    };
    let differences = |old: &Record, new: &Record| bench::compare(old, new).expect("the same").differences;
    for (old, new) in [(at_once(1.0), at_once(1.4)), (answer(Collective::AllReduce, 1.0), at_once(1.4))] {
        assert_eq!(differences(&old, &new), [Difference::OnePass]);
    }
    assert_eq!(differences(&at_once(1.0), &at_once(1.0)), [], "nothing changed");
}

#[test]
fn means_are_compared_with_means() {
    // The same run, once with every time and once as nccl-tests writes it, with means alone.
    let mut bench = answer(Collective::AllReduce, 1.0);
    for it in bench.results.iter_mut().flat_map(|it| [&mut it.out_of_place, &mut it.in_place]).flatten() {
        it.time_us *= 2.0;
    }
    let means = text(|out| written::nccl_tests(&bench, &["all_reduce_perf".to_owned()], out));
    let means = bench::read(&means).expect("nccl-tests' JSON");
    let comparison = bench::compare(&bench, &means).expect("the same");
    assert_eq!(comparison.count(bench::Verdict::Same), comparison.lines.len());
    // What that file does not have is not a difference.
    assert_eq!(comparison.differences, [Difference::MeansOnly]);
    // Also where it has so many of them that they show drift.
    let [bench, means] = [bench, means].map(|it| Record { results: vec![it.results; 5].concat(), ..it });
    let comparison = bench::compare(&bench, &means).expect("the same");
    assert_eq!(comparison.count(bench::Verdict::Same), comparison.lines.len());
    assert!(comparison.lines.iter().all(|it| (it.change.ratio - 1.0).abs() < 0.01));
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let other = answer(Collective::AllGather, 1.0);
    let error = bench::compare(&answer(Collective::AllReduce, 1.0), &other).expect_err("another collective");
    let (old, new) = ("all_reduce".to_owned(), "all_gather".to_owned());
    assert_eq!(error, Incomparable::Collectives { old, new });
    assert_eq!(written::incomparable(&error), "one measures all_reduce, the other all_gather");
    for (text, reason) in [
        ("", "is not JSON"),
        ("{}", "is not a result"),
        ("[1]", "is not a result"),
        (r#"{"schema":"plumb.doctor/1"}"#, "has the schema plumb.doctor/1"),
        (r#"{"schema":"plumb.bench/2"}"#, "newer than this plumb"),
        (r#"{"schema":"plumb.bench/1"}"#, "is damaged"),
        (r#"{"results":[],"args":["x"]}"#, "does not say which collective"),
        (r#"{"results":[{}],"args":["all_reduce_perf"]}"#, "has a row without"),
    ] {
        let error = bench::read(text).expect_err(text);
        assert!(error.contains(reason), "{text}: {error}");
    }
}
