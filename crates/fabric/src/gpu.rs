//! GPU models: memory, peak speeds and links, as NVIDIA publishes them.
//!
//! The numbers are in `data/gpus.json`, each model with its sources. For other models `data/nvlink.csv` says whether NVLink connects
//! them. Peaks are those of dense matrices, never the doubled figures for sparse ones that data sheets print first.

use std::sync::OnceLock;

use serde::Deserialize;

use crate::units::{Gibibytes, GigabytesPerSecond};

/// A model of GPU. `None` means that no source states it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuModel {
    /// Its full name: `A100-SXM4-40GB`.
    pub name: String,
    /// Its usual name: `A100`.
    pub family: String,
    /// How it is built.
    pub form: Form,
    /// Nominal memory, in 1e9 bytes.
    #[serde(rename = "memory_GB")]
    pub memory_gigabytes: f64,
    /// Memory as the driver or the EC2 API reports it.
    #[serde(rename = "memory_GiB")]
    pub memory: Option<Gibibytes>,
    /// The kind of memory: `HBM3`.
    pub memory_kind: String,
    /// Bandwidth of its memory.
    #[serde(rename = "memory_GBps")]
    pub memory_bandwidth: GigabytesPerSecond,
    /// Compute capability, `90` for 9.0.
    pub compute: u32,
    /// The PCI Express generation.
    pub pcie_gen: Option<u8>,
    /// PCI Express lanes.
    pub pcie_lanes: u32,
    /// Peak speeds.
    #[serde(rename = "peak_TFLOPS")]
    pub peak: Peak,
    /// Its links to other GPUs.
    pub nvlink: Option<NvLinkPort>,
    /// Whether its NVSwitches can reduce: NVLink SHARP, which NCCL calls NVLS.
    pub nvls: bool,
    /// Bandwidth of the chip-to-chip link to its CPU, one way.
    #[serde(rename = "c2c_GBps")]
    pub c2c: Option<GigabytesPerSecond>,
    /// Other names that do not follow from the parts of the name.
    pub aliases: Vec<String>,
    /// Where the numbers come from.
    pub source: Vec<String>,
}

/// How a GPU is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Form {
    /// A module on a board, connected by NVLink.
    #[serde(rename = "SXM")]
    Sxm,
    /// A card.
    #[serde(rename = "PCIe")]
    Pcie,
    /// A card with a bridge to its neighbours.
    #[serde(rename = "NVL")]
    Nvl,
    /// On one board with a Grace CPU.
    Superchip,
}

/// Peak speeds in 1e12 operations per second, dense matrices, by precision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peak {
    /// FP64, with Tensor Cores if they support it.
    pub fp64: Option<f64>,
    /// FP32, without Tensor Cores.
    pub fp32: Option<f64>,
    /// TF32.
    pub tf32: Option<f64>,
    /// FP16.
    pub fp16: Option<f64>,
    /// BF16.
    pub bf16: Option<f64>,
    /// FP8.
    pub fp8: Option<f64>,
    /// FP4.
    pub fp4: Option<f64>,
}

/// What a GPU is built for, by which it is sold with a fast network or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GpuClass {
    /// Training on many machines, which have InfiniBand, RoCE, EFA or the like.
    DataCentre,
    /// Small cards of data centres: T4, A10, L4.
    Card,
    /// Desktops.
    Workstation,
}

/// All NVLink of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NvLinkPort {
    /// The generation.
    pub generation: u8,
    /// How many links.
    pub links: u32,
    /// Bandwidth of all of them, both directions together.
    #[serde(rename = "GBps_bidir")]
    pub bidirectional: GigabytesPerSecond,
    /// What they lead to.
    pub by: NvLinkBy,
}

/// What NVLink of a GPU leads to, also of a GPU without any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NvLinkKind {
    /// It has no NVLink.
    None,
    /// A bridge to one neighbour, if installed.
    Bridge,
    /// Direct links between GPUs; not every pair has one.
    Wires,
    /// Switches that connect all GPUs of the machine.
    Switch,
}

/// What NVLink leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NvLinkBy {
    /// Switches that connect all GPUs of the machine.
    Switch,
    /// A bridge to one neighbour, or to three.
    Bridge,
    /// Direct links between GPUs.
    Wires,
}

impl Form {
    /// `SXM`, as in names and data sheets.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sxm => "SXM",
            Self::Pcie => "PCIe",
            Self::Nvl => "NVL",
            Self::Superchip => "superchip",
        }
    }
}

impl Peak {
    /// The peaks that are known, with their names, smallest numbers last.
    pub fn known(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let all = [
            ("FP64", self.fp64),
            ("FP32", self.fp32),
            ("TF32", self.tf32),
            ("FP16", self.fp16),
            ("BF16", self.bf16),
            ("FP8", self.fp8),
            ("FP4", self.fp4),
        ];
        all.into_iter().filter_map(|(name, peak)| Some((name, peak?)))
    }
}

impl NvLinkPort {
    /// Bandwidth of all links in one direction.
    pub fn one_way(&self) -> GigabytesPerSecond {
        GigabytesPerSecond(self.bidirectional.0 / 2.0)
    }
}

/// Every model, older ones first; within a family, the one meant by the bare name first.
pub fn all() -> &'static [GpuModel] {
    static ALL: OnceLock<Vec<GpuModel>> = OnceLock::new();
    // The data is part of the binary and a test reads it: no error can happen here.
    ALL.get_or_init(|| read().unwrap_or_default())
}

/// The model with this name, as drivers, manifests and people write it.
///
/// `NVIDIA H100 80GB HBM3`, `H100-80GB`, `h100`, `Tesla V100-SXM2-32GB`, `NVIDIA A100 80GB PCIe`: form factor and memory must match if
/// the name states them; otherwise the most common variant is used. A name with unknown words matches nothing.
pub fn find(name: &str) -> Option<&'static GpuModel> {
    if name.len() > 100 {
        return None;
    }
    let words = words(name);
    if words.is_empty() {
        return None;
    }
    let exact = |it: &&GpuModel| {
        std::iter::once(&it.name).chain(&it.aliases).any(|known| self::words(known) == words)
    };
    all().iter().find(exact).or_else(|| all().iter().find(|it| it.fits(&words)))
}

/// The model that a text names among other words, as a driver's name of a device does: `NVIDIA A100-SXM4-40GB MIG 1g.5gb`.
///
/// The longest run of words that [`find`] knows wins.
pub fn by_name_in_text(text: &str) -> Option<&'static GpuModel> {
    /// No name of a model has more words.
    const LONGEST: usize = 8;
    if text.len() > 1000 {
        return None;
    }
    let words = words(text);
    (1..=words.len().min(LONGEST))
        .rev()
        .find_map(|length| words.windows(length).find_map(|run| find(&run.join(" "))))
}

/// What the NVLinks of the GPU named in a text connect to; `None` if no source states it.
pub fn nvlink_in_text(text: &str) -> Option<NvLinkKind> {
    if let Some(model) = by_name_in_text(text) {
        return Some(model.nvlink_kind());
    }
    let words = words(text);
    let named = |it: &&NvLinkRow| self::words(&it.words).iter().all(|word| words.contains(word));
    nvlink_rows().iter().find(named).map(|it| it.nvlink)
}

/// What the GPU named in a text is built for; `None` if the catalogue does not have it.
pub fn class_in_text(text: &str) -> Option<GpuClass> {
    if text.contains("AMD Instinct") {
        return Some(GpuClass::DataCentre);
    }
    if text.contains("GeForce") {
        return Some(GpuClass::Workstation);
    }
    by_name_in_text(text).map(GpuModel::class)
}

/// Whether GPUs whose names have this word can reach each other's memory without a detour through the host; none where
/// no source says so.
pub fn peer_access_in_text(text: &str) -> Option<bool> {
    static ALL: OnceLock<Vec<PeerAccessRow>> = OnceLock::new();
    // The data is part of the binary and a test reads it: no error can happen here.
    let rows = ALL.get_or_init(|| read_peer_access().unwrap_or_default());
    rows.iter().find(|it| text.contains(&it.word)).map(|it| it.peer_access)
}

/// A row of `data/peer_access.csv`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PeerAccessRow {
    word: String,
    peer_access: bool,
    #[cfg_attr(not(test), expect(dead_code, reason = "a test holds that every row has one"))]
    source: String,
}

fn read_peer_access() -> csv::Result<Vec<PeerAccessRow>> {
    csv::Reader::from_reader(include_bytes!("../data/peer_access.csv").as_slice()).deserialize().collect()
}

/// A row of `data/nvlink.csv`: GPUs whose names have all these words. The first matching row applies.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NvLinkRow {
    words: String,
    nvlink: NvLinkKind,
    #[cfg_attr(not(test), expect(dead_code, reason = "a test holds that every row has one"))]
    source: String,
}

fn nvlink_rows() -> &'static [NvLinkRow] {
    static ALL: OnceLock<Vec<NvLinkRow>> = OnceLock::new();
    // The data is part of the binary and a test reads it: no error can happen here.
    ALL.get_or_init(|| read_nvlink().unwrap_or_default())
}

fn read_nvlink() -> csv::Result<Vec<NvLinkRow>> {
    csv::Reader::from_reader(include_bytes!("../data/nvlink.csv").as_slice()).deserialize().collect()
}

impl GpuModel {
    /// What its NVLink leads to.
    pub fn nvlink_kind(&self) -> NvLinkKind {
        match self.nvlink.map(|it| it.by) {
            None => NvLinkKind::None,
            Some(NvLinkBy::Bridge) => NvLinkKind::Bridge,
            Some(NvLinkBy::Wires) => NvLinkKind::Wires,
            Some(NvLinkBy::Switch) => NvLinkKind::Switch,
        }
    }

    /// What it is built for.
    pub fn class(&self) -> GpuClass {
        // Cards with less memory are as often as not in machines with plain Ethernet.
        const LARGE: f64 = 40.0;
        if self.family.starts_with("RTX") || self.family == "GB10" {
            GpuClass::Workstation
        } else if self.memory_kind.starts_with("HBM") || self.memory_gigabytes >= LARGE {
            GpuClass::DataCentre
        } else {
            GpuClass::Card
        }
    }

    fn fits(&self, words: &[String]) -> bool {
        let family = self::words(&self.family);
        family.iter().all(|part| words.contains(part))
            && words.iter().filter(|it| !family.contains(it)).all(|it| self.may_be_called(it))
    }

    /// Whether a word other than the family may be part of the name of this model.
    fn may_be_called(&self, word: &str) -> bool {
        if let Some(number) = word.strip_suffix("gb").or_else(|| word.strip_suffix("g"))
            && let Ok(gigabytes) = number.parse::<u16>()
        {
            // A GPU sold with 180 GB is elsewhere listed with 192 or 183.
            return (f64::from(gigabytes) / self.memory_gigabytes - 1.0).abs() < 0.1;
        }
        match word {
            "tensor" | "core" | "ac" => true,
            "blackwell" | "server" | "edition" | "se" => self.compute >= 100,
            "grace" | "superchip" => self.form == Form::Superchip,
            "pcie" => self.form == Form::Pcie,
            "nvl" => self.form == Form::Nvl,
            _ if word.starts_with("sxm") => self.form == Form::Sxm,
            _ => word.eq_ignore_ascii_case(&self.memory_kind),
        }
    }
}

/// The words of a name in lower case, without words that any name may have: `rtx4090` is two words, like `RTX 4090`.
fn words(name: &str) -> Vec<String> {
    let name = name.to_ascii_lowercase();
    let parts = name
        .split(|it: char| !it.is_ascii_alphanumeric())
        .filter(|it| !matches!(*it, "" | "nvidia" | "tesla" | "geforce" | "gpu"));
    let mut words = Vec::new();
    for part in parts {
        match part.strip_prefix("rtx").filter(|it| !it.is_empty()) {
            Some(rest) => words.extend(["rtx".to_owned(), rest.to_owned()]),
            None => words.push(part.to_owned()),
        }
    }
    words
}

fn read() -> serde_json::Result<Vec<GpuModel>> {
    serde_json::from_str(include_str!("../data/gpus.json"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{
        Form, GpuClass, NvLinkBy, NvLinkKind, all, by_name_in_text, class_in_text, find, nvlink_in_text,
        peer_access_in_text, read, read_nvlink, read_peer_access, words,
    };

    #[test]
    fn the_data_can_be_read_and_is_sourced() {
        assert_eq!(read().unwrap().len(), all().len());
        let names: BTreeSet<_> = all().iter().map(|it| it.name.to_ascii_lowercase()).collect();
        assert_eq!(names.len(), all().len());
        for it in all() {
            assert!(!it.source.is_empty(), "{} has no source", it.name);
            assert_eq!(find(&it.name), Some(it));
            assert!(it.aliases.iter().all(|alias| find(alias) == Some(it)), "{}", it.name);
        }
    }

    #[test]
    fn finds_the_names_people_and_drivers_use() {
        for (name, want) in [
            ("H100-80GB", "H100-SXM5-80GB"),
            ("NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"),
            ("h100", "H100-SXM5-80GB"),
            ("NVIDIA H100 PCIe", "H100-PCIE-80GB"),
            ("NVIDIA H100 NVL", "H100-NVL-94GB"),
            ("A100", "A100-SXM4-80GB"),
            ("A100-40GB", "A100-SXM4-40GB"),
            ("A100-SXM4-40GB", "A100-SXM4-40GB"),
            ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
            ("NVIDIA A100 80GB PCIe", "A100-PCIE-80GB"),
            ("NVIDIA A100-PCIE-40GB", "A100-PCIE-40GB"),
            ("V100-32GB", "V100-SXM2-32GB"),
            ("V100 32GB", "V100-SXM2-32GB"),
            ("Tesla V100-SXM2-32GB", "V100-SXM2-32GB"),
            ("Tesla V100-PCIE-16GB", "V100-PCIE-16GB"),
            ("Tesla T4", "T4"),
            ("NVIDIA A10G", "A10G"),
            ("NVIDIA A10", "A10"),
            ("NVIDIA L40S", "L40S"),
            ("NVIDIA L4", "L4"),
            ("h200", "H200-SXM5-141GB"),
            ("H200-141GB", "H200-SXM5-141GB"),
            ("NVIDIA H200 NVL", "H200-NVL-141GB"),
            ("NVIDIA GH200 480GB", "GH200-96GB"),
            ("NVIDIA B200", "B200-180GB"),
            ("B200-192GB", "B200-180GB"),
            ("NVIDIA B300 SXM6 AC", "B300-288GB"),
            ("NVIDIA GB200", "GB200-186GB"),
            ("NVIDIA GB300", "GB300-279GB"),
            ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX-PRO-6000-Blackwell-SE"),
            ("RTX PRO 4500 Blackwell SE", "RTX-PRO-4500-Blackwell-SE"),
            ("NVIDIA GeForce RTX 4090", "RTX-4090"),
            ("rtx3090", "RTX-3090"),
            ("NVIDIA GeForce RTX 5090", "RTX-5090"),
            ("NVIDIA A40", "A40"),
            ("NVIDIA RTX A6000", "RTX-A6000"),
            ("A6000", "RTX-A6000"),
            ("NVIDIA RTX 6000 Ada Generation", "RTX-6000-Ada"),
            ("NVIDIA L40", "L40"),
            ("NVIDIA H20", "H20-96GB"),
            ("NVIDIA H20-3e", "H20-141GB"),
            ("NVIDIA H800", "H800-SXM5-80GB"),
            ("NVIDIA H800 PCIe", "H800-PCIE-80GB"),
            ("NVIDIA A800-SXM4-80GB", "A800-SXM4-80GB"),
            ("NVIDIA A800 80GB PCIe", "A800-PCIE-80GB"),
            ("NVIDIA GB10", "GB10"),
        ] {
            assert_eq!(find(name).map(|it| it.name.as_str()), Some(want), "{name}");
        }
    }

    #[test]
    fn what_does_not_fit_is_not_found() {
        for name in
            ["", "A100-64GB", "H100 is slow", "NVIDIA", "GB200 NVL72", "L40S SXM", "MI300X", "-", "gb", "é"]
        {
            assert_eq!(find(name).map(|it| &it.name), None, "{name}");
        }
        assert!(find(&"A100 ".repeat(1000)).is_none());
    }

    #[test]
    fn finds_a_model_among_other_words() {
        for (text, want) in [
            ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", Some("A100-SXM4-40GB")),
            ("NVIDIA A100-SXM-64GB", Some("A100-SXM4-80GB")),
            ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", Some("RTX-PRO-6000-Blackwell-SE")),
            ("NVIDIA H100 80GB HBM3", Some("H100-SXM5-80GB")),
            ("AMD Instinct MI300X", None),
            ("", None),
        ] {
            assert_eq!(by_name_in_text(text).map(|it| it.name.as_str()), want, "{text}");
        }
    }

    #[test]
    fn classes() {
        for (text, want) in [
            ("NVIDIA H100 80GB HBM3", Some(GpuClass::DataCentre)),
            ("Tesla V100-SXM2-16GB", Some(GpuClass::DataCentre)),
            ("NVIDIA L40S", Some(GpuClass::DataCentre)),
            ("AMD Instinct MI300X", Some(GpuClass::DataCentre)),
            ("NVIDIA L4", Some(GpuClass::Card)),
            ("NVIDIA GeForce RTX 3060", Some(GpuClass::Workstation)),
            ("NVIDIA RTX A6000", Some(GpuClass::Workstation)),
            ("NVIDIA GB10", Some(GpuClass::Workstation)),
            ("NVIDIA Z9", None),
        ] {
            assert_eq!(class_in_text(text), want, "{text}");
        }
    }

    #[test]
    fn peer_access() {
        assert!(read_peer_access().unwrap().iter().all(|it| !it.source.is_empty() && !it.word.is_empty()));
        assert_eq!(peer_access_in_text("NVIDIA GeForce RTX 4090"), Some(false));
        assert_eq!(peer_access_in_text("NVIDIA A10G"), Some(false));
        assert_eq!(peer_access_in_text("NVIDIA L4"), None);
    }

    #[test]
    fn nvlink_is_known_of_models_outside_the_list() {
        let rows = read_nvlink().unwrap();
        for (row, earlier) in rows.iter().enumerate().map(|(at, row)| (row, &rows[..at])) {
            assert!(!row.source.is_empty() && !words(&row.words).is_empty(), "{}", row.words);
            assert!(by_name_in_text(&row.words).is_none(), "{} is in gpus.json", row.words);
            let hidden =
                |it: &&super::NvLinkRow| words(&it.words).iter().all(|word| words(&row.words).contains(word));
            assert!(!earlier.iter().any(|it| hidden(&it)), "{} is never reached", row.words);
        }
        for (text, want) in [
            ("NVIDIA A10G", Some(NvLinkKind::None)),
            ("Tesla T4", Some(NvLinkKind::None)),
            ("NVIDIA GeForce RTX 4090", Some(NvLinkKind::None)),
            ("NVIDIA GeForce GTX 1080 Ti", Some(NvLinkKind::None)),
            ("NVIDIA GeForce RTX 3080 Ti", Some(NvLinkKind::None)),
            ("NVIDIA RTX 6000 Ada Generation", Some(NvLinkKind::None)),
            ("NVIDIA A40", Some(NvLinkKind::Bridge)),
            ("NVIDIA A100 80GB PCIe", Some(NvLinkKind::Bridge)),
            ("NVIDIA H800 PCIe", Some(NvLinkKind::Bridge)),
            ("NVIDIA H200 NVL", Some(NvLinkKind::Bridge)),
            ("Tesla V100-SXM2-32GB", Some(NvLinkKind::Wires)),
            ("NVIDIA H800", Some(NvLinkKind::Switch)),
            ("NVIDIA H20", Some(NvLinkKind::Switch)),
            ("NVIDIA GB200", Some(NvLinkKind::Switch)),
            ("NVIDIA Z9", None),
        ] {
            assert_eq!(nvlink_in_text(text), want, "{text}");
        }
    }

    #[test]
    fn no_model_contradicts_itself() {
        for it in all() {
            let name = &it.name;
            let peak = it.peak;
            assert!(it.memory_gigabytes > 0.0 && it.memory_bandwidth.0 > 0.0, "{name}");
            if let Some(gib) = it.memory {
                let ratio = gib.0 * 1.073_741_824 / it.memory_gigabytes;
                assert!((0.95..1.08).contains(&ratio), "{name}: {gib} for {} GB", it.memory_gigabytes);
            }
            // Half the bits, at least the speed.
            let by_precision = [peak.tf32, peak.bf16, peak.fp8, peak.fp4];
            let known: Vec<f64> = by_precision.into_iter().flatten().collect();
            assert!(known.windows(2).all(|it| it[1] >= 1.9 * it[0] || it[0] < 40.0), "{name}: {known:?}");
            assert!(peak.bf16.is_none() || peak.bf16 == peak.fp16, "{name}");
            // BF16 came with compute capability 8.0, FP8 with 8.9, FP4 with 10.0.
            assert!(peak.bf16.is_none() || it.compute >= 80, "{name}");
            assert!(peak.fp8.is_none() || it.compute >= 89, "{name}");
            assert!(peak.fp4.is_none() || it.compute >= 100, "{name}");
            if let Some(nvlink) = it.nvlink {
                let each = nvlink.bidirectional.0 / f64::from(nvlink.links);
                let want = [50.0, 50.0, 50.0, 100.0];
                let want = want[usize::from(nvlink.generation) - 2];
                // The four links of a GA102 are of another speed.
                assert!(it.compute == 86 || (each - want).abs() < 1e-9, "{name}: {each} GB/s a link");
            }
            let switched = it.nvlink.is_some_and(|it| it.by == NvLinkBy::Switch);
            assert_eq!(it.nvls, switched && it.compute >= 90, "{name}");
            assert_eq!(it.c2c.is_some(), it.form == Form::Superchip, "{name}");
        }
    }
}
