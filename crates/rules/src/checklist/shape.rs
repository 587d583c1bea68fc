//! The layout of the job: ranks, channels, rings, trees, and the protocols they may use.

use std::collections::BTreeSet;

use evidence::Source;

use super::{ChecklistItem, List, lacks, not_checked, note, ok};

impl List<'_> {
    pub(super) fn ranks(&self) -> ChecklistItem {
        let Some(world) = self.log.case.world() else { return lacks("ranks", Source::NcclLog) };
        let n = world.n_ranks.unwrap_or(0);
        let seen = world.members.len();
        let quote =
            world.members.values().find_map(|it| it.facts.start.as_ref().or(it.facts.complete.as_ref()));
        let incomplete = world.members.values().filter(|it| !it.is_complete()).count();
        let absent = world.absent();
        let mut text = format!("{seen} of {n} ranks seen");
        if incomplete > 0 {
            text.push_str(&format!(", {incomplete} without `Init COMPLETE`"));
        }
        if absent.is_empty() {
            return if incomplete == 0 { ok("ranks", text, quote) } else { note("ranks", text, quote) };
        }
        let plural = if absent.len() == 1 { "" } else { "s" };
        text.push_str(&format!("; no lines from rank{plural} {absent}"));
        note("ranks", text, quote)
    }

    pub(super) fn protocols(&self) -> ChecklistItem {
        let forced = self.log.case.processes.iter().find_map(|it| it.facts.plugin.forced_simple.first());
        if let Some(seen) = forced {
            return note(
                "protocols",
                format!("Simple only: the plugin requires it because {} is not supported", seen.value),
                Some(&seen.quote),
            );
        }
        let set = ["NCCL_PROTO", "NCCL_ALGO"].iter().find_map(|name| {
            let set = self.log.job.settings.named(name).find(|it| it.is_logged())?;
            Some((format!("{name}={}", set.text()), set.quote()?))
        });
        match set {
            Some((text, quote)) => note("protocols", format!("restricted by {text}"), Some(quote)),
            None if self.log.case.processes.is_empty() => lacks("protocols", Source::NcclLog),
            None if !self.set_up() => lacks("protocols", Source::NcclLog),
            None => ok("protocols", "no protocol is forced in these lines", None),
        }
    }

    pub(super) fn nvls(&self) -> ChecklistItem {
        match self.log.case.processes.iter().find_map(|it| it.facts.nvls.first()) {
            Some(seen) if seen.value => ok("nvls", "NVLink SHARP is available", Some(&seen.quote)),
            Some(seen) => {
                note("nvls", "no NVLink SHARP: normal before Hopper and without NVSwitch", Some(&seen.quote))
            }
            None => not_checked("nvls", "NCCL reports it with more than 2 local GPUs and NVLS enabled"),
        }
    }

    pub(super) fn channels(&self) -> ChecklistItem {
        let Some(world) = self.log.case.world() else { return lacks("channels", Source::NcclLog) };
        let seen = world.members.values().find_map(|it| it.facts.channels.as_ref());
        match seen {
            Some(seen) => {
                let p2p = seen.value.p2p.map(|it| format!(", {it} for send/recv")).unwrap_or_default();
                let nvls =
                    seen.value.nvls.filter(|it| *it > 0).map(|it| format!(", {it} NVLS")).unwrap_or_default();
                ok("channels", format!("{} for collectives{p2p}{nvls}", seen.value.coll), Some(&seen.quote))
            }
            None => lacks("channels", Source::NcclLog),
        }
    }

    pub(super) fn rings(&self) -> ChecklistItem {
        let rings = self.log.case.communicators.iter().find_map(|communicator| {
            communicator.members.values().find(|it| !it.facts.rings.is_empty()).map(|it| (communicator, it))
        });
        let Some((communicator, member)) = rings else {
            return not_checked("rings", "needs the log of rank 0");
        };
        let rings = &member.facts.rings;
        let quote = member.facts.ring_quote.as_ref();
        let whole = rings
            .iter()
            .filter(|it| !it.cut && Some(it.order.len()) == communicator.n_ranks.map(|it| it as usize));
        let right = whole
            .clone()
            .filter(|it| it.order.iter().collect::<BTreeSet<_>>().len() == it.order.len())
            .count();
        let cut = rings.iter().filter(|it| it.cut).count();
        if right == rings.len() {
            let rings = if right == 1 { "1 ring".to_owned() } else { format!("{right} rings, each") };
            ok("rings", format!("{rings} through all ranks once"), quote)
        } else if cut > 0 {
            note("rings", format!("{} rings; NCCL cut {cut} of them short in the log", rings.len()), quote)
        } else {
            note("rings", format!("{} rings, {right} of them through all ranks once", rings.len()), quote)
        }
    }

    pub(super) fn trees(&self) -> ChecklistItem {
        let Some(world) = self.log.case.world() else { return lacks("trees", Source::NcclLog) };
        let seen = world.members.values().find_map(|it| it.facts.trees.as_ref());
        match seen {
            Some(seen) => {
                let ranks = world.members.values().filter(|it| it.facts.trees.is_some()).count();
                let ranks = if ranks == 1 {
                    "the position of 1 rank".to_owned()
                } else {
                    format!("the positions of {ranks} ranks")
                };
                ok("trees", format!("{} trees, {ranks} seen", seen.value.iter().count()), Some(&seen.quote))
            }
            None => lacks("trees", Source::NcclLog),
        }
    }
}
