//! The check list: what an engineer looks for in a log by hand, one line each.

use std::collections::{BTreeMap, BTreeSet};

use evidence::{Case, Process, Quote, Source};
use forecast::Verdict;

use crate::expectation::{self, Expectation};
use crate::performance::bandwidth::{measured, size};
use crate::summary::{Summary, driver, summary};
use crate::{Diagnosed, Diagnosis, Severity};

/// How a line of the list stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Looked at, and as it should be.
    Ok,
    /// Looked at, worth knowing.
    Note,
    /// Looked at, and wrong.
    Problem(Severity),
    /// Not looked at: the input does not tell.
    NotChecked,
}

/// A line of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What is looked at: `plugin`, `network`, ...
    pub id: &'static str,
    /// How it stands.
    pub state: State,
    /// What was seen, or what would let it be checked.
    pub text: String,
    /// Where.
    pub evidence: Option<Quote>,
}

impl State {
    /// The word used in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Problem(severity) => severity.name(),
            Self::NotChecked => "not checked",
        }
    }
}

/// Goes through the list.
pub fn checklist(case: &Case, diagnosis: &Diagnosis) -> Vec<Check> {
    let summary = summary(case);
    let list = List { case, summary: &summary };
    let checks = [
        list.nccl(),
        list.driver(),
        list.plugin(),
        list.provider(),
        list.network(),
        list.interface(),
        list.ranks(),
        list.gpudirect(),
        list.inside(),
        list.transport_protocol(),
        list.protocols(),
        list.nvls(),
        list.channels(),
        list.rings(),
        list.trees(),
        list.tuner(),
        list.bandwidth(),
        list.start(),
        list.environment(),
        list.ras(),
    ];
    let mut checks: Vec<Check> = checks.into_iter().collect();
    if summary.host_memory {
        for check in &mut checks {
            let foreign = matches!(check.id, "gpudirect" | "protocols" | "tuner" | "environment");
            if foreign || check.state == State::NotChecked {
                *check = not_checked(check.id, "the log is one of plumb's own engine, on host memory");
            } else if check.id == "inside" {
                // A compromise between GPUs; without them there is nothing better.
                check.state = State::Ok;
            }
        }
    }
    for check in &mut checks {
        if let Some(found) = related(check.id, diagnosis) {
            check.state = State::Problem(found.severity());
            check.text.clone_from(&found.finding.message);
            if let Some(quote) = found.finding.evidence.first() {
                check.evidence = Some(quote.clone());
            }
        }
    }
    checks
}

/// The worst finding that speaks about a line of the list.
fn related<'a>(check: &str, diagnosis: &'a Diagnosis) -> Option<&'a Diagnosed> {
    let ids: &[&str] = match check {
        "nccl" => &["nccl-version-mismatch", "nccl-too-old-for-gpu", "wsl-unsupported-nccl"],
        "driver" => &["cuda-driver-too-old", "fabric-manager-not-running"],
        "plugin" => &[
            "ofi-plugin-not-loaded",
            "ofi-plugin-lib-mismatch",
            "plugin-too-old",
            "efa-nccl219-old-libfabric",
        ],
        "provider" => &[
            "efa-provider-not-found",
            "efa-device-not-in-container",
            "efa-nics-unexpected",
            "ib-device-not-in-container",
        ],
        "network" => &[
            "socket-fallback",
            "mixed-network-between-ranks",
            "single-nic-used",
            "nics-unused",
            "far-nic",
            "roce-fabric-unreachable",
            "ib-link-flap",
        ],
        "interface" => &[
            "socket-ifname-not-found",
            "socket-ifname-mismatch",
            "loopback-interface-used",
            "docker-bridge-network",
            "bootstrap-on-wrong-interface",
            "routing-same-subnet-two-nics",
        ],
        "ranks" => &[
            "duplicate-gpu",
            "rank-never-joined",
            "more-ranks-than-gpus",
            "one-gpu-of-many",
            "hostname-collision",
        ],
        "gpudirect" => &[
            "gdr-disabled",
            "gdr-off-by-distance",
            "gpudirect-off",
            "gpudirect-missing-on-another-rank",
            "acs-breaks-gdr",
            "dmabuf-unsupported",
        ],
        "inside" => &[
            "nvlink-unused",
            "p2p-unused",
            "p2p-disabled-nvlink",
            "p2p-disabled-by-setting",
            "p2p-not-available-vm",
            "p2p-not-supported",
            "gpu-isolation-per-process",
        ],
        "nvls" => &["nvls-fabric-state"],
        "channels" => &["ranks-disagree"],
        "bandwidth" => &["bandwidth-below-normal"],
        "start" => &["late-ranks"],
        "environment" => &[
            "config-mismatch-between-ranks",
            "unknown-variable",
            "variable-value-misread",
            "topo-file-emptied",
        ],
        _ => &[],
    };
    let found = diagnosis
        .findings
        .iter()
        .filter(|it| ids.contains(&it.rule.id) && it.severity() >= Severity::Warning);
    found.max_by_key(|it| (it.severity(), it.finding.confidence))
}

struct List<'a> {
    case: &'a Case,
    summary: &'a Summary,
}

fn ok(id: &'static str, text: impl Into<String>, evidence: Option<&Quote>) -> Check {
    Check { id, state: State::Ok, text: text.into(), evidence: evidence.cloned() }
}

fn note(id: &'static str, text: impl Into<String>, evidence: Option<&Quote>) -> Check {
    Check { id, state: State::Note, text: text.into(), evidence: evidence.cloned() }
}

fn not_checked(id: &'static str, text: impl Into<String>) -> Check {
    Check { id, state: State::NotChecked, text: text.into(), evidence: None }
}

/// `needs` of a source, as a line of the list.
fn lacks(id: &'static str, source: Source) -> Check {
    not_checked(id, format!("needs {}", source.how_to_get()))
}

impl<'a> List<'a> {
    /// The values processes gave, with one line each, and how many gave any.
    fn values<T: Ord + Clone + 'a>(
        &self,
        of: impl Fn(&'a Process) -> Option<(T, &'a Quote)>,
    ) -> (BTreeMap<T, &'a Quote>, usize) {
        let mut values = BTreeMap::new();
        let mut said = 0;
        for process in &self.case.processes {
            if let Some((value, quote)) = of(process) {
                said += 1;
                values.entry(value).or_insert(quote);
            }
        }
        (values, said)
    }

    /// Whether a setup was read to the point where channels are counted: what was not said until then is not so.
    fn set_up(&self) -> bool {
        let mut members = self.case.communicators.iter().flat_map(|it| it.members.values());
        members.any(|it| it.facts.channels.is_some() || it.is_complete())
    }

    fn everyone(&self, said: usize) -> String {
        match self.case.processes.len() {
            1 => "the one process seen".to_owned(),
            2 if said == 2 => "both processes".to_owned(),
            all if said == all => format!("all {all} processes"),
            all => format!("{said} of {all} processes"),
        }
    }

    fn nccl(&self) -> Check {
        let (values, said) = self.values(|it| it.facts.version.first().map(|it| (&*it.value, &it.quote)));
        match values.first_key_value() {
            Some((version, quote)) if values.len() == 1 && said == 1 => {
                ok("nccl", version.to_string(), Some(quote))
            }
            Some((version, quote)) if values.len() == 1 => {
                ok("nccl", format!("{version}, the same in {}", self.everyone(said)), Some(quote))
            }
            Some((_, quote)) => {
                let list: Vec<&str> = values.keys().copied().collect();
                note("nccl", format!("different releases: {}", list.join(", ")), Some(quote))
            }
            None => match self.case.nccl_version() {
                Some((version, quote)) => ok("nccl", version.to_string(), Some(quote)),
                None => lacks("nccl", Source::NcclLog),
            },
        }
    }

    fn driver(&self) -> Check {
        let (values, said) = self.values(|it| it.facts.cuda_driver.first().map(|it| (it.value, &it.quote)));
        match values.first_key_value() {
            Some((version, quote)) if values.len() == 1 => {
                ok("driver", format!("CUDA {} in {}", driver(*version), self.everyone(said)), Some(quote))
            }
            Some((_, quote)) => {
                let list: Vec<String> = values.keys().map(|it| driver(*it)).collect();
                note("driver", format!("different CUDA levels: {}", list.join(", ")), Some(quote))
            }
            None => lacks("driver", Source::NcclLog),
        }
    }

    fn plugin(&self) -> Check {
        let (values, said) = self.values(|it| it.facts.ofi.version.first().map(|it| (&*it.value, &it.quote)));
        if let Some((version, quote)) = values.first_key_value() {
            let libfabric =
                self.summary.libfabric.as_ref().map(|it| format!(", libfabric {it}")).unwrap_or_default();
            return ok(
                "plugin",
                format!("aws-ofi-nccl {version}{libfabric}, loaded by {}", self.everyone(said)),
                Some(quote),
            );
        }
        let events = self.case.processes.iter().flat_map(|it| it.facts.plugins.iter());
        for seen in events {
            match &seen.value {
                evidence::nccl::PluginEvent::Network { name } => {
                    return ok("plugin", format!("{name} loaded"), Some(&seen.quote));
                }
                evidence::nccl::PluginEvent::NotFound { role, .. } if &**role == "NET" => {
                    return note(
                        "plugin",
                        "none loaded: NCCL uses its own InfiniBand or socket transport",
                        Some(&seen.quote),
                    );
                }
                evidence::nccl::PluginEvent::Internal => {
                    return note(
                        "plugin",
                        "none: NCCL uses its own InfiniBand or socket transport",
                        Some(&seen.quote),
                    );
                }
                _ => {}
            }
        }
        lacks("plugin", Source::NcclLog)
    }

    fn provider(&self) -> Check {
        let (values, said) = self.values(|it| {
            let seen = it.facts.ofi.provider.first()?;
            let fabric = seen.value.fabric.as_deref().map(|it| format!(", fabric {it}")).unwrap_or_default();
            let nics = seen
                .value
                .nics
                .map(|it| format!(", {it} NIC{} found", if it == 1 { "" } else { "s" }))
                .unwrap_or_default();
            Some((format!("{}{fabric}{nics}", seen.value.name), &seen.quote))
        });
        match values.first_key_value() {
            Some((text, quote)) if values.len() == 1 => {
                ok("provider", format!("{text} ({})", self.everyone(said)), Some(quote))
            }
            Some((_, quote)) => {
                let list: Vec<&str> = values.keys().map(String::as_str).collect();
                note("provider", format!("processes differ: {}", list.join("; ")), Some(quote))
            }
            None => {
                let hcas = self
                    .case
                    .processes
                    .iter()
                    .find_map(|it| it.facts.hcas.iter().find(|it| !it.value.is_empty()));
                match hcas {
                    Some(seen) => {
                        let names: Vec<String> =
                            seen.value.iter().map(|it| format!("{}/{}", it.name, it.layer)).collect();
                        ok(
                            "provider",
                            format!("{} adapters: {}", names.len(), names.join(" ")),
                            Some(&seen.quote),
                        )
                    }
                    None => match self.case.processes.iter().find_map(|it| it.facts.no_ib_device.first()) {
                        Some(seen) => {
                            note("provider", "no InfiniBand or RoCE adapter found by NCCL", Some(&seen.quote))
                        }
                        None => lacks("provider", Source::NcclLog),
                    },
                }
            }
        }
    }

    fn network(&self) -> Check {
        let (values, _) = (self.case.networks().map(|it| (it.0, it.2)).collect::<BTreeMap<_, _>>(), 0);
        match values.first_key_value() {
            Some((name, quote)) if values.len() == 1 => {
                let used: BTreeSet<u32> =
                    self.case.links().filter_map(|it| Some(it.3.transport()?.network()?.1)).collect();
                let devices = match used.len() {
                    0 => String::new(),
                    1 => ", 1 device in use".to_owned(),
                    n => format!(", {n} devices in use"),
                };
                let words = self.summary.networks.first().map_or(*name, String::as_str);
                if case_is_single(self.case) && used.is_empty() {
                    note("network", format!("{words}, not used: all ranks are on one node"), Some(quote))
                } else {
                    ok(
                        "network",
                        format!("{words} (`{name}`) chosen by every communicator seen{devices}"),
                        Some(quote),
                    )
                }
            }
            Some((_, quote)) => {
                let list: Vec<&str> = values.keys().copied().collect();
                note("network", format!("different networks: {}", list.join(", ")), Some(quote))
            }
            None => lacks("network", Source::NcclLog),
        }
    }

    fn interface(&self) -> Check {
        let (values, said) = self.values(|it| {
            let seen = it.facts.bootstrap.first()?;
            Some((seen.value.first()?.name.to_string(), &seen.quote))
        });
        match values.first_key_value() {
            Some((_, quote)) => {
                let names: Vec<&str> = values.keys().map(String::as_str).collect();
                ok(
                    "interface",
                    format!("setup over {} in {}", names.join(", "), self.everyone(said)),
                    Some(quote),
                )
            }
            None => lacks("interface", Source::NcclLog),
        }
    }

    fn ranks(&self) -> Check {
        let Some(world) = self.case.world() else { return lacks("ranks", Source::NcclLog) };
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
        text.push_str(&format!("; nothing was read of rank{plural} {absent}"));
        note("ranks", text, quote)
    }

    fn gpudirect(&self) -> Check {
        let net = || {
            self.case
                .links()
                .map(|it| it.3)
                .filter(|it| it.transport().is_some_and(fabric::Transport::is_net))
        };
        let first = |wanted: bool| {
            net()
                .find(|it| {
                    it.transport().and_then(fabric::Transport::network).is_some_and(|it| it.2 == wanted)
                })
                .map(|it| &it.quote)
        };
        match self.summary.gpudirect {
            (0, 0) => match self.case.processes.iter().find_map(|it| it.facts.ofi.gpudirect_off.first()) {
                Some(seen) => {
                    note("gpudirect", "off: the plugin says it cannot be used here", Some(&seen.quote))
                }
                None if case_is_single(self.case) => {
                    not_checked("gpudirect", "all ranks are on one node: nothing crosses a network")
                }
                None => lacks("gpudirect", Source::Connections),
            },
            (n, 0) => ok("gpudirect", format!("on {} seen, all of them", connections(n)), first(true)),
            (0, n) if self.summary.networks == ["TCP sockets"] => note(
                "gpudirect",
                format!("none on {}: TCP copies through host memory", connections(n)),
                first(false),
            ),
            (0, n) => note(
                "gpudirect",
                format!(
                    "off on {}, all that were seen: bytes are copied through host memory",
                    connections(n)
                ),
                first(false),
            ),
            (with, without) => {
                note("gpudirect", format!("on {with}, off on {without} network connections"), first(false))
            }
        }
    }

    fn inside(&self) -> Check {
        let ways: Vec<String> =
            self.summary.inside.iter().map(|(way, n)| format!("{way} on {}", connections(*n))).collect();
        let first = self
            .case
            .links()
            .map(|it| it.3)
            .find(|it| it.transport().is_some_and(|it| !it.is_net()))
            .map(|it| &it.quote);
        if !ways.is_empty() {
            return if self.summary.inside.contains_key("SHM") {
                note("inside", ways.join(", "), first)
            } else {
                ok("inside", ways.join(", "), first)
            };
        }
        match self.case.world().and_then(evidence::Communicator::local_ranks) {
            Some(1) => not_checked("inside", "every rank is alone on its node, as NCCL counts nodes"),
            _ => lacks("inside", Source::Connections),
        }
    }

    fn transport_protocol(&self) -> Check {
        match self.case.processes.iter().find_map(|it| it.facts.ofi.protocol.first()) {
            Some(seen) => ok("transport", format!("plugin protocol {}", seen.value), Some(&seen.quote)),
            None => not_checked("transport", "printed by aws-ofi-nccl only"),
        }
    }

    fn protocols(&self) -> Check {
        let forced = self.case.processes.iter().find_map(|it| it.facts.ofi.forced_simple.first());
        if let Some(seen) = forced {
            return note(
                "protocols",
                format!("Simple only: forced by the plugin ({} not supported), rightly", seen.value),
                Some(&seen.quote),
            );
        }
        let set = ["NCCL_PROTO", "NCCL_ALGO"].iter().find_map(|name| {
            let (value, _, quote) = self.case.variable(name).find(|it| it.1.is_some())?;
            Some((format!("{name}={value}"), quote))
        });
        match set {
            Some((text, quote)) => note("protocols", format!("restricted by {text}"), Some(quote)),
            None if self.case.processes.is_empty() => lacks("protocols", Source::NcclLog),
            None if !self.set_up() => lacks("protocols", Source::NcclLog),
            None => ok("protocols", "none forced in what was read", None),
        }
    }

    fn nvls(&self) -> Check {
        match self.case.processes.iter().find_map(|it| it.facts.nvls.first()) {
            Some(seen) if seen.value => ok("nvls", "NVLink SHARP is available", Some(&seen.quote)),
            Some(seen) => {
                note("nvls", "no NVLink SHARP: normal before Hopper and without NVSwitch", Some(&seen.quote))
            }
            None => not_checked("nvls", "printed with more than 2 local GPUs and NVLS enabled"),
        }
    }

    fn channels(&self) -> Check {
        let Some(world) = self.case.world() else { return lacks("channels", Source::NcclLog) };
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

    fn rings(&self) -> Check {
        let rings = self.case.communicators.iter().find_map(|communicator| {
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
            note("rings", format!("{} rings, {cut} of them cut by NCCL in the log", rings.len()), quote)
        } else {
            note("rings", format!("{} rings, {right} of them through all ranks once", rings.len()), quote)
        }
    }

    fn trees(&self) -> Check {
        let Some(world) = self.case.world() else { return lacks("trees", Source::NcclLog) };
        let seen = world.members.values().find_map(|it| it.facts.trees.as_ref());
        match seen {
            Some(seen) => {
                let ranks = world.members.values().filter(|it| it.facts.trees.is_some()).count();
                let ranks = if ranks == 1 {
                    "the place of 1 rank".to_owned()
                } else {
                    format!("the places of {ranks} ranks")
                };
                ok("trees", format!("{} trees, {ranks} seen", seen.value.len()), Some(&seen.quote))
            }
            None => lacks("trees", Source::NcclLog),
        }
    }

    fn tuner(&self) -> Check {
        if let Some(seen) = self.case.processes.iter().find_map(|it| it.facts.ofi.tuner.first()) {
            let text = if seen.value.contains("not available") {
                "the plugin has no tables for this machine, NCCL's own tuner is used: normal"
            } else {
                "the plugin's tables are used"
            };
            return ok("tuner", text, Some(&seen.quote));
        }
        match self.case.processes.iter().find_map(|it| it.facts.tuner.first()) {
            Some(seen) => ok("tuner", seen.value.to_string(), Some(&seen.quote)),
            None if self.case.processes.is_empty() => lacks("tuner", Source::NcclLog),
            None if !self.set_up() => lacks("tuner", Source::NcclLog),
            None => ok("tuner", "no tuner plugin: NCCL's own", None),
        }
    }

    fn bandwidth(&self) -> Check {
        let measured = measured(self.case);
        if let Some((run, largest)) = measured.iter().flatten().find_map(|it| Some((it, it.rows.first()?))) {
            let text = format!(
                "{} of {} reached {} GB/s; {} is normal on {}",
                run.collective,
                size(largest.row.size),
                expectation::number(largest.rate),
                expectation::interval(&largest.normal),
                expectation::layout(&run.cluster)
            );
            let state = if run.verdict() == Verdict::Normal { ok } else { note };
            return state("bandwidth", text, Some(&largest.row.quote));
        }
        let expectation = Expectation::of(self.case);
        let cluster = expectation.as_ref().and_then(|it| {
            if self.case.spans_nodes()? { it.across(self.case) } else { it.inside(self.case) }
        });
        match cluster.filter(|_| self.set_up()).and_then(|it| expectation::is_normal(&it)) {
            Some(text) => {
                let told = expectation.as_ref().and_then(|it| it.told);
                note("bandwidth", format!("not measured. {text}"), told)
            }
            None => lacks("bandwidth", Source::NcclTests),
        }
    }

    fn start(&self) -> Check {
        let timings = self
            .case
            .communicators
            .iter()
            .flat_map(|it| it.members.values())
            .filter_map(|it| it.facts.init_timings.as_ref());
        match timings.max_by(|a, b| a.value.total.total_cmp(&b.value.total)) {
            Some(seen) => {
                let what = if seen.value.split { "a split" } else { "a communicator" };
                ok(
                    "start",
                    format!(
                        "the slowest setup, {what} of {} ranks, took {:.2} s",
                        seen.value.n_ranks, seen.value.total
                    ),
                    Some(&seen.quote),
                )
            }
            None => not_checked("start", "printed by NCCL 2.22 and later"),
        }
    }

    fn environment(&self) -> Check {
        let mut names: BTreeMap<&str, (bool, &Quote)> = BTreeMap::new();
        for process in &self.case.processes {
            for seen in &process.facts.environment {
                let name = &*seen.value.0;
                let by_plugin = process.added_by_plugin(name);
                names.entry(name).or_insert((by_plugin, &seen.quote));
            }
        }
        let Some((_, quote)) = names.values().next() else {
            return if self.set_up() {
                ok("environment", "no variable was read by NCCL in these lines", None)
            } else {
                lacks("environment", Source::NcclLog)
            };
        };
        let by = |plugin: bool| {
            names.iter().filter(|it| it.1.0 == plugin).map(|it| *it.0).collect::<Vec<_>>().join(", ")
        };
        let (user, plugin) = (by(false), by(true));
        let text = match (user.is_empty(), plugin.is_empty()) {
            (false, false) => format!("set for the job: {user}; by the plugin: {plugin}"),
            (false, true) => format!("set for the job: {user}"),
            _ => format!("set by the plugin: {plugin}"),
        };
        ok("environment", text, Some(quote))
    }

    fn ras(&self) -> Check {
        match self.case.processes.iter().find_map(|it| it.facts.ras.first()) {
            Some(seen) => {
                ok("ras", format!("while it runs, the job answers at {}", seen.value), Some(&seen.quote))
            }
            None => not_checked("ras", "printed by NCCL 2.24 and later"),
        }
    }
}

fn connections(n: u32) -> String {
    if n == 1 { "1 connection".to_owned() } else { format!("{n} connections") }
}

fn case_is_single(case: &Case) -> bool {
    case.spans_nodes() == Some(false)
}

#[cfg(test)]
mod tests {
    use super::{State, checklist};
    use crate::diagnose;
    use crate::testing::case;

    #[test]
    fn nothing_read_is_not_checked() {
        let case = case("");
        let checks = checklist(&case, &diagnose(&case));
        assert!(checks.iter().all(|it| it.state == State::NotChecked), "{checks:#?}");
    }
}
