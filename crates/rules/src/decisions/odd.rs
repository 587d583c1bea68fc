//! Devices of a machine that are not like the others of it, or not as the catalogue has them: a PCIe link with fewer lanes, a NIC
//! with a lower rate, missing NVLinks.

use std::collections::BTreeMap;

use fabric::Machine;
use fabric::link;
use fabric::machine::{NvEnd, PciLink};

use super::Question;
use crate::expected::number;

/// One device.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Oddity {
    /// `the PCIe link of GPU 3 has 24 GB/s, those of the others 48 GB/s`
    pub(crate) text: String,
    /// What to do about it.
    pub(crate) fix: &'static str,
}

/// A machine as it should be.
#[derive(Debug)]
pub(super) struct Repaired {
    pub(super) machine: Machine,
    pub(super) oddities: Vec<Oddity>,
}

const LINK: &str = "Look at the link on that node (`nvidia-smi -q -d PCIE`, `lspci -vv`: LnkSta against LnkCap), seat the card again, and leave \
                    the node out until it is repaired.";
const NIC: &str = "Look at the NIC on that node (`ibstat`, `rdma link`, `fi_info -p efa`), and that the container gets all NICs.";
const NVLINK: &str = "Look at the NVLinks on that node (`nvidia-smi nvlink -s`, Fabric Manager) and leave the node out until it is repaired.";

/// The machine with what is odd repaired; `None` if nothing is. `named` is what the catalogue has under its name.
pub(super) fn repaired(machine: &Machine, named: Option<&Machine>) -> Option<Repaired> {
    let mut found = Repaired { machine: machine.clone(), oddities: Vec::new() };
    found.gpu_links();
    found.nvlinks();
    found.nic_rates();
    if let Some(named) = named {
        found.as_named(named);
    }
    (!found.oddities.is_empty()).then_some(found)
}

impl Repaired {
    fn add(&mut self, text: String, fix: &'static str) {
        self.oddities.push(Oddity { text, fix });
    }

    fn gpu_links(&mut self) {
        let links: Vec<PciLink> = self.machine.gpus.iter().filter_map(|it| it.link).collect();
        let Some(usual) = usual(&links).filter(|_| links.len() == self.machine.gpus.len()) else { return };
        for at in 0..self.machine.gpus.len() {
            let gpu = &mut self.machine.gpus[at];
            let Some(link) = gpu.link.filter(|it| link::pci(*it) < link::pci(usual)) else { continue };
            gpu.link = Some(usual);
            // A log shows the bandwidth alone: Gen5 x4 is Gen3 x16.
            let text = format!(
                "the PCIe link of GPU {} has {} GB/s, those of the others {} GB/s",
                gpu.index,
                number(link::pci(link)),
                number(link::pci(usual))
            );
            self.add(text, LINK);
        }
    }

    fn nvlinks(&mut self) {
        let machine = &self.machine;
        let count = |gpu: usize| {
            let own = machine.nvlinks.iter().filter(|it| it.from == gpu && it.to == NvEnd::Switch);
            own.map(|it| it.count).sum::<u32>()
        };
        let counts: Vec<u32> = (0..machine.gpus.len()).map(count).collect();
        let Some(usual) = usual(&counts).filter(|it| *it > 0) else { return };
        let less: Vec<(usize, u32)> = counts.iter().copied().enumerate().filter(|it| it.1 < usual).collect();
        for (gpu, count) in less {
            let machine = &mut self.machine;
            machine.nvlinks.retain(|it| it.from != gpu || it.to != NvEnd::Switch);
            machine.nvlinks.push(fabric::machine::NvLink { from: gpu, to: NvEnd::Switch, count: usual });
            let text = format!("GPU {} has {count} NVLinks, the others {usual}", machine.gpus[gpu].index);
            self.add(text, NVLINK);
        }
    }

    /// More NICs than GPUs are for other traffic too, and may have other rates.
    fn nic_rates(&mut self) {
        let machine = &mut self.machine;
        let rates: Vec<f64> = machine.nics.iter().filter_map(|it| Some(it.rate?.0)).collect();
        if rates.len() != machine.nics.len() || machine.nics.len() > machine.gpus.len() {
            return;
        }
        let Some(usual) = usual(&rates) else { return };
        let mut texts = Vec::new();
        for nic in &mut machine.nics {
            let Some(rate) = nic.rate.filter(|it| it.0 < usual) else { continue };
            nic.rate = Some(fabric::units::GigabitsPerSecond(usual));
            texts.push(format!("NIC {} has {} Gbps, the others {usual}", nic.name, rate.0));
        }
        for it in texts {
            self.add(it, NIC);
        }
    }

    fn as_named(&mut self, named: &Machine) {
        let (here, there) = (self.machine.nics.len(), named.nics.len());
        let name = named.name.as_deref().unwrap_or("the machine").to_owned();
        if here < there {
            self.add(format!("NCCL sees {here} NICs, {name} has {there}"), NIC);
        }
        let links =
            |it: &Machine| it.nvlinks.iter().filter(|it| it.to == NvEnd::Switch).map(|it| it.count).max();
        if let (none, Some(count)) = (links(&self.machine), links(named))
            && none < Some(count)
        {
            let seen = none.unwrap_or(0);
            self.add(format!("the GPUs have {seen} NVLinks each, those of {name} {count}"), NVLINK);
        }
        if self.machine.bridges.is_empty() && !named.bridges.is_empty() && self.machine.nics.len() == there {
            self.add(
                format!("NCCL sees no PCIe switches, {name} has {}", named.bridges.len()),
                "Give NCCL the topology of the machine with NCCL_TOPO_FILE; `plumb explain vm-no-topology` says how.",
            );
        }
        if here < there || links(&self.machine) < links(named) || self.machine.bridges.is_empty() {
            self.machine = named.clone();
        }
    }
}

impl Question {
    /// The machine that most nodes are; of two as many the first.
    pub(super) fn usual_machine(&self) -> &Machine {
        let count = |it: usize| self.nodes_of(it).count();
        let most = (0..=self.others.len()).rev().max_by_key(|it| count(*it)).unwrap_or(0);
        self.machine_at(most)
    }

    /// The first machine, then the others.
    fn machine_at(&self, position: usize) -> &Machine {
        position.checked_sub(1).and_then(|it| self.others.get(it)).unwrap_or(&self.machine)
    }

    /// The nodes that are this machine.
    fn nodes_of(&self, machine: usize) -> impl Iterator<Item = usize> {
        let all = self.placement.iter().flat_map(|it| it.nodes.iter().enumerate());
        all.filter(move |it| *it.1 == machine).map(|it| it.0)
    }

    /// The same with every node like at least half of them, and what the rest lacks. `None` if it lacks nothing, or the nodes have other
    /// numbers of GPUs.
    pub(super) fn with_nodes_alike(&self) -> Option<(Self, Vec<Oddity>)> {
        let placement = self.placement.as_ref()?;
        let machines = 0..=self.others.len();
        let gpus = |it: usize| self.machine_at(it).gpus.len();
        if machines.clone().any(|it| gpus(it) != gpus(0)) {
            return None;
        }
        for usual in machines.clone().filter(|it| self.nodes_of(*it).count() * 2 >= placement.nodes.len()) {
            let machine = self.machine_at(usual);
            let mut oddities: Vec<Oddity> = Vec::new();
            for other in machines.clone().filter(|it| *it != usual) {
                for node in self.nodes_of(other) {
                    let host = self.hosts.get(node).map_or_else(|| node.to_string(), Clone::clone);
                    oddities.extend(lacks(&format!("node {host}"), self.machine_at(other), machine));
                }
            }
            if !oddities.is_empty() {
                let nodes = vec![0; placement.nodes.len()];
                let placement = fabric::Placement { nodes, ranks: placement.ranks.clone() };
                let (machine, placement) = (machine.clone(), Some(placement));
                let alike = Self { machine, others: Vec::new(), placement, ..self.clone() };
                return Some((alike, oddities));
            }
        }
        None
    }
}

/// What a node has less of than the others.
fn lacks(host: &str, here: &Machine, others: &Machine) -> Vec<Oddity> {
    let mut found = Vec::new();
    let mut add =
        |text: String, fix: &'static str| found.push(Oddity { text: format!("{host} {text}"), fix });
    let (nics, usual) = (here.nics.len(), others.nics.len());
    if nics < usual {
        add(format!("has {nics} NICs, the others {usual}"), NIC);
    }
    let rate = |it: &Machine| it.nics.iter().filter_map(|it| it.rate).map(|it| it.0).sum::<f64>();
    if nics == usual && rate(here) < rate(others) {
        add(
            format!("has NICs of {} Gbps in all, the others {}", number(rate(here)), number(rate(others))),
            NIC,
        );
    }
    let links = |it: &Machine| it.nvlinks.iter().map(|it| it.count).sum::<u32>();
    if links(here) < links(others) {
        add(format!("has {} NVLinks in all, the others {}", links(here), links(others)), NVLINK);
    }
    for (one, other) in here.gpus.iter().zip(&others.gpus) {
        if let (Some(one_link), Some(other_link)) = (one.link, other.link)
            && link::pci(one_link) < link::pci(other_link)
        {
            let (slow, fast) = (number(link::pci(one_link)), number(link::pci(other_link)));
            add(format!("has a PCIe link of {slow} GB/s to GPU {}, the others {fast} GB/s", one.index), LINK);
        }
    }
    found
}

/// The value that most of them have: more than half of at least three.
fn usual<T: Copy + std::fmt::Debug>(all: &[T]) -> Option<T> {
    let mut counts: BTreeMap<String, (usize, T)> = BTreeMap::new();
    for it in all {
        counts.entry(format!("{it:?}")).or_insert((0, *it)).0 += 1;
    }
    let (count, value) = counts.into_values().max_by_key(|it| it.0)?;
    (all.len() > 2 && count * 2 > all.len()).then_some(value)
}

#[cfg(test)]
mod tests {
    use fabric::catalogue;

    use super::repaired;

    #[test]
    fn one_that_is_not_like_the_others() {
        let mut machine = catalogue::machine("p5.48xlarge").unwrap().grouped();
        assert!(repaired(&machine, None).is_none());
        machine.gpus[3].link.as_mut().unwrap().width = 8;
        machine.nics[2].rate.as_mut().unwrap().0 /= 2.0;
        let at = machine.nvlinks.iter().position(|it| it.from == 5).unwrap();
        machine.nvlinks[at].count -= 6;
        let texts: Vec<String> =
            repaired(&machine, None).unwrap().oddities.into_iter().map(|it| it.text).collect();
        assert_eq!(texts.len(), 3, "{texts:?}");
        assert!(
            texts[0].starts_with("the PCIe link of GPU 3 has 24 GB/s, those of the others 48 GB/s"),
            "{texts:?}"
        );
        assert!(texts[1].ends_with("has 12 NVLinks, the others 18"), "{texts:?}");
        let whole = catalogue::machine("p5.48xlarge").unwrap().grouped();
        machine = whole.clone();
        machine.nics.pop();
        let texts: Vec<String> =
            repaired(&machine, Some(&whole)).unwrap().oddities.into_iter().map(|it| it.text).collect();
        assert_eq!(texts, ["NCCL sees 7 NICs, p5.48xlarge has 8"]);
    }
}
