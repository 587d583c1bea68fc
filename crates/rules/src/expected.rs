//! What NCCL should do on the job's machine, and which bandwidth is normal there: what a log is compared with.
//!
//! Crate `job` says which machine it is, crate `nccl` what NCCL does there, crate `forecast` which bandwidth that gives. Rules
//! take their numbers from here.

use std::sync::OnceLock;

use evidence::{Member, Quote};
use fabric::machine::{NicKind, PciLink};
use fabric::{Collective, Machine};
use forecast::{Between, Cluster, Inside, Normal, normal};
use job::Job;
use job::machine::seen_by_nccl;
use nccl::{Decision, Decisions, Layout, Path, PathType, Paths, Settings};

use crate::{Cost, Extent, Finding, Log, Price, Rates, Rule};

/// The size at which bandwidths are compared, and its name.
const SIZE: (u64, &str) = (1 << 30, "1 GiB");

/// The most GPUs and NICs of a machine that is judged: far more than any has, and the time grows with the cube.
const DEVICES: usize = 128;

/// What is expected of one machine.
#[derive(Debug)]
pub(crate) struct Expected {
    /// The machine as NCCL sees it: NICs that the plugin joins are one.
    pub(crate) machine: Machine,
    /// Its usual name.
    pub(crate) name: String,
    /// The line that names it; none where a matrix or XML describes it.
    pub(crate) named_by: Option<Quote>,
    /// Whether it is known by its name: from a line or a flag.
    pub(crate) named: bool,
    /// Whether it is known which device is below which switch.
    pub(crate) wired: bool,
    settings: Settings,
    /// What NCCL decides with these settings for one rank per GPU.
    decisions: OnceLock<Option<Decisions>>,
    /// The paths of the machine, whatever the settings allow.
    paths: OnceLock<Option<Paths>>,
    /// The machine with every NIC listed separately, for bandwidths.
    pub(crate) plain: Machine,
    /// The release without any variable: what the hardware allows.
    bare: Settings,
}

impl Expected {
    /// `None` where it is not known which machine it is.
    pub(crate) fn of(job: &Job) -> Option<Self> {
        let known = job.machines.first()?;
        let plain = known.value.clone();
        if plain.gpus.len().saturating_add(plain.nics.len()) > DEVICES {
            return None;
        }
        let settings = job.effective_settings();
        Some(Self {
            machine: seen_by_nccl(&plain),
            name: plain.name.as_deref().unwrap_or("this machine").to_owned(),
            named_by: job.model.as_ref().and_then(|it| it.source.quote()).cloned(),
            named: job.model.is_some(),
            wired: job.wired,
            bare: Settings::new(settings.version),
            settings,
            decisions: OnceLock::new(),
            paths: OnceLock::new(),
            plain,
        })
    }

    fn decisions(&self) -> Option<&Decisions> {
        let layout = || Layout::whole(&self.machine);
        self.decisions.get_or_init(|| Decisions::new(&self.machine, &self.settings, &layout()).ok()).as_ref()
    }

    fn paths(&self) -> Option<&Paths> {
        self.paths.get_or_init(|| Paths::new(&self.machine, &self.bare).ok()).as_ref()
    }

    /// GPUs of the machine.
    pub(crate) fn gpus(&self) -> u32 {
        u32::try_from(self.machine.gpus.len()).unwrap_or(u32::MAX)
    }

    /// The GPU of a rank by its position in the machine, if its bus id is one of the machine's or all GPUs are in use.
    pub(crate) fn gpu_of(&self, member: &Member) -> Option<usize> {
        let line = member.line()?;
        let by_bus =
            self.machine.gpus.iter().position(|it| it.bus.is_some_and(|it| Some(it.0) == line.bus_id));
        let local = member.facts.layout.as_ref().map(|it| it.value.local_ranks);
        let by_index = || {
            // In a container with some of the GPUs the driver counts only those.
            let index = line.nvml_device.filter(|_| local == Some(self.gpus()))?;
            self.machine.gpus.iter().position(|it| it.index == index)
        };
        by_bus.or_else(by_index)
    }

    /// The GPUs of two ranks. Where all pairs of GPUs are alike, any pair represents them.
    pub(crate) fn gpus_of(&self, log: &Log, ranks: (u32, u32)) -> Option<(usize, usize)> {
        let gpu_of = |rank| {
            let mut members = log.case.communicators.iter().filter_map(|it| it.members.get(&rank));
            members.find_map(|it| self.gpu_of(it))
        };
        if let (Some(one), Some(other)) = (gpu_of(ranks.0), gpu_of(ranks.1)) {
            return (one != other).then_some((one, other));
        }
        let positions = 0..self.machine.gpus.len();
        let first = self.wires(0, 1)?;
        let alike = positions.clone().all(|one| {
            positions
                .clone()
                .all(|other| one == other || self.wires(one, other).is_some_and(|it| it.kind == first.kind))
        });
        (alike && self.wired).then_some((0, 1))
    }

    /// The NVLink that joins the GPUs of two ranks.
    pub(crate) fn nvlink(&self, log: &Log, ranks: (u32, u32)) -> Option<Path> {
        let (one, other) = self.gpus_of(log, ranks)?;
        self.wires(one, other).filter(|it| matches!(it.kind, PathType::Nvl | PathType::Nvb))
    }

    /// What NCCL should do between two GPUs, by their positions in the machine.
    pub(crate) fn between(&self, one: usize, other: usize) -> Option<Decision> {
        let decisions = self.decisions()?;
        let rank = |gpu| (0..decisions.layout().ranks()).find(|it| decisions.gpu(*it) == Some(gpu));
        decisions.transport(rank(one)?, rank(other)?)
    }

    /// The path between two GPUs by the wires, whatever variables allow.
    pub(crate) fn wires(&self, one: usize, other: usize) -> Option<Path> {
        Some(self.paths()?.gpu_wires(one, other)).filter(|it| it.is_connected() && one != other)
    }

    /// The NICs next to a GPU.
    pub(crate) fn nics(&self, gpu: usize) -> Option<nccl::NearNics> {
        self.paths()?.near_nics(gpu)
    }

    /// The path from a GPU to a NIC by the wires, by their positions in the machine.
    pub(crate) fn to_nic(&self, gpu: usize, nic: usize) -> Option<Path> {
        Some(self.paths()?.nic_wires(gpu, nic)).filter(Path::is_connected)
    }

    /// One machine divided into pods of one GPU, each with this many NICs.
    pub(crate) fn pods(&self, pods: u32, nics: Option<u32>) -> Option<Decisions> {
        let fits = nics.filter(|it| it.saturating_mul(pods) as usize <= self.machine.nics.len());
        let layout = Layout { nics_per_pod: fits, ..Layout::new(pods, 1) };
        Decisions::new(&self.machine, &self.bare, &layout).ok()
    }

    /// How many interfaces one network device of NCCL combines.
    pub(crate) fn interfaces(&self) -> u32 {
        let each = self.plain.nics.len().checked_div(self.machine.nics.len());
        each.and_then(|it| u32::try_from(it).ok()).unwrap_or(1)
    }

    /// Machines with this many GPUs of each in use, limited by the hardware alone.
    pub(crate) fn cluster(&self, nodes: u32, gpus: u32) -> Option<Cluster> {
        self.cluster_of(&self.plain, nodes, gpus)
    }

    fn cluster_of(&self, machine: &Machine, nodes: u32, gpus: u32) -> Option<Cluster> {
        Cluster::of_machine(machine, nodes, &self.bare).ok()?.with_pods(1, gpus).ok()
    }

    /// The GPUs of one machine in use by this job; all, where the input does not show it.
    pub(crate) fn inside(&self, log: &Log) -> Option<Cluster> {
        self.cluster(1, self.gpus_in_use(log))
    }

    /// The same with PCI Express links of some generation where none is known: their rate cancels out of a ratio.
    fn inside_with_some_links(&self, log: &Log) -> Option<Cluster> {
        let mut machine = self.plain.clone();
        for gpu in &mut machine.gpus {
            gpu.link = gpu.link.or_else(|| PciLink::generation(4));
        }
        self.cluster_of(&machine, 1, self.gpus_in_use(log))
    }

    fn gpus_in_use(&self, log: &Log) -> u32 {
        let local = log.job.size.reported_layout().map(|it| it.ranks_per_node);
        local.filter(|it| (2..=self.gpus()).contains(it)).unwrap_or(self.gpus())
    }

    /// The job as NCCL counts its nodes; two whole machines, where the input does not show it.
    pub(crate) fn across(&self, log: &Log) -> Option<Cluster> {
        match log.job.size.reported_layout() {
            Some(it) if it.is_even() && it.nodes > 1 => self.cluster(it.nodes, it.ranks_per_node),
            Some(_) => None,
            None => self.cluster(2, self.gpus()),
        }
    }
}

/// The same cluster with another network.
fn with_network(cluster: &Cluster, change: impl FnOnce(&mut Between)) -> Cluster {
    let mut changed = cluster.clone();
    if let Some(between) = &mut changed.between {
        change(between);
    }
    changed
}

/// Without GPUDirect RDMA.
pub(crate) fn without_gpudirect(cluster: &Cluster) -> Cluster {
    with_network(cluster, |it| it.gpudirect = false)
}

/// Over TCP.
pub(crate) fn over_tcp(cluster: &Cluster) -> Cluster {
    with_network(cluster, |it| (it.kind, it.gpudirect) = (NicKind::Ethernet, false))
}

/// With GPUs that exchange data through host memory.
pub(crate) fn through_host(cluster: &Cluster) -> Cluster {
    Cluster { inside: Inside::Pci { peer_to_peer: false }, ..cluster.clone() }
}

/// With GPUs that exchange data over PCI Express.
pub(crate) fn over_pci(cluster: &Cluster) -> Cluster {
    Cluster { inside: Inside::Pci { peer_to_peer: true }, ..cluster.clone() }
}

/// What is normal for the collective that all comparisons use.
pub(crate) fn usual(cluster: &Cluster) -> Option<Normal> {
    normal(Collective::AllReduce, cluster, SIZE.0)
}

/// Numbers of a finding: a sentence, and what the problem costs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Numbers {
    pub(crate) sentence: String,
    pub(crate) cost: Option<Cost>,
    pub(crate) price: Option<Price>,
}

impl Numbers {
    fn new(sentence: String, cost: Option<Cost>) -> Self {
        Self { sentence, cost, price: None }
    }

    /// The cost is one of these paths.
    fn about(self, paths: Extent) -> Self {
        Self { cost: self.cost.map(|it| Cost { paths: Some(paths), ..it }), ..self }
    }
}

impl From<String> for Numbers {
    fn from(sentence: String) -> Self {
        Self::new(sentence, None)
    }
}

/// A factor that is worth mentioning: a loss that is small here may be larger for other sizes.
const FACTOR: f64 = 1.15;

/// A factor that a forecast can tell from none.
const LEAST: f64 = 1.03;

/// What a loss of some percent of the bandwidth of a collective is, in a sentence. Where large all-reduces do not lose, because they are
/// limited elsewhere, all-gather does.
pub(crate) fn share_lost(best: &Cluster, now: &Cluster) -> Option<Numbers> {
    for collective in [Collective::AllReduce, Collective::AllGather] {
        let rate = |it: &Cluster| Some(normal(collective, it, SIZE.0)?.expected);
        let (best_rate, now_rate) = (rate(best)?, rate(now)?);
        let factor = best_rate / now_rate;
        if factor < LEAST {
            continue;
        }
        let sentence = format!(
            "Expected loss: {collective} of {} on {} normally gives about {} GB/s, but only about {} GB/s in this setup, {} % less.",
            SIZE.1,
            layout(best),
            number(best_rate),
            number(now_rate),
            (100.0 * (1.0 - 1.0 / factor)).round()
        );
        let rates = Some(Rates { normal: best_rate, here: now_rate });
        let all_reduce = collective == Collective::AllReduce && factor >= FACTOR;
        return Some(Numbers::new(sentence, all_reduce.then_some(Cost { factor, rates, paths: None })));
    }
    None
}

/// The loss; `None` where nothing can be measured.
pub(crate) fn loss(best: &Cluster, now: &Cluster) -> Option<Numbers> {
    let (best_normal, now_normal) = (usual(best)?, usual(now)?);
    let (best_rate, now_rate) = (best_normal.expected, now_normal.expected);
    let factor = best_rate / now_rate;
    let times = if factor < FACTOR { String::new() } else { format!(", {} times less", number(factor)) };
    let sentence = format!(
        "Expected loss: all_reduce of {} on {} normally gives about {} GB/s, but only about {} GB/s in this setup{times}.",
        SIZE.1,
        layout(best),
        number(best_rate),
        number(now_rate)
    );
    let rates = Some(Rates { normal: best_rate, here: now_rate });
    Some(Numbers::new(sentence, (factor >= FACTOR).then_some(Cost { factor, rates, paths: None })))
}

/// What this job loses between nodes by a change against what its machines can do, in a sentence.
pub(crate) fn loss_across(log: &Log, change: impl FnOnce(&Cluster) -> Cluster) -> Option<Numbers> {
    let best = log.expected()?.across(log)?;
    let now = change(&best);
    let price = log.priced().and_then(|it| it.across(best.between.as_ref()?, now.between.as_ref()?));
    Some(Numbers { price, ..loss(&best, &now)?.about(Extent::BetweenNodes) })
}

/// What TCP costs this job in every step, where NCCL uses it.
pub(crate) fn price_of_tcp(log: &Log, chosen: Option<&Quote>) -> Option<Price> {
    chosen.and_then(|_| loss_across(log, over_tcp)?.price)
}

/// The same inside one machine.
pub(crate) fn loss_inside(log: &Log, change: impl FnOnce(&Cluster) -> Cluster) -> Option<Numbers> {
    let expected = log.expected()?;
    if let Some(best) = expected.inside(log) {
        let now = change(&best);
        let price = log.priced().and_then(|it| it.inside(&now.inside));
        return Some(Numbers { price, ..loss(&best, &now)?.about(Extent::InsideNodes) });
    }
    let best = expected.inside_with_some_links(log)?;
    let factor = usual(&best)?.expected / usual(&change(&best))?.expected;
    (factor >= FACTOR).then(|| {
        let sentence = format!("Expected loss: about {} times less bandwidth than directly between the GPUs; the rates of the PCIe links are not known.", number(factor));
        Numbers::new(sentence, Some(Cost { factor, rates: None, paths: Some(Extent::InsideNodes) }))
    })
}

/// With this many of its network devices.
pub(crate) fn with_nics(nics: u32) -> impl FnOnce(&Cluster) -> Cluster {
    move |cluster| with_network(cluster, |it| it.nics = nics.max(1))
}

/// What is normal, in a sentence.
pub(crate) fn is_normal(cluster: &Cluster) -> Option<String> {
    Some(format!(
        "Normal here: all_reduce of {} on {} gives {}.",
        SIZE.1,
        layout(cluster),
        interval(&usual(cluster)?)
    ))
}

/// `4.1 to 5.3 GB/s`
pub(crate) fn interval(normal: &Normal) -> String {
    format!("{} to {} GB/s", number(normal.low), number(normal.high))
}

/// `2 nodes with 8 GPUs each (p5.48xlarge)`
pub(crate) fn layout(cluster: &Cluster) -> String {
    let gpus = if cluster.gpus == 1 { "1 GPU".to_owned() } else { format!("{} GPUs", cluster.gpus) };
    let pods = cluster.nodes.saturating_mul(cluster.pods);
    match (pods, cluster.pods) {
        (1, _) => format!("{gpus} of {}", article(&cluster.machine)),
        (_, 1) if cluster.machine.starts_with("this ") => format!("{pods} nodes with {gpus} each"),
        (_, 1) => format!("{pods} nodes with {gpus} each ({})", cluster.machine),
        _ => format!("{pods} pods with {gpus} each ({})", cluster.machine),
    }
}

/// `one p4d.24xlarge`, but `this machine`.
fn article(name: &str) -> String {
    if name.starts_with("this ") { name.to_owned() } else { format!("one {name}") }
}

/// Two digits: a forecast is not more accurate.
pub(crate) fn number(value: f64) -> String {
    if value >= 10.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

impl Finding {
    /// Puts a sentence with numbers before the reason of the rule.
    #[must_use]
    pub(crate) fn with_numbers(mut self, rule: &Rule, numbers: Option<impl Into<Numbers>>) -> Self {
        let Some(Numbers { sentence, cost, price }) = numbers.map(Into::into) else { return self };
        self.cost = cost.or(self.cost);
        self.price = price.or(self.price);
        let why = self.why.clone().unwrap_or_else(|| rule.why.to_owned());
        self.why(format!("{sentence} {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::{Expected, is_normal, layout, loss, number, through_host, without_gpudirect};
    use crate::testing::read;

    const P4D: &str =
        "a:1:2 [0] NCCL INFO NET/OFI Running on p4d.24xlarge platform, topology file /x/p4d.xml\n";

    #[test]
    fn the_machine_is_the_one_named_or_shown() {
        let named = read(P4D);
        let named = Expected::of(&named.job).unwrap();
        assert_eq!((&*named.name, named.gpus(), named.wired), ("p4d.24xlarge", 8, true));
        let shown = read("\tGPU0\tGPU1\nGPU0\t X \tNV12\nGPU1\tNV12\t X \n");
        let shown = Expected::of(&shown.job).unwrap();
        assert_eq!((shown.gpus(), shown.named_by), (2, None));
        assert!(Expected::of(&read("").job).is_none());
        assert!(Expected::of(&read("instance-type: x9.huge\n").job).is_none());
    }

    #[test]
    fn nics_that_the_plugin_joins_are_one() {
        let p5 = read("instance-type: p5.48xlarge\n");
        assert_eq!(Expected::of(&p5.job).unwrap().machine.nics.len(), 8);
    }

    #[test]
    fn losses_have_numbers() {
        let case = read(P4D);
        let p4d = Expected::of(&case.job).unwrap();
        let one = p4d.inside(&case).unwrap();
        let text = loss(&one, &through_host(&one)).unwrap().sentence;
        assert!(text.contains("on 8 GPUs of one p4d.24xlarge normally gives about 2"), "{text}");
        assert!(text.contains("times less"), "{text}");
        let two = p4d.across(&case).unwrap();
        assert_eq!(layout(&two), "2 nodes with 8 GPUs each (p4d.24xlarge)");
        assert!(loss(&two, &without_gpudirect(&two)).is_some());
        assert!(is_normal(&two).unwrap().contains(" to "));
        assert!(is_normal(&p4d.cluster(1, 1).unwrap()).is_none());
    }

    #[test]
    fn variables_of_the_case_count() {
        let log = format!("{P4D}a:1:2 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1.\n");
        let transport = |log: &str| {
            let case = read(log);
            Expected::of(&case.job).unwrap().between(0, 1).unwrap().transport.unwrap().family()
        };
        assert_eq!(transport(P4D), "P2P");
        assert_eq!(transport(&log), "SHM");
    }

    #[test]
    fn two_digits() {
        assert_eq!([6.04, 9.96, 37.4].map(number), ["6.0", "10.0", "37"]);
    }
}
