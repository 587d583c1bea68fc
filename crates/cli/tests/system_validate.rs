//! `plumb validate --hosts` on hosts with networks of their own, real ssh servers and links of 200 Mbit/s.
//!
//! Sixteen hosts share the processors of one machine, so links are slow enough for the processors not to matter, and few bytes are sent.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use testbed::{Hosts, Login, Running, Signal, signal};

const PLUMB: &str = env!("CARGO_BIN_EXE_plumb");
const RATE: &str = "200mbit";
/// One validation may take so long here, whatever else the machine does.
const LONG: Duration = Duration::from_secs(400);

/// How often a healthy fleet is validated, to see how often it is called bad: `PLUMB_RUNS`, once without it.
fn runs() -> usize {
    std::env::var("PLUMB_RUNS").map_or(1, |it| it.parse().expect("PLUMB_RUNS is a number"))
}

/// Hosts of the tests that need fewer than sixteen: `PLUMB_HOSTS`, `usual` without it.
fn hosts(usual: usize) -> usize {
    std::env::var("PLUMB_HOSTS").map_or(usual, |it| it.parse().expect("PLUMB_HOSTS is a number"))
}

/// Hosts on links of one rate.
struct Bed {
    hosts: Hosts,
    ssh: String,
    count: usize,
}

/// What plumb said.
struct Said {
    code: Option<i32>,
    json: Value,
    stderr: String,
}

impl Bed {
    fn new(count: usize) -> Self {
        Self::with(count, &|_| Login::Key)
    }

    fn with(count: usize, login: &dyn Fn(usize) -> Login) -> Self {
        let hosts = Hosts::new(count);
        hosts.limit_all(RATE);
        let ssh = hosts.ssh_with(login);
        Self { hosts, ssh, count }
    }

    fn start(&self, results: &str, arguments: &[&str]) -> Running {
        let mut plumb = self.hosts.head().command(PLUMB);
        plumb.args(["validate", "--format", "json"]);
        // A validation goes on in the way it was started.
        if !arguments.contains(&"--resume") {
            plumb.args(["--ssh-config", &self.ssh, "--timeout", "15s", "--gpus", "0"]);
            plumb.args(["--results", &self.file(results)]);
            if !arguments.contains(&"--hosts") {
                plumb.args(["--hosts", &format!("h[1-{}]", self.count)]);
            }
        }
        Running::start(plumb.args(arguments))
    }

    fn validate(&self, results: &str, arguments: &[&str]) -> Said {
        let said = Said::of(self.start(results, arguments));
        self.hosts.are_left();
        said
    }

    fn file(&self, name: &str) -> String {
        self.hosts.file(name)
    }
}

impl Said {
    fn of(running: Running) -> Self {
        let output = running.finish(LONG);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let json = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}\n{stderr}", String::from_utf8_lossy(&output.stdout)));
        Self { code: output.status.code(), json, stderr }
    }

    /// Class and machines of every finding.
    fn named(&self) -> Vec<(String, Vec<String>)> {
        let texts =
            |it: &Value| it.as_array().unwrap().iter().map(|it| it.as_str().unwrap().to_owned()).collect();
        let one = |it: &Value| (it["class"].as_str().unwrap().to_owned(), texts(&it["hosts"]));
        self.json["findings"].as_array().unwrap().iter().map(one).collect()
    }

    #[track_caller]
    fn is(&self, code: i32, named: &[(&str, &[&str])]) {
        let wanted: Vec<(String, Vec<String>)> = named
            .iter()
            .map(|it| (it.0.to_owned(), it.1.iter().map(|it| (*it).to_owned()).collect()))
            .collect();
        assert_eq!((self.code, self.named()), (Some(code), wanted), "{}\n{:#}", self.stderr, self.json);
    }
}

#[test]
fn a_healthy_fleet_is_go_and_its_results_say_the_same_again() {
    let bed = Bed::new(16);
    for run in 1..runs() {
        bed.validate(&format!("healthy{run}"), &["--links", "few"]).is(0, &[]);
    }
    let said = bed.validate("healthy", &["--links", "few"]);
    said.is(0, &[]);
    for (number, name) in ["reach", "node", "local", "smoke", "all", "localise"].iter().enumerate() {
        let stage = &said.json["stages"][number];
        assert_eq!(
            (&stage["name"], &stage["verdict"]),
            (&Value::from(*name), &Value::from("ok")),
            "{:#}",
            said.json
        );
    }
    assert_eq!(said.json["stages"][7]["verdict"], "does not apply");
    let text = said.json["text"].as_str().unwrap();
    assert!(text.starts_with("GO for host memory over TCP: all 16 machines together reach "), "{text}");
    assert!(text.ends_with(" MB/s"), "{text}");
    assert!(
        said.json["next"]["command"].as_str().unwrap().starts_with("torchrun --nnodes=16 "),
        "{:#}",
        said.json
    );
    // On another machine, without the hosts.
    let replayed = testbed::output(testbed::program(PLUMB).args([
        "validate",
        "--format",
        "json",
        "--replay",
        &bed.file("healthy"),
    ]));
    assert_eq!(replayed.status.code(), Some(0));
    let again: Value = serde_json::from_slice(&replayed.stdout).unwrap();
    for part in ["verdict", "text", "findings", "stages", "launches", "matrix"] {
        assert_eq!(again[part], said.json[part], "{part}");
    }
}

/// A node that loses packets over such a short way loses no bandwidth: what others send to it again tells.
#[test]
fn slow_nodes_and_one_that_loses_packets_are_named_and_nobody_else() {
    let bed = Bed::new(16);
    bed.hosts.limit(7, "160mbit");
    bed.hosts.limit(12, "100mbit");
    bed.hosts.lose(4, 20);
    let said = bed.validate("two", &["--links", "few"]);
    let mut named = said.named();
    named.sort();
    let node = |host: &str| ("node".to_owned(), vec![host.to_owned()]);
    assert_eq!(
        (said.code, named),
        (Some(1), vec![node("h12"), node("h4"), node("h7")]),
        "{}\n{:#}",
        said.stderr,
        said.json
    );
    for it in said.json["findings"].as_array().unwrap() {
        let lossy = it["hosts"][0] == "h4";
        assert_eq!(it["loss"].is_null(), !lossy, "{it:#}");
        if lossy {
            assert_lossy(it);
        }
    }
}

/// Of what is sent to it, two percent and a few more: what is sent again can be lost again.
#[track_caller]
fn assert_lossy(finding: &Value) {
    let share = |name: &str| finding["loss"][name].as_f64().unwrap();
    assert!((0.005..0.06).contains(&share("to")), "{finding:#}");
    assert!(share("others") < 0.002, "{finding:#}");
    let text = finding["text"].as_str().unwrap();
    assert!(text.starts_with("loses packets that it receives"), "{text}");
    assert!(finding["action"].as_str().unwrap().contains("ethtool -S"), "{finding:#}");
}

#[test]
fn a_slow_link_is_a_link() {
    let bed = Bed::new(hosts(10));
    bed.hosts.limit_link(3, 8, "80mbit", RATE);
    bed.validate("link", &["--links", "all"]).is(1, &[("link", &["h3", "h8"])]);
}

#[test]
fn a_node_without_sshd_is_named_and_the_others_are_measured() {
    let bed = Bed::with(hosts(6), &|it| if it == 2 { Login::None } else { Login::Key });
    let said = bed.validate("down", &["--links", "few"]);
    said.is(1, &[("node", &["h2"])]);
    let text = said.json["findings"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("connection refused"), "{text}");
    assert!(said.json["text"].as_str().unwrap().contains("the others reach"), "{:#}", said.json);
}

/// Only the loopback interface would be measured between them.
#[test]
fn two_names_of_one_machine_are_one_machine() {
    let bed = Bed::new(3);
    let settings = fs::read_to_string(&bed.ssh).unwrap();
    fs::write(&bed.ssh, settings + "Host login\n HostName h1\n HostKeyAlias h1\n").unwrap();
    for (list, others) in [("h1,login", 1), ("login,h[1-3]", 3)] {
        let said = bed.validate(&format!("names-{others}"), &["--links", "few", "--hosts", list]);
        let name = if others == 1 { "login" } else { "h1" };
        said.is(1, &[("node", &[name])]);
        let text = said.json["findings"][0]["text"].as_str().unwrap();
        assert!(text.starts_with("it is ") && text.contains(" under another name"), "{text}");
        assert_eq!(said.json["hosts"].as_array().unwrap().len(), others, "{:#}", said.json);
    }
}

#[test]
fn a_validation_goes_on_with_its_own_machines_only() {
    let bed = Bed::new(4);
    let stop = |host: usize| {
        for pid in bed.hosts[host].processes("sshd") {
            signal(pid, Signal::KILL);
        }
    };
    let start = |host: usize| bed.hosts.start_sshd(host);
    let folder = bed.file("goes-on");
    let resume = ["--resume", folder.as_str()];
    let lines = || fs::read_to_string(PathBuf::from(&folder).join("journal.jsonl")).unwrap_or_default();
    let measured = || lines().matches("\"entry\":\"measured\"").count();

    stop(4);
    let running = bed.start("goes-on", &["--links", "few"]);
    running.until("the smoke test has run", || running.stderr().contains(" 3 smoke"));
    for pid in bed.hosts.head().processes("plumb") {
        signal(pid, Signal::KILL);
    }
    drop(running);
    bed.hosts.are_left();
    stop(2);
    let before = measured();
    let said = bed.validate("goes-on", &resume);
    said.is(2, &[("node", &["h2"]), ("node", &["h4"])]);
    let text = said.json["text"].as_str().unwrap();
    assert!(text.contains("h2 does not answer now and took part before"), "{text}");
    assert_eq!(measured(), before, "nothing is measured without it");

    start(2);
    bed.validate("goes-on", &resume).is(1, &[("node", &["h4"])]);
    // A machine that came too late was not measured.
    start(4);
    let said = bed.validate("goes-on", &resume);
    said.is(2, &[]);
    let text = said.json["text"].as_str().unwrap();
    assert!(text.contains("h4 was not measured"), "{text}");
    let command = said.json["next"]["command"].as_str().unwrap();
    assert!(
        command.starts_with("plumb validate --hosts 'h[1-4]' --ssh-config ")
            && command.ends_with(" --links few"),
        "{command}"
    );
}

#[test]
fn a_node_that_stops_in_the_middle_is_named() {
    let bed = Bed::new(hosts(6));
    let running = bed.start("stops", &["--links", "few"]);
    running.until("the smoke test has run", || running.stderr().contains(" 3 smoke"));
    let stopped = bed.hosts[5].all_processes();
    for pid in &stopped {
        signal(*pid, Signal::STOP);
    }
    let said = Said::of(running);
    for pid in &stopped {
        signal(*pid, Signal::CONT);
    }
    said.is(1, &[("node", &["h5"])]);
}

/// One rank is killed in a launch that is made once; everything else is as it should be.
#[test]
fn a_launch_that_failed_once_is_not_go() {
    let bed = Bed::new(6);
    let running = bed.start("once", &["--links", "few"]);
    running.until("the smoke test has run", || running.stderr().contains(" 3 smoke"));
    testbed::until("a rank of the next launch", || {
        let ranks = bed.hosts[3].all_processes().into_iter().filter(|it| is_rank(*it));
        ranks.map(|it| signal(it, Signal::KILL)).count() > 0
    });
    let said = Said::of(running);
    said.is(2, &[]);
    let text = said.json["text"].as_str().unwrap();
    assert!(
        text.starts_with("INCONCLUSIVE: 4 machines together failed once (h3: killed by signal 9)"),
        "{text}"
    );
    assert!(
        said.stderr.contains("4 machines together: failed  <- h3: killed by signal 9"),
        "{}",
        said.stderr
    );
    bed.hosts.are_left();
}

/// Whether a process is `plumb bench`.
fn is_rank(pid: u32) -> bool {
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    command.split(|it| *it == 0).nth(1) == Some(b"bench")
}

/// Logins work, and ranks cannot reach each other.
#[test]
fn a_node_behind_a_firewall_has_the_reason_and_a_remedy() {
    let bed = Bed::new(4);
    let drop = "nft add table ip t; nft add chain ip t in '{ type filter hook input priority 0; policy accept; }'; nft add rule ip t in ct state new tcp dport != 22 drop";
    bed.hosts[2].run("sh", &["-c", drop]);
    let said = bed.validate("firewall", &["--links", "few"]);
    said.is(1, &[("node", &["h2"])]);
    let finding = &said.json["findings"][0];
    let text = finding["text"].as_str().unwrap();
    assert!(text.contains("did not join") || text.contains("connect"), "{text}");
    assert!(finding["action"].as_str().unwrap().starts_with("check the firewall"), "{finding:#}");
}

#[test]
fn a_node_with_other_limits_and_another_with_another_plumb() {
    let bed = Bed::new(hosts(6));
    bed.hosts[3].run("mount", &["-o", "remount,size=4m", "/dev/shm"]);
    // What the server has is what its logins get.
    for pid in bed.hosts[4].processes("sshd") {
        let mut limit = testbed::program("prlimit");
        limit.args(["--pid", &pid.to_string(), "--memlock=65536:65536"]);
        assert!(testbed::output(&mut limit).status.success());
    }
    // An older plumb in the PATH of one host.
    bed.hosts[5].run("mount", &["-t", "tmpfs", "none", "/usr/local/bin"]);
    bed.hosts[5].run(
        "sh",
        &[
            "-c",
            "printf '#!/bin/sh\\necho plumb 0.0.1\\n' > /usr/local/bin/plumb; chmod +x /usr/local/bin/plumb",
        ],
    );
    let said = bed.validate("other", &["--links", "few"]);
    said.is(1, &[("node", &["h3"]), ("node", &["h4"])]);
    for (number, what) in ["/dev/shm", "memlock is 64 KiB"].iter().enumerate() {
        let text = said.json["findings"][number]["text"].as_str().unwrap();
        assert!(text.contains(what), "{what}: {:#}", said.json);
    }
    let notes = said.json["notes"].to_string();
    assert!(notes.contains("h5: plumb 0.0.1 is installed there"), "{notes}");
}

/// Kills plumb whenever it has measured a few more things, until one run reaches the end.
#[test]
fn whatever_ends_plumb_loses_no_measurement() {
    let bed = Bed::new(4);
    let journal = PathBuf::from(bed.file("killed")).join("journal.jsonl");
    let measured = || {
        let text = fs::read_to_string(&journal).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |it| &text[..it]).to_owned();
        whole
            .lines()
            .filter(|it| it.contains("\"entry\":\"measured\""))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let folder = bed.file("killed");
    let mut before: Vec<String> = Vec::new();
    let mut kills = 0;
    let said = loop {
        let resume = ["--resume", folder.as_str()];
        let running = bed.start("killed", if kills == 0 { &["--links", "few"] } else { &resume });
        let goal = before.len() + 3;
        running.until("more is measured", || measured().len() >= goal || running.has_ended());
        if running.has_ended() {
            break Said::of(running);
        }
        // Not the program that enters the head's namespaces, which started it.
        for pid in bed.hosts.head().processes("plumb") {
            signal(pid, Signal::KILL);
        }
        drop(running);
        testbed::until("no plumb on the head", || bed.hosts.head().processes("plumb").is_empty());
        bed.hosts.are_left();
        let after = measured();
        assert!(after.starts_with(&before), "lines that were there are still there");
        before = after;
        kills += 1;
    };
    assert!(kills >= 2, "{kills}: {}", fs::read_to_string(&journal).unwrap_or_default());
    said.is(0, &[]);
    // Every measurement once.
    let all = measured();
    let mut keys: Vec<String> = all
        .iter()
        .map(|it| {
            let it: Value = serde_json::from_str(it).unwrap();
            format!("{} {}", it["launch"], it["hosts"])
        })
        .collect();
    let many = keys.len();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), many, "{all:#?}");
}

#[test]
fn a_dry_run_shows_commands_and_starts_nothing() {
    let plumb = testbed::output(testbed::program(PLUMB).args(["validate", "--hosts", "n[1-4]", "--dry-run"]));
    let text = String::from_utf8(plumb.stdout).unwrap();
    assert_eq!(plumb.status.code(), Some(0), "{text}");
    for part in [
        "# 0 reach",
        "# 1 node",
        "# 2 local",
        "# 3 smoke",
        "# 4 all",
        "# 5 pairs",
        "n4  ssh ",
        "-O check -- n4",
        "    runs PLUMB_RANK=",
        "-o 'ControlMaster=yes' ",
        "PLUMB_TOKEN=TOKEN",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(
        !fs::read_dir(".")
            .unwrap()
            .flatten()
            .any(|it| it.file_name().to_string_lossy().starts_with("plumb-validate-"))
    );
}

/// A real Slurm: inside `salloc`, as a step of `srun`, and as the batch script that plumb writes.
#[test]
fn slurm_runs_it_in_three_ways() {
    let hosts = Hosts::with_slurm(4);
    hosts.limit_all(RATE);
    let arguments = |results: &str| {
        let results = hosts.file(results);
        let all = ["validate", "--format", "json", "--links", "few", "--gpus", "0", "--results", &results];
        all.map(str::to_owned).to_vec()
    };
    let go = |said: &Said, way: &str| {
        said.is(0, &[]);
        let source = said.json["source"].as_str().unwrap();
        assert!(source.starts_with(&format!("4 machines over {way}")), "{source}");
        hosts.are_left();
    };
    let mut salloc = hosts.slurm_command("salloc");
    salloc.args(["-N4", "--quiet", PLUMB]).args(arguments("salloc")).arg("--slurm");
    go(&Said::of(Running::start(&mut salloc)), "srun");

    let mut srun = hosts.srun();
    srun.args(["-N4", PLUMB]).args(arguments("srun"));
    go(&Said::of(Running::start(&mut srun)), "the launcher");

    let mut written = hosts[1].command(PLUMB);
    let written =
        testbed::output(written.args(arguments("sbatch")).args(["--slurm", "--dry-run", "--nodes", "4"]));
    assert_eq!(written.status.code(), Some(0));
    let script = hosts.file("job.sh");
    fs::write(&script, &written.stdout).unwrap();
    let mut sbatch = hosts.slurm_command("sbatch");
    let output = hosts.file("job.out");
    let errors = hosts.file("job.err");
    sbatch.args(["--wait", "--output", &output, "--error", &errors, &script]);
    let ended = Running::start(&mut sbatch).finish(LONG);
    let said = fs::read(&output).unwrap_or_default();
    let stderr = fs::read_to_string(&errors).unwrap_or_default();
    let json = serde_json::from_slice(&said).unwrap_or_else(|error| panic!("{error}: {stderr}"));
    go(&Said { code: ended.status.code(), json, stderr }, "srun");
}

/// Slurm knows addresses that the nodes themselves do not.
#[test]
fn slurm_with_names_that_do_not_resolve_on_the_nodes() {
    let hosts = Hosts::with_slurm(3);
    for host in 1..=3 {
        let hide = "echo 127.0.0.1 localhost > /tmp/localhost && mount --bind /tmp/localhost /etc/hosts";
        hosts[host].run("sh", &["-c", hide]);
    }
    let mut salloc = hosts.slurm_command("salloc");
    salloc.args(["-N3", "--quiet", PLUMB, "validate", "--format", "json", "--slurm", "--links", "few"]);
    salloc.args(["--gpus", "0", "--timeout", "15s", "--results", &hosts.file("results")]);
    let said = Said::of(Running::start(&mut salloc));
    let text = said.json["text"].as_str().unwrap();
    assert_eq!(said.code, Some(2), "{text}\n{}", said.stderr);
    assert!(text.contains("does not resolve"), "{text}\n{}", said.stderr);
    hosts.are_left();
}
