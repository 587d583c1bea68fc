//! A launch: its measurements become the tasks of a request, and what those print becomes lines of the journal.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::time::Duration;

use ::bench::Record;
use ::validate::Step;
use ::validate::live::{Engine, Item, Launch, Measurement, Run};
use launch::{Across, Ended, Host, How, Request, Task, port_was_taken};

/// A port that is taken is tried again with another, so often.
const PORTS: usize = 3;
/// The part of the limit after which ranks give up by themselves: they know better than their launcher which of them did not answer.
const PATIENCE: f64 = 0.75;

/// The machines as plumb reaches them.
#[derive(Debug, Default)]
pub(crate) struct Site {
    /// By the names of the plan.
    pub(crate) hosts: BTreeMap<String, Host>,
    /// Where the others reach them.
    pub(crate) addresses: BTreeMap<String, String>,
    /// The network to use.
    pub(crate) net: Option<String>,
}

/// Measurements that run at the same time, no machine in two of them.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) request: Request,
    /// The measurement of each task.
    of_task: Vec<usize>,
    items: Vec<Item>,
    ends: Vec<Vec<Ended>>,
    sizes: Vec<usize>,
}

/// A measurement of a batch that has ended.
pub(crate) enum Outcome {
    Measured(Measurement),
    /// Its port was taken.
    Again(Item),
}

impl Site {
    /// The missing measurements of a launch, in batches.
    pub(crate) fn batches(&self, run: &Run, launch: &Launch) -> Result<Vec<Batch>, String> {
        let mut batches: Vec<(BTreeSet<::validate::Host>, Vec<Item>)> = Vec::new();
        for item in &launch.items {
            let free = batches.iter_mut().find(|it| item.hosts.iter().all(|host| !it.0.contains(host)));
            match free {
                Some((hosts, items)) => {
                    hosts.extend(&item.hosts);
                    items.push(item.clone());
                }
                None => batches.push((item.hosts.iter().copied().collect(), vec![item.clone()])),
            }
        }
        batches.into_iter().map(|it| self.batch(run, launch, it.1)).collect()
    }

    fn batch(&self, run: &Run, launch: &Launch, items: Vec<Item>) -> Result<Batch, String> {
        let (mut tasks, mut of_task, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
        for (number, item) in items.iter().enumerate() {
            let own = self.tasks(run, &launch.step, item)?;
            of_task.extend(std::iter::repeat_n(number, own.len()));
            sizes.push(own.len());
            tasks.extend(own);
        }
        let name = format!("{} {}", launch.number, launch.step.name());
        let limit = Duration::from_secs(run.plan().timeout_s);
        let request = Request { name, tasks, limit, at_once: true };
        let ends = items.iter().map(|_| Vec::new()).collect();
        Ok(Batch { request, of_task, items, ends, sizes })
    }

    /// One task per machine.
    fn tasks(&self, run: &Run, step: &Step, item: &Item) -> Result<Vec<Task>, String> {
        let names = run.names(item);
        let chosen = run.chosen().ok_or("nothing is chosen yet")?;
        let alone = matches!(step, Step::Local(_));
        let ranks = if alone { chosen.local_ranks } else { chosen.ranks };
        let hosts: Result<Vec<(Host, usize)>, String> = names
            .iter()
            .map(|it| Ok((self.hosts.get(it).cloned().ok_or_else(|| format!("{it}: not a machine"))?, ranks)))
            .collect();
        let first = names.first().ok_or("a measurement without a machine")?;
        let first_address = match self.addresses.get(first) {
            _ if alone => "127.0.0.1".to_owned(),
            Some(it) => it.clone(),
            None => self.hosts.get(first).map_or_else(|| first.clone(), |it| it.name().to_owned()),
        };
        let mut variables: Vec<(String, OsString)> = Vec::new();
        let mut net = self.net.clone();
        if let (Some(nic), Engine::Nccl) = (run.nic(item), chosen.engine) {
            // Exactly this device; with sockets, exactly this interface.
            variables.push(("NCCL_IB_HCA".to_owned(), format!("={nic}").into()));
            variables.push(("NCCL_SOCKET_IFNAME".to_owned(), format!("={nic}").into()));
            // libfabric's EFA provider (v2.6.0rc2, man/fi_efa.7.md): the devices that are visible.
            variables.push(("FI_EFA_IFACE".to_owned(), nic.into()));
        } else if let Some(nic) = run.nic(item) {
            net = Some(nic.to_owned());
        }
        if chosen.engine == Engine::Nccl && !alone {
            // For stage 7. NCCL's default is WARN; these parts print nothing during collectives.
            variables.push(("NCCL_DEBUG".to_owned(), "INFO".into()));
            variables.push(("NCCL_DEBUG_SUBSYS".to_owned(), "INIT,BOOTSTRAP,ENV,NET,GRAPH".into()));
        }
        let arguments = arguments(run, step, item, net.as_deref(), alone);
        let across = Across { hosts: hosts?, first_address, arguments, variables };
        across.tasks().map_err(|error| error.to_string())
    }
}

fn arguments(run: &Run, step: &Step, item: &Item, net: Option<&str>, alone: bool) -> Vec<OsString> {
    let size = run.size(step, item);
    let engine = run.chosen().map_or(Engine::Host, |it| it.engine);
    // Every machine's results are verified: alone and together by GPUs, which is cheap there; in host memory alone and those of two,
    // where they are small.
    let check = match engine {
        Engine::Nccl => matches!(step, Step::Smoke(_) | Step::Local(_) | Step::All(_)),
        Engine::Host => matches!(step, Step::Smoke(_) | Step::Local(_)) && size.bytes <= 64 << 20,
    };
    let name = match engine {
        Engine::Nccl => "nccl",
        Engine::Host => "host",
    };
    let bytes = size.bytes.to_string();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds of a limit")]
    let patience = ((Duration::from_secs(run.plan().timeout_s).as_secs_f64() * PATIENCE) as u64).max(1);
    let mut all: Vec<String> =
        ["bench", "all_reduce", "-b", &bytes, "-e", &bytes].map(str::to_owned).to_vec();
    all.extend(["-n".to_owned(), size.iterations.to_string(), "-w".to_owned(), size.warm_up.to_string()]);
    all.extend(["-c".to_owned(), u8::from(check).to_string(), "--repeats".to_owned(), "0".to_owned()]);
    all.extend(["--engine".to_owned(), name.to_owned(), "-T".to_owned(), patience.to_string()]);
    all.extend(["--format".to_owned(), "json".to_owned()]);
    if engine == Engine::Host && !alone {
        // Every link carries the same, whatever the engine would choose for this size.
        all.extend(["--algo".to_owned(), "ring".to_owned()]);
    }
    if let (Some(net), false) = (net, alone) {
        all.extend(["--net".to_owned(), net.to_owned()]);
    }
    all.into_iter().map(Into::into).collect()
}

impl Batch {
    /// Measurements.
    pub(crate) const fn len(&self) -> usize {
        self.items.len()
    }

    /// Takes the end of a task. With the last task of a measurement, that has ended. `last`: a port that was taken is a failure.
    pub(crate) fn take(&mut self, run: &Run, launch: &Launch, ended: Ended, last: bool) -> Option<Outcome> {
        let number = *self.of_task.get(ended.task)?;
        let ends = self.ends.get_mut(number)?;
        ends.push(ended);
        if ends.len() < *self.sizes.get(number)? {
            return None;
        }
        ends.sort_by_key(|it| it.task);
        let item = self.items.get(number)?;
        if !last && ends.iter().any(port_was_taken) {
            return Some(Outcome::Again(item.clone()));
        }
        let result = result(ends);
        let seconds = ends.iter().map(|it| it.took.as_secs_f64()).fold(0.0, f64::max);
        let (rate, resent, failed) = match result {
            Ok(it) => (Some(it.rate), it.resent, None),
            Err(reason) => {
                let ranks = run.chosen().map_or(1, |it| match launch.step {
                    Step::Local(_) => it.local_ranks,
                    _ => it.ranks,
                });
                (None, Vec::new(), Some(on_machines(&reason, &run.names(item), ranks)))
            }
        };
        Some(Outcome::Measured(Measurement {
            launch: launch.number,
            stage: launch.step.name().to_owned(),
            hosts: run.names(item),
            nic: run.nic(item).map(str::to_owned),
            bytes: run.size(&launch.step, item).bytes,
            rate,
            resent,
            failed,
            seconds: (seconds * 1e3).round() / 1e3,
        }))
    }

    /// What the tasks wrote to standard error, by machine: with NCCL, its logs.
    pub(crate) fn logs(&self) -> impl Iterator<Item = (&Host, &[u8])> {
        self.ends.iter().flatten().map(|it| (&it.host, it.stderr.as_slice()))
    }
}

/// Tries a measurement whose port was taken again, a few times.
pub(crate) const fn tries() -> usize {
    PORTS
}

/// What rank 0 reports.
struct Reported {
    /// The bus bandwidth.
    rate: f64,
    /// The share of segments that each machine sent again; empty where that is not known.
    resent: Vec<Option<f64>>,
}

/// What rank 0 reports, or why there is nothing.
fn result(ends: &[Ended]) -> Result<Reported, String> {
    if let Some(reason) = broken(ends) {
        return Err(reason);
    }
    let Some(first) = ends.first() else { return Err("no task".to_owned()) };
    let record: Record = serde_json::from_slice(&first.stdout)
        .map_err(|error| format!("{}: no result ({error})", first.host))?;
    if record.wrong.is_some_and(|it| it > 0) {
        return Err(format!("wrong results: {} elements", record.wrong.unwrap_or(0)));
    }
    let rates: Vec<f64> = if record.ranks == 1 {
        // A machine with one GPU: its bus bandwidth is 0, and in place there is nothing to do. Out of place is a copy in its memory.
        record.results.iter().filter_map(|row| Some(row.out_of_place.as_ref()?.algorithm_bandwidth)).collect()
    } else {
        let both = record.results.iter().flat_map(|row| [&row.out_of_place, &row.in_place]).flatten();
        both.map(|it| it.bus_bandwidth).collect()
    };
    // The better of both: what is slow is slow every time, and others use the machine too.
    let best = rates.into_iter().filter(|it| it.is_finite() && *it > 0.0).reduce(f64::max);
    let rate = best.ok_or_else(|| format!("{}: no bandwidth in its result", first.host))?;
    Ok(Reported { rate, resent: resent(&record, ends.len()) })
}

/// Of each machine, that of its worst rank. Ranks are numbered machine by machine.
fn resent(record: &Record, machines: usize) -> Vec<Option<f64>> {
    let each = record.segments.len() / machines.max(1);
    if machines < 2 || each == 0 || each * machines != record.segments.len() {
        return Vec::new();
    }
    let worst = |ranks: &[::bench::Segments]| ranks.iter().filter_map(|it| it.share()).reduce(f64::max);
    record.segments.chunks(each).map(worst).map(|it| it.map(|it| (it * 1e6).round() / 1e6)).collect()
}

/// Why it failed, of the task that says most about it.
fn broken(ends: &[Ended]) -> Option<String> {
    let failed: Vec<&Ended> = ends.iter().filter(|it| !it.succeeded()).collect();
    let weight = |it: &Ended| match &it.how {
        How::Unreachable(_) => 0,
        // The exit code of a task that others ended.
        How::Lost { detail } if detail.contains("Exited with exit code") => 5,
        How::Lost { .. } => 1,
        How::Signal(_) => 2,
        // A rank says which other rank did not answer; the other, why it did not.
        How::Code(_) if !it.last_words().is_empty() => 3 + u8::from(it.last_words().contains(DID_NOT_JOIN)),
        How::Code(_) => 5,
        How::TimedOut => 6,
        How::Cancelled => 7,
    };
    let worst = failed.into_iter().min_by_key(|it| weight(it))?;
    let words = said(worst);
    Some(match &worst.how {
        How::Code(_) if !words.is_empty() => words,
        how => format!("{}: {how}", worst.host),
    })
}

/// What rank 0 says of those that it did not hear of.
const DID_NOT_JOIN: &str = "did not join";

/// `rank 1 on h2: did not join`, `ranks 1-3 on h[2-4] did not join`: before they join, ranks know no other machine's name. Ranks are numbered machine by
/// machine.
fn on_machines(reason: &str, machines: &[String], ranks: usize) -> String {
    let said = || {
        let (word, rest) = reason.split_once(' ').filter(|it| ["rank", "ranks"].contains(&it.0))?;
        let end = rest.find(|it: char| !it.is_ascii_digit() && !", -".contains(it)).unwrap_or(rest.len());
        let (numbers, after) = rest.split_at(end);
        let mut on: Vec<&str> = Vec::new();
        for part in numbers.trim_end().split(", ") {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
            let range = machines.get(first / ranks.max(1)..=last / ranks.max(1))?;
            on.extend(range.iter().map(String::as_str).filter(|it| !on.contains(it)).collect::<Vec<_>>());
        }
        let known = after.trim_start().starts_with("on ") || on.is_empty();
        let space = if after.starts_with(':') { "" } else { " " };
        (!known).then(|| format!("{word} {} on {}{space}{after}", numbers.trim_end(), report::compact(&on)))
    };
    said().unwrap_or_else(|| reason.to_owned())
}

/// The error of a rank, without what follows from it.
fn said(ended: &Ended) -> String {
    let text = String::from_utf8_lossy(&ended.stderr).into_owned();
    let error = text.lines().find_map(|it| it.strip_prefix("error: "));
    report::clean(error.unwrap_or(&ended.last_words())).chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::on_machines;

    #[test]
    fn ranks_have_machines() {
        let machines = ["h1", "h2", "h3", "h4"].map(str::to_owned);
        for (ranks, said, wanted) in [
            (1, "rank 1: did not join within 11 s", "rank 1 on h2: did not join within 11 s"),
            (1, "ranks 1-3 did not join", "ranks 1-3 on h[2-4] did not join"),
            (2, "ranks 1, 6-7 did not join", "ranks 1, 6-7 on h[1,4] did not join"),
            (8, "rank 8: cannot connect", "rank 8 on h2: cannot connect"),
            (1, "rank 2 on h3: does not answer", "rank 2 on h3: does not answer"),
            (1, "rank 9: is not one", "rank 9: is not one"),
            (1, "h3: killed by signal 9", "h3: killed by signal 9"),
            (1, "rank", "rank"),
            (1, "ranks 3-1 and 2", "ranks 3-1 and 2"),
        ] {
            assert_eq!(on_machines(said, &machines, ranks), wanted, "{said}");
        }
    }
}
