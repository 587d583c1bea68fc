//! Inputs whose results are known exactly.
//!
//! Every value is a whole number that its type holds exactly, and so is every sum or product of any part of the ranks, in any
//! order: whichever rank adds first, the result is the same to the bit. Values differ by rank, by index and by seed, so that a part
//! that is missing, doubled, shifted or left from an earlier run is seen. The result at an index is computed without
//! the inputs of the ranks:
//!
//! - sum, avg: one rank, the *owner* of the index, gives a number of its own; the others stand in a window that turns with
//!   the index, give 1, 2, 3, ... units there and 0 outside of it. With few ranks all of them are in the window.
//! - prod: the owner gives a small number, ranks in the window give 2, the others 1.
//! - max, min: the owner has the outermost value.
//!
//! The one exception: an average of floats where the number of ranks is not a power of two. NCCL multiplies by its inverse
//! before it adds, which rounds; there a few units in the last place are allowed.
//!
//! This is the only definition of the values. `nccl/kernels/ptx.rs` writes the same functions, under the same names, as kernels for
//! a GPU, and its tests compare the two bit by bit.

use collective::{bf16, f16};

use crate::data::{DataType, Operation};

/// The values of one run.
#[derive(Debug, Clone, Copy)]
pub struct Pattern {
    pub(super) data_type: DataType,
    pub(super) kind: Kind,
    pub(super) ranks: u64,
    seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Copied,
    Sum { window: Window, unit: i64, average: bool },
    Prod { window: Window },
    Extreme { least: bool },
}

/// Of every `period` ranks in a row, `width` are inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) period: u64,
    pub(super) width: u64,
}

/// What a buffer holds before a result is written to it: no pattern has this value.
pub(super) const POISON: u8 = 0x80;

impl Pattern {
    /// Values that are only moved.
    pub(super) fn copied(data_type: DataType, seed: u64) -> Self {
        Self { data_type, kind: Kind::Copied, ranks: 1, seed }
    }

    /// Values of which so many ranks' are combined.
    pub(super) fn reduced(data_type: DataType, operation: Operation, ranks: usize, seed: u64) -> Self {
        let ranks = ranks.max(1) as u64;
        let kind = match operation {
            Operation::Sum | Operation::Avg => {
                let room = limit(data_type) / 2;
                let window = Window::of_sum(ranks, room.unsigned_abs());
                let unit = room / window.most(ranks).cast_signed();
                Kind::Sum { window, unit, average: operation == Operation::Avg }
            }
            Operation::Prod => {
                let width = (factors(data_type).1 / 2).max(1);
                Kind::Prod { window: Window { period: ranks.div_ceil(2).max(width + 1), width } }
            }
            Operation::Max | Operation::Min => Kind::Extreme { least: operation == Operation::Min },
        };
        Self { data_type, kind, ranks, seed }
    }

    /// Writes what a rank sends, from an index on.
    pub(super) fn inputs(&self, rank: usize, from: usize, out: &mut [u8]) {
        let rank = rank as u64;
        fill(self.data_type, out, |it| self.input(rank, (from + it) as u64));
    }

    /// Writes what is received, from an index on; of values that are only moved, what this rank had sent.
    pub(super) fn results(&self, source: usize, from: usize, out: &mut [u8]) {
        match self.kind {
            Kind::Copied => self.inputs(source, from, out),
            Kind::Sum { average: true, .. } if is_float(self.data_type) => {
                let ranks = real(self.ranks.cast_signed());
                fill_reals(self.data_type, out, |it| real(self.result((from + it) as u64)) / ranks);
            }
            Kind::Sum { average: true, .. } => {
                let ranks = self.ranks.cast_signed();
                fill(self.data_type, out, |it| self.result((from + it) as u64) / ranks);
            }
            _ => fill(self.data_type, out, |it| self.result((from + it) as u64)),
        }
    }

    /// How far a result may be off, relative to it: 0 almost always.
    pub(super) fn tolerance(&self) -> f64 {
        let Kind::Sum { window, average: true, .. } = self.kind else { return 0.0 };
        // Inverses of powers of two are exact, as long as nothing becomes subnormal.
        if self.ranks.is_power_of_two() && (self.data_type != DataType::Half || self.ranks <= 1 << 13) {
            return 0.0;
        }
        let digits = match self.data_type {
            DataType::Half => 11,
            DataType::Bfloat16 => 8,
            DataType::Float => 24,
            DataType::Double => 53,
            _ => return 0.0,
        };
        let terms = self.ranks.min(self.ranks.div_ceil(window.period) * window.width + 1);
        real(terms.cast_signed() + 3) * 0.5_f64.powi(digits)
    }

    /// What the bits of an index are mixed with: of values that are only moved, other for every rank.
    pub(super) fn salt(&self, rank: usize) -> u64 {
        match self.kind {
            Kind::Copied => self.own_salt(rank as u64),
            _ => salt(self.seed),
        }
    }

    /// The same, other for every rank.
    pub(super) fn own_salt(&self, rank: u64) -> u64 {
        salt(self.seed.wrapping_add(rank << 32))
    }

    fn input(&self, rank: u64, index: u64) -> i64 {
        match self.kind {
            Kind::Copied => {
                let bits = mixed(index, self.own_salt(rank));
                self.signed(bits, within(bits >> 1, limit(self.data_type)))
            }
            Kind::Sum { window, unit, .. } => {
                let bits = mixed(index, salt(self.seed));
                let owned = if rank == self.owner(bits) { self.owned(bits) } else { 0 };
                self.signed(bits, window.value(rank, bits) * unit + owned)
            }
            Kind::Prod { window } => {
                let bits = mixed(index, salt(self.seed));
                let two = if window.value(rank, bits) > 0 { 2 } else { 1 };
                if rank == self.owner(bits) { self.signed(bits, self.factor(bits)) * two } else { two }
            }
            Kind::Extreme { least } => {
                let bits = mixed(index, salt(self.seed));
                let half = limit(self.data_type) / 2;
                if rank == self.owner(bits) {
                    self.outermost(bits, least)
                } else {
                    let bits = mixed(index, self.own_salt(rank + 1));
                    let inner = self.signed(bits, within(bits >> 1, half));
                    if !least {
                        inner
                    } else if is_unsigned(self.data_type) {
                        inner + half
                    } else {
                        -inner
                    }
                }
            }
        }
    }

    fn result(&self, index: u64) -> i64 {
        let bits = mixed(index, salt(self.seed));
        match self.kind {
            Kind::Copied => 0,
            Kind::Sum { window, unit, .. } => {
                self.signed(bits, window.sum(self.ranks, bits) * unit + self.owned(bits))
            }
            Kind::Prod { window } => self.signed(bits, self.factor(bits)) << window.inside(self.ranks, bits),
            Kind::Extreme { least } => self.outermost(bits, least),
        }
    }

    /// The rank that gives something of its own at an index.
    fn owner(&self, bits: u64) -> u64 {
        ((bits & 0xffff_ffff) * self.ranks) >> 32
    }

    /// What it gives to a sum.
    fn owned(&self, bits: u64) -> i64 {
        within(remixed(bits), limit(self.data_type) / 2)
    }

    /// What it gives to a product.
    fn factor(&self, bits: u64) -> i64 {
        1 + within(remixed(bits), factors(self.data_type).0 - 1)
    }

    /// What it has where the largest or smallest counts.
    fn outermost(&self, bits: u64, least: bool) -> i64 {
        let half = limit(self.data_type) / 2;
        let above = half + 1 + within(remixed(bits), half - 1);
        if !least {
            above
        } else if is_unsigned(self.data_type) {
            limit(self.data_type) - 1 - above
        } else {
            -above
        }
    }

    fn signed(&self, bits: u64, value: i64) -> i64 {
        if bits & 1 == 1 && !is_unsigned(self.data_type) { -value } else { value }
    }
}

impl Window {
    /// As wide as possible, so that no sum exceeds the room; at least 4, and then with gaps.
    fn of_sum(ranks: u64, room: u64) -> Self {
        let fits = |it: &Self| it.most(ranks) <= room;
        let closed = (5..=61).rev().map(|it| Self { period: it, width: it }).find(fits);
        closed.unwrap_or_else(|| Self { period: ranks.div_ceil((room / 10).max(1)).max(4), width: 4 })
    }

    /// No sum of values is larger.
    fn most(self, ranks: u64) -> u64 {
        ranks.div_ceil(self.period) * triangle(self.width)
    }

    /// Where the window stands at an index.
    fn turn(self, bits: u64) -> u64 {
        ((bits >> 32) * self.period) >> 32
    }

    /// 1, 2, 3, ... inside; 0 outside.
    fn value(self, rank: u64, bits: u64) -> i64 {
        let place = (rank + self.turn(bits)) % self.period;
        if place < self.width { (place + 1).cast_signed() } else { 0 }
    }

    /// The sum of all ranks' values.
    fn sum(self, ranks: u64, bits: u64) -> i64 {
        self.total(ranks, bits, |it| triangle(it.min(self.width))).cast_signed()
    }

    /// How many ranks are inside.
    fn inside(self, ranks: u64, bits: u64) -> u64 {
        self.total(ranks, bits, |it| it.min(self.width))
    }

    /// Whole periods, and what is left: from the turn to the end of a period, and from its start.
    fn total(self, ranks: u64, bits: u64, before: impl Fn(u64) -> u64) -> u64 {
        let (turn, left) = (self.turn(bits), ranks % self.period);
        let end = turn + left;
        let first = before(end.min(self.period)) - before(turn);
        ranks / self.period * before(self.period) + first + before(end.saturating_sub(self.period))
    }
}

/// 1 + 2 + ... + n
pub(super) fn triangle(n: u64) -> u64 {
    n * (n + 1) / 2
}

/// The largest whole number up to which all are exact; of integers, what leaves [`POISON`] outside.
pub(super) fn limit(data_type: DataType) -> i64 {
    match data_type {
        DataType::Int8 | DataType::Uint8 => 127,
        DataType::Bfloat16 => 1 << 8,
        DataType::Half => 1 << 11,
        DataType::Float => 1 << 24,
        DataType::Int32 | DataType::Uint32 => 1 << 30,
        DataType::Double => 1 << 53,
        DataType::Int64 | DataType::Uint64 => 1 << 62,
    }
}

/// The largest factor of an owner, and how many twos fit beside it.
pub(super) fn factors(data_type: DataType) -> (i64, u64) {
    match data_type {
        DataType::Int8 | DataType::Uint8 => (7, 4),
        DataType::Half => (1023, 5),
        DataType::Bfloat16 => (255, 30),
        DataType::Int32 | DataType::Uint32 => (1 << 15, 14),
        DataType::Float => (1 << 20, 20),
        DataType::Int64 | DataType::Uint64 => (1 << 31, 30),
        DataType::Double => (1 << 40, 12),
    }
}

pub(super) fn is_unsigned(data_type: DataType) -> bool {
    matches!(data_type, DataType::Uint8 | DataType::Uint32 | DataType::Uint64)
}

/// Whether the type has a fraction.
pub(crate) fn is_float(data_type: DataType) -> bool {
    matches!(data_type, DataType::Half | DataType::Bfloat16 | DataType::Float | DataType::Double)
}

/// 64 pseudo-random bits from an index and a salt (Steele, Lea and Flood's `SplitMix`).
fn mixed(index: u64, salt: u64) -> u64 {
    remixed(index.wrapping_mul(GOLDEN).wrapping_add(salt))
}

fn salt(seed: u64) -> u64 {
    seed.wrapping_mul(0xd1b5_4a32_d192_ed03)
}

fn remixed(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(FIRST);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(SECOND);
    bits ^ (bits >> 31)
}

/// The factors of `SplitMix`.
pub(super) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
pub(super) const FIRST: u64 = 0xbf58_476d_1ce4_e5b9;
pub(super) const SECOND: u64 = 0x94d0_49bb_1331_11eb;

/// Bits as a number from 0 to a highest.
fn within(bits: u64, highest: i64) -> i64 {
    let number = (u128::from(bits << 1) * (u128::from(highest.unsigned_abs()) + 1)) >> 64;
    i64::try_from(number).unwrap_or(highest)
}

#[expect(clippy::cast_precision_loss, reason = "sums of floats, which are exact, and counts of ranks")]
pub(super) fn real(value: i64) -> f64 {
    value as f64
}

macro_rules! each_type {
    ($data_type:expr, $out:expr, $value:expr, { $($name:ident => $number:ty, $convert:expr;)* }) => {
        match $data_type {
            $(DataType::$name => {
                let convert: fn(_) -> $number = $convert;
                for (i, it) in $out.chunks_exact_mut(size_of::<$number>()).enumerate() {
                    it.copy_from_slice(&convert($value(i)).to_le_bytes());
                }
            })*
        }
    };
}

/// Numbers as elements of a type, which holds them.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "patterns keep to what each type holds exactly"
)]
fn fill(data_type: DataType, out: &mut [u8], value: impl Fn(usize) -> i64) {
    each_type!(data_type, out, value, {
        Int8 => i8, |it: i64| it as i8;
        Uint8 => u8, |it: i64| it as u8;
        Int32 => i32, |it: i64| it as i32;
        Uint32 => u32, |it: i64| it as u32;
        Int64 => i64, |it: i64| it;
        Uint64 => u64, |it: i64| it as u64;
        Half => f16, |it: i64| f16::from_f32(it as f32);
        Bfloat16 => bf16, |it: i64| bf16::from_f32(it as f32);
        Float => f32, |it: i64| it as f32;
        Double => f64, |it: i64| it as f64;
    });
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "rounded to the nearest that the type holds, as a result is"
)]
fn fill_reals(data_type: DataType, out: &mut [u8], value: impl Fn(usize) -> f64) {
    for (i, it) in out.chunks_exact_mut(data_type.size()).enumerate() {
        match data_type {
            DataType::Half => it.copy_from_slice(&f16::from_f32(value(i) as f32).to_le_bytes()),
            DataType::Bfloat16 => it.copy_from_slice(&bf16::from_f32(value(i) as f32).to_le_bytes()),
            DataType::Float => it.copy_from_slice(&(value(i) as f32).to_le_bytes()),
            _ => it.copy_from_slice(&value(i).to_le_bytes()),
        }
    }
}

/// An element as a number; of the longest integers, nearly.
#[expect(clippy::cast_precision_loss, reason = "to be shown")]
pub(crate) fn number(data_type: DataType, element: &[u8]) -> f64 {
    macro_rules! from_bytes {
        ($number:ty) => {
            element.try_into().map(<$number>::from_le_bytes).unwrap_or_default()
        };
    }
    match data_type {
        DataType::Int8 => f64::from(from_bytes!(i8)),
        DataType::Uint8 => f64::from(from_bytes!(u8)),
        DataType::Int32 => f64::from(from_bytes!(i32)),
        DataType::Uint32 => f64::from(from_bytes!(u32)),
        DataType::Int64 => from_bytes!(i64) as f64,
        DataType::Uint64 => from_bytes!(u64) as f64,
        DataType::Half => f64::from(from_bytes!(f16)),
        DataType::Bfloat16 => f64::from(from_bytes!(bf16)),
        DataType::Float => f64::from(from_bytes!(f32)),
        DataType::Double => from_bytes!(f64),
    }
}

#[cfg(test)]
mod tests;
