//! Bandwidths of collectives that runs measured.

use std::collections::BTreeMap;

use evidence::plain::NcclTests;
use fabric::Collective;

use super::{Amount, Side};
use crate::performance::bandwidth;

/// The name of a collective and a size.
type Key = (&'static str, u64);

/// A bandwidth that was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// What was run.
    pub collective: Collective,
    /// Bytes.
    pub size: u64,
    /// Bus bandwidth in GB/s.
    pub rate: f64,
}

/// The bus bandwidth of a collective of one size, in GB/s.
#[derive(Debug, Clone, PartialEq)]
pub struct Rate {
    /// What was run.
    pub collective: Collective,
    /// Bytes.
    pub size: u64,
    /// What each run reached: the middle one of several.
    pub amounts: Vec<Option<Amount>>,
    /// Between which bandwidths a normal one lies on the machines of each run, where these are known.
    pub normal: Vec<Option<(f64, f64)>>,
}

pub(super) fn of(sides: &[Side<'_>]) -> Vec<Rate> {
    let mut all: BTreeMap<Key, (Collective, Vec<Vec<f64>>)> = BTreeMap::new();
    for (at, side) in sides.iter().enumerate() {
        let of_log = side.run.log.case.tests.iter().flat_map(of_test);
        for Measured { collective, size, rate } in of_log.chain(side.run.measured.iter().copied()) {
            let entry = all
                .entry((collective.name(), size))
                .or_insert_with(|| (collective, vec![Vec::new(); sides.len()]));
            if let Some(rates) = entry.1.get_mut(at).filter(|_| rate.is_finite() && rate > 0.0) {
                rates.push(rate);
            }
        }
    }
    let normal: Vec<BTreeMap<Key, (f64, f64)>> = sides.iter().map(|it| normal(it)).collect();
    let rates = all.into_iter().map(|(key, (collective, mut found))| Rate {
        collective,
        size: key.1,
        amounts: found.iter_mut().map(|it| middle(it)).collect(),
        normal: normal.iter().map(|it| it.get(&key).copied()).collect(),
    });
    rates.collect()
}

fn of_test(test: &NcclTests) -> impl Iterator<Item = Measured> {
    let collective = test.collective();
    test.rows.iter().filter_map(move |row| {
        let rate = row.out_of_place.or(row.in_place)?.busbw;
        Some(Measured { collective: collective?, size: row.size, rate })
    })
}

/// What is normal for the rows of a run that large messages have.
fn normal(side: &Side<'_>) -> BTreeMap<Key, (f64, f64)> {
    let measured = bandwidth::measured(side.run.log).unwrap_or_default();
    let rows = measured.iter().flat_map(|it| it.rows.iter().map(|row| (it.collective, row)));
    rows.map(|(collective, it)| ((collective.name(), it.row.size), (it.normal.low, it.normal.high))).collect()
}

fn middle(rates: &mut [f64]) -> Option<Amount> {
    rates.sort_by(f64::total_cmp);
    let value = *rates.get(rates.len() / 2)?;
    let spread = rates.first().copied().zip(rates.last().copied()).filter(|_| rates.len() > 1);
    Some(Amount { value, spread, how: None })
}
