//! A cluster file, and what is normal on the machines it describes.
#![no_main]

use fabric::{Collective, Settings};
use forecast::Cluster;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let Ok(file) = job::cluster_file::read(text, "cluster.toml") else { return };
    let machine = &file.machine.machine.value;
    let Ok(cluster) = Cluster::of_layout(machine, &file.layout.value, &Settings::default()) else { return };
    for collective in [Collective::AllReduce, Collective::AllGather, Collective::AllToAll, Collective::SendRecv] {
        for size in [0, 1, 1 << 20, 1 << 49] {
            let Some(expected) = forecast::expect(collective, &cluster, size, Some(10.0)) else { continue };
            let normal = &expected.normal;
            assert!(0.0 < normal.low && normal.low <= normal.expected && normal.expected <= normal.high, "{normal:?}");
            assert!(normal.high.is_finite() && normal.time.is_finite(), "{normal:?}");
            let expect = report::Expect::new(&cluster, expected);
            let style = report::Style { colour: true, width: 80, verbose: true };
            expect.text(style, &mut std::io::sink()).expect("a sink takes all");
            expect.json(&mut std::io::sink()).expect("a sink takes all");
        }
    }
});
