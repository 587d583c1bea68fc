//! A `[cluster]` table, and what is normal on it.
#![no_main]

use fabric::Collective;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let Ok(cluster) = forecast::read(text, &nccl::Settings::default()) else { return };
    for collective in [Collective::AllReduce, Collective::AllGather, Collective::AllToAll, Collective::SendRecv] {
        for size in [0, 1, 1 << 20, 1 << 49] {
            let Some(normal) = forecast::normal(collective, &cluster, size) else { continue };
            assert!(0.0 < normal.low && normal.low <= normal.expected && normal.expected <= normal.high, "{normal:?}");
            assert!(normal.high.is_finite() && normal.time.is_finite(), "{normal:?}");
            let judgement = forecast::judge(collective, &cluster, size, 10.0, &normal);
            let expect = report::Expect::new(collective, &cluster, size, &normal, Some((10.0, judgement)));
            let style = report::Style { colour: true, width: 80, verbose: true };
            expect.text(style, &mut std::io::sink()).expect("a sink takes all");
            expect.json(&mut std::io::sink()).expect("a sink takes all");
        }
    }
});
