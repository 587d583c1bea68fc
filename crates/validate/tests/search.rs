//! The search for the bad part, on modelled fleets.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use fabric::units::GigabytesPerSecond;
use proptest::prelude::*;
use validate::simulate::{Model, Spec};
use validate::{
    Class, Culprit, Expected, Fleet, Host, Limits, Pair, Question, Rates, Sample, Scope, Search, Step,
    Validation, Verdict, judge,
};

fn run(spec: &str) -> Validation {
    Model::new(Spec::read(spec).unwrap()).run(Limits::default(), |_, _| {})
}

fn named(validation: &Validation) -> Vec<(Class, Culprit)> {
    validation.findings().iter().map(|it| (it.class, it.culprit)).collect()
}

#[test]
fn a_healthy_fleet_is_go_twenty_times_out_of_twenty() {
    for seed in 0..20 {
        let it = run(&format!("nodes=16,noise=2%,seed={seed}"));
        assert_eq!(it.verdict(), Verdict::Go, "{seed}");
        // Alone, two, all three times, for one launch would miss what is slow at times, each NIC, and who was between normal and slow.
        assert!((6..=7).contains(&it.launches()), "{}", it.launches());
    }
}

#[test]
fn one_slow_machine_in_a_hundred_takes_seven_launches() {
    for seed in 0..20 {
        let it = run(&format!("nodes=100,slow=node037:0.8,noise=2%,seed={seed}"));
        assert_eq!(named(&it), [(Class::Node, Culprit::Host(Host(37)))], "{seed}");
        assert_eq!(it.verdict(), Verdict::NoGo);
        assert!(it.launches() <= 7, "{}", it.launches());
    }
}

#[test]
fn each_fault_has_its_class() {
    let pair = Pair::new(Host(3), Host(4));
    for (spec, expected) in [
        ("nodes=16,slow=node005:0.5", vec![(Class::Node, Culprit::Host(Host(5)))]),
        ("nodes=16,dead=node005", vec![(Class::Node, Culprit::Host(Host(5)))]),
        ("nodes=16,local=node005:0.5", vec![(Class::Node, Culprit::Host(Host(5)))]),
        ("nodes=16,nic=node005:3:0", vec![(Class::Nic, Culprit::Nic(Host(5), 3))]),
        ("nodes=64,leaf=16,tier=1:0.6", vec![(Class::Tier, Culprit::Group(1))]),
        (
            "nodes=16,slow=node005:0.5,slow=node009:0.8",
            vec![(Class::Node, Culprit::Host(Host(5))), (Class::Node, Culprit::Host(Host(9)))],
        ),
    ] {
        let it = run(spec);
        let mut found = named(&it);
        found.sort();
        assert_eq!(found, expected, "{spec}");
        assert_eq!(it.verdict(), Verdict::NoGo, "{spec}");
    }
    // A link shows in the pair of its ends alone: all of them are measured while nothing else explains it.
    for (nodes, seed) in [8, 9, 30, 60].into_iter().zip(0..20) {
        let it = run(&format!("nodes={nodes},link=node003-node004:0.5,seed={seed}"));
        assert_eq!(named(&it), [(Class::Link, Culprit::Link(pair))], "{nodes} {seed}");
    }
}

#[test]
fn a_machine_that_fails_is_left_out_of_the_launch_of_all() {
    let it = run("nodes=100,dead=node005");
    assert_eq!(named(&it), [(Class::Node, Culprit::Host(Host(5)))]);
    // Alone, alone again, two, all others three times, a round of pairs, and NICs of who was uneven.
    assert_eq!(it.verdict(), Verdict::NoGo);
    assert!(it.launches() <= 8, "{}", it.launches());
    assert!(it.without().rate().is_some());
}

#[test]
fn a_machine_that_is_slow_at_times_is_not_a_link() {
    for seed in 0..20 {
        let it = run(&format!("nodes=30,flaky=node005:0.6:50%,seed={seed}"));
        assert_eq!((it.verdict(), it.findings().len()), (Verdict::NoGo, 1), "{seed}");
        for finding in it.findings() {
            assert_eq!(finding.culprit, Culprit::Host(Host(5)), "{seed}: {finding:?}");
            // As NODE only where all of few measurements were slow.
            assert!(
                finding.class == Class::Intermittent || finding.slow == finding.of,
                "{seed}: {finding:?}"
            );
            assert_eq!(finding.class_is_sure(), finding.class == Class::Intermittent || finding.of >= 5);
        }
    }
}

#[test]
fn a_noisy_network_accuses_nobody() {
    for seed in 0..20 {
        let it = run(&format!("nodes=60,slow=node037:0.8,noise=5%,dips=8%,seed={seed}"));
        assert!(named(&it).iter().all(|it| it.1 == Culprit::Host(Host(37))), "{seed}: {:?}", it.findings());
        let it = run(&format!("nodes=60,noise=5%,dips=8%,tails=3,seed={seed}"));
        assert!(named(&it).is_empty(), "{seed}: {:?}", it.findings());
    }
}

/// One of 32 NICs at half rate costs a machine 1.6 %, which no pair shows: NICs are measured one by one before GO.
#[test]
fn one_of_many_nics_at_half_rate_is_named() {
    for (seed, nodes) in (0..20).zip([8, 9, 33, 100].into_iter().cycle()) {
        let it = run(&format!("nodes={nodes},nics=32,noise=2%,nic=node005:17:0.5,seed={seed}"));
        assert_eq!(named(&it), [(Class::Nic, Culprit::Nic(Host(5), 17))], "{nodes} {seed}");
        assert_eq!(it.verdict(), Verdict::NoGo, "{nodes} {seed}");
        let it = run(&format!("nodes={nodes},nics=32,noise=2%,seed={seed}"));
        assert_eq!((it.verdict(), named(&it)), (Verdict::Go, vec![]), "{nodes} {seed}");
        assert!(it.nics_not_measured().is_empty() && it.launches() <= 6, "{nodes} {seed} {}", it.launches());
    }
}

/// The switches of a rail are bad: one NIC of every machine is slow, and no machine differs from another.
#[test]
fn a_nic_that_is_slow_on_all_machines_is_a_rail() {
    for (seed, nodes) in (0..24).zip([3, 4, 5, 8, 33, 100].into_iter().cycle()) {
        for share in ["0.5", "0"] {
            let it = run(&format!("nodes={nodes},noise=1%,rail=3:{share},seed={seed}"));
            assert_eq!(named(&it), [(Class::Tier, Culprit::Rail(3))], "{nodes} {share} {seed}");
            assert_eq!(it.verdict(), Verdict::NoGo, "{nodes} {share} {seed}");
            // Nobody is taken out for it.
            assert_eq!(it.rest().len(), nodes, "{nodes} {share} {seed}");
        }
        // The only NIC in its launches that is slow, of a machine that is in two pairs, or of two machines.
        let it = run(&format!("nodes={nodes},noise=1%,nic=node001:3:0.5,seed={seed}"));
        assert_eq!(named(&it), [(Class::Nic, Culprit::Nic(Host(1), 3))], "{nodes} {seed}");
        if nodes > 5 {
            let it = run(&format!("nodes={nodes},noise=1%,nic=node001:3:0.5,nic=node002:3:0.5,seed={seed}"));
            let expected = [1, 2].map(|it| (Class::Nic, Culprit::Nic(Host(it), 3)));
            let mut found = named(&it);
            found.sort();
            assert_eq!(found, expected, "{nodes} {seed}");
        }
    }
    let it = run("nodes=40,noise=1%,rail=3:0.5,nic=node005:2:0.5,slow=node007:0.6");
    let mut found = named(&it);
    found.sort();
    let expected = [
        (Class::Node, Culprit::Host(Host(7))),
        (Class::Nic, Culprit::Nic(Host(5), 2)),
        (Class::Tier, Culprit::Rail(3)),
    ];
    assert_eq!((&found[..], it.verdict()), (&expected[..], Verdict::NoGo));
}

/// A machine in two pairs, the partner of an accused one, a NIC that fails where others scatter, two faults at once: none is lost.
#[test]
fn a_bad_nic_is_not_lost_beside_something_else() {
    for seed in 0..10 {
        for (spec, mut expected) in [
            ("nodes=5,nic=node000:3:0.5", vec![Culprit::Nic(Host(0), 3)]),
            ("nodes=5,nics=16,nic=node000:3:0", vec![Culprit::Nic(Host(0), 3)]),
            (
                "nodes=6,noise=1%,dead=node002,nic=node000:3:0.5",
                vec![Culprit::Host(Host(2)), Culprit::Nic(Host(0), 3)],
            ),
            (
                "nodes=24,noise=1%,nic=node002:5:0.5,slow=node022:0.5",
                vec![Culprit::Host(Host(22)), Culprit::Nic(Host(2), 5)],
            ),
        ] {
            let it = run(&format!("{spec},seed={seed}"));
            let mut found: Vec<Culprit> = it.findings().iter().map(|it| it.culprit).collect();
            found.sort();
            expected.sort();
            assert_eq!((found, it.verdict()), (expected, Verdict::NoGo), "{spec} {seed}");
        }
        for spec in [
            "nodes=16,nics=16,noise=4%,nic=node003:2:0",
            "nodes=2,loss=node001:2%",
            "nodes=16,noise=4%,rail=2:0.5",
        ] {
            assert_ne!(run(&format!("{spec},seed={seed}")).verdict(), Verdict::Go, "{spec} {seed}");
        }
        // A rail does not explain what is lower than it makes it.
        let it = run(&format!("nodes=64,noise=0.5%,link=node034-node007:0.5,rail=0:0.5,seed={seed}"));
        let link = Culprit::Link(Pair::new(Host(7), Host(34)));
        assert!(it.verdict() == Verdict::Inconclusive || named(&it).iter().any(|it| it.1 == link), "{seed}");
        let it = run(&format!("nodes=8,noise=5%,local=node003:0.6,seed={seed}"));
        assert_eq!(named(&it), [(Class::Node, Culprit::Host(Host(3)))], "{seed}");
    }
}

/// Where single NICs scatter too far none is named, and that is said.
#[test]
fn nics_that_scatter_are_said_to() {
    let noisy = run("nodes=16,noise=6%,seed=3");
    assert!(noisy.nics_scatter().is_some_and(|it| it > 0.035), "{:?}", noisy.nics_scatter());
    assert_eq!(run("nodes=16,noise=1%,seed=3").nics_scatter(), None);
}

/// A machine that was slow in its pairs and is normal in the launch of its NICs is slow at times: half of those that are show it there.
#[test]
fn the_launch_of_nics_measures_its_pairs_too() {
    let mut open = 0;
    for seed in 0..100 {
        let it = run(&format!("nodes=100,flaky=node005:0.6:50%,seed={seed}"));
        open += it.findings().iter().filter(|it| !it.class_is_sure()).count();
    }
    assert!(open <= 20, "{open}");
}

/// One of eight NICs at half rate costs a machine 6 %: all together are still fast enough.
#[test]
fn a_nic_at_half_rate_is_named_where_the_fleet_is_quiet() {
    for seed in 0..20 {
        let it = run(&format!("nodes=32,noise=0.5%,nic=node005:3:0.5,seed={seed}"));
        assert_eq!(named(&it), [(Class::Nic, Culprit::Nic(Host(5), 3))], "{seed}");
        assert_eq!(it.verdict(), Verdict::NoGo, "{seed}");
        // A machine that reaches as little with all its NICs is healthy.
        let it = run(&format!("nodes=32,noise=0.5%,slow=node005:0.94,seed={seed}"));
        assert_eq!((it.verdict(), named(&it)), (Verdict::Go, vec![]), "{seed}");
    }
}

/// What few measurements reach may lie close together by luck: neither machines by themselves nor pairs are judged by that alone.
#[test]
fn healthy_machines_in_a_very_noisy_fleet_are_not_accused() {
    for seed in 0..60 {
        for (nodes, noise) in [8, 12, 21, 35].into_iter().flat_map(|it| [(it, 10), (it, 15)]) {
            let it = run(&format!("nodes={nodes},noise={noise}%,dips=5%,seed={seed}"));
            let named = named(&it);
            assert!(named.is_empty() && it.split().is_none(), "{nodes} {noise} % {seed}: {named:?}");
            assert_ne!(it.verdict(), Verdict::NoGo, "{nodes} {noise} % {seed}");
        }
    }
}

#[test]
fn a_machine_that_loses_packets_is_named_and_a_congested_network_is_not() {
    for seed in 0..20 {
        for nodes in [8, 16, 100] {
            let it = run(&format!("nodes={nodes},noise=2%,loss=node005:2%,seed={seed}"));
            assert_eq!(named(&it), [(Class::Node, Culprit::Host(Host(5)))], "{nodes} {seed}");
            assert_eq!(it.verdict(), Verdict::NoGo, "{nodes} {seed}");
            let finding = &it.findings()[0];
            let loss = finding.loss.unwrap();
            assert!(loss.to > 0.01 && loss.from > 0.01 && loss.others < 0.001, "{loss:?}");
            assert!(finding.partners >= 2 && finding.share > 0.9, "{finding:?}");
            assert!(it.launches() <= 9, "{}", it.launches());
            let it = run(&format!("nodes={nodes},noise=2%,congestion=1%,seed={seed}"));
            assert_eq!((it.verdict(), named(&it)), (Verdict::Go, vec![]), "{nodes} {seed}");
        }
    }
}

#[test]
fn a_link_that_loses_packets_is_a_link() {
    let pair = Pair::new(Host(2), Host(6));
    for seed in 0..10 {
        // Every pair once: otherwise a link is met by chance.
        let mut model =
            Model::new(Spec::read(&format!("nodes=10,loss=node002-node006:3%,seed={seed}")).unwrap());
        let mut it = model.validation(Limits::default());
        it.measure_links(26);
        while let Some(step) = it.next() {
            let answer = model.answer(&step);
            it.record(&step, answer);
        }
        assert_eq!(named(&it), [(Class::Link, Culprit::Link(pair))], "{seed}");
        assert!(it.findings()[0].loss.is_some());
    }
}

#[test]
fn two_machines_cannot_tell_which_of_them_it_is() {
    let it = run("nodes=2,slow=node001:0.5");
    assert_eq!(it.verdict(), Verdict::Inconclusive);
    assert!(named(&it).is_empty());
}

/// Passes a fleet through a validation without expectations: `pair` is what a pair reaches in a launch, `all` what all do, by number.
fn driven(
    machines: usize,
    mut pair: impl FnMut(usize, Pair) -> Option<f64>,
    mut all: impl FnMut(usize) -> Option<f64>,
) -> Validation {
    let fleet = Fleet::new((0..machines).map(|it| format!("n{it}")).collect());
    let scope = Scope { nics: false, ..Scope::default() };
    let mut it =
        Validation::new(fleet, Expected { local: None, all: None }, Limits::default()).with_scope(scope);
    it.measure_links(40);
    while let Some(step) = it.next() {
        let number = it.launches();
        assert!(number < 80, "it ends");
        let rates = match &step {
            Step::Local(hosts) => Rates::Each(vec![Some(100.0); hosts.len()]),
            Step::Pairs(pairs) => Rates::Each(pairs.iter().map(|it| pair(number, *it)).collect()),
            Step::Smoke(it) => Rates::One(pair(number, *it)),
            Step::Scale(_) | Step::All(_) | Step::Without(_) => Rates::One(all(number)),
            Step::Nics(_) => Rates::Nics { each: Vec::new(), pairs: Vec::new() },
        };
        it.record(&step, rates.into());
    }
    it
}

#[test]
fn machines_on_both_sides_of_a_slow_uplink_are_not_go() {
    let across = |it: Pair| it.hosts().iter().filter(|it| it.0 < 4).count() == 1;
    let it = driven(8, |_, it| Some(if across(it) { 5.5 } else { 23.4 }), |_| Some(12.3));
    // All together reach more than a quarter of a pair, and no machine is to be blamed.
    assert!(it.findings().is_empty(), "{:?}", it.findings());
    assert_eq!(it.split().unwrap().groups.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4]);
    assert_eq!(it.verdict(), Verdict::NoGo);
    assert!(it.launches() < 20, "every pair once is enough: {}", it.launches());
}

#[test]
fn a_machine_that_fails_for_a_while_is_named() {
    let five = |it: Pair| it.hosts().contains(&Host(5));
    // In launches 3 to 6 everything with machine 5 fails; before and after it is normal.
    let away = |number: usize| (3..7).contains(&number);
    let it = driven(
        8,
        |number, it| (!(away(number) && five(it))).then_some(23.4),
        |number| (!away(number)).then_some(20.0),
    );
    assert_eq!(it.findings().iter().map(|it| it.culprit).collect::<Vec<_>>(), [Culprit::Host(Host(5))]);
    assert_ne!(it.verdict(), Verdict::Go);
}

#[test]
fn a_slow_link_stays_a_link_when_chance_slows_its_end_down_twice() {
    let link = Pair::new(Host(2), Host(7));
    // Pairs of machine 2 with 4 and 5 are a little too slow once each.
    let mut unlucky = vec![Pair::new(Host(2), Host(4)), Pair::new(Host(2), Host(5))];
    let rate = |_, pair: Pair| {
        if pair == link {
            return Some(9.1);
        }
        let hit = unlucky.iter().position(|it| *it == pair);
        Some(if hit.map(|at| unlucky.remove(at)).is_some() { 20.5 } else { 23.4 })
    };
    let it = driven(10, rate, |_| Some(23.8));
    assert_eq!(named(&it), [(Class::Link, Culprit::Link(link))]);
}

#[test]
fn a_launch_of_all_that_failed_once_is_not_go() {
    let mut first = true;
    let it = driven(8, |_, _| Some(23.4), |_| if std::mem::take(&mut first) { None } else { Some(20.0) });
    assert_eq!((it.failed_together(), it.findings().len()), (1, 0));
    assert_eq!(it.verdict(), Verdict::Inconclusive);
}

#[test]
fn groups_show_without_being_given() {
    // Two blocks of four: normal inside, a quarter across.
    let fleet = Fleet::new((0..8).map(|it| format!("n{it}")).collect());
    let mut samples = Vec::new();
    for one in 0..8 {
        for other in one + 1..8 {
            let rate = if (one < 4) == (other < 4) { 40.0 } else { 10.0 };
            let pair = Pair::new(Host(one), Host(other));
            samples.push(Sample { round: 0, pair, rate: Some(GigabytesPerSecond(rate)), resent: None });
        }
    }
    let it = judge(&fleet, &samples);
    let split = it.split.unwrap();
    assert_eq!(split.groups, [(0..4).map(Host).collect::<Vec<_>>(), (4..8).map(Host).collect()]);
    assert!((split.share - 0.25).abs() < 1e-9 && split.across == 16);
    assert!(it.findings.is_empty() && it.open.is_empty());
}

#[test]
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn random_fleets_are_judged_right() {
    let (mut exact, mut wrong) = (0, 0);
    for seed in 0..60_usize {
        let nodes = 8 + seed * 7;
        let bad: BTreeSet<usize> = (0..=nodes / 12).map(|it| (it * 11 + seed * 5) % nodes).collect();
        let mut spec = Spec { nodes, noise: 0.02, seed: seed as u64, ..Spec::default() };
        spec.slow = bad.iter().map(|it| (Host(*it), 0.4 + 0.4 * (*it as f64 / nodes as f64))).collect();
        let it = Model::new(spec).run(Limits::default(), |_, _| {});
        let mut found: Vec<Culprit> = it.findings().iter().map(|it| it.culprit).collect();
        let expected: Vec<Culprit> = bad.iter().map(|it| Culprit::Host(Host(*it))).collect();
        found.sort();
        exact += usize::from(found == expected);
        wrong += found.iter().filter(|it| !expected.contains(it)).count();
    }
    assert!(exact >= 59 && wrong == 0, "{exact} of 60 exact, {wrong} wrongly accused");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Pairs of a round share no machine, and a search ends.
    #[test]
    fn rounds_are_disjoint_and_end(
        nodes in 2_usize..60,
        rates in proptest::collection::vec(proptest::option::of(0.1_f64..100.0), 1..200),
    ) {
        let fleet = Fleet::new((0..nodes).map(|it| it.to_string()).collect());
        let mut search = Search::new(fleet, Limits { rounds: 20, unexplained: 20, seed: 3 });
        let mut at = 0;
        while let Some(pairs) = search.next() {
            let mut seen = BTreeSet::new();
            for pair in &pairs {
                for host in pair.hosts() {
                    prop_assert!(host.0 < nodes && seen.insert(host), "{:?} twice", host);
                }
            }
            let result = |_| {
                at += 1;
                rates[at % rates.len()]
            };
            // Losses accuse and ask too, and a search ends all the same.
            search.record(&pairs, result, |pair| {
                let share = rates[pair.hosts()[0].0 % rates.len()]? / 100.0;
                Some([share, share / 2.0])
            });
        }
        prop_assert!(search.rounds() <= 20);
        // The same measurements say the same.
        prop_assert_eq!(search.judgement(), judge(search.fleet(), search.samples()));
    }
}

#[test]
fn what_is_slow_at_times_is_found_or_not_go() {
    for seed in 0..20 {
        // Seed 16: no launch and no pair was slow.
        let it = run(&format!("nodes=64,flaky=node012:0.6:30%,seed={seed}"));
        assert!(it.verdict() != Verdict::Go || seed == 16, "{seed}");
        let found = named(&it);
        assert!(found.iter().all(|it| it.1 == Culprit::Host(Host(12))), "{seed}: {found:?}");
        // Nobody is measured with the same partner again and again: another partner tells more.
        let samples = it.search().samples();
        for partner in it.search().fleet().hosts().filter(|it| *it != Host(12)) {
            let pair = Pair::new(Host(12), partner);
            assert!(samples.iter().filter(|it| it.pair == pair).count() <= 8, "{seed}: {pair:?}");
        }
    }
}

#[test]
fn several_bad_links_of_one_machine_are_links() {
    for seed in 0..20 {
        let it = run(&format!("nodes=24,link=node003-node007:0.6,link=node003-node020:0.6,seed={seed}"));
        let mut found = named(&it);
        found.sort();
        let link = |other| (Class::Link, Culprit::Link(Pair::new(Host(3), Host(other))));
        assert_eq!(found, [link(7), link(20)], "{seed}");
        // One machine is an end of both.
        assert_eq!(it.rest().len(), 23);
        assert!(!it.rest().contains(&Host(3)));
    }
    // A machine that is slow at times is slow with one partner four times in a row, too.
    for (nodes, seed) in [(31, 6), (12, 3), (16, 9)] {
        let it = run(&format!("nodes={nodes},flaky=node002:0.6:50%,seed={seed}"));
        assert!(named(&it).iter().all(|it| it.1 == Culprit::Host(Host(2))), "{seed}: {:?}", named(&it));
    }
}

/// Pairs that fail at times all over a fleet: a network that drops connections.
#[test]
fn pairs_that_failed_are_not_slow() {
    let fleet = Fleet::new((0..17).map(|it| format!("n{it}")).collect());
    let failed = [(1, 7), (7, 8), (4, 15), (6, 15)];
    let mut samples = Vec::new();
    for one in 0..17 {
        for other in one + 1..17 {
            let rate = (!failed.contains(&(one, other))).then_some(GigabytesPerSecond(14.5));
            let pair = Pair::new(Host(one), Host(other));
            samples.push(Sample { round: 0, pair, rate, resent: None });
        }
    }
    let it = judge(&fleet, &samples);
    assert!(it.findings.is_empty(), "{:?}", it.findings);
    assert_eq!(it.open.len(), 4, "{:?}", it.open);
    // Two failures, and both of one machine: that is chance. Three are not.
    let two = |it: &Sample| it.pair.has(Host(15));
    let fewer: Vec<Sample> = samples.iter().filter(|it| !two(it)).copied().collect();
    assert!(judge(&fleet, &fewer).findings.is_empty());
    samples.iter_mut().filter(|it| it.pair == Pair::new(Host(7), Host(9))).for_each(|it| it.rate = None);
    for it in samples.iter_mut().filter(|it| it.pair.has(Host(15))) {
        it.rate = Some(GigabytesPerSecond(14.5));
    }
    let it = judge(&fleet, &samples);
    let [finding] = &it.findings[..] else { panic!("{:?}", it.findings) };
    assert_eq!((finding.class, finding.culprit), (Class::Intermittent, Culprit::Host(Host(7))));
    assert_eq!((finding.slow, finding.failed, finding.of), (3, 3, 16));
    assert!(finding.share > 0.99, "{finding:?}");
}

#[test]
fn a_fleet_that_scatters_is_launched_until_the_launches_tell() {
    let (mut go, mut exact) = (0, 0);
    for seed in 0..300 {
        let it = run(&format!("nodes=16,slow=node003:0.8,noise=10%,seed={seed}"));
        go += usize::from(it.verdict() == Verdict::Go);
        exact += usize::from(it.verdict() == Verdict::NoGo);
        assert!(named(&it).iter().all(|it| it.1 == Culprit::Host(Host(3))), "{seed}: {:?}", named(&it));
    }
    assert!(go <= 6 && exact >= 255, "{go} GO, {exact} NO-GO");
}

#[test]
fn a_nic_that_is_slow_as_often_as_others_is_not_named() {
    for (nodes, noise, seed) in [(18, 4.08, 84), (8, 4.44, 104), (64, 1.0, 81)] {
        let it = run(&format!("nodes={nodes},noise={noise}%,dips=10%,seed={seed}"));
        assert!(named(&it).is_empty(), "{nodes} {seed}: {:?}", it.findings());
    }
}

#[test]
fn one_machine_that_always_sends_more_again_is_not_go() {
    let mut go = 0;
    for seed in 0..60 {
        let it = run(&format!("nodes=32,congestion=1%,loss=node020:3%,seed={seed}"));
        go += usize::from(it.verdict() == Verdict::Go);
    }
    assert!(go <= 4, "{go}");
}

/// Nine pairs of a noisy fleet, of which those above the median lie within 1 % by luck: machine 9 was slow in three of three, by 8 to 20 %.
#[test]
fn few_pairs_that_lie_close_together_accuse_nobody() {
    let rates = [
        (0, 5, 6, 1.004),
        (0, 4, 8, 0.92),
        (0, 1, 2, 0.96),
        (0, 7, 9, 0.78),
        (1, 3, 5, 1.006),
        (1, 1, 6, 1.02),
        (1, 7, 8, 1.008),
        (1, 2, 9, 0.902),
        (2, 4, 9, 0.901),
        (2, 3, 8, 1.012),
        (2, 6, 7, 0.94),
        (2, 1, 5, 1.01),
    ];
    let fleet = Fleet::new((0..10).map(|it| format!("n{it}")).collect());
    let sample = |(round, one, other, rate)| Sample {
        round,
        pair: Pair::new(Host(one), Host(other)),
        rate: Some(GigabytesPerSecond(370.0 * rate)),
        resent: None,
    };
    let it = judge(&fleet, &rates.map(sample));
    assert!(it.findings.is_empty(), "{:?}", it.findings);
    assert!(it.open.contains(&Question::Host(Host(9))), "{:?}", it.open);
}

/// Slow with one partner four times of four and once of eight with others, at the same rate: a machine that is slow at times, and no link.
#[test]
fn a_machine_that_was_as_slow_with_another_is_not_a_link() {
    let fleet = Fleet::new((0..20).map(|it| format!("n{it}")).collect());
    let mut samples = Vec::new();
    let mut add = |round, one, other, share: f64| {
        let rate = Some(GigabytesPerSecond(370.0 * share));
        samples.push(Sample { round, pair: Pair::new(Host(one), Host(other)), rate, resent: None });
    };
    for round in 0..12 {
        match round {
            0..4 => add(round, 0, 1, 0.6),
            _ => {
                add(round, 0, round - 2, if round == 6 { 0.6 } else { 1.0 });
                add(round, 1, round + 6, 1.0);
            }
        }
        (2..18).for_each(|it| add(round, it, it + 1 + round % 2, 1.0));
    }
    let it = judge(&fleet, &samples);
    let link = |it: &validate::Finding| matches!(it.culprit, Culprit::Link(_));
    assert!(!it.findings.iter().any(link), "{:?}", it.findings);
    // The same with others that were normal, and measured once more together, is a link.
    for it in samples.iter_mut().filter(|it| it.pair == Pair::new(Host(0), Host(4))) {
        it.rate = Some(GigabytesPerSecond(370.0));
    }
    let pair = Pair::new(Host(0), Host(1));
    samples.push(Sample { round: 12, pair, rate: Some(GigabytesPerSecond(222.0)), resent: None });
    let it = judge(&fleet, &samples);
    assert_eq!(it.findings.iter().map(|it| it.culprit).collect::<Vec<_>>(), [Culprit::Link(pair)]);
}

/// Pairs of 1 to 800 GB/s: three launches of all that were enough by luck say nothing about such a fleet.
#[test]
fn a_fleet_that_scatters_so_far_that_nothing_tells_is_not_go() {
    let mut go = 0;
    for seed in 0..60 {
        let it = run(&format!("nodes=16,noise=50%,slow=node005:0.6,seed={seed}"));
        assert_ne!(it.verdict(), Verdict::Go, "{seed}");
        go += usize::from(run(&format!("nodes=16,noise=50%,seed={seed}")).verdict() == Verdict::Go);
    }
    assert!(go <= 3, "{go}");
}

/// The uplink of a switch takes nobody out; a slow machine inside or outside of it does.
#[test]
fn a_slow_switch_takes_no_machine_out() {
    for seed in 1..=10 {
        for bad in [3, 20] {
            for nodes in [32, 48] {
                let it = run(&format!(
                    "nodes={nodes},leaf=16,tier=1:0.6,slow=node{bad:03}:0.7,noise=1%,seed={seed}"
                ));
                let out: Vec<Host> = (0..nodes).map(Host).filter(|host| !it.rest().contains(host)).collect();
                assert_eq!((it.verdict(), out), (Verdict::NoGo, vec![Host(bad)]), "{nodes} {bad} {seed}");
                // The others are proof without the machines of that switch.
                assert!(it.without().rate().is_some() && !it.outside().contains(&Host(bad)));
                assert_eq!(named(&it).iter().filter(|it| matches!(it.1, Culprit::Group(_))).count(), 1);
            }
        }
    }
}
