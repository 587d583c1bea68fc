//! Numbers that carry their unit.
//!
//! Network speeds are in bits, memory sizes in powers of two, and NCCL reports bytes in powers of ten. Each has a type of its own.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Bandwidth in 1e9 bytes per second, the GB/s of nccl-tests.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GigabytesPerSecond(pub f64);

/// Bandwidth in 1e9 bits per second, the Gbps of NICs and instance types.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GigabitsPerSecond(pub f64);

/// Memory in 2^30 bytes.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Gibibytes(pub f64);

impl From<GigabitsPerSecond> for GigabytesPerSecond {
    fn from(bits: GigabitsPerSecond) -> Self {
        Self(bits.0 / 8.0)
    }
}

impl fmt::Display for GigabytesPerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} GB/s", short(self.0))
    }
}

impl fmt::Display for GigabitsPerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} Gbps", short(self.0))
    }
}

impl fmt::Display for Gibibytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} GiB", short(self.0))
    }
}

/// At most three decimals, without trailing zeros.
fn short(number: f64) -> String {
    let fixed = format!("{number:.3}");
    if !fixed.contains('.') {
        return fixed;
    }
    match fixed.trim_end_matches('0').trim_end_matches('.') {
        "-0" => "0".to_owned(),
        trimmed => trimmed.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Gibibytes, GigabitsPerSecond, GigabytesPerSecond};

    #[test]
    fn shows_no_needless_zeros() {
        assert_eq!(GigabytesPerSecond(12.5).to_string(), "12.5 GB/s");
        assert_eq!(GigabytesPerSecond(26.562).to_string(), "26.562 GB/s");
        assert_eq!(GigabytesPerSecond(0.1 + 0.2).to_string(), "0.3 GB/s");
        assert_eq!(GigabytesPerSecond(-0.0001).to_string(), "0 GB/s");
        assert_eq!(GigabytesPerSecond(f64::INFINITY).to_string(), "inf GB/s");
        assert_eq!(GigabitsPerSecond(100.0).to_string(), "100 Gbps");
        assert_eq!(GigabitsPerSecond(2.5).to_string(), "2.5 Gbps");
        assert_eq!(Gibibytes(40.0).to_string(), "40 GiB");
        assert_eq!(Gibibytes(22.35).to_string(), "22.35 GiB");
    }

    #[test]
    fn eight_bits_are_a_byte() {
        assert_eq!(GigabytesPerSecond::from(GigabitsPerSecond(3200.0)), GigabytesPerSecond(400.0));
    }
}
