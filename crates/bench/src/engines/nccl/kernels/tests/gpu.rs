//! The kernels on a GPU: `cargo test -p bench --features gpu-tests gpu`.

use std::sync::Arc;

use proptest::prelude::*;

use super::{Case, MISTAKES, Mistake, cases, every, mistakes};
use crate::data::{DataType, Operation};
use crate::engines::nccl::driver::{Driver, Gpu, Memory};
use crate::engines::nccl::kernels::Kernels;
use crate::engines::pattern::POISON;

fn on_gpu(gpu: &Arc<Gpu>, kernels: &mut Kernels, case: &Case, mistakes: &[(usize, Mistake)]) {
    let part = case.part();
    let width = case.data_type.size();
    let pair = kernels.of(&part.pattern).expect("the driver works").expect("the kernels are compiled");
    let (spoilt, wanted) = case.spoilt(mistakes);
    let memory = Memory::zeroed(gpu, spoilt.len()).expect("memory");
    memory.set(spoilt.len(), POISON).expect("set");
    pair.fill(&part, &memory).expect("filled");
    let mut got = vec![0; spoilt.len()];
    memory.read(0, &mut got).expect("read");
    let mut expected = vec![POISON; spoilt.len()];
    part.pattern.inputs(part.rank, part.from, &mut expected[part.offset..part.offset + part.count * width]);
    assert!(got == expected, "{case:?}");
    memory.write(0, &spoilt).expect("written");
    assert_eq!(pair.compare(&part, &memory).expect("compared"), Some(wanted), "{case:?}");
}

/// Random parts, some of them of millions of elements.
#[test]
fn any_part_as_the_host_has_it() {
    let gpu = Arc::new(Gpu::open(Driver::load().expect("a driver"), 0).expect("a GPU"));
    let mut kernels = Kernels::new(&gpu).expect("memory");
    for case in every(3001) {
        on_gpu(&gpu, &mut kernels, &case, &[]);
        for mistake in MISTAKES {
            on_gpu(&gpu, &mut kernels, &case, &[(2999, mistake), (1234, mistake)]);
        }
    }
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 1500,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let kernels = std::cell::RefCell::new(kernels);
    runner
        .run(&(cases(5000), mistakes()), |(case, mistakes)| {
            on_gpu(&gpu, &mut kernels.borrow_mut(), &case, &mistakes);
            Ok(())
        })
        .expect("host and GPU agree");
    // More elements than a grid has threads, and an index beyond 32 bits.
    for (data_type, operation) in [
        (DataType::Int8, Some(Operation::Sum)),
        (DataType::Bfloat16, Some(Operation::Avg)),
        (DataType::Float, None),
        (DataType::Double, Some(Operation::Min)),
    ] {
        let (ranks, from, count) = (7, 5_000_000_000, 3_000_001);
        let case = Case { data_type, operation, ranks, rank: 3, seed: 1, from, count, before: 1 };
        on_gpu(
            &gpu,
            &mut kernels.borrow_mut(),
            &case,
            &[(2_999_999, Mistake::Ones), (3_000_000, Mistake::Zero)],
        );
    }
}
