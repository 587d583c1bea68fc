//! `--format html`, and pages read again, as a person does it.

#[expect(dead_code, reason = "other tests use the rest")]
mod common;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{Answer, command, finish, folder, plumb, recordings, root};

/// The largest page of a recording.
const MOST: usize = 400_000;

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// With a file as standard input.
fn piped(arguments: &[&str], page: &Path) -> Answer {
    let mut command = command(arguments);
    command.stdin(fs::File::open(page).expect("a page"));
    finish(command)
}

/// Nothing of the input is markup: only the page's own elements, one style, one script, two blocks of data.
#[track_caller]
fn check_page(name: &str, page: &str) {
    assert!(page.len() < MOST, "{name}: {} bytes", page.len());
    assert!(page.starts_with("<!doctype html>\n<html lang=\"en\" data-plumb=\""), "{name}");
    assert_eq!(page.matches("<script").count(), 3, "{name}");
    assert_eq!(page.matches("</script>").count(), 3, "{name}");
    assert_eq!(page.matches("<style>").count(), 1, "{name}");
    assert!(page.contains("default-src 'none'; style-src 'sha256-"), "{name}");
    let shown = page.split("<script type=").next().unwrap_or_default();
    for tag in shown.split('<').skip(1).filter_map(|it| it.split('>').next()) {
        // Quotes are escaped in texts and values: what stands outside of quotes is markup.
        let markup: String = format!("<{tag}").split('"').step_by(2).collect();
        for it in [" style=", " onclick=", " onload=", " onerror=", "<img", "<iframe", "javascript:"] {
            assert!(!markup.contains(it), "{name}: {tag}");
        }
    }
    let mut ids: Vec<&str> = shown.split(" id=\"").skip(1).filter_map(|it| it.split('"').next()).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all, "{name}: an id is used twice");
    for link in shown.split(" href=\"#").skip(1).filter_map(|it| it.split('"').next()) {
        assert!(ids.binary_search(&link).is_ok(), "{name}: nothing has the id {link}");
    }
}

/// Each recording as text, JSON and page in one run; the page read again gives the same two.
#[test]
fn every_recording_is_a_page_and_is_read_again() {
    let folder = folder("html-recordings");
    let all = recordings();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(name) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            let at = |kind: &str| folder.join(format!("{name}.{kind}")).display().to_string();
            let [plain, json, html, again, again_json] =
                ["txt", "json", "html", "again.txt", "again.json"].map(at);
            let input = format!("cases/{name}");
            let first = plumb([
                "doctor", &input, "-f", "text", "-o", &plain, "-f", "json", "-o", &json, "-f", "html", "-o",
                &html,
            ]);
            check_page(name, &text(Path::new(&html)));
            let second =
                plumb(["doctor", &html, "-f", "text", "-o", &again, "-f", "json", "-o", &again_json]);
            assert_eq!(text(Path::new(&plain)), text(Path::new(&again)), "{name}");
            assert_eq!(text(Path::new(&json)), text(Path::new(&again_json)), "{name}");
            assert_eq!(first.code, second.code, "{name}");
            assert_eq!(second.stderr, "", "{name}");
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
}

#[test]
fn every_command_reads_its_page_again_and_names_the_one_of_another() {
    let folder = folder("html-commands");
    let manifest = "cases/p4d-pod-spec";
    let commands: [(&str, &[&str]); 4] = [
        ("lint", &[manifest]),
        ("expect", &["all_reduce", "--instance", "p5.48xlarge", "--nodes", "2", "--measured", "12"]),
        ("env", &["--instance", "p4d.24xlarge", "--plugin", "1.5.0"]),
        ("node", &[]),
    ];
    for (name, arguments) in commands {
        let page = folder.join(format!("{name}.html"));
        let shown = page.display().to_string();
        let ask = |format: &str| plumb([&[name], arguments, &["--format", format]].concat());
        let html = ask("html");
        check_page(name, &html.stdout);
        fs::write(&page, &html.stdout).expect("a file");
        for format in ["text", "json"] {
            let again = plumb([name, &shown, "--format", format]);
            // What `plumb node` sees changes from moment to moment.
            if name != "node" {
                assert_eq!(again.stdout, ask(format).stdout, "{name} {format}");
            }
            assert_eq!(again.code, html.code, "{name} {format}: {}", again.stderr);
            assert_eq!(
                piped(&[name, "-", "--format", format], &page).stdout,
                again.stdout,
                "{name} {format}"
            );
        }
        assert_eq!(plumb([name, &shown, "--format", "html"]).stdout, html.stdout, "{name}");
        let other = if name == "lint" { "doctor" } else { "lint" };
        let refused = plumb([other, &shown]);
        assert_eq!(refused.code, Some(2));
        assert!(
            refused.stderr.contains(&format!("is a report of plumb {name}: `plumb {name} {shown}` shows it")),
            "{refused:?}"
        );
        assert_eq!(refused.stdout, "");
    }
}

#[test]
fn pages_are_never_logs_and_bad_ones_say_so() {
    let folder = folder("html-bad");
    let log = "cases/duplicate-gpu";
    let page = plumb(["doctor", log, "--format", "html"]).stdout;
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, text).expect("a file");
        path.display().to_string()
    };
    // Beside a healthy log in one folder: the answer is that of the log.
    let healthy = fs::read_dir(root().join("cases/healthy-2-nodes")).expect("a recording");
    for it in healthy
        .map(|it| it.expect("an entry").path())
        .filter(|it| it.extension().is_some_and(|it| it != "md"))
    {
        write(&format!("logs/{}", it.file_name().expect("a name").to_string_lossy()), &text(&it));
    }
    let logs = folder.join("logs").display().to_string();
    let alone = plumb(["doctor", &logs]);
    write("logs/report.html", &page);
    let both = plumb(["doctor", &logs]);
    assert_eq!(alone.code, both.code);
    assert_eq!(alone.stdout.lines().next(), both.stdout.lines().next());
    assert!(
        both.stderr.contains("report.html: is a report of plumb doctor, not a log: left out"),
        "{both:?}"
    );

    // The page for browsers holds no answer, and its scripts are not a log.
    let browser = text(&root().join("tools/page/ui/page.html"));
    let only = write("plumb.html", &browser);
    for command in ["doctor", "lint", "topo", "compare"] {
        let refused = plumb([command, &only]);
        assert_eq!((refused.code, &*refused.stdout), (Some(2), ""), "{command}: {refused:?}");
        assert!(refused.stderr.contains("plumb.html: is plumb's page for browsers, not "), "{refused:?}");
    }
    write("logs/plumb.html", &browser);
    let both = plumb(["doctor", &logs]);
    assert_eq!(alone.code, both.code);
    assert!(
        both.stderr.contains("note: ")
            && both.stderr.contains("plumb.html: is plumb's page for browsers, not a log: left out"),
        "{both:?}"
    );

    for (name, text, says) in [
        ("cut.html", page[..page.len() / 2].to_owned(), "it was cut off or changed"),
        ("newer.html", page.replace("plumb.doctor/2", "plumb.doctor/9"), "schema plumb.doctor/9"),
        ("frame.html", page.replace("plumb.page/1", "plumb.page/2"), "schema plumb.page/2"),
        (
            "edited.html",
            page.replace(
                "<script type=\"application/json\" id=\"plumb-report\">\n{",
                "<script type=\"application/json\" id=\"plumb-report\">\n",
            ),
            "its JSON cannot be read",
        ),
    ] {
        let answer = plumb(["doctor", &write(name, &text)]);
        assert_eq!((answer.code, &*answer.stdout), (Some(2), ""), "{name}");
        assert!(answer.stderr.contains(says), "{name}: {}", answer.stderr);
    }
    let whole = write("whole.html", &page);
    for arguments in [&["--redact"][..], &["--format", "sarif"]] {
        let answer = plumb([&["doctor", &*whole], arguments].concat());
        assert_eq!((answer.code, &*answer.stdout), (Some(2), ""), "{arguments:?}");
    }
}

/// The part of a page with this id.
#[track_caller]
fn section<'a>(page: &'a str, id: &str) -> &'a str {
    let start = page.find(&format!("<section id=\"{id}\"")).unwrap_or_else(|| panic!("no section {id}"));
    let end = page[start..].find("</section>").expect("an end");
    &page[start..start + end]
}

/// Of 40 machines those that matter are drawn, and who failed first is marked and on top.
#[test]
fn the_rank_that_failed_first_is_seen() {
    let folder = folder("html-failed-first");
    let mut log = text(&root().join("cases/healthy-40-nodes/job.log"));
    let thread = |host: &str| {
        let start = log.find(&format!("\n{host}:")).expect("a line of the host") + 1;
        log[start..].split(" [0]").next().expect("a thread").to_owned()
    };
    let [first, other] = ["node-17", "node-25"].map(thread);
    log.push_str(&format!(
        "[2026-11-15 02:59:41] {first} [0] misc/x.cc:34 NCCL WARN Cuda failure 'an illegal memory access was encountered'\n\
         [2026-11-15 02:59:44] {other} [0] misc/socket.cc:72 NCCL WARN socketProgress: Connection closed by remote peer node-17<33982>\n"
    ));
    fs::write(folder.join("job.log"), log).expect("a file");
    let page = plumb(["doctor", &folder.display().to_string(), "--format", "html"]).stdout;
    let map = section(&page, "map");
    assert!(map.contains("<title>rank 17 on node-17: failed first</title>"), "{map}");
    assert!(map.contains("node-17: rank 17 failed first; NET/Socket"), "the text alternative: {map}");
    assert!(map.contains("4 of 40 nodes are drawn: first node-17 (rank 17 failed first)"), "{map}");
    let course = section(&page, "course");
    let at =
        |name: &str| course.find(&format!(">{name}</text>")).unwrap_or_else(|| panic!("{name}: {course}"));
    assert!(at("rank 17, node-17") < at("rank 0, node-0"));

    // Its rank is not known: it has a row all the same, and the settings name who has which value.
    let page = plumb(["doctor", "cases/missing-interface-one-rank", "--format", "html"]).stdout;
    let course = section(&page, "course");
    let at =
        |name: &str| course.find(&format!(">{name}</text>")).unwrap_or_else(|| panic!("{name}: {course}"));
    assert!(at("node-1, rank not known") < at("rank 0, node-0"));
    let settings = section(&page, "settings");
    assert!(settings.contains("1 process on node-1 (rank not known)"), "{settings}");
    assert!(settings.contains("rank 0 on node-0"), "{settings}");
    let checks = section(&page, "checks");
    assert!(checks.contains("<a href=\"#line-"), "places are links: {checks}");

    // A message that ends with a full stop, and a time after it.
    let page = plumb(["doctor", "cases/network-cut", "--format", "html"]).stdout;
    assert!(!section(&page, "course").contains("timing out. "), "{page}");
}

/// Times are as exact as they are written, and the axis has numbers; a picture in which all rows are the same is not drawn.
#[test]
fn times_are_not_more_exact_than_their_lines() {
    let course = section_of("timestamps-on", "course");
    assert!(course.contains("since 2026-11-15 02:56:21") && course.contains(">0.5 s</text>"), "{course}");
    // The second of rank 0 begins before the millisecond of rank 1, and ends after it.
    let bar = |title: &str| {
        let it = course.split(title).nth(1).unwrap_or_else(|| panic!("{title}: {course}"));
        let number = |name: &str| -> f64 {
            let value = it.split(&format!(" {name}=\"")).nth(1).and_then(|it| it.split('"').next());
            value.and_then(|it| it.parse().ok()).expect("a number")
        };
        (number("x"), number("x") + number("width"))
    };
    let whole = bar("rank 0, node-0: setup begins at 2026-11-15 02:56:21 (");
    let exact = bar("rank 1, node-1: setup begins at 2026-11-15 02:56:21.348 (");
    assert!(whole.0 < exact.0 && exact.0 < whole.1, "{whole:?} {exact:?}");
    assert!(course.contains("setup pale") && course.contains("NCCL counts 2.52 s"), "{course}");

    let page = plumb(["doctor", "cases/healthy-40-nodes", "--format", "html"]).stdout;
    let course = section(&page, "course");
    assert!(
        !course.contains("Ranks by time or stage") && course.contains("All 40 ranks came equally far"),
        "{course}"
    );
}

#[test]
fn manifests_show_the_most_severe_first() {
    let page = plumb(["lint", "cases/p4d-pod-spec", "--format", "html"]).stdout;
    let words: Vec<&str> = section(&page, "findings")
        .split("<span class=\"word\">")
        .skip(1)
        .filter_map(|it| it.split('<').next())
        .collect();
    let rank = |it: &&str| ["error", "warning", "note"].iter().position(|word| word == it);
    assert!(words.is_sorted_by_key(rank) && words.contains(&"note"), "{words:?}");
}

#[test]
fn hostile_logs_and_manifests_are_text() {
    let folder = folder("html-hostile");
    let bad = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\u{1b}[31m\u{202e}\"'";
    let log = format!(
        "{bad}:1:2 [0] NCCL INFO NCCL_DEBUG set by environment to {bad}\n\
         node-0:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 0\n\
         node-0:1:2 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to {bad}\n\
         node-0:1:2 [0] misc/socket.cc:72 NCCL WARN socketProgress: Connection closed by remote peer {bad}<33982>\n\
         RuntimeError: {bad}\n"
    );
    let file = folder.join("a<b>&\"c.log");
    fs::write(&file, log).expect("a file");
    let file = file.display().to_string();
    for redact in [&[][..], &["--redact"]] {
        let page = plumb([&["doctor", &*file, "--format", "html"], redact].concat());
        check_page("log", &page.stdout);
        assert!(!page.stdout.contains(['\u{1b}', '\u{202e}']));
    }
    let manifest = folder.join("job.yaml");
    let yaml = "apiVersion: v1\nkind: Pod\nmetadata: {name: \"</script><script>alert(1)</script>\"}\nspec:\n  containers:\n  - name: a\n    env:\n    - {name: NCCL_P2P_DISABLE, value: \"</style><script>alert(1)</script>\"}\n    resources: {limits: {\"vpc.amazonaws.com\": 1, nvidia.com/gpu: 8}}\n";
    fs::write(&manifest, yaml).expect("a file");
    let page = plumb(["lint", &manifest.display().to_string(), "--format", "html"]);
    check_page("manifest", &page.stdout);
}

/// A section of the page about a recording.
fn section_of(case: &str, id: &str) -> String {
    let page = plumb(["doctor", &format!("cases/{case}"), "--format", "html"]).stdout;
    // Numbers and their units are held together.
    section(&page, id).replace('\u{a0}', " ")
}

/// A rank for which the others wait did not fail.
#[test]
fn the_first_cause_is_named_by_what_the_rank_did() {
    for (case, words) in [
        ("uneven-steps", "rank 1 finished early"),
        ("rank-calls-late", "rank 0 was late"),
        ("recorder-rank-stopped", "rank 2 did not join the others"),
    ] {
        assert!(section_of(case, "map").contains(words), "{case}");
        let course = section_of(case, "course");
        assert!(course.contains("First cause: ") && !course.contains("fails first"), "{case}: {course}");
    }
    assert!(section_of("mismatched-versions", "course").contains("fails first at 2026-11-15 02:56:19"));
    assert!(section_of("rank-calls-late", "course").contains("at Nov 15 02:53:55.712"));
    // How a communicator ended does not say how the process ended.
    let course = section_of("late-rank", "course");
    assert!(course.contains("destroys its communicator") && !course.contains(">ends<"), "{course}");
}

/// NCCL's own count of waits is drawn where lines have no times, and inside the setup where they have.
#[test]
fn waits_of_the_setup_are_drawn() {
    let course = section_of("late-rank", "course");
    assert!(
        course.contains("ranks waited up to 11 s for others to join; rank 3, node-3 joined last"),
        "{course}"
    );
    assert!(
        course.contains("by color 1 (2 ranks): ranks waited up to 8.0 s for others to join; rank 1, node-1")
    );
    assert_eq!(course.matches(">11 s</text>").count(), 3, "{course}");
    assert!(!section_of("healthy-2-nodes", "course").contains("Waits in the setup"));
    let mut log = String::new();
    for (rank, begins, waited) in [(0, "00.200", 8.05), (1, "08.200", 0.05)] {
        let head = format!("node-{rank}:1{rank}:1{rank} [0] NCCL INFO");
        let comm = format!(
            "ncclCommInitRank comm 0x{rank} rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId 60 commId 0x25 -"
        );
        let total = waited + 4.0;
        log.push_str(&format!(
            "[2026-11-15 10:00:{begins}] {head} {comm} Init START\n\
             [2026-11-15 10:00:08.250] {head} Bootstrap timings total {waited} (create 0.0, send 0.0, recv 0.0, ring 0.0, delay 0.0)\n\
             [2026-11-15 10:00:10.250] {head} {comm} Init COMPLETE\n\
             [2026-11-15 10:00:10.250] {head} Init timings - ncclCommInitRank: rank {rank} nranks 2 total {total} (kernels 2.00, \
             alloc 0.00, bootstrap {waited}, allgathers 0.14, topo 0.03, graphs 0.00, connections 0.08, rest 1.75)\n"
        ));
    }
    let file = folder("html-waits").join("job.log");
    fs::write(&file, log).expect("a file");
    let page = plumb(["doctor", &file.display().to_string(), "--format", "html"]).stdout;
    let course = section(&page, "course");
    // From the first line of the setup to 2 s before its end.
    let waits = course.split("rank 0, node-0: waits 8.1 s for others to join</title>").nth(1).expect(course);
    let waits = waits.split("/>").next().unwrap_or_default();
    assert!(waits.contains("class=\"waits\" x=\"180.1\"") && waits.contains("width=\"461.5\""), "{waits}");
}

#[test]
fn what_is_not_in_the_input_is_not_drawn_as_seen() {
    let map = section_of("p4d-4-pods", "map");
    assert!(map.contains("node 1 (by rank): not seen in this input"), "{map}");
    assert_eq!(map.matches(">NET/Libfabric with GPUDirect</text>").count(), 1, "{map}");
    assert!(map.contains("without the finding gpudirect-missing-on-another-rank"), "{map}");
    // The share is that of the rates beside it.
    assert!(map.contains(
        "49 % of the rate these machines allow: plumb expects 5.40 GB/s of bus bandwidth there, and 11.0 GB/s"
    ));
    // What decides is not cut off.
    let map = section_of("g6e-4x4-efa", "map");
    assert!(map.contains(">NET/Libfabric without</text>") && map.contains(">GPUDirect</text>"), "{map}");
    assert!(section_of("env-rich", "settings").contains("NCCL_LL_BUFFSIZE"));
    let settings = section_of("socket-family-mixed", "settings");
    assert!(settings.contains("rank 1 on node-1; rank 0 prints other variables, not this one"), "{settings}");
}

/// A rank that the others wait for has a row and a place, though no line comes from it.
#[test]
fn a_rank_that_never_came_is_drawn() {
    let row = |course: &str, name: &str| course.find(&format!(">{name}</text>")).expect("a row");
    let map = section_of("rank-never-comes", "map");
    assert!(map.contains(">node not known</text>") && map.contains(">rank 3 did not join the others</text>"));
    assert!(
        map.contains(">node-1</text>")
            && map.contains(">node-2</text>")
            && map.contains(">ranks not known</text>")
    );
    let course = section_of("rank-never-comes", "course");
    assert!(course.contains(">did not join the others: no line of this rank</text>"), "{course}");
    assert!(row(&course, "rank 3") < row(&course, "rank 1"), "those that say how they ended are below it");

    let course = section_of("rank-hangs-init", "course");
    assert!(course.contains(">no line of this rank</text>"), "{course}");
    assert!(row(&course, "rank 3") < row(&course, "rank 0, node-0"));
    let map = section_of("rank-hangs-init", "map");
    assert!(map.contains("gpu missing") && map.contains("machine missing nowhere"), "{map}");
    assert!(map.contains(">rank 0 setup not complete</text>"), "{map}");

    // Without a line about paths, the nodes are drawn without any.
    let map = section_of("connection-times-out", "map");
    assert!(
        map.contains(">rank 1 failed first</text>") && map.contains("No line of the input says which paths")
    );
    assert!(!map.contains("class=\"way"), "{map}");
}

/// What is copied for a chat or a ticket.
#[test]
fn the_ticket_has_notes_and_the_first_cause() {
    let ticket = |case: &str| {
        let page = plumb(["doctor", &format!("cases/{case}"), "--format", "html"]).stdout;
        let start = page.find("class=\"ticket\"").expect("a ticket");
        page[start..start + page[start..].find("</details>").expect("its end")].to_owned()
    };
    assert!(ticket("uneven-steps").contains("first: rank 1 on "), "{}", ticket("uneven-steps"));
    assert!(ticket("late-rank").contains("- info `late-ranks`"), "{}", ticket("late-rank"));
}
