//! The loops, compiled for each kind of vector unit.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64 as arch;
use std::slice::{from_raw_parts, from_raw_parts_mut};
use std::sync::OnceLock;

use half::slice::HalfFloatSliceExt;

use super::loops;
use super::number::{Combine, Divide, Max, Min, Prod, Sum};
use crate::data::{DataType, Operation, ReduceOp};

/// `into = first op second`, a number of elements.
pub(super) type Pair = unsafe fn(*mut u8, *const u8, *const u8, usize);
/// `into = from / ranks`, a number of elements, then the ranks.
pub(super) type Division = unsafe fn(*mut u8, *const u8, usize, usize);
/// 16-bit elements to single precision.
pub(super) type Widen = unsafe fn(*mut f32, *const u8, usize);
/// Single precision to 16-bit elements.
pub(super) type Narrow = unsafe fn(*mut u8, *const f32, usize);
/// Copies whole lines with non-temporal stores, and prefetches as many lines from the last pointer.
pub(super) type Stream = unsafe fn(*mut u8, *const u8, usize, *const u8);

/// Bytes of a cache line.
pub(super) const LINE: usize = 64;

/// The loops for one kind of vector unit.
pub(super) struct Machine {
    pairs: [[Pair; Operation::ALL.len()]; DataType::ALL.len()],
    divisions: [Division; DataType::ALL.len()],
    conversions: [Option<(Widen, Narrow)>; DataType::ALL.len()],
    /// The copy with non-temporal stores: bytes are a multiple of [`LINE`], and the destination is aligned to it. The last
    /// pointer may be any.
    pub(super) stream: Stream,
}

/// For every processor of this architecture.
static PLAIN: Machine = Machine::new::<Plain>();
/// AVX2 with conversions of half precision.
#[cfg(target_arch = "x86_64")]
static AVX2: Machine = Machine::new::<Avx2>();
/// AVX-512 as servers have had it since Skylake.
#[cfg(target_arch = "x86_64")]
static AVX512: Machine = Machine::new::<Avx512>();

impl Machine {
    /// For this processor; detected once.
    #[inline]
    pub(super) fn here() -> &'static Self {
        static HERE: OnceLock<&'static Machine> = OnceLock::new();
        HERE.get_or_init(|| Self::all().pop().unwrap_or(&PLAIN))
    }

    /// All that this processor supports, the best one last.
    pub(super) fn all() -> Vec<&'static Self> {
        let mut all = vec![&PLAIN];
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c") {
            all.push(&AVX2);
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
            {
                all.push(&AVX512);
            }
        }
        all
    }

    /// The loop that reduces two sources; 16-bit types are reduced in single precision.
    #[inline]
    pub(super) fn pair(&self, what: ReduceOp) -> Pair {
        self.pairs[what.data as usize][what.operation as usize]
    }

    /// The loop that divides by the number of ranks; 16-bit types are divided in single precision.
    #[inline]
    pub(super) fn division(&self, kind: DataType) -> Division {
        self.divisions[kind as usize]
    }

    /// The conversions of a 16-bit type; `None` for others.
    #[inline]
    pub(super) fn conversions(&self, kind: DataType) -> Option<(Widen, Narrow)> {
        self.conversions[kind as usize]
    }

    const fn new<L: Loops>() -> Self {
        let mut machine = Self {
            pairs: [[L::pair::<f32, Sum>; Operation::ALL.len()]; DataType::ALL.len()],
            divisions: [L::divide::<f32>; DataType::ALL.len()],
            conversions: [None; DataType::ALL.len()],
            stream: L::stream,
        };
        // `for` is not allowed in constants.
        let mut row = 0;
        while row < DataType::ALL.len() {
            let kind = DataType::ALL[row];
            machine.divisions[kind as usize] = division::<L>(kind);
            machine.conversions[kind as usize] = conversions::<L>(kind);
            let mut column = 0;
            while column < Operation::ALL.len() {
                let operation = Operation::ALL[column];
                machine.pairs[kind as usize][operation as usize] = pair::<L>(kind, operation);
                column += 1;
            }
            row += 1;
        }
        machine
    }
}

/// The loops of one kind of machine.
///
/// # Safety
/// The processor has the features; pointers are valid as `loops` requires.
trait Loops {
    unsafe fn pair<T: Copy, O: Combine<T>>(into: *mut u8, first: *const u8, second: *const u8, count: usize);
    unsafe fn divide<T: Divide>(into: *mut u8, from: *const u8, count: usize, ranks: usize);
    unsafe fn widen_half(into: *mut f32, from: *const u8, count: usize);
    unsafe fn narrow_half(into: *mut u8, from: *const f32, count: usize);
    unsafe fn widen_bfloat16(into: *mut f32, from: *const u8, count: usize);
    unsafe fn narrow_bfloat16(into: *mut u8, from: *const f32, count: usize);
    unsafe fn stream(into: *mut u8, from: *const u8, bytes: usize, ahead: *const u8);
}

struct Plain;
#[cfg(target_arch = "x86_64")]
struct Avx2;
#[cfg(target_arch = "x86_64")]
struct Avx512;

/// The methods with the same code for every machine, compiled with its features.
macro_rules! same_loops {
    ($(#[$features:meta])?) => {
        $(#[$features])?
        unsafe fn pair<T: Copy, O: Combine<T>>(into: *mut u8, first: *const u8, second: *const u8, count: usize) {
            // SAFETY: the caller's promise.
            unsafe { loops::pair::<T, O>(into.cast(), first.cast(), second.cast(), count) }
        }

        $(#[$features])?
        unsafe fn divide<T: Divide>(into: *mut u8, from: *const u8, count: usize, ranks: usize) {
            // SAFETY: the caller's promise.
            unsafe { loops::divide::<T>(into.cast(), from.cast(), count, ranks) }
        }

        $(#[$features])?
        unsafe fn widen_bfloat16(into: *mut f32, from: *const u8, count: usize) {
            // SAFETY: the caller's promise.
            let (into, from) = unsafe { (from_raw_parts_mut(into, count), from_raw_parts(from.cast(), count)) };
            loops::widen_bfloat16(into, from);
        }

        $(#[$features])?
        unsafe fn narrow_bfloat16(into: *mut u8, from: *const f32, count: usize) {
            // SAFETY: the caller's promise.
            let (into, from) = unsafe { (from_raw_parts_mut(into.cast(), count), from_raw_parts(from, count)) };
            loops::narrow_bfloat16(into, from);
        }
    };
}

impl Loops for Plain {
    same_loops!();

    unsafe fn widen_half(into: *mut f32, from: *const u8, count: usize) {
        // SAFETY: the caller's promise.
        let (into, from) = unsafe { (from_raw_parts_mut(into, count), from_raw_parts(from.cast(), count)) };
        <[half::f16]>::convert_to_f32_slice(from, into);
    }

    unsafe fn narrow_half(into: *mut u8, from: *const f32, count: usize) {
        // SAFETY: the caller's promise.
        let (into, from) = unsafe { (from_raw_parts_mut(into.cast(), count), from_raw_parts(from, count)) };
        <[half::f16]>::convert_from_f32_slice(into, from);
    }

    #[cfg(target_arch = "x86_64")]
    unsafe fn stream(into: *mut u8, from: *const u8, bytes: usize, ahead: *const u8) {
        for at in (0..bytes).step_by(LINE) {
            // SAFETY: the caller's promise; a line follows `at`.
            unsafe {
                fetch(ahead, at);
                for at in (at..at + LINE).step_by(16) {
                    let part = arch::_mm_loadu_si128(from.add(at).cast());
                    arch::_mm_stream_si128(into.add(at).cast(), part);
                }
            }
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    unsafe fn stream(into: *mut u8, from: *const u8, bytes: usize, _ahead: *const u8) {
        // SAFETY: the caller's promise.
        unsafe { into.copy_from_nonoverlapping(from, bytes) };
    }
}

#[cfg(target_arch = "x86_64")]
impl Loops for Avx2 {
    same_loops!(#[target_feature(enable = "avx2,f16c")]);

    #[target_feature(enable = "avx2,f16c")]
    unsafe fn widen_half(into: *mut f32, from: *const u8, count: usize) {
        let whole = count / 8 * 8;
        for at in (0..whole).step_by(8) {
            // SAFETY: the caller's promise; eight elements follow `at`.
            unsafe {
                let half = arch::_mm_loadu_si128(from.add(at * 2).cast());
                arch::_mm256_storeu_ps(into.add(at), arch::_mm256_cvtph_ps(half));
            }
        }
        // SAFETY: the caller's promise; what is left.
        unsafe { Plain::widen_half(into.add(whole), from.add(whole * 2), count - whole) };
    }

    #[target_feature(enable = "avx2,f16c")]
    unsafe fn narrow_half(into: *mut u8, from: *const f32, count: usize) {
        let whole = count / 8 * 8;
        for at in (0..whole).step_by(8) {
            // SAFETY: the caller's promise; eight elements follow `at`.
            unsafe {
                let half = arch::_mm256_cvtps_ph::<{ arch::_MM_FROUND_TO_NEAREST_INT }>(
                    arch::_mm256_loadu_ps(from.add(at)),
                );
                arch::_mm_storeu_si128(into.add(at * 2).cast(), half);
            }
        }
        // SAFETY: the caller's promise; what is left.
        unsafe { Plain::narrow_half(into.add(whole * 2), from.add(whole), count - whole) };
    }

    #[target_feature(enable = "avx2,f16c")]
    unsafe fn stream(into: *mut u8, from: *const u8, bytes: usize, ahead: *const u8) {
        for at in (0..bytes).step_by(LINE) {
            // SAFETY: the caller's promise; a line follows `at`.
            unsafe {
                fetch(ahead, at);
                let low = arch::_mm256_loadu_si256(from.add(at).cast());
                let high = arch::_mm256_loadu_si256(from.add(at + 32).cast());
                arch::_mm256_stream_si256(into.add(at).cast(), low);
                arch::_mm256_stream_si256(into.add(at + 32).cast(), high);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl Loops for Avx512 {
    same_loops!(#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]);

    #[target_feature(enable = "avx512f")]
    unsafe fn widen_half(into: *mut f32, from: *const u8, count: usize) {
        let whole = count / 16 * 16;
        for at in (0..whole).step_by(16) {
            // SAFETY: the caller's promise; sixteen elements follow `at`.
            unsafe {
                let half = arch::_mm256_loadu_si256(from.add(at * 2).cast());
                arch::_mm512_storeu_ps(into.add(at), arch::_mm512_cvtph_ps(half));
            }
        }
        // SAFETY: the caller's promise; what is left.
        unsafe { Plain::widen_half(into.add(whole), from.add(whole * 2), count - whole) };
    }

    #[target_feature(enable = "avx512f")]
    unsafe fn narrow_half(into: *mut u8, from: *const f32, count: usize) {
        let whole = count / 16 * 16;
        for at in (0..whole).step_by(16) {
            // SAFETY: the caller's promise; sixteen elements follow `at`.
            unsafe {
                let half = arch::_mm512_cvtps_ph::<{ arch::_MM_FROUND_TO_NEAREST_INT }>(
                    arch::_mm512_loadu_ps(from.add(at)),
                );
                arch::_mm256_storeu_si256(into.add(at * 2).cast(), half);
            }
        }
        // SAFETY: the caller's promise; what is left.
        unsafe { Plain::narrow_half(into.add(whole * 2), from.add(whole), count - whole) };
    }

    #[target_feature(enable = "avx512f")]
    unsafe fn stream(into: *mut u8, from: *const u8, bytes: usize, ahead: *const u8) {
        for at in (0..bytes).step_by(LINE) {
            // SAFETY: the caller's promise; a line follows `at`.
            unsafe {
                fetch(ahead, at);
                let line = arch::_mm512_loadu_si512(from.add(at).cast());
                arch::_mm512_stream_si512(into.add(at).cast(), line);
            };
        }
    }
}

/// Prefetches a cache line; an invalid address has no effect.
#[cfg(target_arch = "x86_64")]
#[inline]
fn fetch(start: *const u8, at: usize) {
    // SAFETY: a hint, which touches no memory.
    unsafe { arch::_mm_prefetch::<{ arch::_MM_HINT_T0 }>(start.wrapping_add(at).cast()) };
}

/// Wrapping sums and products have the same bits for signed and unsigned integers.
const fn pair<L: Loops>(kind: DataType, operation: Operation) -> Pair {
    use DataType as D;
    use Operation as O;
    match (kind, operation) {
        (D::Int8 | D::Uint8, O::Sum | O::Avg) => L::pair::<u8, Sum>,
        (D::Int8 | D::Uint8, O::Prod) => L::pair::<u8, Prod>,
        (D::Int8, O::Min) => L::pair::<i8, Min>,
        (D::Int8, O::Max) => L::pair::<i8, Max>,
        (D::Uint8, O::Min) => L::pair::<u8, Min>,
        (D::Uint8, O::Max) => L::pair::<u8, Max>,
        (D::Int32 | D::Uint32, O::Sum | O::Avg) => L::pair::<u32, Sum>,
        (D::Int32 | D::Uint32, O::Prod) => L::pair::<u32, Prod>,
        (D::Int32, O::Min) => L::pair::<i32, Min>,
        (D::Int32, O::Max) => L::pair::<i32, Max>,
        (D::Uint32, O::Min) => L::pair::<u32, Min>,
        (D::Uint32, O::Max) => L::pair::<u32, Max>,
        (D::Int64 | D::Uint64, O::Sum | O::Avg) => L::pair::<u64, Sum>,
        (D::Int64 | D::Uint64, O::Prod) => L::pair::<u64, Prod>,
        (D::Int64, O::Min) => L::pair::<i64, Min>,
        (D::Int64, O::Max) => L::pair::<i64, Max>,
        (D::Uint64, O::Min) => L::pair::<u64, Min>,
        (D::Uint64, O::Max) => L::pair::<u64, Max>,
        (D::Float | D::Half | D::Bfloat16, O::Sum | O::Avg) => L::pair::<f32, Sum>,
        (D::Float | D::Half | D::Bfloat16, O::Prod) => L::pair::<f32, Prod>,
        (D::Float | D::Half | D::Bfloat16, O::Min) => L::pair::<f32, Min>,
        (D::Float | D::Half | D::Bfloat16, O::Max) => L::pair::<f32, Max>,
        (D::Double, O::Sum | O::Avg) => L::pair::<f64, Sum>,
        (D::Double, O::Prod) => L::pair::<f64, Prod>,
        (D::Double, O::Min) => L::pair::<f64, Min>,
        (D::Double, O::Max) => L::pair::<f64, Max>,
    }
}

const fn division<L: Loops>(kind: DataType) -> Division {
    match kind {
        DataType::Int8 => L::divide::<i8>,
        DataType::Uint8 => L::divide::<u8>,
        DataType::Int32 => L::divide::<i32>,
        DataType::Uint32 => L::divide::<u32>,
        DataType::Int64 => L::divide::<i64>,
        DataType::Uint64 => L::divide::<u64>,
        DataType::Float | DataType::Half | DataType::Bfloat16 => L::divide::<f32>,
        DataType::Double => L::divide::<f64>,
    }
}

const fn conversions<L: Loops>(kind: DataType) -> Option<(Widen, Narrow)> {
    match kind {
        DataType::Half => Some((L::widen_half, L::narrow_half)),
        DataType::Bfloat16 => Some((L::widen_bfloat16, L::narrow_bfloat16)),
        _ => None,
    }
}
