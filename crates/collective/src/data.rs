//! What is moved and how it is combined: types of elements and operations.

use std::fmt;
use std::str::FromStr;

pub use half::{bf16, f16};

/// The type of an element, with NCCL's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DataType {
    /// Signed, 8 bits.
    Int8,
    /// Unsigned, 8 bits.
    Uint8,
    /// Signed, 32 bits.
    Int32,
    /// Unsigned, 32 bits.
    Uint32,
    /// Signed, 64 bits.
    Int64,
    /// Unsigned, 64 bits.
    Uint64,
    /// IEEE half precision.
    Half,
    /// IEEE single precision.
    Float,
    /// IEEE double precision.
    Double,
    /// The upper half of a single.
    Bfloat16,
}

impl DataType {
    /// All of them, in the order of nccl-tests.
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

    /// The name nccl-tests has for it.
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

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DataType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|it| it.name() == text)
            .ok_or_else(|| format!("`{text}` is no data type; {}", choices(&Self::ALL.map(Self::name))))
    }
}

/// How elements of several ranks become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Their sum. Integers wrap.
    Sum,
    /// Their product. Integers wrap.
    Prod,
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// Their sum over the number of ranks; of integers, rounded towards zero.
    Avg,
}

impl Operation {
    /// All of them, in the order of nccl-tests.
    pub const ALL: [Self; 5] = [Self::Sum, Self::Prod, Self::Max, Self::Min, Self::Avg];

    /// The name nccl-tests has for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Prod => "prod",
            Self::Min => "min",
            Self::Max => "max",
            Self::Avg => "avg",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Operation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|it| it.name() == text)
            .ok_or_else(|| format!("`{text}` is no operation; {}", choices(&Self::ALL.map(Self::name))))
    }
}

fn choices(names: &[&str]) -> String {
    format!("there are {}", names.join(", "))
}

/// A number that collectives can combine.
///
/// Sealed: the kernels know these ten types.
pub trait Element: Copy + Send + Sync + PartialEq + fmt::Debug + sealed::Sealed + 'static {
    /// Its type.
    const TYPE: DataType;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($number:ty => $name:ident),* $(,)?) => {
        $(
            impl sealed::Sealed for $number {}
            impl Element for $number {
                const TYPE: DataType = DataType::$name;
            }
        )*
    };
}

elements! {
    i8 => Int8,
    u8 => Uint8,
    i32 => Int32,
    u32 => Uint32,
    i64 => Int64,
    u64 => Uint64,
    f16 => Half,
    f32 => Float,
    f64 => Double,
    bf16 => Bfloat16,
}
