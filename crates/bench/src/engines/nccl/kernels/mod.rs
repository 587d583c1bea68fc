//! Fills and compares buffers on the GPU.
//!
//! Only a count and the first wrong element come back to the host. A driver that does not compile the kernels, or whose kernels
//! give other values than [`Pattern`] in a trial, is an answer, not a failure: the host does the work then.

mod ptx;

#[cfg(test)]
mod interpreter;
#[cfg(test)]
mod tests;

use std::ffi::CStr;
use std::sync::Arc;

use super::driver::{Elements, Gpu, Memory, Module};
use super::peer_info::plain;
use crate::data::DataType;
use crate::engines::Side;
use crate::engines::pattern::{Kind, Pattern};
use crate::engines::verify::{self, Found, Part};
use crate::failure::{Cause, Failure};

/// The names of the kernels, as the driver takes them.
const FILL: &CStr = c"fill";
const COMPARE: &CStr = c"compare";
/// Elements of the trial, more than a block has threads, and which of them is made wrong.
const TRIAL: usize = 777;
const WRONG: usize = 500;

/// The kernels of a GPU, compiled when they are first needed: those of one type and operation take the driver milliseconds.
pub(super) struct Kernels {
    gpu: Arc<Gpu>,
    found: Arc<Memory>,
    compiled: Vec<(Key, Compiled)>,
}

/// What the text of the kernels depends on.
type Key = (DataType, Kind, u64);

/// The kernels of one type and operation, or why there are none.
pub(super) type Compiled = Result<Arc<Pair>, String>;

/// One kernel that fills and one that compares.
pub(super) struct Pair {
    module: Module,
    found: Arc<Memory>,
}

impl Kernels {
    pub(super) fn new(gpu: &Arc<Gpu>) -> Result<Self, Failure> {
        let found = Arc::new(Memory::zeroed(gpu, 16)?);
        Ok(Self { gpu: Arc::clone(gpu), found, compiled: Vec::new() })
    }

    /// The kernels of a pattern.
    pub(super) fn of(&mut self, pattern: &Pattern) -> Result<Compiled, Failure> {
        let key = (pattern.data_type, pattern.kind, pattern.ranks);
        if let Some((_, compiled)) = self.compiled.iter().find(|it| it.0 == key) {
            return Ok(compiled.clone());
        }
        self.gpu.enter()?;
        let compiled = self.compile(pattern)?;
        self.compiled.push((key, compiled.clone()));
        Ok(compiled)
    }

    fn compile(&self, pattern: &Pattern) -> Result<Compiled, Failure> {
        let Some(text) = ptx::module(pattern) else {
            return Ok(Err("there are more ranks than its kernels count".to_owned()));
        };
        let module = match Module::load(&self.gpu, &text) {
            Ok(it) => it,
            Err(Failure { cause: Cause::CudaCall { detail, .. }, .. }) => {
                return Ok(Err(format!("the driver does not compile the kernels: {}", plain(&detail))));
            }
            Err(failure) => return Err(failure),
        };
        let pair = Pair { module, found: Arc::clone(&self.found) };
        Ok(if pair.is_right(pattern, &self.gpu)? {
            Ok(Arc::new(pair))
        } else {
            Err("the kernels, as the driver compiles them, give wrong values".to_owned())
        })
    }
}

impl Pair {
    /// Writes what a rank sends.
    pub(super) fn fill(&self, part: &Part, memory: &Memory) -> Result<(), Failure> {
        self.launch(FILL, part, memory)?;
        memory.settle()
    }

    /// Compares with what should have been received; nothing where the host does not find the kernel's first wrong element wrong.
    pub(super) fn compare(&self, part: &Part, memory: &Memory) -> Result<Option<Found>, Failure> {
        let (wrong, first) = self.differences(part, memory)?;
        if wrong == 0 {
            return Ok(Some(Found::default()));
        }
        let Ok(first) = usize::try_from(first) else { return Ok(None) };
        let width = part.data_type().size();
        let (mut got, mut expected) = (vec![0; width], vec![0; width]);
        memory.read(part.offset + first.saturating_mul(width), &mut got)?;
        part.pattern.results(part.rank, part.from + first, &mut expected);
        let mut found = Found::default();
        verify::differences(&part.pattern, first, &got, &expected, &mut found);
        Ok((found.wrong == 1).then_some(Found { wrong, ..found }))
    }

    /// How many elements differ, and the index of the first.
    fn differences(&self, part: &Part, memory: &Memory) -> Result<(u64, u64), Failure> {
        let mut found = [0; 16];
        found[8..].fill(0xff);
        self.found.write(0, &found)?;
        self.launch(COMPARE, part, memory)?;
        self.found.read(0, &mut found)?;
        let [wrong, first] = [0, 8]
            .map(|at| found.get(at..at + 8).and_then(|it| it.try_into().ok()).map_or(0, u64::from_le_bytes));
        Ok((wrong, first))
    }

    fn launch(&self, name: &CStr, part: &Part, memory: &Memory) -> Result<(), Failure> {
        let width = part.data_type().size();
        let elements = Elements { memory, offset: part.offset, count: part.count, width };
        self.module.launch(name, &elements, numbers(part), &self.found)
    }

    /// Whether both kernels agree with the host about a few elements.
    fn is_right(&self, pattern: &Pattern, gpu: &Arc<Gpu>) -> Result<bool, Failure> {
        let width = pattern.data_type.size();
        let memory = Memory::zeroed(gpu, TRIAL * width)?;
        let rank = usize::try_from(pattern.ranks - 1).unwrap_or(0);
        let part = Part { pattern: *pattern, rank, from: 12_345, count: TRIAL, side: Side::Send, offset: 0 };
        let (mut got, mut expected) = (vec![0; TRIAL * width], vec![0; TRIAL * width]);
        self.fill(&part, &memory)?;
        memory.read(0, &mut got)?;
        pattern.inputs(rank, part.from, &mut expected);
        let filled = got == expected;
        pattern.results(rank, part.from, &mut expected);
        memory.write(0, &expected)?;
        let right = self.differences(&part, &memory)?.0 == 0;
        if let Some(it) = expected.get_mut(WRONG * width + width - 1) {
            *it ^= 0x40;
        }
        memory.write(0, &expected)?;
        Ok(filled && right && self.differences(&part, &memory)? == (1, WRONG as u64))
    }
}

/// What the kernels are told about a part, in the order of [`ptx::PARAMETERS`].
fn numbers(part: &Part) -> [u64; 5] {
    let rank = part.rank as u64;
    let place = match part.pattern.kind {
        Kind::Sum { window, .. } | Kind::Prod { window } => rank % window.period,
        _ => 0,
    };
    [part.from as u64, part.pattern.salt(part.rank), part.pattern.own_salt(rank + 1), rank, place]
}
