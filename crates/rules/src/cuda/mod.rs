//! CUDA calls that fail inside NCCL, by error and by the file that made the call.
//!
//! The same error means different things in different places: each failure belongs to one rule, and this module says to which.

pub mod collective_in_graph_capture;
pub mod cuda_after_fork;
pub mod cuda_call_failed;
pub mod cuda_error_in_program;
pub mod cuda_shutting_down;
pub mod cumem_not_working;
pub mod gpu_not_available;
pub mod tensor_not_on_gpu;
pub mod wrong_device_pointer;

use evidence::Sighting;
use evidence::signals::cuda::{CUDA_ERROR, CUDA_FAILURE};
use messages::values::{self, Table, Value};

use crate::{Log, Rule};

/// The rules of this family.
pub static RULES: &[&Rule] = &[
    &collective_in_graph_capture::RULE,
    &cuda_after_fork::RULE,
    &cuda_call_failed::RULE,
    &cuda_error_in_program::RULE,
    &cuda_shutting_down::RULE,
    &cumem_not_working::RULE,
    &gpu_not_available::RULE,
    &tensor_not_on_gpu::RULE,
    &wrong_device_pointer::RULE,
];

/// The rule that a failed CUDA call belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Program,
    Fork,
    Device,
    CuMem,
    Capture,
    Ending,
    /// A rule of another family: memory, driver, peer access, fabric, hardware.
    Elsewhere,
    /// None of these.
    General,
}

/// A CUDA call that failed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Failure<'a> {
    pub(crate) sighting: &'a Sighting,
    pub(crate) value: &'static Value,
    /// The source file of NCCL that made the call, empty where the line does not say.
    pub(crate) file: &'a str,
    pub(crate) owner: Owner,
}

impl Failure<'_> {
    /// `an illegal memory access was encountered (CUDA error 700)`.
    pub(crate) fn error(&self) -> String {
        format!("{} (CUDA error {})", self.value.text, self.value.code)
    }
}

/// All CUDA calls of NCCL that failed.
pub(crate) fn failures(log: &Log) -> impl Iterator<Item = Failure<'_>> {
    log.case.sightings_of(&CUDA_FAILURE).filter_map(|it| failure(log, it))
}

/// Those of one rule, and those of PyTorch whose error says the same whoever made the call.
pub(crate) fn failures_of(log: &Log, owner: Owner) -> Vec<Failure<'_>> {
    let both = matches!(owner, Owner::Program | Owner::Fork | Owner::Device | Owner::Capture);
    let calls = log
        .case
        .sightings
        .iter()
        .filter(|it| *it.signal == CUDA_FAILURE || (both && *it.signal == CUDA_ERROR));
    calls.filter_map(|it| failure(log, it)).filter(|it| it.owner == owner).collect()
}

fn failure<'a>(log: &'a Log, sighting: &'a Sighting) -> Option<Failure<'a>> {
    let value = values::in_text(Table::Cuda, &sighting.quote.text)?;
    let file =
        source_file(&sighting.quote.text).or_else(|| returning_file(log, sighting)).unwrap_or_default();
    Some(Failure { sighting, value, file, owner: owner(value.code, file) })
}

fn owner(code: i64, file: &str) -> Owner {
    let in_any = |files: &[&str]| files.iter().any(|it| file.ends_with(it));
    match code {
        700 | 701 | 710 | 714..=719 => Owner::Program,
        4 | 709 => Owner::Ending,
        3 => Owner::Fork,
        // NVLink SHARP has a rule of its own, which reads all other errors of this file.
        _ if in_any(&["nvls.cc"]) => Owner::Elsewhere,
        217 if in_any(&["shm.cc"]) => Owner::CuMem,
        1 | 304 | 801 | 999 if in_any(&["alloc.h", "allocator.cc"]) => Owner::CuMem,
        1 | 201 | 304 | 400 if in_any(&["p2p.cc", "shm.cc"]) => Owner::CuMem,
        304 => Owner::CuMem,
        46 | 100 | 216 => Owner::Device,
        900..=908 => Owner::Capture,
        2 | 35 | 36 | 98 | 101 | 209 | 214 | 217 | 220 | 222 | 401 | 500 | 711 | 800 | 802 | 803 | 804 => {
            Owner::Elsewhere
        }
        _ => Owner::General,
    }
}

/// The source file of a warning of NCCL: `host:1:2 [0] transport/shm.cc:590 (shmOpen) NCCL WARN ...`.
pub(crate) fn source_file(text: &str) -> Option<&str> {
    let before = text.split_once(" NCCL WARN ")?.0.trim_end();
    let before = match before.strip_suffix(')') {
        Some(rest) => rest.rsplit_once(" (")?.0,
        None => before,
    };
    let place = before.rsplit(' ').next()?;
    let (file, line) = place.rsplit_once(':')?;
    (line.bytes().all(|it| it.is_ascii_digit()) && file.contains('.')).then_some(file)
}

/// The file that a process first returns the error of a CUDA call from, where the warning has lost its own: `transport/nvls.cc:324 -> 1`.
fn returning_file<'a>(log: &'a Log, sighting: &Sighting) -> Option<&'a str> {
    let own = log.case.process_of(sighting);
    let mut processes = log.case.processes.iter().filter(|it| own.is_none_or(|own| std::ptr::eq(own, *it)));
    let returned = processes.find_map(|it| it.facts.propagated.iter().find(|it| it.value == 1))?;
    returning_place(&returned.quote.text)
}

/// The file of a line that only passes an error on: `n:1:2 [0] NCCL INFO transport/nvls.cc:324 -> 1`.
pub(crate) fn returning_place(text: &str) -> Option<&str> {
    let place = text.split_once(" -> ")?.0.rsplit(' ').next()?;
    Some(place.rsplit_once(':')?.0)
}

/// The process or rank that wrote a line.
pub(crate) fn who(log: &Log, sighting: &Sighting) -> String {
    let named = log.case.process_of(sighting).map(evidence::Process::name);
    named.or_else(|| sighting.rank.map(|it| format!("rank {it}"))).unwrap_or_else(|| "a rank".to_owned())
}

#[cfg(test)]
mod tests {
    use super::source_file;

    #[test]
    fn the_file_of_a_warning() {
        for (line, want) in [
            ("n:1:2 [0] transport/shm.cc:590 NCCL WARN Cuda failure 217 'x'", Some("transport/shm.cc")),
            (
                "[2026-01-01 00:00:00] n:1:2 [0] include/alloc.h:228 (ncclCuMemAlloc) NCCL WARN Cuda failure 1 'x'",
                Some("include/alloc.h"),
            ),
            ("[rank0]: Cuda failure 1 'invalid argument'", None),
            ("n:1:2 [0] NCCL WARN Cuda failure 1 'x'", None),
        ] {
            assert_eq!(source_file(line), want, "{line}");
        }
    }
}
