//! The pages of topo, bench, validate, predict, plan and compare: they hold the JSON, are read again, and nothing in them is markup.

#[expect(dead_code, reason = "other tests use the rest")]
mod common;

use std::fs;

use common::{Answer, plumb, root};

const JOB: &str = "crates/cli/tests/predict/g6e-zero3.toml";

/// One answer of every kind of page, with what its page has to show.
const ANSWERS: [(&[&str], &str); 9] = [
    (&["topo", "--instance", "p5.48xlarge", "--nodes", "2"], "class=\"device\" tabindex=\"0\""),
    (&["topo", "cases/g6e-4x4-efa/rank0.log"], "ring of channel"),
    (&["topo", "--instance", "p4d.24xlarge", "--nodes", "2", "--decide"], "tree of channel"),
    (
        &["topo", "--instance", "p4d.24xlarge", "--nodes", "2", "--what-if", "NCCL_CROSS_NIC=1"],
        "Decisions that change",
    ),
    (
        &["validate", "--simulate", "nodes=12,slow=node003:0.8,link=node005-node009:0.5,noise=1%"],
        "Slow pairs",
    ),
    (&["predict", JOB, "--what-if", "network=eni"], "Where the time of a step goes"),
    (&["plan", JOB], "Time of a step against memory of a GPU"),
    (
        &[
            "compare",
            "cases/g6e-eni-vs-efa/efa.log",
            "cases/g6e-eni-vs-efa/eni.log",
            "--instance",
            "g6e.12xlarge",
            "--job",
            JOB,
            "--took",
            "efa=2441",
            "--took",
            "eni=5409",
        ],
        "not explained",
    ),
    (&["bench", "--compare", "OLD", "NEW"], "Times of a call, old and new"),
];

fn run(arguments: &[&str], format: &str) -> Answer {
    let mut answer = plumb(arguments.iter().copied().chain(["--format", format]));
    // Numbers and their units are held together.
    answer.stdout = answer.stdout.replace('\u{a0}', " ");
    answer
}

/// Every page is one file without a fault that a browser would see.
#[track_caller]
fn is_sound(page: &str, what: &str) {
    assert!(page.starts_with("<!doctype html>\n<html lang=\"en\" data-plumb=\""), "{what}");
    assert!(page.len() < 1 << 20, "{what}: {} bytes", page.len());
    // Names of elements and attributes, without values.
    let names: String = page
        .split('<')
        .filter_map(|it| it.split('>').next())
        .flat_map(|it| it.split('"').step_by(2))
        .collect();
    for forbidden in [" style=", " onload=", " onclick=", " src="] {
        assert!(!names.contains(forbidden), "{what}: {forbidden}");
    }
    assert!(!page.contains("NaN\""), "{what}");
    assert_eq!(page.matches("<script").count(), 3, "{what}: two of data, one that runs");
    // Regions have names of their own, which a screen reader lists.
    let mut regions: Vec<&str> =
        page.split("role=\"region\" aria-label=\"").skip(1).filter_map(|it| it.split('"').next()).collect();
    regions.extend(
        page.split("-heading\">").skip(1).filter_map(|it| it.split('<').next()).filter(|it| !it.is_empty()),
    );
    regions.sort_unstable();
    let twice = regions.windows(2).find(|it| it[0] == it[1]);
    assert_eq!(twice, None, "{what}");
    // Ids are unique.
    let mut ids: Vec<&str> = page.split(" id=\"").skip(1).filter_map(|it| it.split('"').next()).collect();
    ids.sort_unstable();
    let all = ids.len();
    ids.dedup();
    assert_eq!(all, ids.len(), "{what}: {ids:?}");
}

/// A page and the JSON of one measurement.
fn measured(folder: &testbed::Folder) -> (String, String) {
    let [page, json] = ["measured.html", "measured.json"]
        .map(|it| folder.path().join(it).to_str().expect("UTF-8").to_owned());
    let sizes = ["bench", "all_reduce", "--ranks", "2", "-b", "8", "-e", "32K", "-f", "8", "-n", "5"];
    let outputs = ["--format", "html", "--output", &page, "--format", "json", "--output", &json];
    let answer = plumb(sizes.into_iter().chain(outputs));
    assert_eq!(answer.code, Some(0), "{}", answer.stderr);
    (page, json)
}

#[test]
fn a_measurement_has_a_page() {
    let folder = testbed::Folder::new("html-views-bench");
    let (page, json) = measured(&folder);
    let text = fs::read_to_string(&page).expect("a page");
    is_sound(&text, "bench");
    assert!(text.contains("Time of a call by size") && text.contains("bus bandwidth by size"), "{text}");
    // The bandwidth of the table and the JSON, from the mean time.
    let record: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&json).expect("JSON")).expect("JSON");
    let last = record["results"].as_array().and_then(|it| it.last()).expect("a row");
    let rate = last["out_of_place"]["busbw_GBps"].as_f64().expect("a bandwidth");
    let text = text.replace('\u{a0}', " ");
    let headline = text.split("<h1").nth(1).and_then(|it| it.split("</h1>").next()).expect("a headline");
    let said = headline.split(" GB/s").next().and_then(|it| it.rsplit(' ').next()).expect("a bandwidth");
    let said: f64 = said.parse().expect("a number");
    assert!((said - rate).abs() <= 0.01 + 0.005 * rate, "{headline}: {rate}");
    let again = plumb(["bench", &page, "--format", "json"]);
    assert_eq!((again.code, again.stdout), (Some(0), fs::read_to_string(&json).expect("JSON")));
    // A page is a result like its JSON.
    let compared = ["bench", "--compare", &page, &json, "--format", "json"];
    assert_eq!(plumb(compared).stdout, plumb(compared.map(|it| if it == page { &*json } else { it })).stdout);
    let again = plumb(["bench", &page]).stdout;
    assert!(again.contains("out-of-place") && again.contains("slowest rank"), "{again}");
}

#[test]
fn pages_hold_their_json_and_are_read_again() {
    let folder = testbed::Folder::new("html-views");
    let (_, record) = measured(&folder);
    for (arguments, shows) in ANSWERS {
        let arguments: Vec<&str> =
            arguments.iter().map(|it| if matches!(*it, "OLD" | "NEW") { &*record } else { *it }).collect();
        let what = arguments.join(" ");
        let page = run(&arguments, "html");
        let json = run(&arguments, "json");
        let text = run(&arguments, "text");
        assert_eq!((page.code, &*page.stderr), (json.code, &*json.stderr), "{what}");
        is_sound(&page.stdout, &what);
        assert!(page.stdout.contains(shows), "{what}: {shows}");
        assert_eq!(run(&arguments, "html").stdout, page.stdout, "{what}: same input, same bytes");
        let path = folder.path().join("page.html");
        fs::write(&path, &page.stdout).expect("a page");
        let path = path.to_str().expect("UTF-8");
        let again = |format: &str| plumb([arguments[0], path, "--format", format]);
        assert_eq!(again("json").stdout, json.stdout, "{what}");
        assert_eq!(again("text").stdout, text.stdout, "{what}");
        assert_eq!(again("html").stdout, page.stdout, "{what}");
        assert_eq!(again("json").code, json.code, "{what}");
        // Another command says which one reads it.
        let other = if arguments[0] == "topo" { "predict" } else { "topo" };
        let refused = plumb([other, path]);
        assert_eq!(refused.code, Some(2), "{what}");
        assert!(refused.stderr.contains(&format!("`plumb {} ", arguments[0])), "{}", refused.stderr);
    }
}

#[test]
fn markup_in_names_is_text() {
    const MARKUP: &str = "<script>alert(1)</script><b onclick=x>\"'&amp;";
    let folder = testbed::Folder::new("html-views-hostile");
    let write = |name: &str, text: String| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("a file");
        path.to_str().expect("UTF-8").to_owned()
    };
    let quoted = serde_json::to_string(MARKUP).expect("JSON");
    let record = fs::read_to_string(measured(&folder).1).expect("JSON").replace("\"float\"", &quoted);
    let (old, new) = (write("old.json", record.clone()), write("new.json", record));
    let log = fs::read_to_string(root().join("cases/g6e-4x4-efa/rank0.log")).expect("a log");
    let log = write("<b onclick=x>.log", log.replace("rdmap", "<script>alert(1)</script>"));
    for arguments in [
        vec!["compare", &log, "cases/g6e-eni-vs-efa/eni.log", "--took", "eni=2", "--took", "<b onclick=x>=1"],
        vec!["topo", &log, "--instance", "g6e.12xlarge"],
        vec!["bench", "--compare", &old, &new],
        vec!["topo", "--instance", "p4d.24xlarge", "--what-if", "NCCL_ALGO=<script>alert(1)</script>"],
    ] {
        let page = run(&arguments, "html");
        assert!(!page.stdout.is_empty(), "{}: {}", arguments.join(" "), page.stderr);
        is_sound(&page.stdout, &arguments.join(" "));
        assert!(
            !page.stdout.contains("<script>alert") && !page.stdout.contains("<b onclick"),
            "{}",
            arguments.join(" ")
        );
    }
}

/// A result in a file is shown as it was when it was measured.
#[test]
fn a_recorded_result_has_a_page() {
    let json = "cases/bench-2-nodes/bench.json";
    let page = run(&["bench", json], "html");
    assert_eq!(page.code, Some(0), "{}", page.stderr);
    is_sound(&page.stdout, json);
    assert!(
        page.stdout.contains("1.86 GB/s bus bandwidth at 64 MiB")
            && page.stdout.contains("latency up to 4 MiB")
    );
    let recorded = fs::read_to_string(root().join(json)).expect("JSON");
    let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
    assert_eq!(value(&run(&["bench", json], "json").stdout)["results"], value(&recorded)["results"]);
    let folder = testbed::Folder::new("html-views-recorded");
    let file = folder.path().join("page.html");
    fs::write(&file, plumb(["bench", json, "--format", "html"]).stdout).expect("a file");
    let again = plumb(["bench", file.to_str().expect("UTF-8")]).stdout;
    assert_eq!(again, plumb(["bench", json]).stdout, "the text of the page and of the file");
    let other = plumb(["bench", "cases/g6e-4x4-efa/rank0.json"]);
    assert_eq!(other.code, Some(2), "{}", other.stdout);

    let new = "cases/bench-2-nodes-1-channel/bench.json";
    let page = run(&["bench", "--compare", json, new], "html").stdout;
    let head = page.split("<h1").nth(1).and_then(|it| it.split("</section>").next()).expect("a headline");
    assert!(
        head.contains("slower</span> in 2 of 10 measurements") && head.contains("all_reduce of 2 ranks"),
        "{head}"
    );
    assert!(head.contains(json) && head.contains(new), "{head}");
    assert!(
        page.contains(&format!(
            "<title>plumb bench: all_reduce of 2 ranks: {json} and {new} compared</title>"
        ))
    );
    assert!(page.contains(">old, out of place</text>") && page.contains(">new, out of place</text>"));
}

/// The part of a page with this id.
#[track_caller]
fn section<'a>(page: &'a str, id: &str) -> &'a str {
    let start = page.find(&format!("<section id=\"{id}\"")).unwrap_or_else(|| panic!("no section {id}"));
    let end = page[start..].find("</section>").map_or(page.len(), |it| start + it);
    &page[start..end]
}

#[test]
fn pictures_and_words_of_a_page_agree() {
    let page = |arguments: &[&str]| run(arguments, "html").stdout;
    let low = page(&[
        "expect",
        "all_reduce",
        "--instance",
        "p5.48xlarge",
        "--nodes",
        "2",
        "--size",
        "1G",
        "--measured",
        "200",
    ]);
    assert!(low.contains("low</span> 200 GB/s is less than this hardware gives"), "{low}");
    let plan = page(&["plan", JOB]);
    let picture = section(&plan, "layouts");
    assert!(!picture.contains(">layout of the job<"), "it is too slow to be drawn");
    assert!(picture.contains("the layout of the job is one of them: 42.6 s per step"), "{picture}");
    let predict = page(&["predict", JOB]);
    assert!(section(&predict, "time").contains("fill gather\""), "colours of the drawing");
    for id in ["time", "step"] {
        assert!(section(&predict, id).contains("7.61 s"), "{id}: the optimizer on the CPU");
    }
    let simulated = "nodes=12,slow=node003:0.8,link=node005-node009:0.5,noise=1%";
    let validate = page(&["validate", "--simulate", simulated]);
    assert!(validate.contains("either will do") && validate.contains("not measured, of a named machine"));
    let many = page(&["validate", "--simulate", "nodes=150,slow=node003:0.8,noise=1%"]);
    let matrix = section(&many, "matrix");
    assert!(matrix.len() < 600_000, "{} bytes", matrix.len());
    assert!(matrix.contains("All 150 machines, 3 in a row or column"), "{}", &matrix[..2000]);
}

#[test]
fn every_ring_and_both_states_of_a_setting_can_be_chosen() {
    let options = |page: &str| -> Vec<String> {
        let names = page.split("<option value=").skip(1).filter_map(|it| it.split(['>', '<']).nth(1));
        names.map(ToOwned::to_owned).collect()
    };
    let p5 = run(&["topo", "--instance", "p5.48xlarge", "--nodes", "2", "--decide"], "html").stdout;
    let all = options(section(&p5, "drawing"));
    for (shape, count) in [("ring of", 8), ("tree of", 16)] {
        assert_eq!(all.iter().filter(|it| it.starts_with(shape)).count(), count, "{all:?}");
    }
    assert_eq!(section(&p5, "drawing").matches("data-layer=").count(), 24);
    assert!(p5.contains("class=\"route p2p\"") && p5.contains("class=\"route net\""), "two colours");
    let what_if = ["topo", "--instance", "p4d.24xlarge", "--nodes", "2", "--what-if", "NCCL_P2P_DISABLE=1"];
    let what_if = run(&what_if, "html").stdout;
    let drawing = section(&what_if, "drawing");
    let all = options(drawing);
    assert!(all[0].starts_with("now: ring") && all[1].starts_with("then: ring"), "{all:?}");
    assert!(drawing.contains("class=\"route shm changed\""), "through shared memory then");
    assert!(what_if.contains("Channels, now"), "the tables show the state without the setting");
}

/// Without `--decide`, too; where NCCL's decisions cannot be told, the page says what is missing.
#[test]
fn a_machine_has_the_rings_that_nccl_would_build() {
    let drawing = |arguments: &[&str]| {
        let page = run(&[&["topo"], arguments].concat(), "html").stdout;
        section(&page, "drawing").to_owned()
    };
    let p5 = drawing(&["--instance", "p5.48xlarge", "--nodes", "2", "--nccl", "2.27.3"]);
    assert_eq!(p5.matches("data-layer=").count(), 24);
    assert!(p5.contains("Rings and trees as NCCL 2.27.3 is predicted to build them."), "{p5}");
    let seen = drawing(&["cases/p4d-4-pods/rank0.log"]);
    assert!(seen.contains("Rings and trees as in cases/p4d-4-pods/rank0.log."), "{seen}");
    let open = drawing(&["cases/h200-topo/topo.txt"]);
    assert!(open.contains("Rings and trees are not drawn: ") && open.contains("add --gpu MODEL"), "{open}");
    assert!(drawing(&["cases/h200-topo/topo.txt", "--gpu", "H200"]).contains("There are no rings and trees"));
    let large = drawing(&["--instance", "p5.48xlarge", "--nodes", "2000"]);
    assert!(large.contains("the job has 16000 ranks; plumb draws them for up to 4096"), "{large}");
}

/// Pods on one machine look like machines to NCCL.
#[test]
fn nodes_of_a_log_are_not_called_machines() {
    let log = "cases/p4d-4-pods/rank0.log";
    let text = plumb(["topo", log]).stdout;
    assert!(text.contains("would use on 4 nodes, ") && !text.contains("on different machines"), "{text}");
    assert!(text.contains("they may be pods on fewer machines: --nodes 1 --pods"), "{text}");
    let said = plumb(["topo", log, "--nodes", "1", "--pods", "4x1"]).stdout;
    assert!(said.contains("would use on 1 machine, 4 pods") && !said.contains("fewer machines"), "{said}");
    assert!(plumb(["topo", log, "--nodes", "4"]).stdout.contains("the ranks are on different machines"));
}

#[test]
fn runs_are_compared_in_pictures() {
    let page = run(&["compare", "cases/training-2-nodes", "cases/training-2-nodes-1-channel"], "html").stdout;
    let measured = section(&page, "measured");
    for name in ["step time", "tokens per second", "first step", "peak GPU memory"] {
        assert!(measured.contains(&format!("<h3>{name}</h3>")), "{name}: {measured}");
    }
    assert!(measured.contains(">325 ms</text>") && measured.contains("x 1.76"), "{measured}");
    assert!(measured.contains("322 ms to 330 ms</title>"), "the spread: {measured}");
    let steps = section(&page, "steps");
    assert!(steps.contains("40 steps of 321 ms to 850 ms"));
    assert!(
        steps.contains("tinted: 10th to 90th percentile") && steps.matches("class=\"band s").count() == 2
    );
    assert!(section(&page, "causes").contains("NCCL_MAX_NCHANNELS"));
    let page = run(&["compare", "cases/bench-2-nodes", "cases/bench-2-nodes-1-channel"], "html").stdout;
    // What is normal is not known: the tint is the spread.
    assert!(section(&page, "bandwidth").contains("tinted: lowest to highest sample"));
    assert_eq!(section(&page, "bandwidth").matches("class=\"band s").count(), 2);
    let p4d = ["--instance", "p4d.24xlarge"];
    let page = run(
        &[&["compare", "cases/bench-2-nodes", "cases/bench-2-nodes-1-channel"], &p4d[..]].concat(),
        "html",
    )
    .stdout;
    let chart = section(&page, "bandwidth");
    assert!(chart.contains("tinted: normal; bars: lowest to highest sample"), "{chart}");
    assert!(chart.contains("class=\"spread s0\"") && chart.contains("class=\"spread s1\""), "{chart}");
    assert!(section(&page, "causes").contains("NCCL_MAX_NCHANNELS"));
}
