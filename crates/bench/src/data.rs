//! Types of elements and reduction operations, with the names of nccl-tests.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The type of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum DataType {
    Int8,
    Uint8,
    Int32,
    Uint32,
    Int64,
    Uint64,
    Half,
    Float,
    Double,
    Bfloat16,
}

impl DataType {
    /// In the order of nccl-tests.
    pub const ALL: [Self; 10] = [
        Self::Int8,
        Self::Uint8,
        Self::Int32,
        Self::Uint32,
        Self::Int64,
        Self::Uint64,
        Self::Half,
        Self::Float,
        Self::Double,
        Self::Bfloat16,
    ];

    /// The name in nccl-tests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Int8 => "int8",
            Self::Uint8 => "uint8",
            Self::Int32 => "int32",
            Self::Uint32 => "uint32",
            Self::Int64 => "int64",
            Self::Uint64 => "uint64",
            Self::Half => "half",
            Self::Float => "float",
            Self::Double => "double",
            Self::Bfloat16 => "bfloat16",
        }
    }

    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            Self::Int8 | Self::Uint8 => 1,
            Self::Half | Self::Bfloat16 => 2,
            Self::Int32 | Self::Uint32 | Self::Float => 4,
            Self::Int64 | Self::Uint64 | Self::Double => 8,
        }
    }
}

/// How elements of several ranks are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Integers wrap.
    Sum,
    /// Integers wrap.
    Prod,
    /// The largest.
    Max,
    /// The smallest.
    Min,
    /// The sum over the number of ranks; integers are rounded towards zero.
    Avg,
}

impl Operation {
    /// In the order of nccl-tests.
    pub const ALL: [Self; 5] = [Self::Sum, Self::Prod, Self::Max, Self::Min, Self::Avg];

    /// The name in nccl-tests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Prod => "prod",
            Self::Max => "max",
            Self::Min => "min",
            Self::Avg => "avg",
        }
    }
}

/// What runs the collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    /// plumb's own collectives over host memory.
    Host,
    /// NCCL on GPUs.
    Nccl,
}

impl EngineKind {
    /// `host`, `nccl`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Nccl => "nccl",
        }
    }
}

macro_rules! named {
    ($($type:ty, $what:literal;)*) => {
        $(
            impl fmt::Display for $type {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str(self.name())
                }
            }

            impl FromStr for $type {
                type Err = String;

                fn from_str(text: &str) -> Result<Self, String> {
                    let names = Self::ALL.map(Self::name);
                    let found = Self::ALL.into_iter().find(|it| it.name() == text);
                    found.ok_or_else(|| format!("`{text}` is not {}: expected one of {}", $what, names.join(", ")))
                }
            }
        )*
    };
}

named! {
    DataType, "a data type";
    Operation, "an operation";
}

#[cfg(test)]
mod tests {
    use super::{DataType, EngineKind, Operation};

    #[test]
    fn names_are_the_same_in_json_and_on_the_command_line() {
        for it in DataType::ALL {
            assert_eq!(serde_json::to_value(it).expect("a name"), it.name());
            assert_eq!(it.name().parse(), Ok(it));
        }
        for it in Operation::ALL {
            assert_eq!(serde_json::to_value(it).expect("a name"), it.name());
            assert_eq!(it.name().parse(), Ok(it));
        }
        for it in [EngineKind::Host, EngineKind::Nccl] {
            assert_eq!(serde_json::to_value(it).expect("a name"), it.name());
        }
        assert_eq!(
            "xor".parse::<Operation>(),
            Err("`xor` is not an operation: expected one of sum, prod, max, min, avg".to_owned())
        );
    }
}
