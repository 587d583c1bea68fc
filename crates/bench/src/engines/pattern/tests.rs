//! Results against plain arithmetic, and how far values differ.

use super::{POISON, Pattern, number};
use collective::{bf16, f16};

use crate::data::{DataType, Operation};
use proptest::prelude::*;

const LENGTH: usize = 40;

fn inputs(pattern: &Pattern, data_type: DataType, rank: usize) -> Vec<u8> {
    let mut out = vec![0; LENGTH * data_type.size()];
    pattern.inputs(rank, 0, &mut out);
    out
}

/// Two elements combined as a processor does it, rounded to their type.
fn combined(data_type: DataType, operation: Operation, a: &[u8], b: &[u8]) -> Vec<u8> {
    macro_rules! whole {
        ($number:ty) => {{
            let [a, b] = [a, b].map(|it| <$number>::from_le_bytes(it.try_into().expect("its size")));
            let it = match operation {
                Operation::Sum | Operation::Avg => a.wrapping_add(b),
                Operation::Prod => a.wrapping_mul(b),
                Operation::Min => a.min(b),
                Operation::Max => a.max(b),
            };
            it.to_le_bytes().to_vec()
        }};
    }
    macro_rules! real {
        ($number:ty) => {{
            let [a, b] = [a, b].map(|it| <$number>::from_le_bytes(it.try_into().expect("its size")));
            let it = match operation {
                Operation::Sum | Operation::Avg => a + b,
                Operation::Prod => a * b,
                Operation::Min => {
                    if b < a {
                        b
                    } else {
                        a
                    }
                }
                Operation::Max => {
                    if b > a {
                        b
                    } else {
                        a
                    }
                }
            };
            it.to_le_bytes().to_vec()
        }};
    }
    match data_type {
        DataType::Int8 => whole!(i8),
        DataType::Uint8 => whole!(u8),
        DataType::Int32 => whole!(i32),
        DataType::Uint32 => whole!(u32),
        DataType::Int64 => whole!(i64),
        DataType::Uint64 => whole!(u64),
        DataType::Half => real!(f16),
        DataType::Bfloat16 => real!(bf16),
        DataType::Float => real!(f32),
        DataType::Double => real!(f64),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    reason = "the numbers are small"
)]
/// All ranks, beginning with one and going round in steps: an order as rings and trees have it.
fn reduced(
    pattern: &Pattern,
    data_type: DataType,
    operation: Operation,
    ranks: usize,
    first: usize,
    back: bool,
) -> Vec<u8> {
    let width = data_type.size();
    let order = (0..ranks).map(|it| (first + if back { ranks - it } else { it }) % ranks);
    let all = order.map(|it| inputs(pattern, data_type, it));
    let mut sum = all
        .reduce(|a, b| {
            let pairs = a.chunks(width).zip(b.chunks(width));
            pairs.flat_map(|(a, b)| combined(data_type, operation, a, b)).collect()
        })
        .expect("a rank");
    if operation == Operation::Avg {
        for it in sum.chunks_mut(width) {
            let value = number(data_type, it) / ranks as f64;
            match data_type {
                DataType::Half => it.copy_from_slice(&f16::from_f32(value as f32).to_le_bytes()),
                DataType::Bfloat16 => it.copy_from_slice(&bf16::from_f32(value as f32).to_le_bytes()),
                DataType::Float => it.copy_from_slice(&(value as f32).to_le_bytes()),
                DataType::Double => it.copy_from_slice(&value.to_le_bytes()),
                DataType::Int64 | DataType::Uint64 => {
                    let whole = i64::from_le_bytes((&*it).try_into().expect("8 bytes")) / ranks as i64;
                    it.copy_from_slice(&whole.to_le_bytes());
                }
                _ => it.copy_from_slice(&(value.trunc() as i64).to_le_bytes()[..width]),
            }
        }
    }
    sum
}

fn check(data_type: DataType, operation: Operation, ranks: usize, seed: u64, first: usize, back: bool) {
    let pattern = Pattern::reduced(data_type, operation, ranks, seed);
    let mut expected = vec![0; LENGTH * data_type.size()];
    pattern.results(0, 0, &mut expected);
    let got = reduced(&pattern, data_type, operation, ranks, first % ranks, back);
    assert_eq!(expected, got, "{data_type} {operation} of {ranks} ranks");
    let poison = vec![POISON; data_type.size()];
    assert!(expected.chunks(data_type.size()).all(|it| it != poison));
}

#[test]
fn results_of_few_ranks_are_what_plain_arithmetic_gives() {
    for data_type in DataType::ALL {
        for operation in Operation::ALL {
            for ranks in [1, 2, 3, 5, 8, 9] {
                check(data_type, operation, ranks, 3, 1, false);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, ..ProptestConfig::default() })]
    #[test]
    fn results_of_many_ranks_are_what_plain_arithmetic_gives(
        data_type in prop::sample::select(&DataType::ALL[..]), operation in prop::sample::select(&Operation::ALL[..]),
        ranks in 1..=1000_usize, seed: u64, first in 0..1000_usize, back: bool,
    ) {
        check(data_type, operation, ranks, seed, first, back);
    }
}

#[test]
fn values_of_thousands_of_ranks_stay_small() {
    for ranks in [4096, 100_000] {
        for data_type in [DataType::Bfloat16, DataType::Int8, DataType::Half] {
            let pattern = Pattern::reduced(data_type, Operation::Sum, ranks, 7);
            let total: i64 = (0..ranks as u64).map(|it| pattern.input(it, 3)).sum();
            assert_eq!(total, pattern.result(3));
        }
    }
}

#[test]
fn a_shift_another_seed_and_another_rank_are_seen() {
    let distinct = |a: &[u8], b: &[u8], width: usize| {
        a.chunks(width).zip(b.chunks(width)).filter(|(a, b)| a != b).count()
    };
    for data_type in DataType::ALL {
        let width = data_type.size();
        for operation in Operation::ALL {
            for ranks in [1, 2, 3, 8, 44, 256, 1000] {
                let results = |seed, from| {
                    let mut out = vec![0; LENGTH * width];
                    Pattern::reduced(data_type, operation, ranks, seed).results(0, from, &mut out);
                    out
                };
                let at = format!("{data_type} {operation} of {ranks}");
                // Averages of many in a small type are few different numbers.
                let least = if operation == Operation::Avg && ranks > 8 { 0 } else { LENGTH / 2 };
                assert!(distinct(&results(1, 0), &results(1, 1), width) >= least, "{at}: shift");
                assert!(distinct(&results(1, 0), &results(2, 0), width) >= least, "{at}: seed");
            }
        }
        let copied = Pattern::copied(data_type, 5);
        let [a, b] = [0, 1].map(|it| inputs(&copied, data_type, it));
        assert!(distinct(&a, &b, width) > LENGTH * 9 / 10, "{data_type}: rank");
    }
}

#[test]
fn every_rank_gives_something() {
    for ranks in [2, 9, 300] {
        for operation in [Operation::Sum, Operation::Max, Operation::Prod] {
            let pattern = Pattern::reduced(DataType::Bfloat16, operation, ranks, 1);
            for rank in 0..ranks as u64 {
                let neutral = i64::from(operation == Operation::Prod);
                assert!((0..10_000).any(|it| pattern.input(rank, it) != neutral), "{rank} of {ranks}");
            }
        }
    }
}

#[test]
fn only_uneven_averages_of_floats_are_inexact() {
    let tolerance =
        |data_type, operation, ranks| Pattern::reduced(data_type, operation, ranks, 0).tolerance();
    assert!(tolerance(DataType::Half, Operation::Avg, 3) > 0.0);
    for (data_type, operation, ranks) in [
        (DataType::Half, Operation::Avg, 8),
        (DataType::Int32, Operation::Avg, 3),
        (DataType::Float, Operation::Sum, 3),
    ] {
        assert!(tolerance(data_type, operation, ranks).abs() < 1e-300);
    }
}
