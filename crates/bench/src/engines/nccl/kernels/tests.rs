//! The kernels against [`Pattern`], bit by bit: interpreted everywhere, and on a GPU where there is one.

#[cfg(feature = "gpu-tests")]
mod gpu;

use proptest::prelude::*;

use super::interpreter::{BASE, Kernel, Machine};
use super::{numbers, ptx};
use crate::data::{DataType, Operation};
use crate::engines::Side;
use crate::engines::pattern::{POISON, Pattern, is_float};
use crate::engines::verify::{self, Found, Part};

/// Bytes at the end of the interpreter's memory for what a kernel found.
const FOUND: usize = 16;

#[derive(Debug, Clone, Copy)]
struct Case {
    data_type: DataType,
    /// None: values that are only moved.
    operation: Option<Operation>,
    ranks: usize,
    rank: usize,
    seed: u64,
    from: usize,
    count: usize,
    /// Elements before the first.
    before: usize,
}

impl Case {
    fn part(&self) -> Part {
        let pattern = match self.operation {
            Some(it) => Pattern::reduced(self.data_type, it, self.ranks, self.seed),
            None => Pattern::copied(self.data_type, self.seed),
        };
        let (rank, offset) = (self.rank % self.ranks, self.before * self.data_type.size());
        Part { pattern, rank, from: self.from, count: self.count, side: Side::Receive, offset }
    }

    /// A buffer with the expected elements in it, some of them wrong, and what a comparison must find.
    fn spoilt(&self, places: &[(usize, Mistake)]) -> (Vec<u8>, Found) {
        let (part, width) = (self.part(), self.data_type.size());
        let mut expected = vec![0; self.count * width];
        part.pattern.results(part.rank, part.from, &mut expected);
        let mut got = expected.clone();
        for (place, mistake) in places {
            if self.count > 0 {
                let at = place % self.count * width;
                mistake.make(self.data_type, &mut got[at..at + width]);
            }
        }
        let mut found = Found::default();
        verify::differences(&part.pattern, 0, &got, &expected, &mut found);
        let mut memory = vec![POISON; part.offset];
        memory.extend(got);
        memory.extend([POISON; 40]);
        (memory, found)
    }
}

#[derive(Debug, Clone, Copy)]
enum Mistake {
    Lowest,
    Sign,
    Poison,
    Zero,
    Ones,
    NotANumber,
    Infinite,
}

const MISTAKES: [Mistake; 7] = [
    Mistake::Lowest,
    Mistake::Sign,
    Mistake::Poison,
    Mistake::Zero,
    Mistake::Ones,
    Mistake::NotANumber,
    Mistake::Infinite,
];

impl Mistake {
    fn make(self, data_type: DataType, element: &mut [u8]) {
        let last = element.len() - 1;
        let special: Option<(u16, u16)> = match data_type {
            DataType::Half => Some((0x7e00, 0x7c00)),
            DataType::Bfloat16 | DataType::Float => Some((0x7fc0, 0x7f80)),
            DataType::Double => Some((0x7ff8, 0x7ff0)),
            _ => None,
        };
        match (self, special) {
            (Self::Lowest, _) => element[0] ^= 1,
            (Self::Sign, _) => element[last] ^= 0x80,
            (Self::Poison, _) => element.fill(POISON),
            (Self::Zero, _) => element.fill(0),
            (Self::NotANumber, Some((it, _))) | (Self::Infinite, Some((_, it))) => {
                element.fill(0);
                element[last - 1..].copy_from_slice(&it.to_le_bytes());
            }
            _ => element.fill(0xff),
        }
    }
}

fn interpreted(case: &Case, mistakes: &[(usize, Mistake)]) {
    let (part, width) = (case.part(), case.data_type.size());
    let text = ptx::module(&part.pattern).expect("few ranks");
    let (spoilt, wanted) = case.spoilt(mistakes);
    let room = spoilt.len().next_multiple_of(8);
    let [from, salt, own, rank, place] = numbers(&part);
    let found = BASE + room as u64;
    let values = [BASE + part.offset as u64, part.count as u64, from, salt, own, rank, place, found];
    let parameters = |kernel: &str| -> Vec<(String, u64)> {
        ptx::PARAMETERS.iter().map(|it| format!("{kernel}_{it}")).zip(values).collect()
    };
    let run = |machine: &mut Machine, name: &str| {
        let all = parameters(name);
        let all: Vec<(&str, u64)> = all.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        machine.run(&Kernel::of(&text, name), &all);
    };

    let mut machine = Machine::new(room + FOUND);
    run(&mut machine, ptx::FILL);
    let mut expected = vec![0; part.count * width];
    part.pattern.inputs(part.rank, part.from, &mut expected);
    assert_eq!(machine.memory[part.offset..part.offset + expected.len()], expected, "{case:?}");
    assert!(machine.memory[..part.offset].iter().all(|it| *it == 0), "{case:?} writes before");
    assert!(
        machine.memory[part.offset + expected.len()..].iter().all(|it| *it == 0),
        "{case:?} writes after"
    );

    machine.memory[..spoilt.len()].copy_from_slice(&spoilt);
    machine.memory[room + 8..].fill(0xff);
    run(&mut machine, ptx::COMPARE);
    let answer = |at: usize| u64::from_le_bytes(machine.memory[at..at + 8].try_into().expect("8 bytes"));
    assert_eq!(answer(room), wanted.wrong, "{case:?}");
    let first = wanted.first.map_or(u64::MAX, |it| it.index as u64);
    assert_eq!(answer(room + 8), first, "{case:?}");
}

fn cases(most: usize) -> impl Strategy<Value = Case> {
    (
        prop::sample::select(&DataType::ALL[..]),
        prop::option::weighted(0.8, prop::sample::select(&Operation::ALL[..])),
        prop_oneof![1..=9_usize, 1..=1000_usize, Just(65_536), 1..=5_000_000_usize],
        any::<usize>(),
        any::<u64>(),
        prop_oneof![0..100_usize, any::<u32>().prop_map(|it| it as usize * 8)],
        0..=most,
        0..9_usize,
    )
        .prop_map(|(data_type, operation, ranks, rank, seed, from, count, before)| Case {
            data_type,
            operation,
            ranks,
            rank,
            seed,
            from,
            count,
            before,
        })
}

fn mistakes() -> impl Strategy<Value = Vec<(usize, Mistake)>> {
    prop::collection::vec((any::<usize>(), prop::sample::select(&MISTAKES[..])), 0..4)
}

/// Every type and operation, with as many ranks as make a difference.
fn every(count: usize) -> impl Iterator<Item = Case> {
    let operations = || Operation::ALL.into_iter().map(Some).chain([None]);
    DataType::ALL.into_iter().flat_map(move |data_type| {
        operations().flat_map(move |operation| {
            [1, 2, 3, 8, 9, 61, 1000].into_iter().map(move |ranks| Case {
                data_type,
                operation,
                ranks,
                rank: ranks / 2,
                seed: 7,
                from: 5,
                count,
                before: 3,
            })
        })
    })
}

#[test]
fn every_type_and_operation_as_the_host_has_it() {
    let mistakes: Vec<(usize, Mistake)> =
        MISTAKES.into_iter().enumerate().map(|(i, it)| (9 + 3 * i, it)).collect();
    for case in every(30) {
        interpreted(&case, &[]);
        interpreted(&case, &mistakes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn any_part_as_the_host_has_it(case in cases(150), mistakes in mistakes()) {
        interpreted(&case, &mistakes);
    }
}

#[test]
fn nothing_is_touched_for_no_elements() {
    let case = every(0).next().expect("a case");
    interpreted(&case, &[]);
}

#[test]
fn a_tolerance_is_that_of_the_host() {
    let mut allowed = 0;
    for case in every(45).filter(|it| it.operation == Some(Operation::Avg) && is_float(it.data_type)) {
        let (_, found) = case.spoilt(&[(40, Mistake::Lowest)]);
        allowed += usize::from(found.wrong == 0);
        interpreted(&case, &[(40, Mistake::Lowest)]);
    }
    assert!(allowed > 0, "no case allows a difference");
}
