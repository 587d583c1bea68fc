//! The wordings: one row of data for each text that a product can print.

use std::fmt;
use std::sync::OnceLock;

use fabric::Version;

/// Who prints a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Product {
    /// NCCL itself.
    Nccl,
    /// The network plugin aws-ofi-nccl; its texts begin with `NET/OFI`.
    AwsOfiNccl,
    /// The EFA provider of libfabric, `libfabric:PID:TIME:efa:...`.
    LibfabricEfa,
}

impl Product {
    /// All products.
    pub const ALL: [Self; 3] = [Self::Nccl, Self::AwsOfiNccl, Self::LibfabricEfa];

    /// As answers print it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nccl => "NCCL",
            Self::AwsOfiNccl => "aws-ofi-nccl",
            Self::LibfabricEfa => "libfabric (EFA provider)",
        }
    }

    /// What it can print, made by `tools/messages` from its source.
    fn data(self) -> &'static str {
        match self {
            Self::Nccl => include_str!("../data/nccl.tsv"),
            Self::AwsOfiNccl => include_str!("../data/aws-ofi-nccl.tsv"),
            Self::LibfabricEfa => include_str!("../data/libfabric-efa.tsv"),
        }
    }

    /// Its entries, read at the first call.
    pub fn entries(self) -> &'static [Entry] {
        static NCCL: OnceLock<Vec<Entry>> = OnceLock::new();
        static AWS_OFI_NCCL: OnceLock<Vec<Entry>> = OnceLock::new();
        static LIBFABRIC_EFA: OnceLock<Vec<Entry>> = OnceLock::new();
        let slot = match self {
            Self::Nccl => &NCCL,
            Self::AwsOfiNccl => &AWS_OFI_NCCL,
            Self::LibfabricEfa => &LIBFABRIC_EFA,
        };
        slot.get_or_init(|| rows(self).filter_map(|row| Entry::read(self, row)).collect())
    }

    /// The releases that the data was made from, oldest first.
    pub fn releases(self) -> impl Iterator<Item = Version> {
        let header = self.data().lines().next().unwrap_or_default();
        header.split_ascii_whitespace().filter_map(|it| Version::parse(it.trim_end_matches('.')))
    }
}

fn rows(product: Product) -> impl Iterator<Item = &'static str> {
    product.data().lines().filter(|it| !it.starts_with('#') && !it.is_empty())
}

/// How loud a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Level {
    /// An ordinary line.
    Info,
    /// A warning: NCCL prints it when something failed.
    Warn,
}

/// What the place that prints a message does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It goes on, or the source does not show what it does.
    Continues,
    /// It fails with another code than NCCL's, such as an errno.
    Fails,
    /// It returns this `ncclResult_t`.
    Returns(u8),
}

/// One wording at one place of a product's source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Who prints it.
    pub product: Product,
    /// The first release that prints it, of those that were read.
    pub first: Version,
    /// The last one.
    pub last: Version,
    /// How loud it is.
    pub level: Level,
    /// `INIT|NET`; empty for warnings of NCCL, which belong to all subsystems.
    pub subsystem: &'static str,
    /// `transport/net_ib.cc`; empty for a macro that many files use.
    pub file: &'static str,
    /// The function of that file.
    pub function: &'static str,
    /// What the function does next.
    pub outcome: Outcome,
    /// The format with typed holes: `Call to {s} failed: {s:errno}`.
    pub text: &'static str,
}

impl Entry {
    fn read(product: Product, row: &'static str) -> Option<Self> {
        let mut columns = row.splitn(8, '\t');
        let mut next = || columns.next();
        Some(Self {
            product,
            first: Version::parse(next()?)?,
            last: Version::parse(next()?)?,
            level: match next()? {
                "WARN" => Level::Warn,
                "INFO" => Level::Info,
                _ => return None,
            },
            subsystem: next()?,
            file: next()?,
            function: next()?,
            outcome: match next()? {
                "" => Outcome::Continues,
                "e" => Outcome::Fails,
                code => Outcome::Returns(code.parse().ok()?),
            },
            text: next()?,
        })
    }

    /// The `ncclResult_t` that the place returns.
    pub fn result(&self) -> Option<u8> {
        match self.outcome {
            Outcome::Returns(code) => Some(code),
            Outcome::Continues | Outcome::Fails => None,
        }
    }

    /// Whether `release` prints it.
    pub fn is_in(&self, release: Version) -> bool {
        (self.first..=self.last).contains(&release)
    }

    /// The text with a plausible value in each hole.
    pub fn example(&self) -> String {
        let mut text = String::new();
        for part in self.parts() {
            text.push_str(match part {
                Part::Text(it) => it,
                Part::Hole(hole) => hole.example(),
            });
        }
        text
    }

    /// The text and its holes, in order.
    pub fn parts(&self) -> impl Iterator<Item = Part> {
        Parts(self.text)
    }
}

/// A piece of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Printed as it is.
    Text(&'static str),
    /// Printed from an argument.
    Hole(Hole),
}

/// A variable piece of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hole {
    /// How it is printed.
    pub shape: Shape,
    /// The table of values that it comes from: `errno`, `cuda`, `wc`, `event`, `nvml`, `fi`, `efa`, `result`, `addr`; empty if
    /// the source does not show it.
    pub table: &'static str,
}

/// How a hole is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shape {
    /// `-3`
    Number,
    /// `1f`
    Hexadecimal,
    /// `0x7f00`, `(nil)`
    Pointer,
    /// `2.5`
    Decimal,
    /// One character.
    Character,
    /// Any text, also none.
    Text,
}

impl Hole {
    fn example(self) -> &'static str {
        match (self.table, self.shape) {
            ("errno", Shape::Text) => "Connection refused",
            ("errno", _) => "111",
            ("cuda", Shape::Text) => "unknown error",
            ("cuda", _) => "999",
            ("wc", Shape::Text) => "transport retry counter exceeded",
            ("wc", _) => "12",
            ("event", Shape::Text) => "local work queue catastrophic error",
            ("nvml", Shape::Text) => "Driver/library version mismatch",
            ("fi", Shape::Text) => "No route to host",
            ("efa", Shape::Text) => "Unreachable remote",
            ("result", Shape::Text) => "internal error",
            ("result", _) => "3",
            ("addr", _) => "10.0.0.7<41234>",
            (_, Shape::Number) => "7",
            (_, Shape::Hexadecimal) => "1f0a",
            (_, Shape::Pointer) => "0x7f12a0000000",
            (_, Shape::Decimal) => "1.250000",
            (_, Shape::Character) => "x",
            (_, Shape::Text) => "mlx5_0",
        }
    }

    fn read(inside: &'static str) -> Option<Self> {
        let (shape, table) = inside.split_once(':').unwrap_or((inside, ""));
        let shape = match shape {
            "d" => Shape::Number,
            "x" => Shape::Hexadecimal,
            "p" => Shape::Pointer,
            "f" => Shape::Decimal,
            "c" => Shape::Character,
            "s" => Shape::Text,
            _ => return None,
        };
        Some(Self { shape, table })
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in self.parts() {
            match part {
                Part::Text(text) => f.write_str(text)?,
                Part::Hole(_) => f.write_str("...")?,
            }
        }
        Ok(())
    }
}

struct Parts(&'static str);

impl Iterator for Parts {
    type Item = Part;

    fn next(&mut self) -> Option<Part> {
        if self.0.is_empty() {
            return None;
        }
        if let Some(brace) = self.0.strip_prefix("{{") {
            let (one, rest) = (self.0.get(..1)?, brace);
            self.0 = rest;
            return Some(Part::Text(one));
        }
        if let Some(inside) = self.0.strip_prefix('{') {
            let end = inside.find('}')?;
            let hole = Hole::read(inside.get(..end)?)?;
            self.0 = inside.get(end + 1..)?;
            return Some(Part::Hole(hole));
        }
        let end = self.0.find('{').unwrap_or(self.0.len());
        let (text, rest) = self.0.split_at(end);
        self.0 = rest;
        Some(Part::Text(text))
    }
}

/// Every entry of every product.
pub fn all() -> impl Iterator<Item = &'static Entry> {
    Product::ALL.into_iter().flat_map(Product::entries)
}

#[cfg(test)]
mod tests {
    use super::{Part, Product, all, rows};

    #[test]
    fn every_row_is_read_whole() {
        for product in Product::ALL {
            assert_eq!(product.entries().len(), rows(product).count());
            assert!(product.releases().count() >= 10, "{product:?}");
        }
        for entry in all() {
            let braces = entry.text.matches('{').count();
            let doubled = entry.text.matches("{{").count();
            let holes = entry.parts().filter(|it| matches!(it, Part::Hole(_))).count();
            assert_eq!(holes, braces - 2 * doubled, "{}", entry.text);
            assert!(entry.first <= entry.last, "{entry:?}");
        }
    }
}
