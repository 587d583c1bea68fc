//! Every type, operation, machine and shape against one element at a time.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "numbers of a test are cut to their type on purpose"
)]

use half::{bf16, f16};
use proptest::prelude::*;

use super::{Machine, Reduction, Store, copy, copy_all, finish, reduce_all};
use crate::data::{DataType, Operation, ReduceOp};

/// Bytes around a region that must stay as they were.
const MARGIN: usize = 128;
const UNTOUCHED: u8 = 0xa5;

/// A region that starts anywhere in a line, with a margin on both sides.
#[derive(Clone)]
struct Region {
    memory: Vec<u64>,
    start: usize,
    bytes: usize,
}

impl Region {
    fn new(start: usize, bytes: usize) -> Self {
        let words = (MARGIN + start + bytes + MARGIN).div_ceil(8);
        Self { memory: vec![u64::from_ne_bytes([UNTOUCHED; 8]); words], start: MARGIN + start, bytes }
    }

    fn holding(start: usize, content: &[u8]) -> Self {
        let mut region = Self::new(start, content.len());
        // SAFETY: the region has room for it.
        unsafe { region.pointer().copy_from_nonoverlapping(content.as_ptr(), content.len()) };
        region
    }

    fn pointer(&mut self) -> *mut u8 {
        // SAFETY: the start is within the memory.
        unsafe { self.memory.as_mut_ptr().cast::<u8>().add(self.start) }
    }

    /// What it holds, once the margins were seen to be untouched.
    fn content(&self) -> &[u8] {
        // SAFETY: words are bytes too.
        let all =
            unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast::<u8>(), self.memory.len() * 8) };
        let (before, rest) = all.split_at(self.start);
        let (content, after) = rest.split_at(self.bytes);
        assert!(before.iter().chain(after).all(|it| *it == UNTOUCHED), "written beside the region");
        content
    }
}

/// Numbers that differ from element to element, special ones among the floats.
fn numbers(kind: DataType, count: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) ^ (state << 13)
    };
    let mut bytes = Vec::with_capacity(count * kind.size());
    for _ in 0..count {
        let bits = next();
        let float = match bits % 64 {
            0 => f64::NAN,
            1 => f64::INFINITY,
            2 => -0.0,
            3 => 0.0,
            4 => 1e-7,
            5 => -65_504.0,
            _ => f64::from((bits >> 8) as i16) / 7.0,
        };
        match kind {
            DataType::Half => bytes.extend(f16::from_f64(float).to_ne_bytes()),
            DataType::Bfloat16 => bytes.extend(bf16::from_f64(float).to_ne_bytes()),
            DataType::Float => bytes.extend((float as f32).to_ne_bytes()),
            DataType::Double => bytes.extend(float.to_ne_bytes()),
            integer => bytes.extend(&bits.to_ne_bytes()[..integer.size()]),
        }
    }
    bytes
}

/// One element at a time, as the documentation says it.
fn reference(what: ReduceOp, sources: &[Vec<u8>], ranks: Option<usize>) -> Vec<u8> {
    macro_rules! fold {
        ($number:ty, $read:expr, $combine:expr, $divide:expr, $write:expr) => {{
            let size = size_of::<$number>();
            let element = |source: &Vec<u8>, at: usize| {
                $read(<$number>::from_ne_bytes(source[at..at + size].try_into().expect("whole elements")))
            };
            let mut result = Vec::new();
            for at in (0..sources[0].len()).step_by(size) {
                let mut value = element(&sources[0], at);
                for source in &sources[1..] {
                    let next = element(source, at);
                    value = match what.operation {
                        Operation::Min => {
                            if next < value {
                                next
                            } else {
                                value
                            }
                        }
                        Operation::Max => {
                            if next > value {
                                next
                            } else {
                                value
                            }
                        }
                        other => $combine(other, value, next),
                    };
                }
                if let Some(ranks) = ranks {
                    value = $divide(value, ranks);
                }
                result.extend($write(value).to_ne_bytes());
            }
            result
        }};
    }
    macro_rules! integer {
        ($number:ty) => {
            fold!(
                $number,
                |it| it,
                |operation, a: $number, b| if operation == Operation::Prod {
                    a.wrapping_mul(b)
                } else {
                    a.wrapping_add(b)
                },
                |it: $number, ranks| (i128::from(it) / ranks as i128) as $number,
                |it: $number| it
            )
        };
    }
    macro_rules! float {
        ($number:ty, $wide:ty, $read:expr, $write:expr) => {
            fold!(
                $number,
                $read,
                |operation, a: $wide, b: $wide| if operation == Operation::Prod { a * b } else { a + b },
                |it: $wide, ranks| it / ranks as $wide,
                $write
            )
        };
    }
    match what.data {
        DataType::Int8 => integer!(i8),
        DataType::Uint8 => integer!(u8),
        DataType::Int32 => integer!(i32),
        DataType::Uint32 => integer!(u32),
        DataType::Int64 => integer!(i64),
        DataType::Uint64 => integer!(u64),
        DataType::Half => float!(f16, f32, f16::to_f32, f16::from_f32),
        DataType::Bfloat16 => float!(bf16, f32, bf16::to_f32, bf16::from_f32),
        DataType::Float => float!(f32, f32, |it| it, |it: f32| it),
        DataType::Double => float!(f64, f64, |it| it, |it: f64| it),
    }
}

fn is_nan(kind: DataType, element: &[u8]) -> bool {
    match kind {
        DataType::Half => f16::from_ne_bytes(element.try_into().expect("two")).is_nan(),
        DataType::Bfloat16 => bf16::from_ne_bytes(element.try_into().expect("two")).is_nan(),
        DataType::Float => f32::from_ne_bytes(element.try_into().expect("four")).is_nan(),
        DataType::Double => f64::from_ne_bytes(element.try_into().expect("eight")).is_nan(),
        _ => false,
    }
}

/// The same bits, but for the many that are not a number.
fn check(kind: DataType, what: &str, found: &[u8], expected: &[u8]) {
    assert_eq!(found.len(), expected.len(), "{what}: length");
    if found == expected {
        return;
    }
    let mut elements = found.chunks(kind.size()).zip(expected.chunks(kind.size()));
    let wrong = elements.position(|(a, b)| a != b && !(is_nan(kind, a) && is_nan(kind, b)));
    assert_eq!(wrong, None, "{what}: first wrong element");
}

/// How a reduction is laid out.
#[derive(Debug, Clone)]
struct Shape {
    count: usize,
    /// Where each source starts, in elements.
    sources: Vec<usize>,
    /// Where each destination starts, and whether it is the source of its number instead.
    destinations: Vec<(usize, bool)>,
    ranks: Option<usize>,
    store: Store,
    seed: u64,
}

fn counts() -> impl Strategy<Value = usize> {
    prop::sample::select(vec![0, 1, 2, 3, 17, 63, 64, 65, 1000, 1024, 4099])
}

fn stores() -> impl Strategy<Value = Store> {
    prop::sample::select(vec![Store::Plain, Store::Streaming])
}

fn shapes() -> impl Strategy<Value = Shape> {
    (
        counts(),
        prop::collection::vec(0_usize..70, 1..=5),
        prop::collection::vec((0_usize..70, any::<bool>()), 1..=4),
        prop::option::of(prop::sample::select(vec![1_usize, 2, 3, 7, 8, 300, 1 << 33])),
        stores(),
        any::<u64>(),
    )
        .prop_map(|(count, sources, destinations, ranks, store, seed)| Shape {
            count,
            sources,
            destinations,
            ranks,
            store,
            seed,
        })
}

/// Reduces as the shape says and checks every region.
fn reduces(what: ReduceOp, shape: &Shape, reduce: impl Fn(&[*mut u8], &[*const u8])) {
    let (kind, size) = (what.data, what.data.size());
    let inputs: Vec<Vec<u8>> = (0_u64..)
        .take(shape.sources.len())
        .map(|it| numbers(kind, shape.count, shape.seed ^ it << 40))
        .collect();
    let expected = reference(what, &inputs, shape.ranks);
    let mut sources: Vec<Region> =
        shape.sources.iter().zip(&inputs).map(|(start, it)| Region::holding(start * size, it)).collect();
    let mut apart: Vec<Region> =
        shape.destinations.iter().map(|(start, _)| Region::new(start * size, shape.count * size)).collect();
    let from: Vec<*mut u8> = sources.iter_mut().map(Region::pointer).collect();
    // The last source first, so that the order of the operation is not the order of the destinations.
    let source_of = |at: usize| from.len().checked_sub(at + 1).filter(|_| shape.destinations[at].1);
    let into: Vec<*mut u8> = apart
        .iter_mut()
        .enumerate()
        .map(|(at, region)| source_of(at).map_or_else(|| region.pointer(), |it| from[it]))
        .collect();
    let in_place: Vec<Option<usize>> = (0..into.len()).map(source_of).collect();
    let from: Vec<*const u8> = from.iter().map(|it| it.cast_const()).collect();
    reduce(&into, &from);
    let name = format!("{} {} {shape:?}", what.data, what.operation);
    for (at, region) in apart.iter().enumerate() {
        match in_place[at] {
            Some(source) => check(kind, &name, sources[source].content(), &expected),
            None => check(kind, &name, region.content(), &expected),
        }
    }
    for (at, source) in sources.iter().enumerate().filter(|(at, _)| !in_place.contains(&Some(*at))) {
        assert_eq!(source.content(), inputs[at], "{name}: source {at} was written");
    }
}

fn everything() -> impl Iterator<Item = ReduceOp> {
    DataType::ALL
        .into_iter()
        .flat_map(|data| Operation::ALL.into_iter().map(move |operation| ReduceOp { data, operation }))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_reduction_is_the_operation_in_the_order_of_the_sources(shape in shapes()) {
        for what in everything() {
            reduces(what, &shape, |into, from| {
                // SAFETY: the regions hold the elements, aligned; destinations are sources or apart.
                unsafe { reduce_all(what, into, from, shape.count, shape.ranks, shape.store) };
            });
        }
    }

    #[test]
    fn every_machine_computes_the_same(shape in shapes()) {
        for machine in Machine::all() {
            for what in everything() {
                if shape.sources.len() == 1 && shape.ranks.is_none() {
                    continue;
                }
                reduces(what, &shape, |into, from| {
                    // SAFETY: as above; this machine can be used here.
                    unsafe { Reduction::new(machine, what, shape.ranks).all(into, from, shape.count, shape.store) };
                });
            }
        }
    }

    #[test]
    fn an_average_ends_with_a_division(count in counts(), start in 0_usize..70, ranks in 1_usize..400, seed: u64) {
        for kind in DataType::ALL {
            let input = numbers(kind, count, seed);
            let mut data = Region::holding(start * kind.size(), &input);
            // SAFETY: it holds the elements, aligned.
            unsafe { finish(kind, data.pointer(), count, ranks) };
            let expected = reference(ReduceOp { data: kind, operation: Operation::Avg }, &[input], Some(ranks));
            check(kind, kind.name(), data.content(), &expected);
        }
    }

    #[test]
    fn a_copy_reaches_every_destination(
        bytes in counts(),
        start in 0_usize..70,
        starts in prop::collection::vec(0_usize..70, 1..=4),
        own: bool,
        store in stores(),
        seed: u64,
    ) {
        let input = numbers(DataType::Uint8, bytes, seed);
        let mut from = Region::holding(start, &input);
        let mut regions: Vec<Region> = starts.iter().map(|it| Region::new(*it, bytes)).collect();
        let mut into: Vec<*mut u8> = regions.iter_mut().map(Region::pointer).collect();
        if own {
            into.push(from.pointer());
        }
        // SAFETY: all hold the bytes and are apart, but for the source itself.
        unsafe { copy_all(&into, from.pointer(), bytes, store) };
        for region in &regions {
            prop_assert_eq!(region.content(), &input[..]);
        }
        let mut alone = Region::new(starts[0], bytes);
        // SAFETY: both hold the bytes and are apart.
        unsafe { copy(alone.pointer(), from.pointer(), bytes, store) };
        prop_assert_eq!(alone.content(), &input[..]);
        prop_assert_eq!(from.content(), &input[..]);
    }
}

#[test]
fn half_precision_rounds_once_over_all_sources() {
    // 2048 + 1 is no half: rounded at each step the sum would stay 2048.
    let sources = [2048.0, 1.0, 1.0, 1.0].map(f16::from_f32);
    let from: Vec<*const u8> = sources.iter().map(|it| std::ptr::from_ref(it).cast()).collect();
    let mut sum = f16::ZERO;
    let into = [std::ptr::from_mut(&mut sum).cast()];
    let half_sum = ReduceOp { data: DataType::Half, operation: Operation::Sum };
    // SAFETY: all hold one element.
    unsafe { reduce_all(half_sum, &into, &from, 1, None, Store::Plain) };
    assert_eq!(sum, f16::from_f32(2052.0));
}

#[test]
fn nothing_to_do_does_nothing() {
    let mut one = [7_u8];
    let into = [one.as_mut_ptr()];
    // SAFETY: nothing is touched.
    unsafe {
        reduce_all(
            ReduceOp { data: DataType::Uint8, operation: Operation::Sum },
            &into,
            &[],
            1,
            None,
            Store::Plain,
        );
        reduce_all(
            ReduceOp { data: DataType::Uint8, operation: Operation::Sum },
            &[],
            &[one.as_ptr(), one.as_ptr()],
            1,
            None,
            Store::Streaming,
        );
        copy_all(&[], one.as_ptr(), 1, Store::Streaming);
    }
    assert_eq!(one, [7]);
}
