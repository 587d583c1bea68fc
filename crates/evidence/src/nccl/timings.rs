//! How long initialisation took, and where.

use super::Message;
use crate::scan::{after, number, word_after};

/// `Bootstrap timings total 0.829298 (create 0.000114, send 0.000270, recv 0.816621, ring 0.011037, delay 0.000001)`
///
/// Seconds, since 2.23. A long `recv` waits for ranks that joined later; a long
/// `ring` waits for the last of them.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct BootstrapTimings {
    /// In all.
    pub total: f64,
    /// Waiting for the address of the next rank.
    pub recv: f64,
    /// Connecting the ring.
    pub ring: f64,
}

/// `Init timings - ncclCommSplit: rank 1 nranks 16 total 24.41 (kernels 0.00, alloc 0.00, bootstrap 0.00, allgathers 0.01, topo 0.01, graphs 0.00, connections 0.00, rest 24.38)`
///
/// Seconds, since 2.22. For a split, `rest` holds the wait until the last rank calls it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct InitTimings {
    /// Whether a split was timed.
    pub split: bool,
    /// The rank.
    pub rank: u32,
    /// The size of the communicator.
    pub n_ranks: u32,
    /// In all.
    pub total: f64,
    /// Loading its kernels, before it looks for the other ranks.
    pub kernels: f64,
    /// Finding the other ranks.
    pub bootstrap: f64,
    /// Untimed parts.
    pub rest: f64,
}

/// What a setup can take: a number of seconds below some thirty years, which a damaged line may not have.
fn seconds(text: &str, name: &str) -> Option<f64> {
    let it: f64 = word_after(text, name)?.parse().ok()?;
    (0.0..1e9).contains(&it).then_some(it)
}

pub(super) fn bootstrap<'a>(rest: &[u8]) -> Option<Message<'a>> {
    let text = str::from_utf8(after(rest, " timings ")?).ok()?;
    let part = |name| seconds(text, name);
    Some(Message::BootstrapTimings(BootstrapTimings {
        total: part("total ")?,
        recv: part("recv ").unwrap_or_default(),
        ring: part("ring ").unwrap_or_default(),
    }))
}

pub(super) fn init(rest: &[u8]) -> Option<InitTimings> {
    let text = str::from_utf8(rest).ok()?;
    let part = |name| seconds(text, name);
    let count = |name| text.split_once(name).and_then(|(_, it)| number(it.as_bytes())).map(|it| it.0);
    Some(InitTimings {
        split: text.contains("Split"),
        rank: count("rank ")?,
        n_ranks: count("nranks ")?,
        total: part("total ")?,
        kernels: part("kernels ").unwrap_or_default(),
        bootstrap: part("bootstrap ").unwrap_or_default(),
        rest: part("rest ").unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Message, parse};

    #[test]
    fn reads_both() {
        let line = b"Bootstrap timings total 8.128340 (create 0.000044, send 0.000162, recv 1.970281, ring 0.000162, delay 0.000000)";
        let Message::BootstrapTimings(it) = parse(line) else { panic!() };
        assert!((it.total - 8.128_340).abs() < 1e-9 && (it.recv - 1.970_281).abs() < 1e-9);
        let line = b"Init timings - ncclCommSplit: rank 1 nranks 16 total 24.41 (kernels 0.00, alloc 0.00, bootstrap 0.00, allgathers 0.01, topo 0.01, graphs 0.00, connections 0.00, rest 24.38)";
        let Message::InitTimings(it) = parse(line) else { panic!() };
        assert!(it.split && it.rank == 1 && (it.rest - 24.38).abs() < 1e-9);
        // 2.22 has no function.
        let line = b"Init timings: rank 0 nranks 8 total 1.50 (kernels 0.13, bootstrap 0.74, rest 0.20)";
        let Message::InitTimings(it) = parse(line) else { panic!() };
        assert!((it.kernels - 0.13).abs() < 1e-9 && !it.split);
    }

    #[test]
    fn what_no_setup_takes_is_not_read() {
        for number in ["1e400", "-3.0", "NaN", "1e12", "inf"] {
            let line = format!("Bootstrap timings total {number} (create 0.000044, recv 1.970281)");
            assert!(!matches!(parse(line.as_bytes()), Message::BootstrapTimings(_)), "{number}");
        }
    }
}
