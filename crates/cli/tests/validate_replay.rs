//! `plumb validate --replay` of output that nccl-tests left behind: whole, cut, with wrong results.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[expect(dead_code, reason = "other tests use the rest")]
mod common;

use std::fs;

use common::{Answer, plumb};
use testbed::Folder;

/// One run of `all_reduce_perf` on machines with eight GPUs each.
#[derive(Clone)]
struct Run {
    hosts: Vec<usize>,
    rate: f64,
    wrong: u32,
}

impl Run {
    fn output(&self) -> String {
        let mut text = "# nccl-tests version 2.17.6 nccl-headers=22809 nccl-library=22809\n# Collective test starting: all_reduce_perf\n# nThread 1 nGpus 1 minBytes 1073741824 maxBytes 1073741824 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0\n#\n# Using devices\n".to_owned();
        for (place, host) in self.hosts.iter().enumerate() {
            for gpu in 0..8 {
                text.push_str(&format!(
                    "#  Rank {:2} Group  0 Pid {:6} on     node{host:02} device {gpu:2} [0000:1b:00] NVIDIA H100 80GB HBM3\n",
                    8 * place + gpu,
                    1000 + gpu,
                ));
            }
        }
        let Self { rate, wrong, .. } = self;
        let out_of_bounds = if *wrong > 0 { format!("{wrong} FAILED") } else { "0 OK".to_owned() };
        text.push_str(&format!(
            "#\n#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n  1073741824     268435456     float     sum      -1    4969.2   {rate:.2}  {rate:.2} {wrong:6}    4969.2   {rate:.2}  {rate:.2} {wrong:6}\n# Out of bounds values : {out_of_bounds}\n# Avg bus bandwidth    : {rate:.4}\n#\n"
        ));
        text
    }
}

/// All pairs of `machines` at 400 GB/s, after `change`, in a folder.
fn pairs(name: &str, machines: usize, change: impl Fn(&mut Run)) -> Folder {
    let folder = Folder::new(name);
    for one in 1..=machines {
        for other in one + 1..=machines {
            let mut run = Run { hosts: vec![one, other], rate: 400.0, wrong: 0 };
            change(&mut run);
            write(&folder, &format!("p{one}-{other}.log"), &run.output());
        }
    }
    folder
}

fn write(folder: &Folder, name: &str, text: &str) {
    fs::write(folder.path().join(name), text).unwrap();
}

fn all(machines: usize, rate: f64, wrong: u32) -> String {
    Run { hosts: (1..=machines).collect(), rate, wrong }.output()
}

fn replay(folder: &Folder, more: &[&str]) -> Answer {
    let path = folder.path().to_string_lossy().into_owned();
    plumb(["validate", "--replay", &path].into_iter().chain(more.iter().copied()))
}

/// The same with files named as they are in the folder.
fn words_of(folder: &Folder, answer: &Answer) -> String {
    words(answer).replace(&format!("{}/", folder.path().display()), "")
}

/// Lines of text joined, as they were before they were wrapped.
fn words(answer: &Answer) -> String {
    answer.stdout.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn output_that_was_cut_is_named_and_accuses_nobody() {
    let folder = pairs("replay-cut", 6, |_| {});
    let whole = Run { hosts: vec![3, 4], rate: 400.0, wrong: 0 }.output();
    // Among the devices of the first machine, of the second, and before the table.
    for (number, cut) in [620, 1200, whole.find("#       size").unwrap()].into_iter().enumerate() {
        write(&folder, &format!("cut{number}.log"), whole.get(..cut).unwrap());
    }
    write(&folder, "p3-4.log", whole.get(..700).unwrap());
    let answer = replay(&folder, &[]);
    assert_eq!(answer.code, Some(2), "{}", answer.stdout);
    let text = words(&answer);
    assert!(text.starts_with("INCONCLUSIVE: none of 6 machines is slower"), "{text}");
    assert!(text.contains("p3-4.log: incomplete") || text.contains("and 1 more: incomplete"), "{text}");
    assert!(!text.contains("0 B"), "{text}");
    // The same without a table, but with an error: that run failed.
    for one in [1, 2, 4, 5, 6] {
        let hosts = vec![one.min(3), one.max(3)];
        let run = Run { hosts, rate: 400.0, wrong: 0 }.output();
        let head = run.get(..run.find("#       size").unwrap()).unwrap();
        let failure = "node03: Test NCCL failure common.cu:1279 'unhandled system error / '\n";
        write(&folder, &format!("p{}-{}.log", one.min(3), one.max(3)), &format!("{head}{failure}"));
    }
    let answer = replay(&folder, &[]);
    assert!(answer.stdout.starts_with("NO-GO: take out node03\n"), "{}", answer.stdout);
}

#[test]
fn files_without_a_run_are_named() {
    let folder = pairs("replay-unused", 4, |_| {});
    for name in ["a.txt", "b.txt", "c.txt", "d.txt", "e.txt"] {
        write(&folder, name, "nothing of interest\n");
    }
    let answer = replay(&folder, &[]);
    let text = words(&answer);
    assert!(text.contains("c.txt and 2 more are not used: no run of nccl-tests"), "{text}");
}

#[test]
fn one_machine_whose_output_was_cut_is_not_accused() {
    let folder = Folder::new("replay-cut-alone");
    for host in 1..=6 {
        let run = Run { hosts: vec![host], rate: 480.0, wrong: 0 }.output();
        let end = if host == 2 { run.find("  1073741824").unwrap() } else { run.len() };
        write(&folder, &format!("{host}.log"), run.get(..end).unwrap());
    }
    let answer = replay(&folder, &[]);
    assert_eq!(answer.code, Some(2), "{}", answer.stdout);
    assert!(words(&answer).contains("2.log: no row of 1 GiB"), "{}", answer.stdout);
}

#[test]
fn wrong_results_are_a_failure() {
    // Both are right with others: neither is cleared.
    let folder = pairs("replay-wrong", 6, |it| it.wrong = if it.hosts == [1, 2] { 37 } else { 0 });
    let answer = replay(&folder, &[]);
    assert_eq!(answer.code, Some(1), "{}", answer.stdout);
    assert!(
        answer.stdout.starts_with("NO-GO: take out node01, node02 (wrong results)\n"),
        "{}",
        answer.stdout
    );
    // A machine that is wrong with several explains all of them, and the run of all machines.
    let folder = pairs("replay-wrong-one", 6, |it| {
        it.wrong = u32::from(it.hosts.contains(&5) && it.hosts != [1, 5]);
    });
    write(&folder, "all.log", &all(6, 380.0, 3));
    let answer = replay(&folder, &["--instance", "dgx-h100"]);
    assert_eq!(answer.code, Some(1), "{}", answer.stdout);
    assert!(answer.stdout.starts_with("NO-GO: take out node05 (wrong results)\n"), "{}", answer.stdout);
    assert!(words(&answer).contains("wrong results in 5 of 6 runs"), "{}", answer.stdout);
    // Only all together: none of them is named alone.
    let folder = pairs("replay-wrong-all", 6, |_| {});
    write(&folder, "all.log", &all(6, 380.0, 3));
    let answer = replay(&folder, &["--least", "100"]);
    assert_eq!(answer.code, Some(1), "{}", answer.stdout);
    assert!(answer.stdout.starts_with("NO-GO: wrong results in a run of 6 machines\n"), "{}", answer.stdout);
}

#[test]
fn a_run_of_all_machines_is_judged() {
    let folder = pairs("replay-all", 8, |_| {});
    let least = replay(&folder, &["--least", "300"]);
    assert_eq!(least.code, Some(2));
    assert!(
        words(&least).contains("no run has all of them; --least 300 is not compared"),
        "{}",
        least.stdout
    );
    write(&folder, "all.log", &all(8, 355.0, 0));
    for (flags, code, says) in [
        (&[][..], 2, "INCONCLUSIVE: none of 8 machines is slower than the others, and nothing says"),
        (&["--instance", "dgx-h100"], 0, "GO: all 8 machines together reach 355 GB/s, "),
        (&["--least", "300"], 0, "GO: all 8 machines together reach 355 GB/s, 300 GB/s needed"),
        (
            &["--least", "900"],
            2,
            "INCONCLUSIVE: all 8 machines together reach only 355 GB/s, 900 GB/s needed",
        ),
    ] {
        let answer = replay(&folder, flags);
        assert_eq!(answer.code, Some(code), "{flags:?}: {}", answer.stdout);
        assert!(words(&answer).starts_with(says), "{flags:?}: {}", answer.stdout);
    }
}

#[test]
fn a_slow_pair_that_was_measured_once_is_a_suspect() {
    let folder = pairs("replay-link", 10, |it| it.rate = if it.hosts == [3, 7] { 204.0 } else { 400.0 });
    write(&folder, "all.log", &all(10, 355.0, 0));
    let answer = replay(&folder, &["--least", "300"]);
    assert_eq!(answer.code, Some(2), "{}", answer.stdout);
    let says = "INCONCLUSIVE: node03 - node07 reach 51 % of normal, measured once: measure this pair again";
    assert!(words(&answer).starts_with(says), "{}", answer.stdout);
}

#[test]
fn the_matrix_has_whole_names_and_shows_what_failed_once() {
    let folder = pairs("replay-matrix", 6, |_| {});
    // Names that end alike: `4-12` and `5-12`.
    for entry in fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let named = (1..=6)
            .fold(text, |text, it| text.replace(&format!(" node{it:02} "), &format!(" ip-10-0-{it}-12 ")));
        fs::write(&path, named).unwrap();
    }
    // One pair was measured twice, and failed the second time.
    let again = fs::read_to_string(folder.path().join("p1-2.log")).unwrap();
    let head = again.get(..again.find("  1073741824").unwrap()).unwrap();
    let failure = "ip-10-0-1-12: Test NCCL failure common.cu:1279 'unhandled system error / '\n";
    write(&folder, "again.log", &format!("{head}{failure}"));
    let picture = folder.path().join("matrix.svg");
    let answer = replay(&folder, &["--svg", &picture.to_string_lossy()]);
    let text = &answer.stdout;
    assert!(text.contains("        1-12 2-12 3-12 4-12 5-12 6-12\n"), "{text}");
    assert!(text.contains("  1-12     . 100x  100"), "{text}");
    assert!(text.contains("x failed, 99x failed at times"), "{text}");
    let picture = fs::read_to_string(&picture).unwrap();
    assert!(picture.contains(", 1 of 2 measurements failed"), "{picture}");
    assert!(picture.contains(">at least<"), "{picture}");
}

#[test]
fn one_is_not_plural() {
    let folder = Folder::new("replay-one");
    write(&folder, "one.log", &Run { hosts: vec![1], rate: 480.0, wrong: 0 }.output());
    let answer = replay(&folder, &[]);
    let text = words(&answer);
    assert!(text.contains(" 1 run of nccl-tests in 1 file, 1 machine with "), "{text}");
    assert!(!text.contains("none of 1") && !text.contains("all 1 machine"), "{text}");
}

#[test]
fn pairs_that_failed_are_not_called_slow() {
    let folder = pairs("replay-failed", 10, |_| {});
    // Two pairs of node02 and two of node05 failed; everything else is normal.
    for (one, other) in [(2, 3), (2, 7), (5, 8), (5, 9)] {
        let whole = Run { hosts: vec![one, other], rate: 400.0, wrong: 0 }.output();
        let cut = whole.get(..whole.find("#       size").unwrap()).unwrap();
        let error = format!(
            "{cut}node{one:02}: Test NCCL failure common.cu:414 'remote process exited or there was a network error / '\n .. node{one:02} pid 1000: Test failure common.cu:303\n"
        );
        write(&folder, &format!("p{one}-{other}.log"), &error);
    }
    let answer = replay(&folder, &[]);
    let text = words(&answer);
    assert!(text.starts_with("INCONCLUSIVE: "), "{text}");
    assert!(!text.contains("take out") && !text.contains("were slow"), "{text}");
    assert!(text.contains("node02 - node03 failed"), "{text}");
}

/// A run with rows of 1 and of 8 GiB.
fn two_sizes(hosts: Vec<usize>, rate: f64) -> String {
    let text = Run { hosts, rate, wrong: 0 }.output();
    let row = text.lines().find(|it| it.starts_with("  1073741824")).unwrap();
    let larger = row.replace("1073741824", "8589934592").replace("268435456", "2147483648");
    text.replace("maxBytes 1073741824", "maxBytes 8589934592").replace(row, &format!("{row}\n{larger}"))
}

/// The same that ends after the row of 1 GiB, where `host` reports an error.
fn fails_later(hosts: Vec<usize>, host: usize) -> String {
    let text = two_sizes(hosts, 400.0);
    let head = text.get(..text.find("  8589934592").unwrap()).unwrap();
    format!(
        "{head}node{host:02}: Test NCCL failure common.cu:401 'remote process exited or there was a network error / '\n"
    )
}

#[test]
fn a_run_that_failed_is_failed_at_every_size() {
    let folder = pairs("replay-fails-later", 8, |_| {});
    for one in 1..=8 {
        for other in one + 1..=8 {
            let hosts = vec![one, other];
            let text = if hosts.contains(&4) { fails_later(hosts, 4) } else { two_sizes(hosts, 400.0) };
            write(&folder, &format!("p{one}-{other}.log"), &text);
        }
    }
    write(&folder, "all.log", &two_sizes((1..=8).collect(), 380.0));
    let answer = replay(&folder, &["--least", "250"]);
    assert_eq!(answer.code, Some(1), "{}", answer.stdout);
    assert!(answer.stdout.starts_with("NO-GO: take out node04\n"), "{}", answer.stdout);
    let text = words(&answer);
    assert!(text.contains("failed with 7 of 7 machines"), "{text}");
    assert!(text.contains("all_reduce of 8 GiB, 8 GPUs each, pairs 28 7 0 400 400"), "{text}");
    let doctor = plumb(["doctor", &folder.path().to_string_lossy()]);
    assert!(doctor.stdout.contains("NODE  node04"), "{}", doctor.stdout);
}

#[test]
fn a_failed_run_of_all_machines_is_never_go() {
    let folder = pairs("replay-fails-all", 8, |_| {});
    let whole = two_sizes((1..=8).collect(), 380.0);
    let in_row = whole.find("  8589934592").unwrap() + 70;
    for (name, text) in [
        ("error", fails_later((1..=8).collect(), 3)),
        ("stops", whole.get(..whole.find("  8589934592").unwrap()).unwrap().to_owned()),
        ("cut", whole.get(..in_row).unwrap().to_owned()),
    ] {
        write(&folder, "all.log", &text);
        let answer = replay(&folder, &["--least", "250"]);
        assert_eq!(answer.code, Some(2), "{name}: {}", answer.stdout);
        let says = "INCONCLUSIVE: the run of all 8 machines failed (";
        assert!(answer.stdout.starts_with(says), "{name}: {}", answer.stdout);
        let error = text.lines().position(|it| it.contains("Test NCCL failure")).map(|it| it + 1);
        let place = error.map_or("all.log)".to_owned(), |it| format!("all.log:{it})"));
        assert!(words(&answer).contains(&place), "{name} {place}: {}", answer.stdout);
    }
    // Of three, one failed: the others are compared at their size, and are no proof.
    write(&folder, "all2.log", &whole);
    write(&folder, "all3.log", &whole);
    let text = words(&replay(&folder, &["--least", "250"]));
    assert!(text.starts_with("INCONCLUSIVE: 1 of 3 runs of all 8 machines failed ("), "{text}");
    assert!(text.contains("all_reduce of 8 GiB, 8 GPUs each, 8 machines 3 1 0 380 380"), "{text}");
    // Rows of all sizes, without the lines below the table.
    let rows = whole.get(..whole.find("# Out of bounds").unwrap()).unwrap();
    for name in ["all.log", "all2.log", "all3.log"] {
        write(&folder, name, rows);
    }
    let text = words(&replay(&folder, &["--least", "250"]));
    assert!(text.starts_with("GO: all 8 machines together reach 380 GB/s"), "{text}");
}

#[test]
fn of_several_runs_of_all_machines_the_middle_one_counts() {
    for (rates, says, table) in [
        (
            &[150.0, 350.0, 150.0][..],
            "INCONCLUSIVE: 2 of 3 runs of all 8 machines were too slow",
            "3 0 0 150 150",
        ),
        (&[350.0, 150.0], "INCONCLUSIVE: 1 of 2 runs of all 8 machines was too slow", "2 0 0 150 150"),
        (&[150.0, 350.0], "INCONCLUSIVE: 1 of 2 runs of all 8 machines was too slow", "2 0 0 150 150"),
        (&[350.0, 350.0, 150.0], "INCONCLUSIVE: 1 of 3 runs of all 8 machines was too slow", "3 0 1 350 150"),
        (&[350.0, 350.0, 150.0, 150.0], "INCONCLUSIVE: 2 of 4 runs of all 8", "4 0 0 150 150"),
        (&[150.0, 151.0], "INCONCLUSIVE: all 8 machines together reach only 150 GB/s", "2 0 0 150 150"),
        (&[340.0, 350.0, 360.0], "GO: all 8 machines together reach 350 GB/s", "3 0 0 350 340"),
    ] {
        let folder = pairs("replay-several", 8, |_| {});
        for (number, rate) in rates.iter().enumerate() {
            write(&folder, &format!("all{number}.log"), &all(8, *rate, 0));
        }
        let answer = replay(&folder, &["--least", "300"]);
        assert_eq!(answer.code, Some(if says.starts_with("GO") { 0 } else { 2 }), "{}", answer.stdout);
        let text = words(&answer);
        assert!(text.starts_with(says), "{rates:?}: {text}");
        let row = format!("all_reduce of 1 GiB, 8 GPUs each, 8 machines {table}");
        assert!(text.contains(&row), "{rates:?}: {text}");
    }
    // Where a machine explains it, that machine is named.
    let folder =
        pairs("replay-several-slow", 8, |it| it.rate = if it.hosts.contains(&4) { 200.0 } else { 400.0 });
    write(&folder, "all1.log", &all(8, 350.0, 0));
    write(&folder, "all2.log", &all(8, 150.0, 0));
    let text = words(&replay(&folder, &["--least", "300"]));
    assert!(text.starts_with("NO-GO: take out node04; 1 of 2 runs of all 8 machines was too slow"), "{text}");
}

/// The output of a run that hangs while its ranks connect.
fn hangs(hosts: Vec<usize>) -> String {
    let text = Run { hosts, rate: 400.0, wrong: 0 }.output();
    text.get(..text.find("#       size").unwrap()).unwrap().to_owned()
}

/// Eight machines of which every pair with node05 hangs.
fn hanging(name: &str) -> Folder {
    let folder = pairs(name, 8, |_| {});
    for other in (1..=8).filter(|it| *it != 5) {
        let (one, other) = (other.min(5), other.max(5));
        write(&folder, &format!("p{one}-{other}.log"), &hangs(vec![one, other]));
    }
    folder
}

#[test]
fn runs_that_hang_are_never_go() {
    let folder = hanging("replay-hangs");
    write(&folder, "all.log", &all(8, 350.0, 0));
    let answer = replay(&folder, &["--least", "300"]);
    assert_eq!(answer.code, Some(2), "{}", answer.stdout);
    let says = "INCONCLUSIVE: 7 runs of node05 with 7 others are incomplete (p1-5.log, p2-5.log and 5 more)";
    assert!(words_of(&folder, &answer).starts_with(says), "{}", answer.stdout);
    // The machine is in no other run: these are not all machines.
    let seven = Run { hosts: (1..=8).filter(|it| *it != 5).collect(), rate: 350.0, wrong: 0 }.output();
    write(&folder, "all.log", &seven);
    let answer = replay(&folder, &["--least", "300"]);
    assert_eq!(answer.code, Some(2), "{}", answer.stdout);
    let text = words_of(&folder, &answer);
    assert!(text.starts_with("INCONCLUSIVE: node05 was not measured: its runs are incomplete"), "{text}");
    assert!(text.contains("not known node05 was not measured"), "{text}");
    assert!(text.contains("what all 8 machines reach together: no run has all of them"), "{text}");
    // One of two runs of all machines.
    let folder = pairs("replay-hangs-all", 8, |_| {});
    write(&folder, "all1.log", &all(8, 350.0, 0));
    write(&folder, "all2.log", &hangs((1..=8).collect()));
    let answer = replay(&folder, &["--least", "300"]);
    assert_eq!(answer.code, Some(2), "{}", answer.stdout);
    let says = "INCONCLUSIVE: the run of all 8 machines is incomplete (all2.log)";
    assert!(words_of(&folder, &answer).starts_with(says), "{}", answer.stdout);
}

#[test]
fn a_pair_that_hung_and_then_ran_was_measured() {
    let folder = pairs("replay-hung-once", 8, |_| {});
    write(&folder, "all.log", &all(8, 350.0, 0));
    write(&folder, "first.log", &hangs(vec![2, 6]));
    let answer = replay(&folder, &["--least", "300"]);
    assert_eq!(answer.code, Some(0), "{}", answer.stdout);
    assert!(words_of(&folder, &answer).contains("first.log: incomplete"), "{}", answer.stdout);
    // A run of another program does not measure it.
    let other = hangs(vec![2, 6]).replace("all_reduce_perf", "alltoall_perf");
    write(&folder, "first.log", &other);
    let answer = replay(&folder, &["--least", "300"]);
    assert_eq!(answer.code, Some(2), "{}", answer.stdout);
    let says = "INCONCLUSIVE: the run of node02 - node06 is incomplete (first.log)";
    assert!(words_of(&folder, &answer).starts_with(says), "{}", answer.stdout);
}

#[test]
fn a_slow_pair_stays_in_the_first_line_until_it_is_settled() {
    let folder = pairs("replay-again", 10, |it| it.rate = if it.hosts == [3, 7] { 200.0 } else { 400.0 });
    write(&folder, "all.log", &all(10, 355.0, 0));
    for (times, missing) in [
        (2, "in 2 of 2 measurements: a link is named from 4 on, so 2 more at least"),
        (3, "in 3 of 3 measurements: a link is named from 4 on, so 1 more at least"),
        (4, "in 4 of 4 measurements: too few measurements to exclude chance: measure this pair again"),
    ] {
        let again = Run { hosts: vec![3, 7], rate: 200.0, wrong: 0 }.output();
        write(&folder, &format!("again{times}.log"), &again);
        let answer = replay(&folder, &["--least", "300"]);
        assert_eq!(answer.code, Some(2), "{}", answer.stdout);
        let text = words_of(&folder, &answer);
        let says = format!(
            "INCONCLUSIVE: node03 - node07 were slow in {times} of {times} measurements (50 % of normal), and it is not settled why: measure this pair again"
        );
        assert!(text.starts_with(&says), "{text}");
        assert!(text.contains(missing) && !text.contains("not measured again"), "{text}");
    }
    write(&folder, "again5.log", &Run { hosts: vec![3, 7], rate: 200.0, wrong: 0 }.output());
    let text = words(&replay(&folder, &["--least", "300"]));
    assert!(text.starts_with("NO-GO: take out one of node07 and node03"), "{text}");
}

#[test]
fn rows_without_a_bandwidth_are_runs_that_failed() {
    let without = |hosts: Vec<usize>, size: &str, value: &str| {
        let text = two_sizes(hosts, 400.0);
        let row = text.lines().find(|it| it.trim_start().starts_with(size)).unwrap();
        let time = if value == "0.00" { value } else { "4969.2" };
        text.replace(row, &row.replace("400.00", value).replace("4969.2", time))
    };
    for value in ["0.00", "-360.00", "inf", "nan"] {
        let folder = pairs("replay-unusable", 8, |_| {});
        for one in 1..=8 {
            for other in one + 1..=8 {
                let hosts = vec![one, other];
                let bad = one == 5 || other == 5;
                let text = if bad { without(hosts, "8589934592", value) } else { two_sizes(hosts, 400.0) };
                write(&folder, &format!("p{one}-{other}.log"), &text);
            }
        }
        write(&folder, "all.log", &two_sizes((1..=8).collect(), 350.0));
        let answer = replay(&folder, &["--least", "300"]);
        assert_eq!(answer.code, Some(1), "{value}: {}", answer.stdout);
        let text = words_of(&folder, &answer);
        assert!(text.starts_with("NO-GO: take out node05"), "{value}: {text}");
        assert!(text.contains("all_reduce of 8 GiB, 8 GPUs each, pairs 28 7 0 400 400"), "{value}: {text}");
        assert!(text.contains("7 runs failed at 8 GiB: the bandwidth is zero, negative"), "{value}: {text}");
        assert!(text.contains("p1-5.log") && text.contains("p5-8.log"), "{value}: {text}");
    }
    // One pair, and at a size that is not compared.
    let folder = pairs("replay-unusable-one", 8, |_| {});
    write(&folder, "all.log", &all(8, 350.0, 0));
    write(&folder, "p2-5.log", &without(vec![2, 5], "8589934592", "nan"));
    let answer = replay(&folder, &["--least", "300"]);
    assert_eq!(answer.code, Some(2), "{}", answer.stdout);
    let text = words_of(&folder, &answer);
    assert!(text.starts_with("INCONCLUSIVE: 1 run failed at 8 GiB"), "{text}");
    assert!(text.contains("(p2-5.log)"), "{text}");
    // A few bytes round to zero, which is no failure.
    let tiny = all(8, 350.0, 0);
    let row = tiny.lines().find(|it| it.starts_with("  1073741824")).unwrap();
    let small = "           8             2     float     sum      -1    45.82    0.00    0.00      0    38.17    0.00    0.00      0";
    write(&folder, "all.log", &tiny.replace(row, &format!("{small}\n{row}")));
    write(&folder, "p2-5.log", &Run { hosts: vec![2, 5], rate: 400.0, wrong: 0 }.output());
    let answer = replay(&folder, &["--least", "300"]);
    assert_eq!(answer.code, Some(0), "{}", answer.stdout);
}

#[test]
fn kinds_of_runs_that_differ_in_gpu_or_release_have_different_names() {
    let folder = pairs("replay-mixed", 8, |_| {});
    for (one, other) in [(5, 6), (5, 7), (5, 8), (6, 7), (6, 8), (7, 8)] {
        let run = Run { hosts: vec![one, other], rate: 400.0, wrong: 0 }.output();
        let text = run.replace("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB");
        write(&folder, &format!("p{one}-{other}.log"), &text);
    }
    let text = words(&replay(&folder, &[]));
    assert!(text.contains("all_reduce of 1 GiB, 8 GPUs each, pairs, NVIDIA H100 80GB HBM3 22 0"), "{text}");
    assert!(text.contains("all_reduce of 1 GiB, 8 GPUs each, pairs, NVIDIA A100-SXM4-80GB 6 0"), "{text}");
    let folder = pairs("replay-releases", 8, |_| {});
    let run = Run { hosts: vec![1, 2], rate: 400.0, wrong: 0 }.output();
    write(&folder, "p1-2.log", &run.replace("nccl-library=22809", "nccl-library=22707"));
    let text = words(&replay(&folder, &[]));
    assert!(text.contains("8 GPUs each, pairs, NCCL 2.28.9 27 0"), "{text}");
    assert!(text.contains("8 GPUs each, pairs, NCCL 2.27.7 1 0"), "{text}");
}
