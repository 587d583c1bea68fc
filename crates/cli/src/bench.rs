//! `plumb bench`: finds its place among the ranks, or starts them, and runs a collective.

mod answer;
mod args;
mod compare;
mod join;

pub(crate) use args::Bench;

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use ::bench::nccl::{self, Nccl};
use ::bench::{Engine, Failure, Host, Plan, Run};
use launch::{Place, Start};
use report::Style;

use crate::args::Colour;
use crate::{CLEAN, FINDINGS, UNDECIDED, complain, doctor, output};
use answer::Answer;
use args::Kind;

/// Ranks that are started where nobody says how many: one a core, but no more than these.
const MOST: usize = 8;

pub(crate) fn run(args: &Bench, colour: Colour, out: &mut impl Write) -> io::Result<u8> {
    if let [old, new] = args.compare.as_slice() {
        return compare::run(args, old, new, colour, out);
    }
    let Some(collective) = args.collective else { return Ok(UNDECIDED) };
    let plan = match args.plan(collective) {
        Ok(it) => it,
        Err(reason) => {
            complain(&format!("error: {reason}"));
            return Ok(UNDECIDED);
        }
    };
    if let Err(reason) = args.places() {
        return Ok(failed(&reason));
    }
    let inputs: Vec<PathBuf> = args.machines.cluster.iter().cloned().collect();
    if !output::spares(args.output.iter().chain(&args.plot).chain(&args.log), &inputs, false) {
        return Ok(UNDECIDED);
    }
    let place = match Place::find(&|name| std::env::var(name).ok()) {
        Ok(it) => it,
        Err(error) => return Ok(failed(&error)),
    };
    let to_start = match &place {
        None => Some(Start::new(args.ranks().unwrap_or_else(|| usual(args.engine)))),
        Some(it) => Start::here(it),
    };
    if let Some(start) = to_start {
        // Said once, not by every rank.
        note(args);
        return Ok(match launch::start(&start) {
            Ok(it) => {
                // Ranks that fail tell why; those that a signal ends cannot.
                match (it.interrupted, &it.failure) {
                    (Some(_), _) => {
                        answer::clear_line();
                        complain("error: interrupted");
                    }
                    (None, Some((rank, launch::Ending::Signal(number)))) if start.ranks == 1 => {
                        complain(&format!("error: rank {rank} was ended by signal {number}"));
                    }
                    _ => {}
                }
                it.code()
            }
            Err(error) => failed(&error),
        });
    }
    match place {
        Some(place) => rank(args, &plan, place, colour, out),
        None => Ok(UNDECIDED),
    }
}

/// One rank, from the meeting to the answer.
fn rank(args: &Bench, plan: &Plan, place: Place, colour: Colour, out: &mut dyn Write) -> io::Result<u8> {
    let (number, local) = (place.rank, place.local_rank.unwrap_or(0));
    // Asked while the standard output is still where the answer goes.
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
    if place.launcher != launch::Launcher::Plumb && number == 0 {
        note(args);
        if args.ranks().is_some_and(|it| it != place.size) {
            let launcher = place.launcher;
            complain(&format!(
                "note: {} ranks were started by {launcher}; --ranks changes nothing",
                place.size
            ));
        }
    }
    // Rank 0's is read; NCCL writes each its own.
    let mut folder = if args.engine == Kind::Host || number > 0 { None } else { nccl_log() };
    let log = join::log(args, number);
    let run = join::join(args, place).and_then(|mut communicator| {
        ::bench::agree(&mut communicator, &args.flags(plan))?;
        match engine(args, communicator, local, &mut folder)? {
            Opened::Host(mut it) => {
                idle(number, &args.idle_on_host(), "NCCL");
                let run = measure(plan, &mut *it, &mut answer);
                run.and_then(|run| it.leave().map(|()| run))
            }
            Opened::Nccl(mut it) => {
                idle(number, &args.idle_on_nccl(), "the host engine");
                // Where that was not known at first, it tells of the ranks' own connections, not of NCCL.
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
            Ok(failed(&failure))
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

/// Runs it on all ranks, as long as the answer can be written: second is whether it could.
fn measure(
    plan: &Plan,
    engine: &mut dyn Engine,
    answer: &mut Answer<'_>,
) -> Result<(Run, io::Result<()>), Failure> {
    let (name, version) = (engine.name(), engine.version());
    let mut written = Ok(());
    let run = ::bench::run(plan, engine, &mut |event| {
        if written.is_ok() {
            written = answer.tell(name, &version, &event);
        }
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok((run, written))
}

enum Opened {
    Host(Box<Host>),
    Nccl(Box<Nccl>),
}

/// The engine that was asked for; of `auto`, NCCL where every rank has a GPU and the library.
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
        complain(&format!("note: NCCL's log has no folder, and goes where NCCL likes: {error}"));
        *log = None;
    }
    let settings =
        nccl::Settings { local_rank: local, library: args.nccl_library.clone(), timeout: args.timeout() };
    Nccl::open(control, &settings).map(|it| Opened::Nccl(Box::new(it)))
}

/// One rank a GPU, or one a core.
fn usual(engine: Kind) -> usize {
    let cores = std::thread::available_parallelism().map_or(2, Into::into);
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    match (engine, visible_of(launch::gpus(), visible.as_deref())) {
        (Kind::Host, _) | (_, 0) => cores.clamp(2, MOST),
        (_, gpus) => gpus,
    }
}

/// GPUs that `CUDA_VISIBLE_DEVICES` leaves of those that are there.
fn visible_of(gpus: usize, visible: Option<&str>) -> usize {
    let Some(visible) = visible else { return gpus };
    // What follows a number that is no device is not seen.
    let named = visible.split(',').take_while(|it| !it.trim().is_empty() && !it.trim().starts_with('-'));
    named.count().min(gpus)
}

/// Makes NCCL write its log into a folder of this process, which is not there yet.
fn nccl_log() -> Option<PathBuf> {
    let folder = nccl::log::folder()?;
    let settings = nccl::log::settings(&folder);
    (!settings.is_empty() && nccl::log::apply(settings).is_ok()).then_some(folder)
}

fn note(args: &Bench) {
    let idle = args.idle();
    if !idle.is_empty() {
        complain(&format!("note: {} of nccl-tests changes nothing here", idle.join(", ")));
    }
}

/// Says once what was asked for in vain, as the other engine runs.
fn idle(rank: usize, flags: &[&str], of: &str) {
    if rank == 0 && !flags.is_empty() {
        complain(&format!("note: {} of {of} changes nothing here", flags.join(", ")));
    }
}

fn failed(reason: &dyn std::fmt::Display) -> u8 {
    complain(&format!("error: {reason}"));
    UNDECIDED
}

/// 1 where a result is wrong.
fn code(wrong: bool) -> u8 {
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
