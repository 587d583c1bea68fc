//! Where a fact was read.
//!
//! Large files are read in several regions at a time, so a reader does not know
//! the line number its region begins at. A [`Spot`] therefore names a region and
//! a line in it; [`Sources`] turns it into a file and a line at the end.

/// A position in the input. Spots are ordered as the input is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spot {
    /// The number of the region, over all files.
    pub region: u32,
    /// The zero-based line in the region.
    pub line: u32,
}

/// A line of the input and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quote {
    /// Where it is.
    pub spot: Spot,
    /// Its text, cut at [`Quote::LIMIT`] bytes.
    pub text: Box<str>,
}

impl Quote {
    /// How much of a line is kept.
    pub const LIMIT: usize = 600;

    /// Keeps `line` as evidence.
    pub fn new(spot: Spot, line: &[u8]) -> Self {
        let mut cut = line.len().min(Self::LIMIT);
        // Do not cut inside a UTF-8 character.
        while cut < line.len() && cut > 0 && line.get(cut).is_some_and(|it| it & 0xC0 == 0x80) {
            cut -= 1;
        }
        let text = String::from_utf8_lossy(line.get(..cut).unwrap_or(line));
        Self { spot, text: text.trim_end().into() }
    }
}

/// A value read from the input: how often, and where first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen<T> {
    /// The value.
    pub value: T,
    /// How many lines say so.
    pub count: u32,
    /// The first of them.
    pub quote: Quote,
}

/// The different values that lines give for one thing, in the order of the input.
///
/// Most things have one value; several values are themselves a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Distinct<T> {
    seen: Vec<Seen<T>>,
    /// Values beyond the limit, counted but not kept.
    dropped: u32,
}

impl<T> Default for Distinct<T> {
    fn default() -> Self {
        Self { seen: Vec::new(), dropped: 0 }
    }
}

impl<T: PartialEq> Distinct<T> {
    const LIMIT: usize = 256;

    /// Adds one observation.
    pub fn note(&mut self, value: T, quote: impl FnOnce() -> Quote) {
        if let Some(seen) = self.seen.iter_mut().find(|it| it.value == value) {
            seen.count += 1;
        } else if self.seen.len() < Self::LIMIT {
            self.make_room();
            self.seen.push(Seen { value, count: 1, quote: quote() });
        } else {
            self.dropped += 1;
        }
    }

    /// Adds one observation whose value is only made when it is new.
    pub(crate) fn note_if_new(
        &mut self,
        same: impl Fn(&T) -> bool,
        value: impl FnOnce() -> T,
        quote: impl FnOnce() -> Quote,
    ) {
        match self.seen.iter_mut().find(|it| same(&it.value)) {
            Some(seen) => seen.count += 1,
            None => self.note(value(), quote),
        }
    }

    /// Most have one value: space for more is allocated when they come.
    fn make_room(&mut self) {
        if self.seen.len() == self.seen.capacity() {
            self.seen.reserve_exact(self.seen.len() / 2 + 1);
        }
    }

    /// Adds what a later part of the input says.
    pub fn merge(&mut self, later: Self) {
        if self.seen.is_empty() {
            *self = later;
            return;
        }
        self.dropped += later.dropped;
        for new in later.seen {
            if let Some(seen) = self.seen.iter_mut().find(|it| it.value == new.value) {
                seen.count += new.count;
            } else if self.seen.len() < Self::LIMIT {
                self.make_room();
                self.seen.push(new);
            } else {
                self.dropped += new.count;
            }
        }
    }
}

impl<T> Distinct<T> {
    /// The first value.
    pub fn first(&self) -> Option<&Seen<T>> {
        self.seen.first()
    }

    /// The last new value.
    pub fn last(&self) -> Option<&Seen<T>> {
        self.seen.last()
    }

    /// The first value itself.
    pub fn value(&self) -> Option<&T> {
        self.seen.first().map(|it| &it.value)
    }

    /// All values.
    pub fn iter(&self) -> std::slice::Iter<'_, Seen<T>> {
        self.seen.iter()
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// How many different values there are.
    pub fn len(&self) -> usize {
        self.seen.len()
    }
}

impl<'a, T> IntoIterator for &'a Distinct<T> {
    type Item = &'a Seen<T>;
    type IntoIter = std::slice::Iter<'a, Seen<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// What kind of file an input is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Lines of NCCL, its plugins and libfabric.
    NcclLog,
    /// A table or JSON of nccl-tests.
    NcclTests,
    /// Lines of PyTorch, DeepSpeed, a trainer or a launcher.
    TrainingLog,
    /// Kernel messages.
    KernelLog,
    /// `nvidia-smi topo -m`.
    TopologyMatrix,
    /// NCCL's topology XML.
    TopologyXml,
    /// A Kubernetes manifest.
    Manifest,
    /// A dump of PyTorch's Flight Recorder.
    FlightRecorder,
    /// An answer of NCCL's RAS service.
    Ras,
    /// Settings, commands and output of small tools, recognised line by line.
    Notes,
    /// Nothing in it was understood.
    Unknown,
}

impl Kind {
    /// The name used in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::NcclLog => "nccl-log",
            Self::NcclTests => "nccl-tests",
            Self::TrainingLog => "training-log",
            Self::KernelLog => "kernel-log",
            Self::TopologyMatrix => "topology-matrix",
            Self::TopologyXml => "topology-xml",
            Self::Manifest => "manifest",
            Self::FlightRecorder => "flight-recorder",
            Self::Ras => "ras",
            Self::Notes => "notes",
            Self::Unknown => "unknown",
        }
    }

    /// All kinds, in the order of this enumeration.
    pub const ALL: [Self; 11] = [
        Self::NcclLog,
        Self::NcclTests,
        Self::TrainingLog,
        Self::KernelLog,
        Self::TopologyMatrix,
        Self::TopologyXml,
        Self::Manifest,
        Self::FlightRecorder,
        Self::Ras,
        Self::Notes,
        Self::Unknown,
    ];
}

/// How many lines of each kind were understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// All lines.
    pub lines: u64,
    /// Blank lines.
    pub blank: u64,
    /// Lines that were cut because they were too long.
    pub cut: u64,
    /// Understood lines by [`Kind`].
    pub by_kind: [u64; 11],
}

impl Tally {
    /// Adds another tally.
    pub fn add(&mut self, other: &Self) {
        self.lines += other.lines;
        self.blank += other.blank;
        self.cut += other.cut;
        for (mine, theirs) in self.by_kind.iter_mut().zip(other.by_kind) {
            *mine += theirs;
        }
    }

    /// Lines that were understood.
    pub fn understood(&self) -> u64 {
        self.by_kind.iter().sum()
    }

    /// Lines that are not blank.
    pub fn not_blank(&self) -> u64 {
        self.lines - self.blank
    }

    /// The kind most lines are of.
    pub fn kind(&self) -> Kind {
        let mut best = (0, Kind::Unknown);
        for (&count, kind) in self.by_kind.iter().zip(Kind::ALL) {
            if count > best.0 {
                best = (count, kind);
            }
        }
        best.1
    }

    /// Takes back all lines of a kind.
    pub(crate) fn clear(&mut self, kind: Kind) {
        if let Some(slot) = self.by_kind.get_mut(kind as usize) {
            *slot = 0;
        }
    }

    /// Counts one line less of this kind.
    pub(crate) fn take_back(&mut self, kind: Kind) {
        if let Some(slot) = self.by_kind.get_mut(kind as usize) {
            *slot = slot.saturating_sub(1);
        }
    }

    pub(crate) fn count(&mut self, kind: Kind, lines: u64) {
        if let Some(slot) = self.by_kind.get_mut(kind as usize) {
            *slot += lines;
        }
    }
}

/// One input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// The name as the user gave it, or as it was found under a folder.
    pub name: Box<str>,
    /// Its lines.
    pub tally: Tally,
    /// Why it could not be read to its end, if so.
    pub problem: Option<Box<str>>,
}

/// All inputs and where their regions begin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    /// The inputs, in the order they were given.
    pub files: Vec<File>,
    /// For each region: its file, and the number of lines before it.
    regions: Vec<(u32, u64)>,
}

impl Sources {
    /// The file and one-based line of a spot.
    pub fn locate(&self, spot: Spot) -> (&str, u64) {
        let Some(&(file, before)) = self.regions.get(spot.region as usize) else {
            return ("?", 0);
        };
        let name = self.files.get(file as usize).map_or("?", |it| &it.name);
        (name, before + u64::from(spot.line) + 1)
    }

    /// The last line of an input, without its text; `None` where it has no line.
    pub fn last_line(&self, name: &str) -> Option<Quote> {
        let file = self.files.iter().position(|it| *it.name == *name)?;
        let lines = self.files.get(file)?.tally.lines;
        let regions = self.regions.iter().enumerate().rev();
        let (region, (_, before)) =
            regions.filter(|(_, it)| it.0 as usize == file).find(|(_, it)| it.1 < lines)?;
        let line = u32::try_from(lines.checked_sub(before + 1)?).ok()?;
        let spot = Spot { region: u32::try_from(region).ok()?, line };
        Some(Quote { spot, text: Box::default() })
    }

    /// All lines of all inputs.
    pub fn tally(&self) -> Tally {
        let mut sum = Tally::default();
        for file in &self.files {
            sum.add(&file.tally);
        }
        sum
    }

    pub(crate) fn begin_region(&mut self, file: u32) {
        let before = self.files.get(file as usize).map_or(0, |it| it.tally.lines);
        self.regions.push((file, before));
    }
}

#[cfg(test)]
mod tests {
    use super::{Distinct, Quote, Spot};

    const SPOT: Spot = Spot { region: 0, line: 0 };

    #[test]
    fn a_quote_is_cut_at_a_character() {
        let line = "é".repeat(Quote::LIMIT);
        let quote = Quote::new(SPOT, line.as_bytes());
        assert_eq!(quote.text.len(), Quote::LIMIT);
        assert!(quote.text.chars().all(|it| it == 'é'));
    }

    #[test]
    fn merging_is_noting_in_order() {
        let mut whole = Distinct::default();
        let mut first = Distinct::default();
        let mut second = Distinct::default();
        for (i, value) in [1, 2, 1, 3, 2].into_iter().enumerate() {
            let quote = || Quote::new(Spot { region: 0, line: 9 }, b"x");
            whole.note(value, quote);
            if i < 2 { &mut first } else { &mut second }.note(value, quote);
        }
        first.merge(second);
        assert_eq!(whole, first);
    }
}
