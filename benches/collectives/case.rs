//! The cases: engines, transports, sizes and targets.

use crate::engine::Engine;
use crate::peers::Peers;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// How long to measure.
pub(crate) struct Effort {
    pub(crate) repetitions: usize,
    /// Seconds that a turn at a small size should take.
    pub(crate) turn: f64,
    pub(crate) sizes: &'static [usize],
}

impl Effort {
    pub(crate) const FULL: Self = Self {
        repetitions: 5,
        turn: 0.06,
        sizes: &[8, 64, 512, 4 * KIB, 32 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB],
    };
    pub(crate) const QUICK: Self = Self {
        repetitions: 3,
        turn: 0.03,
        sizes: &[8, 4 * KIB, 32 * KIB, 256 * KIB, MIB, 4 * MIB, 64 * MIB],
    };
}

/// A target.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    /// At most this share of the best peer's time.
    Time(f64),
    /// At least this many times as fast as the best peer.
    Speed(f64),
    /// At least this share of the memory bound.
    Bound(f64),
}

/// One mode of plumb compared with the best peer.
pub(crate) struct Comparison {
    pub(crate) title: &'static str,
    /// The index of the engine in [`Case::engines`].
    pub(crate) engine: usize,
    pub(crate) target: fn(usize) -> Option<Target>,
}

/// Engines that run the same thing.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) ranks: usize,
    pub(crate) largest: usize,
    pub(crate) engines: Vec<Engine>,
    pub(crate) comparisons: Vec<Comparison>,
    /// Whether the memory limits apply to it, or those of the network.
    pub(crate) memory: bool,
}

/// All cases.
pub(crate) fn all(peers: &Peers, peers_alone: bool) -> Vec<Case> {
    let mut cases = vec![
        Case {
            name: "shm-2",
            title: "Shared memory, 2 ranks",
            ranks: 2,
            largest: 256 * MIB,
            engines: vec![Engine::own("registered"), Engine::own("private")],
            comparisons: vec![
                Comparison { title: "registered buffers", engine: 0, target: registered },
                Comparison { title: "private buffers", engine: 1, target: private },
            ],
            memory: true,
        },
        Case {
            name: "shm-4",
            title: "Shared memory, 4 ranks",
            ranks: 4,
            largest: 64 * MIB,
            engines: vec![Engine::own("registered"), Engine::own("private")],
            comparisons: vec![
                Comparison { title: "registered buffers", engine: 0, target: oversubscribed },
                Comparison { title: "private buffers", engine: 1, target: |_| None },
            ],
            memory: true,
        },
        Case {
            name: "tcp-2",
            title: "TCP on loopback, 2 ranks",
            ranks: 2,
            largest: 256 * MIB,
            engines: vec![Engine::own("tcp")],
            comparisons: vec![Comparison { title: "TCP", engine: 0, target: |it| Some(loopback(it)) }],
            memory: false,
        },
    ];
    for case in &mut cases {
        if peers_alone {
            case.engines.clear();
            case.comparisons.clear();
        }
        case.engines.extend(match case.name {
            "shm-2" => peers.shared(),
            "shm-4" => peers.oversubscribed(),
            _ => peers.network(),
        });
    }
    cases
}

fn registered(bytes: usize) -> Option<Target> {
    match bytes {
        8 => Some(Target::Time(0.6)),
        _ if (32 * KIB..=64 * MIB).contains(&bytes) => Some(Target::Speed(2.5)),
        _ if bytes == 256 * MIB => Some(Target::Bound(0.8)),
        _ => None,
    }
}

fn private(bytes: usize) -> Option<Target> {
    (4 * MIB..=64 * MIB).contains(&bytes).then_some(Target::Speed(1.5))
}

fn oversubscribed(bytes: usize) -> Option<Target> {
    (256 * KIB..=64 * MIB).contains(&bytes).then_some(Target::Speed(3.0))
}

fn loopback(bytes: usize) -> Target {
    Target::Speed(if (512..=MIB).contains(&bytes) { 1.3 } else { 1.0 })
}
