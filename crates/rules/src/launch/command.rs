//! Commands that start a job, as they are pasted beside a log.

use evidence::signals::notes::{ASSIGNMENT, COMMAND, PROCESSES};
use evidence::submission::{Launch, Launcher, OptionValue};
use evidence::{Case, Quote};

/// A command line.
#[derive(Debug, Clone)]
pub(crate) struct Command<'a> {
    launch: Launch,
    pub(crate) quote: &'a Quote,
}

/// The commands of a case.
pub(crate) fn commands(case: &Case) -> impl Iterator<Item = Command<'_>> {
    let lines = case.sightings_of(&COMMAND).chain(case.sightings_of(&PROCESSES));
    lines.filter_map(|it| Some(Command { launch: Launch::pasted(&it.quote.text)?, quote: &it.quote }))
}

impl Command<'_> {
    /// How many processes are started.
    pub(crate) fn ranks(&self) -> Option<u32> {
        number(self.launch.processes())
    }

    /// How many of them on each node.
    pub(crate) fn ranks_per_node(&self) -> Option<u32> {
        // Without a number of ranks every slot gets one: `-H a:8,b:8`.
        let slots = || self.launch.slots_per_host().filter(|_| self.ranks().is_none())?.try_into().ok();
        number(self.launch.processes_per_node()).or_else(slots)
    }

    /// How many GPUs each process of nccl-tests uses: threads times GPUs.
    pub(crate) fn gpus_each(&self) -> Option<u32> {
        let test = self.launch.nccl_tests()?;
        let gpus = number(test.gpus_per_thread()).unwrap_or(1);
        Some(gpus.saturating_mul(number(test.threads()).unwrap_or(1)))
    }

    /// Whether `mpirun` starts it.
    pub(crate) fn is_mpirun(&self) -> bool {
        self.launch.launcher == Launcher::Mpirun
    }

    /// Whether nothing says how mpirun shall bind processes.
    pub(crate) fn binds_by_default(&self) -> bool {
        self.is_mpirun() && !self.launch.sets_binding()
    }
}

fn number(option: Option<OptionValue<'_>>) -> Option<u32> {
    option?.number()?.try_into().ok()
}

/// A variable that somebody set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting<'a> {
    pub(crate) name: &'a str,
    pub(crate) value: &'a str,
    pub(crate) quote: &'a Quote,
}

/// The variables that manifests, commands and pasted settings give.
pub(crate) fn settings(case: &Case) -> Vec<Setting<'_>> {
    let mut all = Vec::new();
    for manifest in &case.manifests {
        all.extend(manifest.environment.iter().map(|it| Setting {
            name: &it.value.0,
            value: &it.value.1,
            quote: &it.quote,
        }));
    }
    for sighting in case.sightings_of(&ASSIGNMENT).chain(case.sightings_of(&COMMAND)) {
        for word in sighting.quote.text.split([' ', '\t', ';', ',', '"', '\'', '`']) {
            let Some((name, value)) = word.split_once('=') else { continue };
            let is_name =
                name.contains('_') && name.chars().all(|it| it.is_ascii_alphanumeric() || it == '_');
            let known = all.iter().any(|it: &Setting<'_>| it.name == name && it.value == value);
            if is_name && !value.is_empty() && !known {
                all.push(Setting { name, value, quote: &sighting.quote });
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::{commands, settings};
    use crate::testing::case;

    #[test]
    fn reads_what_a_command_asks_for() {
        let it = case("mpirun -np 16 -N 8 all_reduce_perf -b 128M -e 2048M -f 2 -t 2 -g 4 -n 20\n");
        let it = commands(&it).next().unwrap();
        assert_eq!((it.ranks(), it.ranks_per_node(), it.gpus_each()), (Some(16), Some(8), Some(8)));
        assert!(it.binds_by_default());
        let it = case("mpirun --bind-to none --map-by ppr:4:node --np=8 ./train\n");
        let it = commands(&it).next().unwrap();
        assert_eq!(
            (it.ranks(), it.ranks_per_node(), it.gpus_each(), it.binds_by_default()),
            (Some(8), Some(4), None, false)
        );
    }

    #[test]
    fn prose_is_no_command() {
        let it =
            case("mpirun detected that one or more processes exited with non-zero status, thus causing\n");
        assert_eq!(commands(&it).count(), 0);
    }

    #[test]
    fn reads_all_settings_of_a_line() {
        let it = case("mpirun -np 2 -x NCCL_DEBUG=INFO -x NCCL_P2P_LEVEL=5 ./a\n");
        let all = settings(&it);
        assert_eq!(
            all.iter().map(|it| (it.name, it.value)).collect::<Vec<_>>(),
            [("NCCL_DEBUG", "INFO"), ("NCCL_P2P_LEVEL", "5")]
        );
    }
}
