//! Who loses packets: pairs as before, by what is sent again instead of by what is reached.

use std::collections::BTreeSet;

use super::{Analysis, Class, Culprit, Finding, Judgement, Measure, Question};
use crate::fleet::{Fleet, Host, Sample};
use crate::reference::median;
use crate::resent::Usual;

/// The shares of segments that are sent again, as medians of its measurements with losses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Loss {
    /// Of what is sent to it: lost on its receiving side. Of a link the worse direction.
    pub to: f64,
    /// Of what it sends. Of a link the better direction.
    pub from: f64,
    /// Of what the others send.
    pub others: f64,
}

/// The worse of both directions.
pub(super) fn worse(sample: &Sample) -> Option<f64> {
    sample.resent.map(|[one, other]| one.max(other))
}

/// Adds to a judgement by rates who loses packets. Whom that accuses is not asked again: a slow part drops what it cannot take.
pub(super) fn judge(fleet: &Fleet, samples: &[Sample], judgement: &mut Judgement) {
    let known: Vec<Sample> =
        samples.iter().filter(|it| it.rate.is_some() && it.resent.is_some()).copied().collect();
    let Some(usual) = Usual::of(known.iter().filter_map(worse)) else { return };
    let mut analysis = Analysis::new(fleet, Measure::Resent(usual), &known);
    analysis.findings.clone_from(&judgement.findings);
    analysis.accused = judgement
        .findings
        .iter()
        .filter_map(|it| match it.culprit {
            Culprit::Host(host) => Some(host),
            _ => None,
        })
        .collect();
    let found = analysis.judge();
    let accused: Vec<Culprit> = judgement.findings.iter().map(|it| it.culprit).collect();
    for mut it in found.findings {
        // Full queues between switches lose packets in good health; where that costs bandwidth, the rates say so.
        if accused.contains(&it.culprit) || it.class == Class::Tier {
            continue;
        }
        it.loss = Some(of(&it, &known, &usual));
        it.share = rates(&it, &known, judgement);
        judgement.findings.push(it);
    }
    let measured: BTreeSet<Host> = known.iter().flat_map(|it| it.pair.hosts()).collect();
    let asked = found.open.into_iter().filter(|it| match it {
        Question::Host(host) => measured.contains(host),
        Question::Pair(_) => true,
    });
    let open: BTreeSet<Question> = judgement.open.iter().copied().chain(asked).collect();
    judgement.open = open.into_iter().collect();
    judgement.cleared.retain(|it| !measured.contains(it) || found.cleared.contains(it));
}

/// The measurements of a part.
fn own<'a>(finding: &Finding, samples: &'a [Sample]) -> impl Iterator<Item = &'a Sample> {
    let culprit = finding.culprit;
    samples.iter().filter(move |it| match culprit {
        Culprit::Host(host) | Culprit::Nic(host, _) => it.pair.has(host),
        Culprit::Link(pair) => it.pair == pair,
        Culprit::Group(_) | Culprit::Rail(_) => false,
    })
}

fn of(finding: &Finding, samples: &[Sample], usual: &Usual) -> Loss {
    let (mut to, mut from) = (Vec::new(), Vec::new());
    for it in own(finding, samples).filter(|it| worse(it).is_some_and(|share| usual.is_lossy(share))) {
        let Some([low, high]) = it.resent else { continue };
        let host_is_low = match finding.culprit {
            Culprit::Host(host) => it.pair.hosts()[0] == host,
            _ => low <= high,
        };
        let (sent, received) = if host_is_low { (low, high) } else { (high, low) };
        from.push(sent);
        to.push(received);
    }
    let middle = |mut shares: Vec<f64>| {
        shares.sort_by(f64::total_cmp);
        median(&shares).unwrap_or(0.0)
    };
    Loss { to: middle(to), from: middle(from), others: usual.share }
}

/// What it reached of what is normal.
fn rates(finding: &Finding, samples: &[Sample], judgement: &Judgement) -> f64 {
    let Some(reference) = &judgement.reference else { return 1.0 };
    let mut shares: Vec<f64> =
        own(finding, samples).filter_map(|it| it.rate).map(|it| reference.share(it.0)).collect();
    shares.sort_by(f64::total_cmp);
    median(&shares).unwrap_or(1.0)
}
