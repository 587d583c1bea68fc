//! Finds this process' rank, or starts the ranks, and runs a collective.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use ::bench::engines::nccl::{self, Nccl};
use ::bench::engines::{self, Engine, Host};
use ::bench::{Failure, Plan, Run};
use launch::{RankIdentity, Start};
use report::Style;

use super::answer::{self, Answer};
use super::args::Kind;
use super::{Bench, join};
use crate::args::{Asked, Colour};
use crate::{CLEAN, FINDINGS, UNDECIDED, complain, doctor, output};

/// Without --ranks and without NCCL, one rank per core is started, but no more than these.
const MOST: usize = 8;

pub(super) fn run(args: &Bench, colour: Colour, out: &mut impl Write) -> io::Result<u8> {
    let Some(Asked::Collective(collective)) = args.collective else { return Ok(UNDECIDED) };
    let plan = match args.plan(collective) {
        Ok(it) => it,
        Err(reason) => {
            complain(&format!("error: {reason}"));
            return Ok(UNDECIDED);
        }
    };
    if let Err(reason) = args.check_files() {
        return Ok(failed(&reason));
    }
    let inputs: Vec<PathBuf> = args.machines.cluster.iter().cloned().collect();
    if !output::spares(args.output.iter().chain(&args.plot).chain(&args.log), &inputs, false) {
        return Ok(UNDECIDED);
    }
    let identity = match RankIdentity::detect(&|name| std::env::var(name).ok()) {
        Ok(it) => it,
        Err(error) => return Ok(failed(&error)),
    };
    let to_start = match &identity {
        None => Some(Start::new(args.ranks().unwrap_or_else(|| usual(args.engine)))),
        Some(it) => Start::here(it),
    };
    if let Some(start) = to_start {
        // Printed once, not by every rank.
        note(args);
        return Ok(match launch::start(&start) {
            Ok(it) => {
                // Ranks that fail print the reason; ranks that a signal ends cannot.
                match (it.interrupted, &it.failure) {
                    (Some(_), _) => {
                        answer::clear_line();
                        complain("error: interrupted");
                    }
                    (None, Some(launch::Failure { rank, exit: launch::Exit::Signal(number) }))
                        if start.ranks == 1 =>
                    {
                        complain(&format!("error: signal {number} ended rank {rank}"));
                    }
                    _ => {}
                }
                it.code()
            }
            Err(error) => failed(&error),
        });
    }
    match identity {
        Some(identity) => rank(args, &plan, identity, colour, out),
        None => Ok(UNDECIDED),
    }
}

/// One rank, from the rendezvous to the answer.
fn rank(
    args: &Bench,
    plan: &Plan,
    identity: RankIdentity,
    colour: Colour,
    out: &mut dyn Write,
) -> io::Result<u8> {
    let (number, local) = (identity.rank, identity.local_rank.unwrap_or(0));
    // Before the standard output is redirected.
    let style = Style { colour: doctor::coloured(colour), width: doctor::width(), verbose: false };
    let mut kept =
        if args.engine == Kind::Host { None } else { nccl::output::take().ok().map(io::BufWriter::new) };
    let out: &mut dyn Write = match &mut kept {
        Some(it) => it,
        None => out,
    };
    let mut answer = match Answer::new(args, plan, number, (colour, style), out) {
        Ok(it) => it,
        Err(reason) => return Ok(failed(&reason)),
    };
    if identity.launcher != launch::Launcher::Plumb && number == 0 {
        note(args);
        if args.ranks().is_some_and(|it| it != identity.size) {
            let launcher = identity.launcher;
            complain(&format!("note: {launcher} started {} ranks; --ranks has no effect", identity.size));
        }
    }
    // NCCL writes one log per rank; that of rank 0 is read.
    let mut folder = if args.engine == Kind::Host || number > 0 { None } else { nccl_log() };
    let log = join::log(args, number);
    let run = join::join(args, identity).and_then(|mut communicator| {
        engines::agree(&mut communicator, &args.flags(plan))?;
        match engine(args, communicator, local, &mut folder)? {
            Opened::Host(mut it) => {
                idle(number, &args.idle_on_host(), "host-memory");
                let run = measure(plan, &mut *it, &mut answer);
                run.and_then(|run| it.leave().map(|()| run))
            }
            Opened::Nccl(mut it) => {
                idle(number, &args.idle_on_nccl(), "NCCL");
                // With --engine auto the log was opened before NCCL was chosen: it describes the control connections, not NCCL.
                if let (Kind::Auto, Some(path)) = (args.engine, &log) {
                    let _ = std::fs::remove_file(path);
                }
                it.set_blocking(args.blocking > 0);
                let run = measure(plan, &mut *it, &mut answer);
                run.and_then(|run| it.close()?.leave().map_err(Failure::from).map(|()| run))
            }
        }
    });
    let code = match run {
        Ok((run, Ok(()))) => answer.end(&run, folder.as_deref()),
        Ok((_, Err(error))) => Err(error),
        Err(failure) => {
            answer.clear();
            Ok(failed(&report::bench::failure(&failure)))
        }
    };
    match folder {
        Some(folder) if matches!(code, Ok(it) if it != CLEAN) && has_files(&folder) => {
            complain(&format!("note: NCCL's log is in {}", folder.display()));
        }
        Some(folder) => {
            let _ = std::fs::remove_dir_all(folder);
        }
        None => {}
    }
    code
}

fn has_files(folder: &Path) -> bool {
    std::fs::read_dir(folder).is_ok_and(|mut it| it.next().is_some())
}

/// Measures as long as the answer can be written; the second value is whether it could.
fn measure(
    plan: &Plan,
    engine: &mut dyn Engine,
    answer: &mut Answer<'_>,
) -> Result<(Run, io::Result<()>), Failure> {
    let (kind, version) = (engine.kind(), engine.version());
    let mut written = Ok(());
    let run = engines::run(plan, engine, &mut |event| {
        if written.is_ok() {
            written = answer.show(kind, &version, &event);
        }
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok((run, written))
}

enum Opened {
    Host(Box<Host>),
    Nccl(Box<Nccl>),
}

/// The engine of `--engine`; with `auto`, NCCL where every rank has a GPU and the library.
fn engine(
    args: &Bench,
    mut control: collective::Communicator,
    local: usize,
    log: &mut Option<PathBuf>,
) -> Result<Opened, Failure> {
    let wanted = match args.engine {
        Kind::Host => false,
        Kind::Nccl => true,
        Kind::Auto => {
            let here = u8::from(nccl::present(args.nccl_library.as_deref()).is_ok());
            control.share(&[here])?.iter().all(|it| it.as_slice() == [1])
        }
    };
    if !wanted {
        return Ok(Opened::Host(Box::new(Host::new(control, args.private))));
    }
    if let Some(Err(error)) = log.as_deref().map(nccl::log::create) {
        complain(&format!(
            "note: plumb cannot create a folder for NCCL's log, and NCCL writes it to standard output: {error}"
        ));
        *log = None;
    }
    let settings =
        nccl::Settings { local_rank: local, library: args.nccl_library.clone(), timeout: args.timeout() };
    Nccl::open(control, &settings).map(|it| Opened::Nccl(Box::new(it)))
}

/// One rank per GPU, otherwise one per core.
fn usual(engine: Kind) -> usize {
    let cores = std::thread::available_parallelism().map_or(2, Into::into);
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    match (engine, visible_of(launch::gpus(), visible.as_deref())) {
        (Kind::Host, _) | (_, 0) => cores.clamp(2, MOST),
        (_, gpus) => gpus,
    }
}

/// The GPUs that `CUDA_VISIBLE_DEVICES` leaves visible.
fn visible_of(gpus: usize, visible: Option<&str>) -> usize {
    let Some(visible) = visible else { return gpus };
    // CUDA ignores what follows the first entry that is not a device.
    let named = visible.split(',').take_while(|it| !it.trim().is_empty() && !it.trim().starts_with('-'));
    named.count().min(gpus)
}

/// Makes NCCL write its log into a folder of this process, which is created later.
fn nccl_log() -> Option<PathBuf> {
    let folder = nccl::log::folder()?;
    let settings = nccl::log::settings(&folder);
    (!settings.is_empty() && nccl::log::apply(settings).is_ok()).then_some(folder)
}

fn note(args: &Bench) {
    let idle = args.idle();
    if !idle.is_empty() {
        complain(&format!(
            "note: {} {} accepted for compatibility with nccl-tests and {} no effect",
            idle.join(", "),
            if idle.len() == 1 { "is" } else { "are" },
            if idle.len() == 1 { "has" } else { "have" }
        ));
    }
}

/// Names once the flags of the other engine.
fn idle(rank: usize, flags: &[&str], engine: &str) {
    if rank == 0 && !flags.is_empty() {
        let have = if flags.len() == 1 { "has" } else { "have" };
        complain(&format!("note: {} {have} no effect on the {engine} engine", flags.join(", ")));
    }
}

fn failed(reason: &dyn std::fmt::Display) -> u8 {
    complain(&format!("error: {reason}"));
    UNDECIDED
}

/// 1 where a result is wrong.
pub(super) fn code(wrong: bool) -> u8 {
    if wrong { FINDINGS } else { CLEAN }
}

#[cfg(test)]
mod tests {
    use super::code;

    #[test]
    fn one_wrong_element_is_an_exit_code() {
        assert_eq!([code(false), code(true)], [0, 1]);
    }
}
