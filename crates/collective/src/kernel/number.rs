//! Reductions of two numbers, and division by the number of ranks.

#![expect(
    clippy::inline_always,
    reason = "they have to be inlined to be compiled for the vector units of the caller"
)]

/// An operation on two numbers, the earlier one first.
pub(super) trait Combine<T> {
    fn combine(first: T, second: T) -> T;
}

/// The sum; integers wrap.
pub(super) struct Sum;
/// The product; integers wrap.
pub(super) struct Prod;
/// The minimum; the first number if one is NaN.
pub(super) struct Min;
/// The maximum; the first number if one is NaN.
pub(super) struct Max;

/// Division by a number of ranks; 0 is taken as 1.
pub(super) trait Divide: Copy {
    /// The quotient; for integers rounded towards zero.
    fn divide(self, ranks: usize) -> Self;
}

macro_rules! orders {
    ($($number:ty),*) => {
        $(
            impl Combine<$number> for Min {
                #[inline(always)]
                fn combine(first: $number, second: $number) -> $number {
                    if second < first { second } else { first }
                }
            }

            impl Combine<$number> for Max {
                #[inline(always)]
                fn combine(first: $number, second: $number) -> $number {
                    if second > first { second } else { first }
                }
            }
        )*
    };
}

macro_rules! wrapping {
    ($($number:ty),*) => {
        $(
            impl Combine<$number> for Sum {
                #[inline(always)]
                fn combine(first: $number, second: $number) -> $number {
                    first.wrapping_add(second)
                }
            }

            impl Combine<$number> for Prod {
                #[inline(always)]
                fn combine(first: $number, second: $number) -> $number {
                    first.wrapping_mul(second)
                }
            }
        )*
    };
}

macro_rules! floats {
    ($($number:ty),*) => {
        $(
            impl Combine<$number> for Sum {
                #[inline(always)]
                fn combine(first: $number, second: $number) -> $number {
                    first + second
                }
            }

            impl Combine<$number> for Prod {
                #[inline(always)]
                fn combine(first: $number, second: $number) -> $number {
                    first * second
                }
            }

            impl Divide for $number {
                #[inline(always)]
                #[expect(clippy::cast_precision_loss, reason = "the nearest float is what a float is divided by")]
                fn divide(self, ranks: usize) -> $number {
                    self / ranks.max(1) as $number
                }
            }
        )*
    };
}

/// Divides integers as floats, because vector units have no integer division. If a float can hold both integers exactly,
/// rounding does not move the quotient across an integer, so truncating it gives the integer quotient.
macro_rules! divided_as {
    ($($number:ty => $float:ty),*) => {
        $(
            impl Divide for $number {
                #[inline(always)]
                #[expect(clippy::cast_precision_loss, reason = "with so many ranks the quotient is 0 all the same")]
                fn divide(self, ranks: usize) -> $number {
                    let quotient = <$float>::from(self) / ranks.max(1) as $float;
                    // SAFETY: the divisor is 1 or more, so that the quotient is between 0 and the number.
                    unsafe { quotient.to_int_unchecked() }
                }
            }
        )*
    };
}

orders!(i8, u8, i32, u32, i64, u64, f32, f64);
wrapping!(u8, u32, u64);
floats!(f32, f64);
divided_as!(i8 => f32, u8 => f32, i32 => f64, u32 => f64);

impl Divide for u64 {
    #[inline(always)]
    fn divide(self, ranks: usize) -> u64 {
        self / (ranks.max(1) as u64)
    }
}

impl Divide for i64 {
    #[inline(always)]
    fn divide(self, ranks: usize) -> i64 {
        self / i64::try_from(ranks.max(1)).unwrap_or(i64::MAX)
    }
}
