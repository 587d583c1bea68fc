//! CPUs by the numbers that Linux gives them.

use std::fmt;

/// A set of CPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct CpuSet {
    /// First and last CPU of each range, ascending; ranges neither overlap nor touch.
    ranges: Vec<(u32, u32)>,
}

/// More CPUs than any kernel supports (`CONFIG_NR_CPUS` ends at 8192 on x86 and Arm).
const MOST: u32 = 1 << 14;

impl CpuSet {
    /// Reads the form of `lscpu`, `taskset -c` and `nvidia-smi topo -m`: `0-23,48-71`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut ranges = Vec::new();
        for part in text.trim().split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            if first > last || last >= MOST {
                return None;
            }
            ranges.push((first, last));
        }
        Some(Self::of_ranges(ranges))
    }

    fn of_ranges(mut ranges: Vec<(u32, u32)>) -> Self {
        ranges.sort_unstable();
        let mut joined: Vec<(u32, u32)> = Vec::new();
        for (first, last) in ranges {
            match joined.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
                _ => joined.push((first, last)),
            }
        }
        Self { ranges: joined }
    }

    /// How many CPUs.
    pub fn len(&self) -> usize {
        self.ranges.iter().map(|it| length(*it) as usize).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The CPUs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.ranges.iter().flat_map(|it| it.0..=it.1)
    }

    /// The first CPU of each range.
    #[must_use]
    pub fn firsts(&self) -> Self {
        Self { ranges: self.ranges.iter().map(|it| (it.0, it.0)).collect() }
    }

    /// Whether the two have a CPU in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.ranges.iter().any(|a| other.ranges.iter().any(|b| a.0 <= b.1 && b.0 <= a.1))
    }

    /// The CPUs of both.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self::of_ranges(self.ranges.iter().chain(&other.ranges).copied().collect())
    }

    /// One hexadecimal number, as Slurm takes it: `0xff0000ff`.
    pub fn mask(&self) -> String {
        let words = self.words();
        let mut text = String::from("0x");
        for (at, word) in words.iter().rev().enumerate() {
            text.push_str(&if at == 0 { format!("{word:x}") } else { format!("{word:08x}") });
        }
        text
    }

    /// Words of 32 bits, as the kernel's `cpumap` and NCCL's XML have them: `ff,000000ff`.
    pub fn map(&self) -> String {
        let words = self.words();
        let text =
            |(at, word): (usize, &u32)| if at == 0 { format!("{word:x}") } else { format!("{word:08x}") };
        words.iter().rev().enumerate().map(text).collect::<Vec<_>>().join(",")
    }

    /// The bits, lowest word first; at least one word.
    fn words(&self) -> Vec<u32> {
        let last = self.ranges.last().map_or(0, |it| it.1);
        let mut words = vec![0_u32; (last / 32) as usize + 1];
        for cpu in self.iter() {
            if let Some(word) = words.get_mut((cpu / 32) as usize) {
                *word |= 1 << (cpu % 32);
            }
        }
        words
    }

    /// Parts of equal size, give or take one core, that have no CPU in common; `None` if there are fewer CPUs than parts.
    ///
    /// Linux numbers the first hardware thread of every core, then the second of every core: `0-23,48-71` are 24 cores with two threads
    /// each. Every part therefore takes the same cut of each range, which keeps the threads of a core together. `threads` says that a
    /// set of one range may be such a machine too, as it is where all CPUs are in one NUMA node.
    pub fn split(&self, parts: usize, threads: bool) -> Option<Vec<Self>> {
        if parts == 0 || self.len() < parts {
            return None;
        }
        let alike = self.ranges.windows(2).all(|it| length(it[0]) == length(it[1]));
        let mut rows: Vec<Vec<u32>> = if alike {
            self.ranges.iter().map(|it| (it.0..=it.1).collect()).collect()
        } else {
            vec![self.iter().collect()]
        };
        if let [only] = &mut *rows
            && threads
            && only.len().is_multiple_of(2)
            && only.len() / 2 >= parts
        {
            let second = only.split_off(only.len() / 2);
            rows.push(second);
        }
        if rows.iter().any(|it| it.len() < parts) {
            rows = vec![rows.concat()];
        }
        let cut = |part: usize| {
            let of_row = |row: &Vec<u32>| {
                let (each, more) = (row.len() / parts, row.len() % parts);
                let begin = part * each + part.min(more);
                let end = begin + each + usize::from(part < more);
                row.get(begin..end).unwrap_or_default().iter().map(|it| (*it, *it)).collect::<Vec<_>>()
            };
            Self::of_ranges(rows.iter().flat_map(of_row).collect())
        };
        Some((0..parts).map(cut).collect())
    }
}

fn length(range: (u32, u32)) -> u32 {
    range.1 - range.0 + 1
}

impl fmt::Display for CpuSet {
    /// `0-23,48-71`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.ranges.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            if first == last {
                write!(f, "{comma}{first}")?;
            } else {
                write!(f, "{comma}{first}-{last}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::CpuSet;

    fn set(text: &str) -> CpuSet {
        CpuSet::parse(text).unwrap()
    }

    #[test]
    fn lists_and_masks() {
        for (text, mask, map) in [
            ("0", "0x1", "1"),
            ("1,0,2-3", "0xf", "f"),
            ("0-7,32-35", "0xf000000ff", "f,000000ff"),
            ("32", "0x100000000", "1,00000000"),
            ("64-95", "0xffffffff0000000000000000", "ffffffff,00000000,00000000"),
        ] {
            assert_eq!((&*set(text).mask(), &*set(text).map()), (mask, map), "{text}");
        }
        assert_eq!(set("3,1-2,8").to_string(), "1-3,8");
        assert_eq!(CpuSet::default().to_string(), "");
        for text in ["", "a", "1-", "-1", "3-2", "99999", "1,,2", "0x1"] {
            assert_eq!(CpuSet::parse(text), None, "{text}");
        }
    }

    #[test]
    fn threads_of_a_core_stay_together() {
        let split = |text: &str, parts, threads| {
            let parts = set(text).split(parts, threads)?;
            Some(parts.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(
            split("0-23,48-71", 4, false).as_deref(),
            Some("0-5,48-53 6-11,54-59 12-17,60-65 18-23,66-71")
        );
        assert_eq!(split("0-15", 4, false).as_deref(), Some("0-3 4-7 8-11 12-15"));
        assert_eq!(split("0-15", 4, true).as_deref(), Some("0-1,8-9 2-3,10-11 4-5,12-13 6-7,14-15"));
        assert_eq!(split("0-4,8-12", 2, false).as_deref(), Some("0-2,8-10 3-4,11-12"));
        // Ranges of different length show no threads.
        assert_eq!(split("0-4,8", 2, false).as_deref(), Some("0-2 3-4,8"));
        assert_eq!(split("0-1", 2, true).as_deref(), Some("0 1"));
        assert_eq!(split("0,4", 2, true).as_deref(), Some("0 4"));
        assert_eq!(split("0-1", 3, true), None);
        assert_eq!(split("0-1", 0, true), None);
    }

    #[test]
    fn parts_are_disjoint_and_complete() {
        for text in ["0-95", "0-47,96-143", "1,3,5,7,9", "0-2,10-12,20-22,30-32", "0-6,9"] {
            let whole = set(text);
            for parts in 1..=whole.len() {
                for threads in [false, true] {
                    let all = whole.split(parts, threads).unwrap();
                    let sum: usize = all.iter().map(CpuSet::len).sum();
                    assert_eq!((all.len(), sum), (parts, whole.len()), "{text} in {parts}");
                    assert!(all.iter().all(|it| !it.is_empty()));
                    for (at, one) in all.iter().enumerate() {
                        assert!(all.iter().skip(at + 1).all(|it| !it.overlaps(one)), "{text} in {parts}");
                    }
                    let joined = all.iter().fold(CpuSet::default(), |sum, it| sum.union(it));
                    assert_eq!(joined, whole, "{text} in {parts}");
                }
            }
        }
    }
}
