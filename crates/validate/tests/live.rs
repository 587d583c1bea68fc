//! A validation that is interrupted and goes on, and one that is read back.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use validate::live::{
    Asked, Chosen, Engine, Entry, Failed, Launch, Line, Links, Measurement, Node, Plan, Reached, Run, SCHEMA,
};
use validate::simulate::{Model, Spec};
use validate::{Class, Culprit, Host, Rates, Step, Verdict};

fn plan(hosts: usize, links: Links) -> Plan {
    Plan {
        schema: SCHEMA.to_owned(),
        version: "0".to_owned(),
        way: "ssh".to_owned(),
        hosts: (0..hosts).map(|it| format!("node{it:03}")).collect(),
        budget_s: 1800,
        timeout_s: 60,
        links,
        least: None,
        seed: 1,
        asked: Asked::default(),
    }
}

fn chosen(plan: &Plan, nics: usize) -> Entry {
    Entry::Chosen(Chosen {
        hosts: plan.hosts.clone(),
        engine: Engine::Nccl,
        ranks: 8,
        local_ranks: 8,
        nics: (0..nics).map(|it| format!("mlx5_{it}")).collect(),
        local_least: None,
        all_least: None,
        machine: None,
    })
}

/// What the model measures in this launch, one entry per measurement.
fn measured(run: &Run, launch: &Launch, model: &mut Model) -> Vec<Entry> {
    let answer = model.answer(&launch.step);
    let mut resent = answer.resent;
    let rates = match answer.rates {
        Rates::Each(rates) => rates,
        Rates::One(rate) => vec![rate],
        // Of each pair each NIC, then all of them.
        Rates::Nics { each, pairs } => {
            let nics = each.len() / pairs.len();
            resent =
                resent.into_iter().flat_map(|it| vec![Vec::new(); nics].into_iter().chain([it])).collect();
            let own = each.chunks(nics).zip(pairs);
            own.flat_map(|(own, pair)| own.iter().map(|it| it.rate).chain([pair])).collect()
        }
    };
    let resent = resent.into_iter().chain(std::iter::repeat(Vec::new()));
    let items = launch.items.iter().zip(rates).zip(resent);
    let entry = |((item, rate), resent): ((_, Option<f64>), _)| {
        Entry::Measured(Measurement {
            launch: launch.number,
            stage: launch.step.name().to_owned(),
            hosts: run.names(item),
            nic: run.nic(item).map(str::to_owned),
            bytes: 1,
            rate,
            resent,
            failed: None,
            seconds: 2.0,
        })
    };
    items.map(entry).collect()
}

/// The whole journal of a validation of this fleet.
fn journal(spec: &str, links: Links) -> (Run, Vec<Line>) {
    journal_within(spec, links, 0, None)
}

/// With so many NICs in each machine, within so many seconds.
fn journal_within(spec: &str, links: Links, nics: usize, budget_s: Option<u64>) -> (Run, Vec<Line>) {
    let mut model = Model::new(Spec::read(spec).unwrap());
    let mut plan = plan(model.fleet().len(), links);
    plan.budget_s = budget_s.unwrap_or(plan.budget_s);
    let mut written = vec![Line { elapsed_s: 1.0, entry: chosen(&plan, nics) }];
    let mut run = Run::new(plan);
    run.take(written[0].clone());
    while let Some(launch) = run.next() {
        for entry in measured(&run, &launch, &mut model) {
            let line = Line { elapsed_s: run.elapsed() + 0.1, entry };
            run.take(line.clone());
            written.push(line);
        }
        assert!(written.len() < 10_000);
    }
    (run, written)
}

fn verdict(run: &Run) -> Verdict {
    run.validation().unwrap().verdict()
}

fn named(run: &Run) -> Vec<(Class, Culprit)> {
    run.validation().unwrap().findings().iter().map(|it| (it.class, it.culprit)).collect()
}

#[test]
fn fleets_without_an_expected_bandwidth_are_compared_with_themselves() {
    for seed in 0..20 {
        let (run, _) = journal(&format!("nodes=16,noise=2%,seed={seed}"), Links::Few);
        assert_eq!(verdict(&run), Verdict::Go, "{seed}");
        let (run, _) = journal(&format!("nodes=16,noise=2%,slow=node005:0.8,seed={seed}"), Links::Few);
        assert_eq!(named(&run), [(Class::Node, Culprit::Host(Host(5)))], "{seed}");
        assert_eq!(verdict(&run), Verdict::NoGo, "{seed}");
    }
}

#[test]
fn a_slow_link_is_found_where_every_pair_is_measured() {
    for seed in 0..5 {
        let (run, _) =
            journal(&format!("nodes=16,noise=1%,link=node003-node011:0.5,seed={seed}"), Links::All);
        let link = Culprit::Link(validate::Pair::new(Host(3), Host(11)));
        assert_eq!(named(&run), [(Class::Link, link)], "{seed}");
    }
}

#[test]
fn a_machine_that_loses_packets_is_found_without_an_expected_bandwidth() {
    for seed in 0..10 {
        let (run, _) = journal(&format!("nodes=16,noise=2%,loss=node005:2%,seed={seed}"), Links::Few);
        assert_eq!(named(&run), [(Class::Node, Culprit::Host(Host(5)))], "{seed}");
        assert_eq!(verdict(&run), Verdict::NoGo, "{seed}");
    }
}

#[test]
fn two_machines_that_nothing_is_known_about_are_not_go() {
    let (run, _) = journal("nodes=2", Links::Auto);
    assert_eq!(verdict(&run), Verdict::Inconclusive);
}

/// Two that stay below what is expected: their only pair is not measured again and again.
#[test]
fn two_slow_machines_end_soon() {
    let mut plan = plan(2, Links::Few);
    plan.least = Some(1e6);
    let mut run = Run::new(plan.clone());
    let line = |entry| Line { elapsed_s: 1.0, entry };
    run.take(line(chosen(&plan, 0)));
    let mut model = Model::new(Spec::read("nodes=2,noise=0%").unwrap());
    let mut launches = 0;
    while let Some(launch) = run.next() {
        launches += 1;
        assert!(launches < 10, "{launch:?}");
        for entry in measured(&run, &launch, &mut model) {
            run.take(line(entry));
        }
    }
    assert_ne!(verdict(&run), Verdict::Go);
}

#[test]
fn more_machines_step_by_step() {
    let (run, _) = journal("nodes=16", Links::Few);
    let sizes: Vec<usize> = run
        .launches()
        .iter()
        .filter_map(|it| match &it.step {
            Step::Scale(hosts) | Step::All(hosts) => Some(hosts.len()),
            _ => None,
        })
        .collect();
    assert_eq!(sizes, [4, 8, 16]);
}

#[test]
fn an_interruption_at_any_line_loses_nothing() {
    let spec = "nodes=9,slow=node004:0.6,noise=2%";
    let (whole, lines) = journal(spec, Links::Auto);
    for cut in 1..=lines.len() {
        let mut run = Run::new(whole.plan().clone());
        for line in &lines[..cut] {
            // Through the text of the journal.
            let text = serde_json::to_string(line).unwrap();
            let read: Line = serde_json::from_str(&text).unwrap();
            assert!((read.elapsed_s - line.elapsed_s).abs() < 1e-9, "{text}");
            run.take(read);
        }
        // What is missing is exactly what the journal has after the cut.
        let mut rest = lines[cut..].iter();
        while let Some(launch) = run.next() {
            for item in &launch.items {
                let Some(line) = rest.next() else { panic!("asked for more after {cut} lines") };
                let Entry::Measured(it) = &line.entry else { panic!("{line:?}") };
                assert_eq!((it.launch, &it.hosts), (launch.number, &run.names(item)), "after {cut} lines");
            }
            for line in &lines[lines.len() - rest.len() - launch.items.len()..lines.len() - rest.len()] {
                run.take(line.clone());
            }
        }
        assert!(rest.next().is_none(), "after {cut} lines");
        assert_eq!((verdict(&run), named(&run)), (verdict(&whole), named(&whole)), "after {cut} lines");
    }
}

/// A run of this fleet in which measurements fail where `fails` says so.
fn failing(many: usize, fails: impl Fn(&Step, &[String]) -> bool) -> Run {
    let plan = plan(many, Links::Few);
    let mut model = Model::new(Spec::read(&format!("nodes={many}")).unwrap());
    let mut run = Run::new(plan.clone());
    run.take(Line { elapsed_s: 1.0, entry: chosen(&plan, 0) });
    while let Some(launch) = run.next() {
        for entry in measured(&run, &launch, &mut model) {
            let Entry::Measured(mut it) = entry else { continue };
            if fails(&launch.step, &it.hosts) {
                (it.rate, it.failed) = (None, Some("no such interface: eth9".to_owned()));
            }
            run.take(Line { elapsed_s: 2.0, entry: Entry::Measured(it) });
        }
        assert!(run.launches().len() < 100);
    }
    run
}

#[test]
fn what_fails_everywhere_is_not_measured_again_and_again() {
    let local = failing(4, |step, _| matches!(step, Step::Local(_)));
    assert_eq!((local.futile(), local.launches().len()), (Some("no such interface: eth9"), 1));
    // Each machine alone works, and no two of them together: three machines have three pairs, eight are asked twice.
    for (many, rounds) in [(3, 3), (8, 2)] {
        let network = failing(many, |_, hosts| hosts.len() > 1);
        assert!(network.futile().is_some(), "{many}");
        let pairs = network.launches().iter().filter(|it| matches!(it.step, Step::Pairs(_))).count();
        assert_eq!(pairs, rounds, "{many}");
    }
    // Two that fail by themselves are two machines that are not fit.
    let bad = |hosts: &[String]| hosts.iter().any(|it| it == "node002" || it == "node005");
    let two = failing(8, |_, hosts| bad(hosts));
    assert_eq!((two.futile(), verdict(&two)), (None, Verdict::NoGo));
    assert_eq!(named(&two).len(), 2);
    let one = failing(3, |_, hosts| hosts.iter().any(|it| it == "node001"));
    assert_eq!(one.futile(), None);
    assert_eq!(named(&one), [(Class::Node, Culprit::Host(Host(1)))]);
}

#[test]
fn machines_that_do_not_answer_any_more_or_answer_too_late_are_known() {
    let mut run = Run::new(plan(3, Links::Few));
    let reached = |host: &str, answers: bool| {
        let failed = (!answers).then(|| Failed { text: "down".to_owned(), action: String::new() });
        let (address, version, clock_s) = (None, None, None);
        let entry = Entry::Reached(Reached { host: host.to_owned(), failed, address, version, clock_s });
        Line { elapsed_s: 1.0, entry }
    };
    for (host, answers) in [("node000", true), ("node001", true), ("node002", false)] {
        run.take(reached(host, answers));
    }
    let mut first_two = run.plan().clone();
    first_two.hosts.truncate(2);
    for host in &first_two.hosts {
        let node = Node { host: host.clone(), facts: None, failed: None };
        run.take(Line { elapsed_s: 1.0, entry: Entry::Node(node) });
    }
    run.take(Line { elapsed_s: 1.0, entry: chosen(&first_two, 0) });
    assert_eq!((run.lost(), run.late()), (vec![], vec![]));
    run.take(reached("node000", false));
    run.take(reached("node002", true));
    assert_eq!((run.lost(), run.late()), (vec!["node000"], vec!["node002"]));
}

#[test]
fn every_nic_is_measured_where_there_is_time_for_it() {
    for (seed, nodes) in (0..10).zip([8, 9, 16, 33].into_iter().cycle()) {
        let spec = format!("nodes={nodes},nics=32,noise=2%,nic=node005:3:0.5,seed={seed}");
        let (run, written) = journal_within(&spec, Links::Few, 32, None);
        assert_eq!(named(&run), [(Class::Nic, Culprit::Nic(Host(5), 3))], "{nodes} {seed}");
        assert_eq!(verdict(&run), Verdict::NoGo, "{nodes} {seed}");
        // The journal says the same.
        let mut again = Run::new(run.plan().clone());
        for it in written {
            again.take(it);
        }
        assert_eq!((named(&again), again.next()), (named(&run), None), "{nodes} {seed}");
        // 32 NICs of two machines one after the other take two minutes: more than half of three.
        let (run, _) = journal_within(&spec, Links::Few, 32, Some(180));
        assert_eq!((verdict(&run), named(&run)), (Verdict::Go, vec![]), "{nodes} {seed}");
        assert_eq!(run.validation().unwrap().nics_not_measured().len(), nodes);
        assert!(!run.validation().unwrap().scope().every_nic);
    }
}

/// A slow uplink between two halves of six machines: nine of fifteen pairs are slow, and measured again they must not become what is normal.
#[test]
fn two_halves_of_six_machines_are_no_go_and_stop_being_measured() {
    let mut launches = 0;
    for seed in 0..40 {
        for noise in [1, 10] {
            let spec = format!("nodes=6,leaf=3,tier=1:0.17,noise={noise}%,seed={seed}");
            let (run, _) = journal(&spec, Links::Auto);
            let split = run.validation().unwrap().split();
            let sizes: Vec<usize> = split.iter().flat_map(|it| it.groups.iter().map(Vec::len)).collect();
            assert_eq!((verdict(&run), &sizes[..]), (Verdict::NoGo, &[3, 3][..]), "{spec}");
            // Pairs, however often they were measured.
            assert_eq!(split.unwrap().across, 9, "{spec}");
            launches += run.launches().len();
        }
    }
    assert!(launches / 80 <= 15, "{launches}");
}

/// Four machines fail together once, or whenever they run.
#[test]
fn a_launch_of_four_that_failed_runs_again() {
    for (times, then) in [(1, "scale all"), (2, "pairs")] {
        let mut model = Model::new(Spec::read("nodes=12").unwrap());
        let plan = plan(12, Links::Few);
        let mut run = Run::new(plan.clone());
        run.take(Line { elapsed_s: 1.0, entry: chosen(&plan, 0) });
        let mut failed = 0;
        while let Some(launch) = run.next() {
            for mut entry in measured(&run, &launch, &mut model) {
                if let Entry::Measured(it) = &mut entry
                    && (it.stage.as_str(), it.hosts.len()) == ("scale", 4)
                    && failed < times
                {
                    failed += 1;
                    it.rate = None;
                }
                run.take(Line { elapsed_s: run.elapsed() + 0.1, entry });
            }
        }
        let steps: Vec<&Step> = run.launches().iter().map(|it| &it.step).collect();
        let four: Vec<&&Step> =
            steps.iter().filter(|it| matches!(it, Step::Scale(it) if it.len() == 4)).collect();
        assert!(four.len() == 2 && four[0] == four[1], "{steps:?}");
        let names: Vec<&str> = steps.iter().map(|it| it.name()).collect();
        assert!(names.join(" ").starts_with(&format!("local smoke scale scale {then}")), "{names:?}");
    }
}
