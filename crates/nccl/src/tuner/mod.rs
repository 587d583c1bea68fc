//! The tuner of aws-ofi-nccl: on some instance types the plugin, and not NCCL's model, says which algorithm and protocol is used.
//!
//! All of it is in `src/tuner` of aws/aws-ofi-nccl. The plugin makes NCCL load it since 1.16 (`NCCL_TUNER_PLUGIN`); before, a user has to.

mod chunk;
mod model;
pub(crate) mod platform;
mod region;

use std::fmt;

use fabric::collective::Collective;
use fabric::{Settings, Version};

use crate::Algorithm;
use crate::tuning::{Protocol, Tuning};
use model::Model;
use region::{Region, is_logarithmic, regions};

/// What the tuner wants for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Advice {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The protocol.
    pub protocol: Protocol,
    /// The most channels, where it says so.
    pub channels: Option<u32>,
}

/// Why the tuner leaves a call to NCCL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Abstention {
    /// This release of NCCL cannot load it: before 2.19, or a release of the plugin without the interface that NCCL asks for.
    NotLoadable,
    /// This release of the plugin is not loaded as tuner unless `NCCL_TUNER_PLUGIN` says so.
    NotLoaded,
    /// A variable turns it off.
    Variable(&'static str),
    /// It knows nothing of this instance type.
    Platform,
    /// It knows nothing of so few or so many ranks per node.
    RanksPerNode,
    /// It leaves one and two nodes to NCCL.
    FewNodes,
    /// It knows nothing of this collective here.
    Collective,
    /// The size is in none of its regions that NCCL can use.
    NoRegion,
}

impl fmt::Display for Abstention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotLoadable => {
                "this release of NCCL does not load the tuner of this release of aws-ofi-nccl"
            }
            Self::NotLoaded => {
                "aws-ofi-nccl loads its tuner by default only since 1.16; NCCL_TUNER_PLUGIN is not set"
            }
            Self::Variable(name) => return write!(f, "{name} turns the tuner of aws-ofi-nccl off"),
            Self::Platform => "aws-ofi-nccl has no tuner for this instance type",
            Self::RanksPerNode => {
                "the tuner of aws-ofi-nccl has no regions for this number of ranks per node"
            }
            Self::FewNodes => "the tuner of aws-ofi-nccl leaves up to two nodes to NCCL",
            Self::Collective => "the tuner of aws-ofi-nccl has no regions for this collective",
            Self::NoRegion => "no region of the tuner of aws-ofi-nccl covers this size",
        })
    }
}

/// The instance types that the tuner tells apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Platform {
    /// Up to 1.12 it did not ask.
    Any,
    P5,
    P5en,
    P6B200,
    P6B300,
}

impl Platform {
    fn new(plugin: Version, instance: &str) -> Option<Self> {
        if plugin < Version::new(1, 13, 0) {
            return Some(Self::Any);
        }
        match instance {
            "p5.48xlarge" | "p5e.48xlarge" => Some(Self::P5),
            "p5en.48xlarge" => Some(Self::P5en),
            "p6-b200.48xlarge" if plugin >= Version::new(1, 15, 0) => Some(Self::P6B200),
            "p6-b300.48xlarge" if plugin >= Version::new(1, 18, 0) => Some(Self::P6B300),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::P5 => "p5",
            Self::P5en => "p5en",
            Self::P6B200 => "p6-b200",
            Self::P6B300 => "p6-b300",
        }
    }
}

/// The tuner of a communicator.
#[derive(Debug, Clone)]
pub struct OfiTuner {
    settings: Settings,
    plugin: Version,
    platform: Platform,
    by_model: bool,
    ranks: u32,
    nodes: u32,
    /// By collective: all-reduce, all-gather, reduce-scatter.
    regions: [Vec<Region>; 3],
}

/// The collectives that it has regions for.
const COLLECTIVES: [Collective; 3] =
    [Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter];

impl OfiTuner {
    /// The tuner that a release of the plugin sets up, or why there is none.
    pub fn new(
        plugin: Version,
        instance: &str,
        settings: &Settings,
        ranks: u32,
        nodes: u32,
    ) -> Result<Self, Abstention> {
        is_loaded(plugin, settings)?;
        let platform = Platform::new(plugin, instance).ok_or(Abstention::Platform)?;
        let wants_model = settings
            .text("OFI_NCCL_TUNER_TYPE")
            .is_some_and(|it| it.eq_ignore_ascii_case("Model") && plugin >= Version::new(1, 13, 0));
        let has_model = matches!(platform, Platform::P5 | Platform::P5en);
        let by_model = plugin < Version::new(1, 10, 0) || (wants_model && has_model);
        let leaves_two = by_model || plugin >= Version::new(1, 14, 0);
        if leaves_two && nodes <= 2 {
            return Err(Abstention::FewNodes);
        }
        let per_node = [8, 2, 1].into_iter().find(|it| u64::from(nodes) * u64::from(*it) == u64::from(ranks));
        let all = COLLECTIVES.map(|collective| {
            per_node.map_or_else(Vec::new, |it| regions(plugin, platform.name(), it, collective))
        });
        if !by_model && all.iter().all(Vec::is_empty) {
            return Err(Abstention::RanksPerNode);
        }
        Ok(Self { settings: settings.clone(), plugin, platform, by_model, ranks, nodes, regions: all })
    }

    /// What it wants for a call, or why it leaves that to NCCL.
    pub fn advise(&self, tuning: &Tuning, collective: Collective, bytes: u64) -> Result<Advice, Abstention> {
        // Up to NCCL 2.21 it decides, then it only makes what NCCL allows the cheapest.
        let decides = !self.settings.since(2, 22, 0);
        if self.by_model {
            return self.by_model(tuning, collective, bytes);
        }
        let place = COLLECTIVES.iter().position(|it| *it == collective).ok_or(Abstention::Collective)?;
        let regions = &self.regions[place];
        if regions.is_empty() {
            return Err(Abstention::Collective);
        }
        let is_usable = |region: &Region| match region.algorithm {
            Algorithm::Pat if decides => false,
            Algorithm::NvlsTree if decides => tuning.has_nvls(),
            _ => decides || tuning.is_usable(collective, region.algorithm, region.protocol),
        };
        let region = self.region(regions, bytes, is_usable).ok_or(Abstention::NoRegion)?;
        let channels = if decides { None } else { self.channels(region, bytes) };
        Ok(Advice { algorithm: region.algorithm, protocol: region.protocol, channels })
    }

    /// The first region that a call is in, of those that NCCL can use.
    fn region<'a>(
        &self,
        regions: &'a [Region],
        bytes: u64,
        is_usable: impl Fn(&Region) -> bool,
    ) -> Option<&'a Region> {
        let logarithmic = is_logarithmic(self.plugin);
        regions.iter().find(|it| is_usable(it) && it.contains(bytes, self.ranks, logarithmic))
    }

    fn by_model(&self, tuning: &Tuning, collective: Collective, bytes: u64) -> Result<Advice, Abstention> {
        if collective != Collective::AllReduce {
            return Err(Abstention::Collective);
        }
        let advice = |algorithm, protocol| Advice { algorithm, protocol, channels: None };
        let nvls = tuning.has_nvls();
        // Since 1.13: 128 ranks of p5 with 3 to 5 GiB.
        let large = (3 << 30) + 1..=5 << 30;
        if self.platform == Platform::P5
            && (self.ranks, self.nodes) == (128, 16)
            && nvls
            && large.contains(&bytes)
        {
            return Ok(advice(Algorithm::NvlsTree, Protocol::Simple));
        }
        let model = Model {
            settings: &self.settings,
            plugin: self.plugin,
            platform: self.platform,
            ranks: self.ranks,
            nodes: self.nodes,
        };
        let (algorithm, protocol) = model.choose(bytes, nvls).ok_or(Abstention::NoRegion)?;
        Ok(advice(algorithm, protocol))
    }

    /// On p6-b200 it also says how many channels, for some sizes.
    fn channels(&self, region: &Region, bytes: u64) -> Option<u32> {
        const MIB: u64 = 1 << 20;
        if self.platform != Platform::P6B200 {
            return None;
        }
        let per_node = self.ranks.checked_div(self.nodes)?;
        match (region.algorithm, region.protocol, per_node) {
            (Algorithm::Tree, Protocol::Ll128, 8)
                if self.plugin >= Version::new(1, 16, 0) && (4 * MIB..=32 * MIB).contains(&bytes) =>
            {
                // The most channels of those with the largest chunk.
                [16, 24, 32].into_iter().max_by_key(|it| (self.chunk(bytes, *it), *it))
            }
            (Algorithm::Pat, Protocol::Simple, 1)
                if self.plugin >= Version::new(1, 18, 0) && bytes <= 32 * MIB =>
            {
                let each = bytes.div_ceil(u64::from(self.nodes) * 65_536);
                u32::try_from(each).ok().filter(|it| *it <= 2).map(|it| it.max(1))
            }
            _ => None,
        }
    }

    /// The chunk of a tree with LL128 by so many channels, as the tuner reckons it.
    fn chunk(&self, bytes: u64, channels: u32) -> u64 {
        let steps = 1.0 + f64::from(self.nodes.checked_ilog2().unwrap_or(0)) + 0.8;
        #[expect(clippy::cast_precision_loss, reason = "as the plugin computes it")]
        let rounds = |size: u64| (bytes / (u64::from(channels) * size)) as f64;
        let mut size = 120 * 640 * 8 / 16 * 15;
        while size > 131_072 && rounds(size) < steps * 8.0 {
            size /= 2;
        }
        while size > 32_768 && rounds(size) < steps * 2.0 {
            size /= 2;
        }
        size / 1920
    }
}

/// Whether NCCL loads the tuner of a release of the plugin at all.
fn is_loaded(plugin: Version, settings: &Settings) -> Result<(), Abstention> {
    let has = |minor| plugin >= Version::new(1, minor, 0);
    // The interface NCCL asks for: 1 in 2.19 and 2.20, 2 in 2.21, then 3 or 2.
    let (first, last) = match () {
        () if settings.since(2, 22, 0) => (has(9), true),
        () if settings.since(2, 21, 0) => (has(9), true),
        () => (settings.since(2, 19, 0) && has(8), !has(20)),
    };
    if !first || !last {
        return Err(Abstention::NotLoadable);
    }
    if !has(16) && settings.text("NCCL_TUNER_PLUGIN").is_none_or(|it| !it.contains("ofi")) {
        return Err(Abstention::NotLoaded);
    }
    if settings.text("NCCL_TUNER_PLUGIN").is_some_and(|it| it.eq_ignore_ascii_case("none")) {
        return Err(Abstention::Variable("NCCL_TUNER_PLUGIN"));
    }
    if settings.text("OFI_NCCL_TUNER_TYPE").is_some_and(|it| it.eq_ignore_ascii_case("Internal")) && has(13) {
        return Err(Abstention::Variable("OFI_NCCL_TUNER_TYPE"));
    }
    if settings.text("OFI_NCCL_FORCE_NUM_RAILS").is_some() && has(16) {
        return Err(Abstention::Variable("OFI_NCCL_FORCE_NUM_RAILS"));
    }
    // With interfaces 1 and 2 the plugin would override the user's lists.
    let old = !settings.since(2, 21, 0) || (!settings.since(2, 22, 0) && has(17));
    for name in ["NCCL_ALGO", "NCCL_PROTO"] {
        if old && settings.text(name).is_some() {
            return Err(Abstention::Variable(name));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use fabric::collective::Collective;
    use fabric::{Settings, Version};

    use super::{Abstention, COLLECTIVES, OfiTuner};

    /// Release, instance type, ranks, nodes, collective, bytes; algorithm, protocol and channels.
    const CALLS: &str = "
        1.14.0 p5en 5 5 all_reduce 939650 Tree Simple 0
        1.14.0 p5 32 32 all_reduce 930683973 Ring Simple 0
        1.14.0 p5en 800 100 all_gather 1582162754 Ring LL128 0
        1.14.0 p5 512 64 all_reduce 547461160 NVLSTree Simple 0
        1.14.0 p5en 64 8 reduce_scatter 22899 Ring LL 0
        1.14.0 p5en 128 16 all_reduce 7848053 Tree LL128 0
        1.15.0 p5en 800 100 all_gather 1582162754 Ring LL128 0
        1.15.0 p6-b200 8000 1000 all_reduce 23 -
        1.15.0 p5en 64 64 all_reduce 4660 Tree LL 0
        1.15.0 p5en 2000 250 reduce_scatter 38189562654 Ring Simple 0
        1.15.0 p6-b200 8000 1000 all_reduce 547461160 Tree LL128 0
        1.15.0 p5 32 16 all_reduce 7848053 Ring LL128 0
        1.16.0 p5 128 64 all_reduce 13214381541 NVLSTree Simple 0
        1.16.0 p5en 96 12 all_reduce 13214381541 Ring Simple 0
        1.16.0 p6-b200 8 8 all_gather 1612 PAT Simple 0
        1.16.0 p5 128 64 all_reduce 322035976 Tree Simple 0
        1.16.0 p5 24 3 all_reduce 22464448620 Ring Simple 0
        1.16.0 p6-b200 128 128 all_reduce 38557485 Tree Simple 0
        1.17.0 p6-b200 12 12 reduce_scatter 39 PAT Simple 0
        1.17.0 p5en 128 64 reduce_scatter 66 -
        1.17.0 p5 4096 512 all_reduce 2689676682 NVLSTree Simple 0
        1.17.0 p6-b200 512 64 all_gather 13214381541 Ring Simple 0
        1.17.0 p5en 64 64 all_reduce 2715589 Tree Simple 0
        1.17.0 p5en 256 32 reduce_scatter 1597405 Ring LL 0
        1.18.0 p6-b200 100 100 all_reduce 65547725 Tree Simple 0
        1.18.0 p5 512 64 all_reduce 112504 Tree LL128 0
        1.18.0 p6-b200 32 4 all_reduce 189432927 NVLSTree Simple 0
        1.18.0 p6-b300 32 16 all_gather 191257 -
        1.18.0 p5 16000 2000 all_reduce 38189562654 NVLSTree Simple 0
        1.18.0 p6-b300 2000 2000 all_reduce 189432927 Tree Simple 0
        1.19.0 p5 16000 2000 all_gather 38928 -
        1.19.0 p6-b200 2000 250 all_gather 547461160 Ring LL128 0
        1.19.0 p5 8 8 all_reduce 22464448620 Ring Simple 0
        1.19.0 p6-b200 128 128 all_reduce 38557485 Tree Simple 0
        1.19.0 p5en 800 100 reduce_scatter 111431133 Ring LL128 0
        1.19.0 p6-b300 64 32 all_gather 13214381541 -
        1.21.1 p5en 256 32 all_gather 22680873 Ring LL128 0
        1.21.1 p5 12 12 all_reduce 66 Ring LL128 0
        1.21.1 p6-b200 24 3 all_reduce 112504 Tree LL 0
        1.21.1 p5 250 250 all_reduce 930683973 Tree LL128 0
        1.21.1 p6-b300 8000 1000 reduce_scatter 38557485 Ring LL 0
        1.21.1 p6-b200 512 64 all_reduce 547461160 NVLSTree Simple 0
    ";

    /// Calls with what the plugin's own `region_get_coll_info_internal_v3`, compiled alone, wants for them if NCCL allows everything.
    #[test]
    fn regions_as_the_plugin_has_them() {
        for line in CALLS.lines().map(str::trim).filter(|it| !it.is_empty()) {
            let [plugin, family, ranks, nodes, collective, bytes, want] =
                <[&str; 7]>::try_from(line.splitn(7, ' ').collect::<Vec<_>>()).expect("seven columns");
            let plugin = Version::parse(plugin).expect("a release");
            let collective: Collective = collective.parse().expect("a collective");
            let place =
                COLLECTIVES.iter().position(|it| *it == collective).expect("a collective with regions");
            let settings = Settings::default().with("NCCL_TUNER_PLUGIN", "libnccl-ofi-tuner.so");
            let (ranks, nodes) = (ranks.parse().expect("a number"), nodes.parse().expect("a number"));
            let tuner = OfiTuner::new(plugin, &format!("{family}.48xlarge"), &settings, ranks, nodes).ok();
            let bytes = bytes.parse().expect("a number");
            let found = tuner.as_ref().and_then(|it| {
                let region = it.region(&it.regions[place], bytes, |_| true)?;
                let channels = it.channels(region, bytes).unwrap_or(0);
                Some(format!("{} {} {channels}", region.algorithm, region.protocol.name()))
            });
            assert_eq!(found.as_deref().unwrap_or("-"), want, "{line}");
        }
    }

    #[test]
    fn says_why_it_leaves_a_job_to_nccl() {
        let tuner = |plugin, instance, settings: &Settings, ranks, nodes| {
            OfiTuner::new(plugin, instance, settings, ranks, nodes).err()
        };
        let (old, new) = (Version::new(1, 15, 0), Version::new(1, 16, 3));
        let plain = Settings::default();
        assert_eq!(tuner(new, "p5.48xlarge", &plain, 32, 4), None);
        assert_eq!(tuner(old, "p5.48xlarge", &plain, 32, 4), Some(Abstention::NotLoaded));
        assert_eq!(tuner(new, "p5.48xlarge", &plain, 16, 2), Some(Abstention::FewNodes));
        assert_eq!(tuner(new, "p5.48xlarge", &plain, 16, 4), Some(Abstention::RanksPerNode));
        assert_eq!(tuner(new, "p4d.24xlarge", &plain, 32, 4), Some(Abstention::Platform));
        let off = Settings::default().with("OFI_NCCL_TUNER_TYPE", "Internal");
        let why = Some(Abstention::Variable("OFI_NCCL_TUNER_TYPE"));
        assert_eq!(tuner(new, "p5.48xlarge", &off, 32, 4), why);
        let first = Settings::new(Version::new(2, 18, 6));
        assert_eq!(tuner(new, "p5.48xlarge", &first, 32, 4), Some(Abstention::NotLoadable));
    }
}
