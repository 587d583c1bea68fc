//! A survey has what the decisions say, alike pairs together.

use fabric::catalogue;
use nccl::{Between, Decisions, Layout, Loss, Settings, Survey};

fn survey(name: &str, layout: Layout) -> Survey {
    let machine = catalogue::machine(name).expect("in the catalogue");
    Decisions::new(&machine, &Settings::default(), &layout).expect("fits").survey(&machine)
}

#[test]
fn pairs_are_counted_by_kind() {
    let survey = survey("p4d.24xlarge", Layout::new(2, 4).on(3));
    let pairs: Vec<(Between, u64)> = survey.transports.iter().map(|it| (it.between, it.pairs)).collect();
    // Two pods with 4 x 3 ordered pairs on 3 machines; 2 x 16 between them; 64 between any two of 6 ordered machines.
    let count = |between| pairs.iter().filter(|it| it.0 == between).map(|it| it.1).sum::<u64>();
    assert_eq!(count(Between::InsidePod), 72);
    assert_eq!(count(Between::Pods), 96);
    assert_eq!(count(Between::Machines), 384);
    let inside = &survey.transports[0];
    assert_eq!((inside.between, inside.from, inside.to), (Between::InsidePod, 0, 1));
    assert!(survey.losses.iter().any(|it| matches!(it, Loss::Network { .. })));
}

#[test]
fn every_gpu_has_paths_and_nics() {
    let survey = survey("p4d.24xlarge", Layout::new(1, 8));
    assert_eq!(survey.paths.len(), 8 * 7 + 8 * 4);
    assert!(survey.paths.iter().all(|it| it.known && it.path.is_connected()));
    assert_eq!(survey.nics.iter().map(|it| it.gpu).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
    assert!(survey.losses.is_empty());
}

#[test]
fn bandwidths_of_unknown_devices_are_marked() {
    let mut machine = catalogue::machine("p4d.24xlarge").expect("in the catalogue");
    machine.gpus[0].compute = None;
    machine.nics.iter_mut().for_each(|it| it.rate = None);
    let decisions = Decisions::new(&machine, &Settings::default(), &Layout::whole(&machine)).expect("fits");
    let survey = decisions.survey(&machine);
    let unknown = survey.paths.iter().filter(|it| !it.known).count();
    // To and from GPU 0, and from every GPU to every NIC.
    assert_eq!(unknown, 7 + 7 + 8 * 4);
    assert!(survey.nics.len() == 8 && survey.nics.iter().all(|it| !it.known));
}
