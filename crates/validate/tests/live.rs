//! A validation that is interrupted and goes on, and one that is read back.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use validate::live::{Chosen, Engine, Entry, Launch, Line, Links, Measurement, Plan, Run, SCHEMA};
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
    }
}

fn chosen(plan: &Plan) -> Entry {
    Entry::Chosen(Chosen {
        hosts: plan.hosts.clone(),
        engine: Engine::Nccl,
        ranks: 8,
        local_ranks: 8,
        nics: Vec::new(),
        local_least: None,
        all_least: None,
        machine: None,
    })
}

/// What the model measures in this launch, one entry per measurement.
fn measured(run: &Run, launch: &Launch, model: &mut Model) -> Vec<Entry> {
    let answer = model.answer(&launch.step);
    let rates = match answer.rates {
        Rates::Each(rates) => rates,
        Rates::One(rate) => vec![rate],
        Rates::Nics(all) => all.iter().map(|it| it.rate).collect(),
    };
    let resent = answer.resent.into_iter().chain(std::iter::repeat(Vec::new()));
    let items = launch.items.iter().zip(rates).zip(resent);
    let entry = |((item, rate), resent): ((_, Option<f64>), _)| {
        Entry::Measured(Measurement {
            launch: launch.number,
            stage: launch.step.name().to_owned(),
            hosts: run.names(item),
            nic: None,
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
    let mut model = Model::new(Spec::read(spec).unwrap());
    let plan = plan(model.fleet().len(), links);
    let mut written = vec![Line { elapsed_s: 1.0, entry: chosen(&plan) }];
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
    run.take(line(chosen(&plan)));
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
