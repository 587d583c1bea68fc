//! Commands that start a job, as they are pasted beside a log.

use evidence::Quote;
use evidence::signals::notes::{ASSIGNMENT, COMMAND, PROCESSES};

use crate::Log;

/// A command line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Command<'a> {
    /// The launcher and its options.
    launcher: &'a str,
    /// What the test of nccl-tests was given, if it is one.
    test: Option<&'a str>,
    pub(crate) quote: &'a Quote,
}

/// The commands of a case.
pub(crate) fn commands(log: &Log) -> impl Iterator<Item = Command<'_>> {
    log.case.sightings_of(&COMMAND).chain(log.case.sightings_of(&PROCESSES)).map(|it| {
        let line = &*it.quote.text;
        match line.split_once("_perf") {
            Some((launcher, test)) => Command { launcher, test: Some(test), quote: &it.quote },
            None => Command { launcher: line, test: None, quote: &it.quote },
        }
    })
}

impl<'a> Command<'a> {
    /// How many processes are started.
    pub(crate) fn ranks(&self) -> Option<u32> {
        number(option(self.launcher, &["-np", "--np", "-n", "--ntasks"]))
    }

    /// How many of them on each node.
    pub(crate) fn ranks_per_node(&self) -> Option<u32> {
        let names =
            ["-N", "-npernode", "--npernode", "--ntasks-per-node", "--nproc_per_node", "--nproc-per-node"];
        // `srun -N` counts nodes.
        let names = if self.launcher.contains("srun ") { &names[1..] } else { &names };
        number(option(self.launcher, names))
            .or_else(|| {
                let map = option(self.launcher, &["--map-by", "-map-by"])?;
                number(map.strip_prefix("ppr:")?.split(':').next())
            })
            .or_else(|| {
                // Without a number of ranks every slot gets one: `-H a:8,b:8`.
                let hosts =
                    option(self.launcher, &["-H", "--host", "-host"]).filter(|_| self.ranks().is_none())?;
                hosts.split(',').filter_map(|it| number(it.split_once(':').map(|it| it.1))).max()
            })
    }

    /// How many GPUs each process of nccl-tests uses: threads times GPUs.
    pub(crate) fn gpus_each(&self) -> Option<u32> {
        let test = self.test?;
        let gpus = number(option(test, &["-g", "--ngpus"])).unwrap_or(1);
        let threads = number(option(test, &["-t", "--nthreads"])).unwrap_or(1);
        Some(gpus.saturating_mul(threads))
    }

    /// Whether Open MPI starts it and nothing says how to bind processes.
    pub(crate) fn binds_by_default(&self) -> bool {
        self.launcher.contains("mpirun ")
            && !["bind-to", "map-by", "cpu-set", "rankfile"].iter().any(|it| self.launcher.contains(it))
    }

    /// The whole line.
    pub(crate) fn text(&self) -> &'a str {
        &self.quote.text
    }
}

fn number(text: Option<&str>) -> Option<u32> {
    text?.parse().ok()
}

/// The value of the first of these options that is there.
fn option<'a>(text: &'a str, names: &[&str]) -> Option<&'a str> {
    let mut words = text.split_ascii_whitespace();
    while let Some(word) = words.next() {
        let word = word.trim_matches(['"', '\'', '`', ';']);
        if names.contains(&word) {
            return words.next().map(|it| it.trim_matches(['"', '\'', '`', ';', '\\']));
        }
        if let Some((name, value)) = word.split_once('=')
            && names.contains(&name)
        {
            return Some(value);
        }
    }
    None
}

/// A variable that somebody set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting<'a> {
    pub(crate) name: &'a str,
    pub(crate) value: &'a str,
    pub(crate) quote: &'a Quote,
}

/// The variables that manifests, commands and pasted settings give.
pub(crate) fn settings(log: &Log) -> Vec<Setting<'_>> {
    let mut all = Vec::new();
    for manifest in &log.case.manifests {
        all.extend(manifest.environment.iter().map(|it| Setting {
            name: &it.value.name,
            value: &it.value.value,
            quote: &it.quote,
        }));
    }
    for sighting in log.case.sightings_of(&ASSIGNMENT).chain(log.case.sightings_of(&COMMAND)) {
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
    use crate::testing::read;

    #[test]
    fn reads_what_a_command_asks_for() {
        let it = read("mpirun -np 16 -N 8 all_reduce_perf -b 128M -e 2048M -f 2 -t 2 -g 4 -n 20\n");
        let it = commands(&it).next().unwrap();
        assert_eq!((it.ranks(), it.ranks_per_node(), it.gpus_each()), (Some(16), Some(8), Some(8)));
        assert!(it.binds_by_default());
        let it = read("mpirun --bind-to none --map-by ppr:4:node --np=8 ./train\n");
        let it = commands(&it).next().unwrap();
        assert_eq!(
            (it.ranks(), it.ranks_per_node(), it.gpus_each(), it.binds_by_default()),
            (Some(8), Some(4), None, false)
        );
    }

    #[test]
    fn prose_is_no_command() {
        let it =
            read("mpirun detected that one or more processes exited with non-zero status, thus causing\n");
        assert_eq!(commands(&it).count(), 0);
    }

    #[test]
    fn reads_all_settings_of_a_line() {
        let it = read("mpirun -np 2 -x NCCL_DEBUG=INFO -x NCCL_P2P_LEVEL=5 ./a\n");
        let all = settings(&it);
        assert_eq!(
            all.iter().map(|it| (it.name, it.value)).collect::<Vec<_>>(),
            [("NCCL_DEBUG", "INFO"), ("NCCL_P2P_LEVEL", "5")]
        );
    }
}
