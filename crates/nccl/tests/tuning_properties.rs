//! Properties of the tuning table and of the choice for a call, on invented communicators.

use fabric::Version;
use fabric::collective::Collective;
use fabric::machine::Maker;
use nccl::tuning::{CollNet, GraphInfo, GraphInfos, Protocol, TUNED, Tuned, Tuning, algorithms};
use nccl::{Job, Layout, PathType, Pattern, Prediction, Settings};
use proptest::prelude::*;

const RELEASES: [(u16, u16); 18] = [
    (18, 1),
    (18, 6),
    (19, 4),
    (20, 5),
    (21, 5),
    (22, 3),
    (23, 4),
    (24, 3),
    (25, 1),
    (26, 6),
    (27, 3),
    (27, 7),
    (28, 3),
    (28, 9),
    (29, 2),
    (29, 7),
    (30, 3),
    (30, 7),
];

fn settings() -> impl Strategy<Value = Settings> {
    let lists = prop_oneof![
        4 => Just(None),
        1 => "[A-Za-z0-9,;:^]{0,12}".prop_map(Some),
        1 => prop::sample::select(vec!["Ring", "Tree", "^Ring", "NVLS", "LL", "Simple", "^LL128", "CollNetDirect"])
            .prop_map(|it| Some(it.to_owned())),
    ];
    let number =
        prop_oneof![3 => Just(None), 1 => any::<i64>().prop_map(Some), 1 => (-3_i64..700).prop_map(Some)];
    let names = prop::sample::select(vec![
        "NCCL_NTHREADS",
        "NCCL_LL128_NTHREADS",
        "NCCL_BUFFSIZE",
        "NCCL_LL_BUFFSIZE",
        "NCCL_NVLS_CHUNKSIZE",
        "NCCL_NVLSTREE_MAX_CHUNKSIZE",
        "NCCL_THREAD_THRESHOLDS",
        "NCCL_PAT_ENABLE",
        "NCCL_NET_OVERHEAD",
        "NCCL_LL128_C2C",
    ]);
    (prop::sample::select(RELEASES.to_vec()), lists.clone(), lists, names, number).prop_map(
        |((minor, patch), algorithms, protocols, name, number)| {
            let mut settings = Settings::new(Version::new(2, minor, patch));
            for (name, value) in [("NCCL_ALGO", algorithms), ("NCCL_PROTO", protocols)] {
                if let Some(value) = value {
                    settings = settings.with(name, &value);
                }
            }
            match number {
                Some(number) => settings.with(name, &number.to_string()),
                None => settings,
            }
        },
    )
}

fn graph() -> impl Strategy<Value = GraphInfo> {
    let kinds =
        vec![PathType::Loc, PathType::Nvl, PathType::Nvb, PathType::Pix, PathType::Phb, PathType::Sys];
    let kind = prop::sample::select(kinds);
    let bw = prop::sample::select(vec![0.0_f32, 0.12, 1.2, 12.0, 20.0, 48.0, 370.8]);
    let pattern = prop::sample::select(Pattern::ALL.to_vec());
    let latency = prop::sample::select(vec![0.0_f32, 35.0, 75.0, 150.0]);
    (pattern, 0_u32..33, bw.clone(), bw, kind.clone(), kind, any::<bool>(), latency).prop_map(
        |(pattern, channels, bw_intra, bw_inter, type_intra, type_inter, same_channels, latency_inter)| {
            let pattern = Some(pattern);
            GraphInfo {
                pattern,
                channels,
                bw_intra,
                bw_inter,
                type_intra,
                type_inter,
                same_channels,
                latency_inter,
            }
        },
    )
}

fn graphs() -> impl Strategy<Value = GraphInfos> {
    (graph(), graph(), graph(), graph(), graph()).prop_map(
        |(ring, tree, collnet_direct, collnet_chain, nvls)| GraphInfos {
            ring,
            tree,
            collnet_direct,
            collnet_chain,
            nvls,
        },
    )
}

fn tuned() -> impl Strategy<Value = Tuned> {
    let compute = prop::sample::select(vec![0_u32, 60, 70, 75, 80, 86, 89, 90, 100, 103, 120, 999]);
    let cpu = prop::sample::select(vec![Maker::Intel, Maker::Amd, Maker::Arm, Maker::Power, Maker::Unknown]);
    let counts = prop_oneof![Just((1_u32, 1_u32)), (1_u32..80, 1_u32..2000), (1_u32..9, Just(100_000_u32))];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (counts, compute.clone(), compute, cpu, flags, 1_u32..65, 0_u32..33, 0_u32..9).prop_map(
        |((per_node, nodes), one, other, cpu, flags, channels, nvls_channels, heads)| Tuned {
            ranks: per_node * nodes,
            nodes,
            local_ranks: per_node,
            min_compute: one.min(other),
            max_compute: one.max(other),
            cpu,
            mixed_cpus: flags.0,
            switches: flags.1,
            mnnvl: flags.2,
            channels,
            coll_channels: channels.div_ceil(2),
            nvls_channels,
            collnet: flags.3.then_some(CollNet { heads, gathers: flags.0 }),
        },
    )
}

/// Variables that change channels, with any value.
fn channel_variables() -> impl Strategy<Value = Vec<(&'static str, i64)>> {
    let names = prop::sample::select(vec![
        "NCCL_MIN_NCHANNELS",
        "NCCL_MAX_NCHANNELS",
        "NCCL_MIN_P2P_NCHANNELS",
        "NCCL_MAX_P2P_NCHANNELS",
        "NCCL_NCHANNELS_PER_NET_PEER",
        "NCCL_P2P_MAX_PEERS",
        "NCCL_P2P_PER_CHANNEL_NET_BW",
        "NCCL_P2P_NET_CHUNKSIZE",
        "NCCL_WORK_ARGS_BYTES",
        "NCCL_BUFFSIZE",
    ]);
    prop::collection::vec((names, prop_oneof![-3_i64..70, any::<i64>()]), 0..3)
}

fn sizes() -> impl Strategy<Value = u64> {
    prop_oneof![0_u64..4096, (0_u32..40, 0_u64..1024).prop_map(|(log, more)| (1 << log) + more), any::<u64>()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// The choice is the fastest that may be used, and what it takes is within the limits of the communicator.
    #[test]
    fn the_choice_is_the_fastest(
        settings in settings(), tuned in tuned(), graphs in graphs(), bytes in sizes(),
    ) {
        let Ok(tuning) = Tuning::new(&settings, &tuned, &graphs) else { return Ok(()) };
        prop_assert_eq!(&tuning, &Tuning::new(&settings, &tuned, &graphs).expect("the same"));
        prop_assert!(tuning.lines().len() >= 16);
        for collective in TUNED {
            let Some(choice) = tuning.choose(collective, bytes) else { continue };
            prop_assert_eq!(Some(choice), tuning.choose(collective, bytes));
            let channels = tuned.channels.max(tuned.nvls_channels).max(1);
            prop_assert!(choice.channels <= channels, "{choice:?}");
            prop_assert!((64..=672).contains(&choice.threads), "{choice:?}");
            prop_assert!(algorithms(settings.version).contains(&choice.algorithm));
            if tuned.ranks > 1 && tuning.is_usable(collective, choice.algorithm, choice.protocol) {
                for &algorithm in algorithms(settings.version) {
                    for protocol in Protocol::ALL {
                        let time = tuning.time(collective, algorithm, protocol, bytes);
                        let usable = tuning.is_usable(collective, algorithm, protocol);
                        let faster = time.is_some_and(|it| it >= 0.0 && it < choice.time);
                        prop_assert!(!(usable && faster), "{algorithm} {protocol:?} {time:?} {choice:?}");
                    }
                }
            }
        }
        for collective in [Collective::AllToAll, Collective::SendRecv, Collective::Gather] {
            prop_assert_eq!(tuning.choose(collective, bytes), None);
        }
    }

    /// More bytes never take fewer channels or smaller chunks of one algorithm and protocol.
    #[test]
    fn more_bytes_take_no_fewer_channels(
        settings in settings(), tuned in tuned(), graphs in graphs(), bytes in 1_u64..(1 << 36),
    ) {
        let Ok(tuning) = Tuning::new(&settings, &tuned, &graphs) else { return Ok(()) };
        for collective in TUNED {
            let (Some(small), Some(large)) =
                (tuning.choose(collective, bytes), tuning.choose(collective, bytes * 4)) else { continue };
            if (small.algorithm, small.protocol) == (large.algorithm, large.protocol) {
                prop_assert!(small.channels <= large.channels, "{small:?} {large:?}");
            }
        }
    }

    /// The spans of sizes follow each other without gaps, and each is what is chosen at both of its ends.
    #[test]
    fn spans_cover_all_sizes(settings in settings(), tuned in tuned(), graphs in graphs()) {
        let Ok(tuning) = Tuning::new(&settings, &tuned, &graphs) else { return Ok(()) };
        let largest = 1 << 34;
        for collective in TUNED {
            let spans = tuning.spans(collective, largest);
            if tuning.choose(collective, 1).is_none() {
                continue;
            }
            prop_assert_eq!(spans.first().map(|it| it.from), Some(1));
            prop_assert_eq!(spans.last().map(|it| it.to), Some(largest));
            prop_assert!(spans.windows(2).all(|it| it[0].to + 1 == it[1].from), "{spans:?}");
            for span in &spans {
                for bytes in [span.from, span.to] {
                    let choice = tuning.choose(collective, bytes).expect("a choice");
                    prop_assert_eq!((choice.algorithm, choice.protocol), (span.algorithm, span.protocol));
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A prediction for any instance type: channels are powers of two, no peer gets more than there are, and calls have a choice.
    #[test]
    fn any_instance_type_has_a_prediction(
        name in prop::sample::select(fabric::catalogue::names().collect::<Vec<_>>()),
        nodes in prop::sample::select(vec![1_u32, 2, 3, 7, 64, 1000]),
        gpus in 1_u32..9,
        settings in settings(),
        variables in channel_variables(),
        plugin in prop::option::of((8_u16..22).prop_map(|it| Version::new(1, it, 0))),
        bytes in sizes(),
    ) {
        let machine = fabric::catalogue::machine(name).expect("a machine of the catalogue");
        // The search takes long on many GPUs without a switch between them; it has tests of its own.
        prop_assume!(machine.gpus.len() <= 8);
        let settings = variables.iter().fold(settings, |all, it| all.with(it.0, &it.1.to_string()));
        let layout = Layout::new(1, gpus.min(u32::try_from(machine.gpus.len()).expect("few")).max(1)).on(nodes);
        let mut job = Job::new(&machine, &layout, &settings);
        job.plugin = plugin;
        let Ok(prediction) = Prediction::new(&job) else { return Ok(()) };
        let p2p = prediction.p2p_of(0).expect("a rank");
        prop_assert!(p2p.channels.is_power_of_two() && p2p.per_peer.is_power_of_two(), "{p2p:?}");
        prop_assert!(p2p.per_peer <= p2p.channels && p2p.channels <= 64, "{p2p:?}");
        for collective in TUNED {
            if let Some(choice) = prediction.choose(collective, bytes) {
                prop_assert_eq!(Some(choice), prediction.choose(collective, bytes));
                prop_assert!(choice.time >= 0.0, "{choice:?}");
            }
        }
    }
}
