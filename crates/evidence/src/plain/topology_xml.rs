//! NCCL's topology XML, as far as rules about logs need it: one tag per line, as NCCL writes it.

use crate::source::Quote;

/// A topology dump.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopologyXml {
    /// The GPUs.
    pub gpus: Vec<XmlGpu>,
    /// The network devices.
    pub nets: Vec<XmlNet>,
    /// How many NVLink connections are listed.
    pub nvlinks: usize,
    /// CPUs whose NUMA node is unknown (`numaid="-1"`).
    pub cpus_without_numa: usize,
    /// PCI devices without a link width.
    pub pci_without_link: usize,
    /// PCI devices.
    pub pci: usize,
    /// The tags as they were read, for [`crate::topology`].
    pub(crate) text: String,
    /// The first line.
    pub quote: Option<Quote>,
}

/// A GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XmlGpu {
    /// Its NVML index.
    pub device: u32,
    /// Its compute capability, `80` for an A100.
    pub sm: Option<u32>,
    /// Its rank.
    pub rank: Option<u32>,
}

/// A network device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XmlNet {
    /// Its name.
    pub name: Box<str>,
    /// Mbit/s.
    pub speed: Option<u64>,
    /// Whether it can do GPUDirect.
    pub gpudirect: Option<bool>,
}

/// More than the dump of any machine has.
const TEXT_LIMIT: usize = 4 << 20;

pub(super) fn is_tag(line: &[u8]) -> bool {
    let inner = line.trim_ascii_start();
    [
        "<system",
        "</system",
        "<cpu ",
        "</cpu",
        "<pci ",
        "</pci",
        "<gpu ",
        "</gpu",
        "<nic",
        "</nic",
        "<net ",
        "<nvlink ",
        "<c2c ",
        "<pcilink ",
    ]
    .iter()
    .any(|it| inner.starts_with(it.as_bytes()))
}

pub(super) fn take(all: &mut Vec<TopologyXml>, open: &mut bool, line: &str, quote: &Quote) {
    let line = line.trim();
    if line.starts_with("<system") || !*open {
        all.push(TopologyXml { quote: Some(quote.clone()), ..TopologyXml::default() });
        *open = true;
    }
    let Some(xml) = all.last_mut() else { return };
    if let Some(tag) = line.find('<').and_then(|it| line.get(it..))
        && xml.text.len() < TEXT_LIMIT
    {
        xml.text.push_str(tag);
        xml.text.push('\n');
    }
    if line.starts_with("<gpu ") {
        if let Some(device) = number(line, "dev") {
            xml.gpus.push(XmlGpu { device, sm: number(line, "sm"), rank: number(line, "rank") });
        }
    } else if line.starts_with("<net ") {
        xml.nets.push(XmlNet {
            name: attribute(line, "name").unwrap_or_default().into(),
            speed: attribute(line, "speed").and_then(|it| it.parse().ok()),
            gpudirect: number(line, "gdr").map(|it| it != 0),
        });
    } else if line.starts_with("<nvlink ") {
        xml.nvlinks += 1;
    } else if line.starts_with("<cpu ") {
        xml.cpus_without_numa += usize::from(attribute(line, "numaid") == Some("-1"));
    } else if line.starts_with("<pci ") {
        xml.pci += 1;
        xml.pci_without_link += usize::from(matches!(attribute(line, "link_width"), Some("" | "0")));
    }
}

fn attribute<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let start = line.find(&format!(" {name}=\""))? + name.len() + 3;
    line.get(start..)?.split('"').next()
}

fn number(line: &str, name: &str) -> Option<u32> {
    attribute(line, name)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::take;
    use crate::source::{Quote, Spot};

    #[test]
    fn reads_tags() {
        let text = r#"<system version="1">
          <cpu numaid="-1" arch="x86_64">
            <pci busid="0000:00:09.0" class="0x030200" link_speed="" link_width="0">
              <gpu dev="0" sm="80" rank="0" gdr="1"/>
            </pci>
            <nic><net name="ens4" dev="0" speed="10000" gdr="0"/></nic>
            <net name="ens5" dev="1" speed="10000" gdr="0"/>"#;
        let (mut all, mut open) = (Vec::new(), false);
        for line in text.lines() {
            take(&mut all, &mut open, line, &Quote::new(Spot { region: 0, line: 0 }, line.as_bytes()));
        }
        let xml = &all[0];
        assert_eq!(
            (xml.gpus.len(), xml.cpus_without_numa, xml.pci_without_link, xml.nets.len()),
            (1, 1, 1, 1)
        );
        assert_eq!(xml.gpus[0].sm, Some(80));
    }
}
