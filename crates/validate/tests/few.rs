//! Fleets of three to five machines, where few measurements have to say what is normal.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use validate::simulate::{Model, Spec};
use validate::{Culprit, Host, Limits, Pair, Rates, Step, Validation, Verdict};

/// Validations of a fleet with other luck each time.
fn each(spec: &str, times: u64) -> Vec<Validation> {
    let one = |seed| {
        let spec = Spec::read(&format!("{spec},seed={seed}")).unwrap();
        Model::new(spec).run(Limits::default(), |_, _| {})
    };
    (0..times).map(one).collect()
}

fn count(of: &[Validation], verdict: Verdict) -> usize {
    of.iter().filter(|it| it.verdict() == verdict).count()
}

/// One pair of three machines that was measured once says little about what is normal: a rate that is high by luck made both pairs of the
/// third machine slow each time, in three of a hundred fleets.
#[test]
fn what_is_normal_is_not_known_from_one_lucky_pair() {
    for nodes in 3..=5 {
        let bad = count(&each(&format!("nodes={nodes},noise=10%"), 300), Verdict::NoGo);
        assert!(bad <= 1, "{bad} of 300 healthy fleets of {nodes}");
    }
}

#[test]
fn a_slow_one_of_three_is_named() {
    let fleets = each("nodes=3,slow=node001:0.8,noise=2%", 50);
    for it in &fleets {
        let named: Vec<Culprit> = it.findings().iter().map(|it| it.culprit).collect();
        assert_eq!((it.verdict(), &named[..]), (Verdict::NoGo, &[Culprit::Host(Host(1))][..]));
    }
    let launches: usize = fleets.iter().map(Validation::launches).sum();
    assert!(launches <= 50 * 13, "{launches}");
}

/// What machines reach by themselves is compared as often as its scatter needs.
#[test]
fn a_machine_that_reaches_half_by_itself_is_never_go() {
    for noise in ["1%", "5%", "10%"] {
        let fleets = each(&format!("nodes=3,local=node001:0.5,noise={noise}"), 200);
        assert_eq!(count(&fleets, Verdict::Go), 0, "{noise}");
    }
}

/// A launch of two machines is a pair: it counts for what is normal.
#[test]
fn two_that_are_left_are_a_pair() {
    let mut left = Vec::new();
    let mut model = Model::new(Spec::read("nodes=3,slow=node002:0.5,noise=2%").unwrap());
    let it = model.run(Limits::default(), |step, answer| {
        if let (Step::Without(_), Rates::One(Some(rate))) = (step, &answer.rates) {
            left.push(*rate);
        }
    });
    assert_eq!(it.verdict(), Verdict::NoGo);
    let pair = Pair::new(Host(0), Host(1));
    let samples = it.search().samples().iter().filter(|it| it.pair == pair);
    let known: Vec<f64> = samples.filter_map(|it| it.rate).map(|it| it.0).collect();
    assert!(!left.is_empty() && left.iter().all(|it| known.contains(it)), "{left:?} {known:?}");
}
