//! Machines that no text describes: each byte is a place, a count or a choice, and none need fit another.
#![no_main]

use fabric::machine::{
    Bridge, BusId, Gpu, Hidden, Machine, Maker, Nic, NicKind, NvEnd, NvLink, PciLink, Place, Port, Socket,
};
use fabric::units::GigabitsPerSecond;
use fabric::{Collective, Layout, Version};
use forecast::Cluster;
use job::{Job, Known, Releases, Source};
use nccl::Decisions;
use report::topo::{Topo, TopoParts};

/// The bytes one after the other; zeros when they are used up.
struct Dice<'a>(std::slice::Iter<'a, u8>);

impl Dice<'_> {
    fn up_to(&mut self, most: u8) -> usize {
        usize::from(self.0.next().copied().unwrap_or(0) % (most + 1))
    }

    fn maybe<T>(&mut self, value: T) -> Option<T> {
        (self.up_to(3) > 0).then_some(value)
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.up_to(u8::try_from(all.len() - 1).expect("few"))]
    }

    /// Of these that are there, or one that is not.
    fn place(&mut self) -> Place {
        let at = self.up_to(9);
        if self.up_to(1) == 0 { Place::Socket(at) } else { Place::Bridge(at) }
    }

    fn link(&mut self) -> Option<PciLink> {
        let gigatransfers = self.pick(&[2.5, 8.0, 16.0, 32.0, 0.0, -1.0, f64::NAN, f64::INFINITY, 1e308]);
        let width = self.pick(&[1, 8, 16, 0, u32::MAX]);
        self.maybe(PciLink { gigatransfers, width })
    }

    fn machine(&mut self) -> Machine {
        let makers = [Maker::Unknown, Maker::Intel, Maker::Amd, Maker::Arm, Maker::Power, Maker::Zhaoxin];
        let kinds = [NicKind::Unknown, NicKind::Efa, NicKind::InfiniBand, NicKind::Roce, NicKind::Ethernet];
        let socket = |it: &mut Self| Socket { maker: it.pick(&makers), ..Socket::default() };
        let bridge = |it: &mut Self| Bridge { at: it.place(), bus: None, link: it.link() };
        let gpu = |it: &mut Self| Gpu {
            index: it.pick(&[0, 1, 2, 3, 7, u32::MAX]),
            at: it.place(),
            bus: it.maybe(BusId(7)),
            link: it.link(),
            model: None,
            compute: it.pick(&[None, Some(0), Some(70), Some(80), Some(90), Some(100), Some(u32::MAX)]),
            gpudirect: it.pick(&[None, Some(true), Some(false)]),
            rank: it.pick(&[None, Some(0), Some(u32::MAX)]),
            c2c: it.pick(&[None, Some(200.0), Some(f64::NAN)]),
        };
        let nic = |it: &mut Self| Nic {
            name: it.pick(&["", "mlx5_0", "</svg>", "\u{1b}[31m"]).into(),
            index: it.pick(&[0, 1, 2, u32::MAX]),
            at: it.place(),
            bus: it.maybe(BusId(9)),
            link: it.link(),
            rate: it
                .pick(&[None, Some(100.0), Some(400.0), Some(0.0), Some(f64::NAN), Some(1e308)])
                .map(GigabitsPerSecond),
            gpudirect: it.pick(&[None, Some(true), Some(false)]),
            latency: it.pick(&[None, Some(1.0), Some(f64::INFINITY)]),
            kind: it.pick(&kinds),
            port: it.pick(&[
                None,
                Some(Port { guid: 0, number: 1 }),
                Some(Port { guid: u64::MAX, number: 0 }),
            ]),
        };
        let nvlink = |it: &mut Self| {
            let to = it.up_to(9);
            let ends = [NvEnd::Switch, NvEnd::Gpu(to), NvEnd::Socket(to)];
            NvLink { from: it.up_to(9), to: it.pick(&ends), count: it.pick(&[1, 4, 12, 18, 0, u32::MAX]) }
        };
        let instances = ["p4d.24xlarge", "p5.48xlarge", "gb200-nvl72", "\u{1b}"];
        let name = self.pick(&instances).into();
        Machine {
            nics_merged: self.pick(&[false, true]),
            name: self.maybe(name),
            sockets: self.some(4, socket),
            bridges: self.some(9, bridge),
            gpus: self.some(9, gpu),
            nics: self.some(9, nic),
            nvlinks: self.some(20, nvlink),
            unknown: Vec::new(),
            hidden: self.pick(&[
                Hidden::default(),
                Hidden { nvlink: true, wiring: false },
                Hidden { nvlink: true, wiring: true },
            ]),
        }
    }

    fn some<T>(&mut self, most: u8, one: impl Fn(&mut Self) -> T) -> Vec<T> {
        (0..self.up_to(most)).map(|_| one(self)).collect()
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut dice = Dice(bytes.iter());
    let machine = dice.machine();
    let mut layout = Layout::new(dice.pick(&[1, 2, 8, 0]), dice.pick(&[1, 2, 4, 8, 0, u32::MAX]));
    layout.nodes = dice.pick(&[1, 2, 1_000_000, u32::MAX, 0]);
    layout.nics_per_pod = dice.pick(&[None, Some(0), Some(1), Some(u32::MAX)]);
    layout.same_host = dice.up_to(1) == 1;
    layout.shared_memory = dice.up_to(1) == 1;
    let version = dice.pick(&[(2, 3, 0), (2, 18, 1), (2, 27, 3), (99, 9, 9)]);
    let version = Known::new(Version::new(version.0, version.1, version.2), Source::Default);
    let collective = dice.pick(&[Collective::AllReduce, Collective::AllToAll]);
    let job = Job {
        machines: vec![Known::new(machine.clone(), Source::LiveNode)],
        layout: Some(Known::new(layout, Source::Default)),
        releases: Releases { nccl: Some(version), ..Releases::default() },
        ..Job::default()
    };
    let (seen, settings) = (job::machine::seen_by_nccl(&machine), job.effective_settings());
    let Ok(decisions) = Decisions::new(&seen, &settings, &layout) else { return };
    let cluster = Cluster::of_layout(&machine, &layout, &settings);
    let topo = Topo::new(TopoParts {
        price: None,
        job: &job,
        source: String::new(),
        seen_by_nccl: &seen,
        survey: &decisions.survey(&seen),
        normal: cluster.map(|it| forecast::table(collective, &it, &[0, 1 << 20, 1 << 49])),
        collective,
        channel: None,
        graphs: &[],
        notes: Vec::new(),
    });
    assert!(
        topo.normal.iter().all(|it| 0.0 < it.low && it.low <= it.high && it.high.is_finite()),
        "{:?}",
        topo.normal
    );
    let mut json = Vec::new();
    report::topo::json(&topo, &mut json).expect("memory takes all");
    assert!(serde_json::from_slice::<serde_json::Value>(&json).is_ok());
    let style = report::Style { colour: true, width: 80, verbose: true };
    report::topo::text(&topo, style, &mut std::io::sink()).expect("a sink takes all");
    report::topo::svg(&topo, &mut std::io::sink()).expect("a sink takes all");
});
