//! What numbers show about NVLinks: the count for each pair of GPUs, and the bandwidths NCCL prints.

use std::collections::BTreeMap;

use fabric::gpu::{self, NvLinkBy, NvLinkPort};
use fabric::machine::{NvEnd, NvLink};
use fabric::{Version, link};

/// The most NVLinks a GPU has.
pub(super) fn most() -> u32 {
    all_ports().map(|it| it.1.links).max().unwrap_or_default()
}

/// Whether a GPU with NVLink for more than a neighbour has this many links.
fn is_all_of_a_gpu(links: u32) -> bool {
    all_ports().any(|it| it.1.links == links && it.1.by != NvLinkBy::Bridge)
}

/// The compute capabilities of GPUs with NVLink, and the most links such GPUs have.
fn by_compute() -> BTreeMap<u32, u32> {
    let mut all = BTreeMap::new();
    for (compute, port) in all_ports() {
        let most = all.entry(compute).or_insert(0);
        *most = port.links.max(*most);
    }
    all
}

fn all_ports() -> impl Iterator<Item = (u32, NvLinkPort)> {
    gpu::all().iter().filter_map(|it| Some((it.compute, it.nvlink?)))
}

/// What the bandwidths that NCCL printed show: the compute capability, where only one matches, and the number of links
/// of each bandwidth.
pub(super) fn of_bandwidths(all: &[f64], version: Option<Version>) -> (Option<u32>, Vec<Option<u32>>) {
    // Without a release, the newest constants that fit.
    let releases = version.map_or_else(|| RELEASES.to_vec(), |it| vec![it]);
    let fits = |version: Version| -> Vec<(u32, u32, Version)> {
        let fits = |it: &(u32, u32)| all.iter().all(|bandwidth| links(*it, version, *bandwidth).is_some());
        by_compute().into_iter().filter(fits).map(|it| (it.0, it.1, version)).collect()
    };
    let mut fitting = releases.into_iter().map(fits).find(|it| !it.is_empty()).unwrap_or_default();
    // 240 GB/s are 12 links of an A100 or 6 of a B200 (2.25 to 2.27.3): of several, the GPU all of whose links are in use.
    let is_full =
        |it: &&(u32, u32, Version)| all.iter().all(|bw| links((it.0, it.1), it.2, *bw) == Some(it.1));
    if let [one] = fitting.iter().filter(is_full).copied().collect::<Vec<_>>()[..] {
        fitting = vec![one];
    }
    let compute = match *fitting {
        [(compute, ..)] if !all.is_empty() => Some(compute),
        _ => None,
    };
    let counts = all.iter().map(|bandwidth| {
        let mut counts = fitting.iter().filter_map(|it| links((it.0, it.1), it.2, *bandwidth));
        let first = counts.next();
        // Two links of a B200 or four of an A100: GPUs of unknown model count as an A100.
        let of_a100 =
            || fitting.iter().find(|it| it.0 == 80).and_then(|it| links((it.0, it.1), it.2, *bandwidth));
        first.filter(|it| counts.all(|other| other == *it)).or_else(of_a100)
    });
    (compute, counts.collect())
}

/// Releases in which NCCL changed the bandwidth of a link.
static RELEASES: &[Version] = &[
    Version::new(2, 27, 5),
    Version::new(2, 25, 1),
    Version::new(2, 18, 1),
    Version::new(2, 10, 3),
    Version::new(2, 8, 4),
];

/// How many links of GPUs with this compute capability, and no more than that, have a bandwidth.
fn links((compute, most): (u32, u32), version: Version, bandwidth: f64) -> Option<u32> {
    let one = link::nvlink(compute, version);
    (1..=most).find(|it| (f64::from(*it) * one - bandwidth).abs() < 0.06)
}

/// The links of `n` GPUs, given the number for each pair.
pub(super) fn of_pairs(n: usize, pair: &dyn Fn(usize, usize) -> u32, notes: &mut Vec<String>) -> Vec<NvLink> {
    let most_of = |gpu: usize| (0..n).filter(|it| *it != gpu).map(|it| pair(gpu, it)).max().unwrap_or(0);
    let all: Vec<u32> = (0..n).map(most_of).collect();
    let widest = |gpu: usize| all.get(gpu).copied().unwrap_or(0);
    let total =
        |gpu: usize| (0..n).filter(|it| *it != gpu).fold(0_u32, |sum, it| sum.saturating_add(pair(gpu, it)));
    if switched(n, &widest, &total, pair, notes) {
        let common = (0..n).map(widest).max().unwrap_or(0);
        for gpu in (0..n).filter(|it| widest(*it) != common) {
            let links = widest(gpu);
            notes.push(format!("One GPU (position {gpu}) has {links} NVLinks where others have {common}."));
        }
        let expected = |a, b| widest(a).min(widest(b));
        let odd = (0..n)
            .flat_map(|a| (0..a).map(move |b| (a, b)))
            .filter(|(a, b)| pair(*a, *b) != expected(*a, *b));
        match odd.count() {
            0 => {}
            odd => notes.push(format!("{} not have the links that NVSwitches would give.", pairs(odd))),
        }
        return (0..n)
            .map(|from| NvLink { from, to: NvEnd::Switch, count: widest(from) })
            .filter(|it| it.count > 0)
            .collect();
    }
    (0..n)
        .flat_map(|from| (0..n).filter(move |to| *to != from).map(move |to| (from, to)))
        .map(|(from, to)| NvLink { from, to: NvEnd::Gpu(to), count: pair(from, to) })
        .filter(|it| it.count > 0)
        .collect()
}

fn pairs(n: usize) -> String {
    if n == 1 { "1 pair of GPUs does".to_owned() } else { format!("{n} pairs of GPUs do") }
}

fn switched(
    n: usize,
    widest: &dyn Fn(usize) -> u32,
    total: &dyn Fn(usize) -> u32,
    pair: &dyn Fn(usize, usize) -> u32,
    notes: &mut Vec<String>,
) -> bool {
    // More links than any GPU has cannot each end at another GPU.
    if (0..n).any(|it| total(it) > most()) {
        return true;
    }
    let common = widest(0);
    let all_equal = (0..n).all(|a| (0..n).all(|b| a == b || pair(a, b) == common));
    if n < 2 || !all_equal || !is_all_of_a_gpu(common) {
        return false;
    }
    // Four GPUs with six links to each other fill the 18 of an H100; two GPUs may be a bridged pair.
    let direct = n == 2 || (n == 4 && total(0) == most());
    notes.push(format!(
        "{n} GPUs with NV{common} between all can be joined directly or by NVSwitches; they are shown {}.",
        if direct { "joined directly" } else { "with NVSwitches" }
    ));
    !direct
}

#[cfg(test)]
mod tests {
    use super::{of_bandwidths, of_pairs};
    use fabric::Version;
    use fabric::machine::NvEnd;

    fn check(n: usize, pair: impl Fn(usize, usize) -> u32, switched: bool, remark: bool) {
        let mut notes = Vec::new();
        let links = of_pairs(n, &pair, &mut notes);
        assert_eq!(links.iter().any(|it| it.to == NvEnd::Switch), switched, "{n}");
        assert_eq!(!notes.is_empty(), remark, "{n}: {notes:?}");
        let expected = if switched { n } else { n * (n - 1) };
        assert_eq!(links.len(), expected);
    }

    #[test]
    fn bandwidths_give_numbers() {
        let now = Some(Version::new(2, 28, 9));
        assert_eq!(of_bandwidths(&[370.8], now), (Some(90), vec![Some(18)]));
        assert_eq!(of_bandwidths(&[240.0, 240.0], now), (Some(80), vec![Some(12); 2]));
        // Either of B200 and B300.
        assert_eq!(of_bandwidths(&[721.8], now), (None, vec![Some(18)]));
        // Either of V100 and A100.
        assert_eq!(of_bandwidths(&[20.0, 40.0], now), (None, vec![Some(1), Some(2)]));
        assert_eq!(of_bandwidths(&[252.0], None), (Some(80), vec![Some(12)]));
        // Not six links of a B200.
        assert_eq!(of_bandwidths(&[240.0], Some(Version::new(2, 26, 6))), (Some(80), vec![Some(12)]));
        assert_eq!(of_bandwidths(&[80.0], Some(Version::new(2, 25, 1))), (None, vec![Some(4)]));
        assert_eq!(of_bandwidths(&[1.5], now), (None, vec![None]));
        assert_eq!(of_bandwidths(&[], None), (None, vec![]));
    }

    #[test]
    fn a_switch_or_a_mesh() {
        check(8, |_, _| 12, true, false);
        check(8, |_, _| 18, true, false);
        // A board of four A100s.
        check(4, |_, _| 4, false, false);
        // A board of four H100s, or four V100s of sixteen.
        check(4, |_, _| 6, false, true);
        check(3, |_, _| 6, true, true);
        check(2, |_, _| 18, false, true);
        check(2, |_, _| 4, false, false);
        // One GPU has lost links.
        check(8, |a, b| if a == 3 || b == 3 { 16 } else { 18 }, true, true);
    }
}
