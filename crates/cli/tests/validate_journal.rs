//! `plumb validate --replay` of results folders: what a journal says of failed launches, and of machines that were not measured.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[expect(dead_code, reason = "other tests use the rest")]
mod common;

use std::cell::Cell;
use std::fs;

use ::validate::live::{
    Asked, Chosen, Engine, Entry, Failed, Item, Launch, Line, Links, Measurement, Node, Plan, Reached, Run,
    SCHEMA,
};
use common::{Answer, plumb};
use testbed::Folder;

/// A validation as it is written down.
struct Journal {
    hosts: Vec<&'static str>,
    /// Machines that do not answer.
    silent: Vec<&'static str>,
    /// Why they do not.
    reason: fn(&str) -> String,
    engine: Option<Engine>,
    links: Links,
    least: Option<f64>,
    nics: &'static [&'static str],
}

impl Journal {
    fn of(hosts: &[&'static str]) -> Self {
        Self {
            hosts: hosts.to_vec(),
            silent: Vec::new(),
            reason: |_| "connection refused".to_owned(),
            engine: Some(Engine::Host),
            links: Links::Few,
            least: None,
            nics: &[],
        }
    }

    /// `rate` says what a launch reaches between these machines, or why it failed.
    fn written(&self, name: &str, rate: impl Fn(&Launch, &[String]) -> Result<f64, String>) -> Folder {
        self.written_with(name, |launch, hosts, _| rate(launch, hosts))
    }

    /// The same of machines whose NICs are measured alone; `rate` knows which.
    fn written_with(
        &self,
        name: &str,
        rate: impl Fn(&Launch, &[String], Option<&str>) -> Result<f64, String>,
    ) -> Folder {
        let folder = Folder::new(name);
        let plan = Plan {
            schema: SCHEMA.to_owned(),
            version: "0".to_owned(),
            way: "ssh".to_owned(),
            hosts: self.hosts.iter().map(|it| (*it).to_owned()).collect(),
            budget_s: 1800,
            timeout_s: 60,
            links: self.links,
            least: self.least,
            seed: 1,
            asked: Asked { engine: self.engine, ..Asked::default() },
        };
        let mut text = serde_json::to_string(&plan).unwrap() + "\n";
        let mut run = Run::new(plan);
        let mut add = |run: &mut Run, entry: Entry| {
            let line = Line { elapsed_s: run.elapsed() + 1.0, entry };
            text.push_str(&serde_json::to_string(&line).unwrap());
            text.push('\n');
            run.take(line);
        };
        for host in &self.hosts {
            let failed = || Failed { text: (self.reason)(host), action: "start sshd there".to_owned() };
            let failed = self.silent.contains(host).then(failed);
            let host = (*host).to_owned();
            let reached = Reached { host, failed, address: None, version: None, clock_s: None };
            add(&mut run, Entry::Reached(reached));
        }
        let hosts: Vec<&&str> = self.hosts.iter().filter(|it| !self.silent.contains(it)).collect();
        for host in &hosts {
            let facts = Some(serde_json::json!({}));
            add(&mut run, Entry::Node(Node { host: (**host).to_owned(), facts, failed: None }));
        }
        let chosen = Chosen {
            hosts: hosts.iter().map(|it| (**it).to_owned()).collect(),
            engine: Engine::Host,
            ranks: 1,
            local_ranks: 2,
            nics: self.nics.iter().map(|it| (*it).to_owned()).collect(),
            local_least: None,
            all_least: None,
            machine: None,
        };
        add(&mut run, Entry::Chosen(chosen));
        while let Some(launch) = run.next() {
            for item in &launch.items {
                let entry = measurement(&run, &launch, item, rate(&launch, &run.names(item), run.nic(item)));
                add(&mut run, Entry::Measured(entry));
            }
        }
        fs::write(folder.path().join("journal.jsonl"), text).unwrap();
        folder
    }
}

fn measurement(run: &Run, launch: &Launch, item: &Item, rate: Result<f64, String>) -> Measurement {
    Measurement {
        launch: launch.number,
        stage: launch.step.name().to_owned(),
        hosts: run.names(item),
        nic: run.nic(item).map(str::to_owned),
        bytes: 1 << 20,
        rate: rate.as_ref().ok().copied(),
        resent: Vec::new(),
        failed: rate.err(),
        seconds: 1.0,
    }
}

const SIX: [&str; 6] = ["h1", "h2", "h3", "h4", "h5", "h6"];

fn replay(folder: &Folder, more: &[&str]) -> Answer {
    let path = folder.path().to_string_lossy().into_owned();
    plumb(["validate", "--replay", &path].into_iter().chain(more.iter().copied()))
}

fn words(answer: &Answer) -> String {
    answer.stdout.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_launch_that_failed_once_is_not_go() {
    let killed = || Err("h3: killed by signal 9".to_owned());
    // The first of four machines, which run again, and whenever they run.
    let fails = |times: usize| {
        let failed = Cell::new(0);
        Journal::of(&SIX).written(&format!("journal-scale-{times}"), move |launch, _| {
            if launch.step.name() != "scale" || failed.get() == times {
                return Ok(23.5);
            }
            failed.set(failed.get() + 1);
            killed()
        })
    };
    let twice = words(&replay(&fails(2), &["-v"]));
    assert!(twice.starts_with("INCONCLUSIVE: 4 machines together failed 2 times (h3: killed by"), "{twice}");
    assert_eq!(twice.matches("4 machines together failed failed: h3: killed").count(), 2, "{twice}");
    let folder = fails(1);
    let answer = replay(&folder, &[]);
    assert_eq!(answer.code, Some(2), "{}", answer.stdout);
    let text = words(&answer);
    let says = "INCONCLUSIVE: 4 machines together failed once (h3: killed by signal 9); all 6 machines together reach";
    assert!(text.starts_with(says), "{text}");
    assert!(
        text.contains("4 all failed 4 machines together failed once (h3: killed by signal 9); 6 machines"),
        "{text}"
    );
    assert!(!text.contains("failed: h3: killed"), "{text}");
    let verbose = words(&replay(&folder, &["-v"]));
    assert!(verbose.contains("4 machines together failed failed: h3: killed by signal 9"), "{verbose}");
    let json = replay(&folder, &["--format", "json"]).json();
    let failures: Vec<&serde_json::Value> = json["launches"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|it| it["failures"].as_array().unwrap())
        .collect();
    assert_eq!(failures, ["h3: killed by signal 9"]);
}

#[test]
fn a_nic_is_called_by_its_device() {
    let journal = Journal { nics: &["mlx5_0", "mlx5_2", "mlx5_5"], ..Journal::of(&SIX) };
    let slow = |name: &str, bad: &'static [&str], machine: Option<&'static str>| {
        journal.written_with(name, move |_, hosts, nic| match nic {
            Some(nic) if bad.contains(&nic) && machine.is_none_or(|it| hosts.contains(&it.to_owned())) => {
                Ok(4.0)
            }
            Some(_) => Ok(8.0),
            None => Ok(23.5),
        })
    };
    let folder = slow("journal-nic", &["mlx5_5"], Some("h4"));
    let text = words(&replay(&folder, &[]));
    assert!(text.starts_with("NO-GO: take out h4; the others reach 23.5 GB/s together"), "{text}");
    assert!(text.contains("NIC h4 NIC mlx5_5 reaches 50 % of what the others do"), "{text}");
    let finding = &replay(&folder, &["--format", "json"]).json()["findings"][0];
    assert_eq!((&finding["nic"], &finding["device"]), (&2.into(), &"mlx5_5".into()));

    let folder = slow("journal-rail", &["mlx5_2"], None);
    let text = words(&replay(&folder, &[]));
    let says = "NO-GO: NIC mlx5_2 is slow on all machines: check the switches of that rail; no machine is to be taken out";
    assert!(text.starts_with(says), "{text}");
    assert!(text.contains("NIC mlx5_2 of each reaches 50 % of what the other NICs do, in 6 of 6"), "{text}");
    assert!(
        text.contains("next: validate again when this is repaired plumb validate --hosts 'h[1-6]'"),
        "{text}"
    );
    let junit = replay(&folder, &["--format", "junit"]).stdout;
    assert!(
        junit.contains("name=\"tier h1 h2 h3 h4 h5 h6 NIC mlx5_2\"") && junit.contains("failures=\"2\""),
        "{junit}"
    );
}

#[test]
fn pairs_across_are_counted_once_however_often_they_were_measured() {
    let half = |host: &String| ["h1", "h2", "h3"].contains(&host.as_str());
    let journal = Journal { links: Links::Auto, ..Journal::of(&SIX) };
    let folder = journal.written("journal-halves", |_, hosts| match hosts {
        [one, other] if half(one) != half(other) => Ok(4.0),
        // Slow in a way that no machine explains: it is asked about again.
        [one, other] if one == "h4" && other == "h5" => Ok(20.5),
        [_, _] | [_] => Ok(23.5),
        _ => Ok(4.2),
    });
    let answer = replay(&folder, &[]);
    let text = words(&answer);
    println!("{}", answer.stdout);
    assert!(text.starts_with("NO-GO: the machines fall into groups of 3 and 3"), "{text}");
    assert!(text.contains(" 9 pairs across reach 17 %"), "{text}");
    assert!(text.contains("measurements of 15 pairs in "), "{text}");
    let junit = replay(&folder, &["--format", "junit"]).stdout;
    assert!(junit.contains("9 pairs across groups reach 17 %"), "{junit}");
    assert_eq!(replay(&folder, &["--format", "json"]).json()["splits"][0]["across"], 9);
}

#[test]
fn a_pair_that_failed_once_was_not_slow() {
    let first = std::cell::Cell::new(true);
    let folder = Journal::of(&SIX).written("journal-pairs", |launch, hosts| {
        let fails = launch.step.name() == "pairs" && hosts.contains(&"h3".to_owned()) && first.take();
        if fails { Err("h3: killed by signal 9".to_owned()) } else { Ok(23.5) }
    });
    let answer = replay(&folder, &[]);
    assert_eq!(answer.code, Some(2), "{}", answer.stdout);
    let text = words(&answer);
    assert!(text.starts_with("INCONCLUSIVE: h3 - ") || text.contains(" - h3 failed once"), "{text}");
    assert!(text.contains("5 localise failed") && text.contains("; 0 slow, 1 failed"), "{text}");
}

#[test]
fn a_failure_beside_a_machine_that_is_taken_out_is_said_too() {
    let folder =
        Journal { silent: vec!["h6"], ..Journal::of(&SIX) }.written("journal-beside", |launch, _| {
            if launch.step.name() == "scale" { Err("h3: killed by signal 9".to_owned()) } else { Ok(23.5) }
        });
    let answer = replay(&folder, &[]);
    assert_eq!(answer.code, Some(1), "{}", answer.stdout);
    let text = words(&answer);
    assert!(
        text.starts_with("NO-GO: take out or repair h6; the others reach 23.5 GB/s together; 4 machines"),
        "{text}"
    );
    assert!(!text.contains("start training"), "{text}");
}

#[test]
fn machines_that_may_have_lost_their_gpus_are_not_go() {
    let journal = Journal { engine: None, ..Journal::of(&SIX) };
    let answer = replay(&journal.written("journal-gpus", |_, _| Ok(23.5)), &[]);
    assert_eq!(answer.code, Some(2), "{}", answer.stdout);
    let text = words(&answer);
    let says = "INCONCLUSIVE: not known whether these machines should have GPUs (--gpus 0 if they have none); over TCP all 6";
    assert!(text.starts_with(says), "{text}");
    assert!(
        text.contains("next: if these machines have no GPUs plumb validate --hosts 'h[1-6]' --gpus 0"),
        "{text}"
    );
    // Whoever chose host memory asked for nothing else.
    let answer = replay(&Journal::of(&SIX).written("journal-host", |_, _| Ok(23.5)), &[]);
    assert_eq!(answer.code, Some(0), "{}", answer.stdout);
    assert!(answer.stdout.starts_with("GO for host memory over TCP: "), "{}", answer.stdout);
}

#[test]
fn machines_that_are_left_alone_are_not_the_headline() {
    let says = |hosts: &[&'static str], silent: &[&'static str], name: &str| {
        let journal = Journal { silent: silent.to_vec(), ..Journal::of(hosts) };
        let answer = replay(&journal.written(name, |_, _| Ok(23.5)), &[]);
        (answer.code, answer.stdout.lines().next().unwrap().to_owned())
    };
    assert_eq!(
        says(&["h1", "h2"], &["h2"], "journal-one"),
        (Some(1), "NO-GO: h2 does not answer; one machine is left and was not compared".to_owned())
    );
    let least = Journal { silent: vec!["h3"], least: Some(10.0), ..Journal::of(&SIX[..3]) };
    let compared = replay(&least.written("journal-least", |_, _| Ok(23.5)), &[]).stdout;
    assert!(compared.starts_with("NO-GO: take out or repair h3; the others reach 23.5 GB/s"), "{compared}");
    assert_eq!(
        says(&SIX, &["h1", "h2", "h3", "h5"], "journal-two"),
        (
            Some(1),
            "NO-GO: h[1-3,5] do not answer; two machines are left and reach 23.5 GB/s, which was not compared"
                .to_owned()
        )
    );
}

#[test]
fn machines_that_cannot_be_used_for_one_reason_are_one_entry() {
    let journal = Journal { silent: vec!["h2", "h3", "h4", "h5", "h6"], ..Journal::of(&SIX) };
    let folder = journal.written("journal-alike", |_, _| Ok(23.5));
    let answer = replay(&folder, &[]);
    assert!(answer.stdout.contains("  NODE  h[2-6]\n    connection refused\n"), "{}", answer.stdout);
    assert_eq!(answer.stdout.matches("connection refused").count(), 1, "{}", answer.stdout);
    let junit = replay(&folder, &["--format", "junit"]).stdout;
    for host in SIX {
        let case = format!("<testcase classname=\"plumb.machine\" name=\"{host}\"");
        let fails = junit.contains(&format!("{case}>\n      <failure"));
        assert!(junit.contains(&case) && fails == (host != "h1"), "{host}: {junit}");
    }
}

#[test]
fn what_else_is_wrong_is_not_hidden_behind_names() {
    let reason = |host: &str| {
        if host == "h6" { "asks for a password".to_owned() } else { format!("no answer ({host})") }
    };
    let journal = Journal { silent: vec!["h2", "h3", "h4", "h5", "h6"], reason, ..Journal::of(&SIX) };
    let answer = replay(&journal.written("journal-more", |_, _| Ok(23.5)), &[]);
    assert!(answer.stdout.contains("\n  and h6: asks for a password (-v)\n"), "{}", answer.stdout);
}

#[test]
fn a_machine_whose_ranks_do_not_connect_has_the_reason_and_a_remedy() {
    let folder = Journal::of(&SIX[..4]).written("journal-firewall", |launch, hosts| {
        let cut = launch.step.name() != "local" && hosts.contains(&"h2".to_owned());
        if cut { Err("rank 1: did not join within 11 s (rendezvous)".to_owned()) } else { Ok(23.5) }
    });
    let answer = replay(&folder, &[]);
    assert_eq!(answer.code, Some(1), "{}", answer.stdout);
    let text = words(&answer);
    assert!(text.contains("(rank 1: did not join within 11 s (rendezvous))"), "{text}");
    assert!(text.contains("-> check the firewall between this machine and the others"), "{text}");
}

#[test]
fn groups_of_machines_explain_what_is_slow_between_them() {
    let journal = Journal { links: Links::All, ..Journal::of(&SIX) };
    let folder = journal.written("journal-groups", |_, hosts| {
        let far = |it: &String| ["h4", "h5", "h6"].contains(&it.as_str());
        let across = hosts.iter().any(far) && !hosts.iter().all(far);
        Ok(if across { 5.0 } else { 23.5 })
    });
    let text = words(&replay(&folder, &[]));
    assert!(text.contains("TIER pairs"), "{text}");
    assert!(
        !text.contains("were slow: not measured again") && !text.contains("not known whether h"),
        "{text}"
    );
}

#[test]
fn lines_fit_eighty_columns() {
    let folder = Journal::of(&SIX).written("journal-columns", |_, _| Ok(23.5));
    let mut command = common::command(["validate", "--replay", &folder.path().to_string_lossy()]);
    let answer = common::finish({
        command.env("COLUMNS", "80");
        command
    });
    let table = answer.stdout.lines().filter(|it| it.starts_with("  7 logs"));
    let long: Vec<&str> = table.filter(|it| it.chars().count() > 79).collect();
    assert!(long.is_empty(), "{long:#?}");
    assert!(answer.stdout.contains(&format!("\n{:28}", "")), "{}", answer.stdout);
}
