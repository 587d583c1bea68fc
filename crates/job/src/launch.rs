//! Commands that start a job, as they are pasted beside a log.

use evidence::signals::notes::{COMMAND, PROCESSES};
use evidence::submission::{Launch, Launcher, OptionValue};
use evidence::{Case, Quote};

/// A command that starts ranks, and the line it was read from.
#[derive(Debug, Clone, PartialEq)]
pub struct PastedLaunch {
    /// The command.
    pub launch: Launch,
    /// The line.
    pub quote: Quote,
}

/// The commands that were pasted beside a log.
pub fn launches(case: &Case) -> Vec<PastedLaunch> {
    let lines = case.sightings_of(&COMMAND).chain(case.sightings_of(&PROCESSES));
    let launch = |text: &str, quote: &Quote| {
        Some(PastedLaunch { launch: Launch::pasted(text)?, quote: quote.clone() })
    };
    lines.filter_map(|it| launch(&it.quote.text, &it.quote)).collect()
}

impl PastedLaunch {
    /// How many processes are started.
    pub fn ranks(&self) -> Option<u32> {
        number(self.launch.processes())
    }

    /// How many of them on each node.
    pub fn ranks_per_node(&self) -> Option<u32> {
        // Without a number of ranks every slot gets one: `-H a:8,b:8`.
        let slots = || self.launch.slots_per_host().filter(|_| self.ranks().is_none())?.try_into().ok();
        number(self.launch.processes_per_node()).or_else(slots)
    }

    /// How many GPUs each process of nccl-tests uses: threads times GPUs.
    pub fn gpus_each(&self) -> Option<u32> {
        let test = self.launch.nccl_tests()?;
        let gpus = number(test.gpus_per_thread()).unwrap_or(1);
        Some(gpus.saturating_mul(number(test.threads()).unwrap_or(1)))
    }

    /// Whether `mpirun` starts it.
    pub fn is_mpirun(&self) -> bool {
        self.launch.launcher == Launcher::Mpirun
    }

    /// Whether no option says how mpirun should bind processes.
    pub fn binds_by_default(&self) -> bool {
        self.is_mpirun() && !self.launch.sets_binding()
    }
}

fn number(option: Option<OptionValue<'_>>) -> Option<u32> {
    option?.number()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::launches;
    use crate::testing::case;

    #[test]
    fn reads_what_a_command_starts() {
        let it =
            launches(&case("mpirun -np 16 -N 8 all_reduce_perf -b 128M -e 2048M -f 2 -t 2 -g 4 -n 20\n"))
                .remove(0);
        assert_eq!((it.ranks(), it.ranks_per_node(), it.gpus_each()), (Some(16), Some(8), Some(8)));
        assert!(it.binds_by_default());
        let it = launches(&case("mpirun --bind-to none --map-by ppr:4:node --np=8 ./train\n")).remove(0);
        assert_eq!(
            (it.ranks(), it.ranks_per_node(), it.gpus_each(), it.binds_by_default()),
            (Some(8), Some(4), None, false)
        );
    }

    #[test]
    fn prose_is_not_a_command() {
        let text = "mpirun detected that one or more processes exited with non-zero status, thus causing\n";
        assert!(launches(&case(text)).is_empty());
    }
}
