//! A job from its logs.

use evidence::Case;

use crate::failure::first_failure;
use crate::rank::ranks;
use crate::{Job, Releases, Settings, Size, machine};

impl Job {
    /// The job that logs and what was given beside them show.
    pub fn of_case(case: &Case) -> Self {
        let found = machine::of_case(case);
        let (machines, wired, conflicts) =
            found.map(|it| (vec![it.machine], it.wired, it.conflicts)).unwrap_or_default();
        Self {
            machines,
            machine_name: machine::name_in(case),
            model: machine::named_in(case),
            wired,
            layout: None,
            size: Size::of_case(case),
            ranks: ranks(case),
            settings: Settings::of_case(case),
            releases: Releases::of_case(case),
            first_failure: first_failure(case),
            conflicts,
        }
    }
}
