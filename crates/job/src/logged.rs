//! A job from its logs.

use evidence::Case;
use fabric::Layout;

use crate::culprit::first_failure;
use crate::invariants::violations;
use crate::launch::launches;
use crate::rank::ranks;
use crate::{Hardware, Job, Known, Outcome, Releases, Settings, Size, Source, machine};

impl Job {
    /// The job that logs and what was given beside them show.
    pub fn of_case(case: &Case) -> Self {
        Self::of_case_on(case, &Hardware::default())
    }

    /// The same, on the machine that flags name. What the case says otherwise is a conflict.
    pub fn of_case_on(case: &Case, given: &Hardware) -> Self {
        let size = Size::of_case(case);
        let found = given.resolve(case, &size).or_else(|| machine::of_case(case));
        let found = found.map(|it| given.with_gpu(it));
        let flag = given.machine.is_some();
        let model = found
            .as_ref()
            .filter(|_| flag)
            .and_then(|it| it.model.map(|model| Known::new(model, it.machine.source.clone())));
        let name = model.as_ref().map(|it| it.clone().map(|model| Box::from(model.name)));
        let (machines, wired, conflicts) =
            found.map(|it| (vec![it.machine], it.wired, it.conflicts)).unwrap_or_default();
        let first_failure = first_failure(case);
        let job = Self {
            machines,
            machine_name: name.or_else(|| machine::name_in(case).filter(|_| !flag)),
            model: model.or_else(|| machine::named_in(case).filter(|_| !flag)),
            gpu: given.gpu.map(|it| Known::new(it, Source::Flag("--gpu"))),
            wired,
            layout: layout(&size),
            size,
            ranks: ranks(case),
            settings: Settings::of_case(case),
            releases: Releases::of_case(case),
            launches: launches(case),
            outcome: Outcome::of_case(case, first_failure.as_ref()),
            first_failure,
            conflicts,
            violations: Vec::new(),
        };
        Self { violations: violations(case, &job), ..job }
    }
}

/// One pod per node, as NCCL counts nodes. `None` where their number is not known or they have different numbers of ranks.
fn layout(size: &Size) -> Option<Known<Layout>> {
    let (nodes, each) = (size.nodes.as_ref()?, size.ranks_per_node.as_ref()?.value);
    let even = nodes.value.checked_mul(each) == size.n_ranks() && each > 0;
    even.then(|| nodes.clone().map(|nodes| Layout::new(1, each).on(nodes)))
}

#[cfg(test)]
mod tests {
    use fabric::Layout;

    use crate::Job;
    use crate::testing::case;

    #[test]
    fn nodes_with_equally_many_ranks_are_a_layout() {
        let log = |ranks: u32| {
            case(&format!(
                "a:1:2 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks {ranks} cudaDev 0 nvmlDev 0 busId 1000 commId 0x9 - Init START\n\
                 a:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks {ranks} nNodes 2 localRanks 2 localRank 0 MNNVL 0\n"
            ))
        };
        let known = Job::of_case(&log(4)).layout.unwrap();
        assert_eq!(known.value, Layout::new(1, 2).on(2));
        assert!(known.quote().unwrap().text.contains("nNodes 2"));
        assert_eq!(Job::of_case(&log(3)).layout, None);
        assert_eq!(Job::of_case(&case("")).layout, None);
    }
}
