//! Devices of a machine that are not like the others of it, or not as the catalogue has them: a PCIe link with fewer lanes, a NIC
//! with a lower rate, missing NVLinks.

use std::collections::BTreeMap;

use fabric::Machine;
use fabric::link;
use fabric::machine::{NvEnd, PciLink};

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
