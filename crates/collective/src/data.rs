//! Element types and reduction operations, with the names of NCCL and nccl-tests.

use std::fmt;
use std::str::FromStr;

pub use half::{bf16, f16};

/// The type of an element.
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

    /// As nccl-tests names it.
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
            .ok_or_else(|| format!("`{text}` is not a data type; {}", expected(&Self::ALL.map(Self::name))))
    }
}

/// How the elements of several ranks are reduced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// The sum. Integers wrap.
    Sum,
    /// The product. Integers wrap.
    Prod,
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// The sum divided by the number of ranks; for integers rounded towards zero.
    Avg,
}

impl Operation {
    /// In the order of nccl-tests.
    pub const ALL: [Self; 5] = [Self::Sum, Self::Prod, Self::Max, Self::Min, Self::Avg];

    /// As nccl-tests names it.
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
            .ok_or_else(|| format!("`{text}` is not an operation; {}", expected(&Self::ALL.map(Self::name))))
    }
}

pub(crate) fn expected(names: &[&str]) -> String {
    format!("expected one of {}", names.join(", "))
}

/// An element type and the operation that reduces it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReduceOp {
    pub(crate) data: DataType,
    pub(crate) operation: Operation,
}

/// An element of a buffer: one of the ten types of [`DataType`].
pub trait Element: Copy + Send + Sync + PartialEq + fmt::Debug + sealed::Sealed + 'static {
    /// The type as a value.
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
