//! Settings and launches of a file, found by container, by object and by name.

use std::collections::{BTreeMap, BTreeSet};

use evidence::submission::{Launch, Owner, Submission, Written};

use super::{Given, SubmittedReleases};

/// The index of one file. A position is that in [`Submission::settings`] or [`Submission::launches`].
#[derive(Debug, Default)]
pub(super) struct FileIndex<'a> {
    by_container: BTreeMap<Option<Owner>, BTreeMap<&'a str, Vec<usize>>>,
    by_workload: BTreeMap<Option<usize>, BTreeMap<&'a str, Vec<usize>>>,
    names: BTreeSet<&'a str>,
    /// Names that a shell of the file exports.
    exported: BTreeSet<&'a str>,
    /// How many entries the `env` list of a container has.
    env_entries: BTreeMap<Option<Owner>, usize>,
    /// Containers whose variables set libfabric up for EFA.
    efa: BTreeSet<Option<Owner>>,
    launches: BTreeMap<Option<Owner>, Vec<usize>>,
    launches_of_workload: BTreeMap<Option<usize>, Vec<usize>>,
    /// For each launch, the one that starts it and the one that it starts.
    nesting: Vec<Nesting>,
    releases: BTreeMap<Option<Owner>, SubmittedReleases>,
    first_job: usize,
    script_job: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Nesting {
    outer: Option<usize>,
    inner: Option<usize>,
}

impl<'a> FileIndex<'a> {
    pub(super) fn of(submission: &'a Submission, given: &Given, first_job: usize) -> Self {
        let script_job = first_job + submission.workloads.len();
        let mut index = Self { first_job, script_job, ..Self::default() };
        for (position, setting) in submission.settings.iter().enumerate() {
            let (owner, name) = (setting.owner, &*setting.name);
            index.by_container.entry(owner).or_default().entry(name).or_default().push(position);
            let workload = owner.map(|it| it.workload);
            index.by_workload.entry(workload).or_default().entry(name).or_default().push(position);
            index.names.insert(name);
            if setting.written == Written::Env {
                *index.env_entries.entry(owner).or_default() += 1;
            }
            if name.starts_with("FI_EFA_")
                || (name == "FI_PROVIDER" && setting.value.as_deref() == Some("efa"))
            {
                index.efa.insert(owner);
            }
        }
        for (position, launch) in submission.launches.iter().enumerate() {
            index.launches.entry(launch.owner).or_default().push(position);
            let workload = launch.owner.map(|it| it.workload);
            index.launches_of_workload.entry(workload).or_default().push(position);
        }
        index.exported = exported(&submission.text);
        index.nesting = nesting(&submission.launches);
        let owners: BTreeSet<Option<Owner>> = index.by_container.keys().copied().collect();
        for owner in owners {
            let releases = SubmittedReleases::of(given, submission, owner, &index);
            index.releases.insert(owner, releases);
        }
        index
    }

    pub(super) fn settings_of(&self, owner: Option<Owner>, name: &str) -> &[usize] {
        self.by_container.get(&owner).and_then(|it| it.get(name)).map(Vec::as_slice).unwrap_or_default()
    }

    pub(super) fn settings_of_workload(&self, workload: Option<usize>, name: &str) -> &[usize] {
        self.by_workload.get(&workload).and_then(|it| it.get(name)).map(Vec::as_slice).unwrap_or_default()
    }

    pub(super) fn is_set(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    pub(super) fn is_exported(&self, name: &str) -> bool {
        self.exported.contains(name)
    }

    pub(super) fn env_entries(&self, owner: Option<Owner>) -> usize {
        self.env_entries.get(&owner).copied().unwrap_or_default()
    }

    pub(super) fn sets_up_efa(&self, owner: Option<Owner>) -> bool {
        self.efa.contains(&owner)
    }

    pub(super) fn launches_of(&self, owner: Option<Owner>) -> &[usize] {
        self.launches.get(&owner).map(Vec::as_slice).unwrap_or_default()
    }

    pub(super) fn launches_of_workload(&self, workload: Option<usize>) -> &[usize] {
        self.launches_of_workload.get(&workload).map(Vec::as_slice).unwrap_or_default()
    }

    pub(super) fn outer(&self, launch: usize) -> Option<usize> {
        self.nesting.get(launch)?.outer
    }

    pub(super) fn inner(&self, launch: usize) -> Option<usize> {
        self.nesting.get(launch)?.inner
    }

    pub(super) fn releases_of(&self, owner: Option<Owner>, given: &Given) -> SubmittedReleases {
        self.releases.get(&owner).copied().unwrap_or_else(|| SubmittedReleases::given(given))
    }

    pub(super) fn first_job(&self) -> usize {
        self.first_job
    }

    pub(super) fn script_job(&self) -> usize {
        self.script_job
    }

    /// The value of an option, with a variable of the same container or script filled in; none where it is not known.
    pub(super) fn literal<'t>(
        &self,
        submission: &'t Submission,
        owner: Option<Owner>,
        text: &'t str,
    ) -> Option<&'t str> {
        let name =
            text.strip_prefix('$').map(|it| it.trim_start_matches(['{', '(']).trim_end_matches(['}', ')']));
        let Some(name) = name else { return Some(text).filter(|it| !it.contains(['$', '`', '{', '<'])) };
        let position = self.only_setting(submission, owner, name)?;
        submission.settings.get(position)?.value.as_deref().filter(|it| !it.contains('$'))
    }

    /// A variable that has one value, however often it is set.
    pub(super) fn only_setting(
        &self,
        submission: &Submission,
        owner: Option<Owner>,
        name: &str,
    ) -> Option<usize> {
        let positions = self.settings_of(owner, name);
        let value = |position: &usize| submission.settings.get(*position).map(|it| &it.value);
        let first = positions.first()?;
        positions.iter().all(|it| value(it) == value(first)).then_some(*first)
    }
}

/// Names after `export`.
fn exported(text: &str) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    for (at, mark) in text.match_indices("export ") {
        let rest = text.get(at + mark.len()..).unwrap_or_default();
        let command = rest.split(['\n', ';', '&', '|']).next().unwrap_or_default();
        names.extend(command.split_ascii_whitespace().filter_map(|it| it.split('=').next()));
    }
    names
}

/// Which launch starts which: `srun` the `torchrun` of `srun torchrun ...` or of `srun bash -c "torchrun ..."`.
fn nesting(launches: &[Launch]) -> Vec<Nesting> {
    let mut nesting = vec![Nesting::default(); launches.len()];
    let start = |launch: &Launch| launch.words.first().map_or(0, |it| it.range.start);
    let end = |launch: &Launch| launch.words.last().map_or(0, |it| it.range.end);
    let mut order: Vec<usize> = (0..launches.len()).collect();
    order.sort_by_key(|it| (launches[*it].owner, start(&launches[*it]), *it));
    let mut open: Vec<usize> = Vec::new();
    for position in order {
        let launch = &launches[position];
        let begin = start(launch);
        open.retain(|it| launches[*it].owner == launch.owner && end(&launches[*it]) > begin);
        for outer in &open {
            let contains = launches[*outer].words.iter().skip(1).any(|word| word.range.contains(&begin));
            if contains {
                nesting[position].outer = nesting[position].outer.or(Some(*outer));
                nesting[*outer].inner = nesting[*outer].inner.or(Some(position));
            }
        }
        open.push(position);
    }
    nesting
}
