//! The loops over elements, for the compiler to vectorise.
//!
//! They are inlined into functions that are compiled with the features of a processor (see `machine`). Each case in which
//! the destination is a source has its own loop: the compiler vectorises only what it knows not to overlap.

#![expect(
    clippy::inline_always,
    reason = "they have to be inlined to be compiled for the vector units of the caller"
)]

use std::slice::{from_raw_parts, from_raw_parts_mut};

use super::number::{Combine, Divide};

/// `into = first op second`.
///
/// # Safety
/// All three are valid for `count` aligned elements; `into` is `first` or `second` or overlaps neither, and if it is one of
/// them, `first` and `second` do not overlap.
#[inline(always)]
pub(super) unsafe fn pair<T: Copy, O: Combine<T>>(
    into: *mut T,
    first: *const T,
    second: *const T,
    count: usize,
) {
    if into.cast_const() == first {
        // SAFETY: the caller's promise; `into` and `second` are apart.
        let (into, second) = unsafe { (from_raw_parts_mut(into, count), from_raw_parts(second, count)) };
        for (into, second) in into.iter_mut().zip(second) {
            *into = O::combine(*into, *second);
        }
    } else if into.cast_const() == second {
        // SAFETY: the caller's promise; `into` and `first` are apart.
        let (into, first) = unsafe { (from_raw_parts_mut(into, count), from_raw_parts(first, count)) };
        for (into, first) in into.iter_mut().zip(first) {
            *into = O::combine(*first, *into);
        }
    } else {
        // SAFETY: the caller's promise; `into` is apart from both.
        let (into, first, second) = unsafe {
            (from_raw_parts_mut(into, count), from_raw_parts(first, count), from_raw_parts(second, count))
        };
        for ((into, first), second) in into.iter_mut().zip(first).zip(second) {
            *into = O::combine(*first, *second);
        }
    }
}

/// `into = from / ranks`.
///
/// # Safety
/// Both are valid for `count` aligned elements, and are equal or do not overlap.
#[inline(always)]
pub(super) unsafe fn divide<T: Divide>(into: *mut T, from: *const T, count: usize, ranks: usize) {
    if into.cast_const() == from {
        // SAFETY: the caller's promise.
        for it in unsafe { from_raw_parts_mut(into, count) } {
            *it = it.divide(ranks);
        }
    } else {
        // SAFETY: the caller's promise; they are apart.
        let (into, from) = unsafe { (from_raw_parts_mut(into, count), from_raw_parts(from, count)) };
        for (into, from) in into.iter_mut().zip(from) {
            *into = from.divide(ranks);
        }
    }
}

/// bfloat16 to single: the bits are its upper half.
#[inline(always)]
pub(super) fn widen_bfloat16(into: &mut [f32], from: &[u16]) {
    for (into, from) in into.iter_mut().zip(from) {
        *into = f32::from_bits(u32::from(*from) << 16);
    }
}

/// Single to bfloat16, to the nearest, ties to even; NaN stays NaN.
#[inline(always)]
pub(super) fn narrow_bfloat16(into: &mut [u16], from: &[f32]) {
    for (into, from) in into.iter_mut().zip(from) {
        let bits = from.to_bits();
        let nearest = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
        let bits = if from.is_nan() { bits | 0x0040_0000 } else { nearest };
        *into = (bits >> 16) as u16;
    }
}
