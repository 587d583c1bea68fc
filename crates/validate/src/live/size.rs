//! How much a launch sends.

use super::Engine;
use crate::step::Step;

/// The size of a collective and how often it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Bytes.
    pub bytes: u64,
    /// Timed iterations.
    pub iterations: usize,
    /// Iterations before them.
    pub warm_up: usize,
}

const MIB: u64 = 1 << 20;
/// How long one call of a pair should take, in seconds: long against what starts and ends it, short against a budget of minutes.
const CALL: f64 = 0.2;
/// All timed calls together.
const SERIES: f64 = 0.8;
/// The same with NCCL, where a launch takes seconds to begin.
const NCCL_SERIES: f64 = 2.0;
/// How many seconds' worth of bytes a ring of many machines has at most.
const RING: f64 = 0.5;
/// More memory is not taken from a machine.
const MOST: u64 = 1 << 30;

impl Size {
    /// The size of a step. `smoke`: what two machines reached with the smallest one, in GB/s.
    ///
    /// Host memory: as many bytes as a pair moves in 0.2 s, from 1 to 64 MiB. A ring of n machines cuts its bytes into n parts, each
    /// as late as its latest machine: a part has a quarter of what a pair sends, as long as half a second is enough for all.
    ///
    /// NCCL: 1 GiB, where published rates are taken too. Over a network slower than 5 GB/s, which TCP often is, what a pair moves in 0.2 s:
    /// with 1 GiB and 20 iterations a healthy fleet of three at 1.9 GB/s ran into the limit of a minute.
    pub fn of(engine: Engine, step: &Step, smoke: Option<f64>) -> Self {
        let machines = match step {
            Step::Scale(hosts) | Step::All(hosts) | Step::Without(hosts) => hosts.len() as u64,
            _ => 1,
        };
        match (engine, step) {
            (Engine::Host, Step::Smoke(_)) => Self { bytes: MIB, iterations: 3, warm_up: 1 },
            (Engine::Host, Step::Local(_)) => Self { bytes: MIB, iterations: 5, warm_up: 2 },
            (Engine::Host, _) => {
                let wanted = smoke.map_or(4 * MIB, |rate| bytes(rate * 1e9 * CALL));
                let pair = (0..=6).map(|it| MIB << it).take_while(|it| *it <= wanted).last().unwrap_or(MIB);
                let most = smoke.map_or(pair, |rate| floor(bytes(rate * 1e9 * RING))).clamp(pair, MOST);
                let bytes = (pair / 4).saturating_mul(machines).next_power_of_two().clamp(pair, most);
                // A ring over many sends its bytes twice, a pair once.
                let sent = if machines > 2 { 2 * bytes } else { bytes };
                let call = smoke.map_or(CALL, |rate| seconds(sent) / rate);
                Self { bytes, iterations: calls(SERIES / call), warm_up: usize::from(machines == 1) }
            }
            (Engine::Nccl, Step::Smoke(_)) => Self { bytes: 64 * MIB, iterations: 10, warm_up: 3 },
            // Without NVLink a series of them takes half a minute.
            (Engine::Nccl, Step::Local(_)) => Self { bytes: 1024 * MIB, iterations: 10, warm_up: 3 },
            (Engine::Nccl, _) => {
                let wanted = smoke.map_or(1024 * MIB, |rate| floor(bytes(rate * 1e9 * CALL)));
                let bytes = wanted.clamp(64 * MIB, 1024 * MIB);
                let call = smoke.map_or(0.0, |rate| 2.0 * seconds(bytes) / rate);
                let iterations = calls(NCCL_SERIES / call);
                Self { bytes, iterations, warm_up: iterations.div_ceil(4) }
            }
        }
    }
}

impl Size {
    /// How many seconds it takes two machines that reach so many GB/s, in place and out of place.
    pub(super) fn lasts(self, rate: f64) -> f64 {
        2.0 * crate::chance::as_f64(self.iterations + self.warm_up) * seconds(self.bytes) / rate
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it saturates, and is cut to 64 MiB"
)]
const fn bytes(it: f64) -> u64 {
    it as u64
}

/// The power of two that is not larger.
fn floor(it: u64) -> u64 {
    1 << it.checked_ilog2().unwrap_or(0)
}

#[expect(clippy::cast_precision_loss, reason = "at most 1 GiB")]
fn seconds(bytes: u64) -> f64 {
    bytes as f64 / 1e9
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
fn calls(it: f64) -> usize {
    it.clamp(2.0, 20.0) as usize
}

#[cfg(test)]
mod tests {
    use super::{MIB, Size};
    use crate::live::Engine;
    use crate::step::Step;
    use crate::{Host, Pair};

    #[test]
    fn a_slow_link_sends_less() {
        let pairs = Step::Pairs(vec![Pair::new(Host(0), Host(1))]);
        let size = |rate| Size::of(Engine::Host, &pairs, Some(rate));
        // 200 Mbit/s, 10 Gbit/s, 100 Gbit/s, and a link that hardly moves.
        assert_eq!(size(0.024), Size { bytes: 4 * MIB, iterations: 4, warm_up: 1 });
        assert_eq!(size(1.2).bytes, 64 * MIB);
        assert_eq!(size(12.0), Size { bytes: 64 * MIB, iterations: 20, warm_up: 1 });
        assert_eq!(size(0.0001).bytes, MIB);
    }

    #[test]
    fn nccl_over_a_slow_network_ends_in_seconds() {
        let all = Step::All((0..4).map(Host).collect());
        let size = |rate| Size::of(Engine::Nccl, &all, Some(rate));
        assert_eq!(size(370.0), Size { bytes: 1024 * MIB, iterations: 20, warm_up: 5 });
        assert_eq!(Size::of(Engine::Nccl, &all, None), size(370.0));
        assert_eq!(size(1.86), Size { bytes: 256 * MIB, iterations: 6, warm_up: 2 });
        for rate in [0.05, 0.3, 1.86, 6.0, 12.0, 50.0] {
            let it = size(rate);
            let calls = u32::try_from(2 * (it.iterations + it.warm_up)).unwrap();
            let whole = f64::from(calls) * 2.0 * super::seconds(it.bytes) / rate;
            assert!(whole < 25.0, "{rate}: {whole} s");
        }
    }

    #[test]
    fn a_ring_of_many_sends_more() {
        let all =
            |machines| Size::of(Engine::Host, &Step::All((0..machines).map(Host).collect()), Some(0.024));
        assert_eq!(all(2).bytes, 4 * MIB);
        assert_eq!(all(16), Size { bytes: 8 * MIB, iterations: 2, warm_up: 0 });
        assert_eq!(all(1000).bytes, 8 * MIB);
    }
}
