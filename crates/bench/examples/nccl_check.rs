//! One rank of a check of the NCCL engine, for machines with a GPU; `tools/gpu-check` starts the ranks.
//!
//! `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `MASTER_ADDR` and `MASTER_PORT` are as torchrun sets them, `TIMEOUT` is in seconds and
//! `LOG_FOLDER` keeps NCCL's log.
//!
//! - `nccl_check verify`: every collective, type, operation and root, in place and out of place, over odd sizes.
//! - `nccl_check time all_reduce 1048576 1073741824 4 20`: from one size to another, by a factor, so many iterations.
//! - `nccl_check forever`: collectives until something goes wrong.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::env;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::{Duration, Instant};

use bench::engines::nccl::{self, Nccl, Settings, Version, log};
use bench::engines::{self, Call, Engine, Event};
use bench::{Cause, DataType, Failure, Operation, Plan, Sizes, Step};
use collective::{Communicator, Options, Rendezvous, RendezvousListener, Token};
use fabric::Collective;

fn main() -> ExitCode {
    let began = Instant::now();
    let rank = variable("RANK", 0_usize);
    if let Ok(folder) = env::var("LOG_FOLDER")
        && let Err(failure) = log::apply(log::settings(folder.as_ref()))
    {
        eprintln!("rank {rank}: {failure:?}");
    }
    match work(rank) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("rank {rank}, after {:.1} s: {failure:?}", began.elapsed().as_secs_f64());
            ExitCode::FAILURE
        }
    }
}

fn work(rank: usize) -> Result<(), Failure> {
    if rank == 0 {
        println!("# {:?}", nccl::present(None)?);
    }
    let timeout = Duration::from_secs(variable("TIMEOUT", 60));
    let control = join(rank, timeout)?;
    let settings = Settings { local_rank: variable("LOCAL_RANK", rank), library: None, timeout };
    let mut engine = Nccl::open(control, &settings)?;
    if rank == 0 {
        println!("# {}, log {:?}", engine.version(), log::file());
        for it in engine.devices() {
            println!("# {it:?}");
        }
    }
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["verify"] => verify(&mut engine, rank)?,
        ["time", collective, from, to, factor, iterations] => {
            let sizes = Sizes { from: number(from)?, to: number(to)?, step: Step::Factor(number(factor)?) };
            let plan = Plan {
                sizes,
                iterations: Some(number(iterations)?),
                check: 0,
                ..Plan::new(named(collective)?)
            };
            time(&mut engine, &plan, rank)?;
        }
        ["forever"] => forever(&mut engine)?,
        _ => return Err(usage("verify, time COLLECTIVE FROM TO FACTOR ITERATIONS, or forever")),
    }
    engine.close()?.leave().map_err(Failure::from)
}

fn join(rank: usize, timeout: Duration) -> Result<Communicator, Failure> {
    let address: IpAddr = variable("MASTER_ADDR", IpAddr::from([127, 0, 0, 1]));
    let port: u16 = variable("MASTER_PORT", 29_555);
    let rendezvous = match rank {
        0 => Rendezvous::Listen(RendezvousListener::bind(address, port)?),
        _ => Rendezvous::Connect { host: address.to_string(), port },
    };
    let mut options = Options::new(rank, variable("WORLD_SIZE", 1), rendezvous, Token::new("nccl-check")?);
    options.timeout = timeout;
    Ok(Communicator::join(options)?)
}

/// Before this release NCCL leaves the last elements of an average unwritten where there is one rank: `oneRankReduce` in its
/// `src/device/onerank.cu` rounds the part of a block down.
const AVERAGES_ALONE: Version = Version { major: 2, minor: 29, patch: 7 };

fn verify(engine: &mut Nccl, rank: usize) -> Result<(), Failure> {
    let mut wrong = 0;
    let mut operations = Operation::ALL.to_vec();
    if engine.devices().len() == 1 && nccl::present(None)?.nccl < AVERAGES_ALONE {
        println!("# without avg, in which NCCL before {AVERAGES_ALONE} has an error where there is one rank");
        operations.retain(|it| *it != Operation::Avg);
    }
    for collective in Collective::ALL {
        let plan = Plan {
            sizes: Sizes { from: 0, to: 70_000, step: Step::Bytes(23_336) },
            data_types: DataType::ALL.to_vec(),
            operations: operations.clone(),
            root: None,
            iterations: Some(1),
            warm_up: 1,
            ..Plan::new(collective)
        };
        let run = engines::run(&plan, engine, &mut |_| ControlFlow::Continue(()))?;
        let timings = run.rows.iter().flat_map(|it| [&it.out_of_place, &it.in_place]).flatten();
        let (checked, bad) =
            timings.fold((0, 0), |(all, bad), it| (all + 1, bad + usize::from(it.wrong != Some(0))));
        wrong += bad;
        if rank == 0 {
            println!("{:>14}: {checked} checked, {bad} wrong", collective.name());
            if let Some(first) = run.wrong {
                println!("{first:?}");
            }
        }
    }
    if wrong == 0 { Ok(()) } else { Err(usage(&format!("{wrong} results are wrong"))) }
}

fn time(engine: &mut Nccl, plan: &Plan, rank: usize) -> Result<(), Failure> {
    let microseconds = |it: &Option<bench::Timing>| it.as_ref().map_or(f64::NAN, |it| it.seconds * 1e6);
    engines::run(plan, engine, &mut |event| {
        if let (0, Event::Row(row)) = (rank, event) {
            println!(
                "{} {} {:.2} {:.2}",
                plan.collective.name(),
                row.bytes,
                microseconds(&row.out_of_place),
                microseconds(&row.in_place)
            );
        }
        ControlFlow::Continue(())
    })?;
    Ok(())
}

fn forever(engine: &mut Nccl) -> Result<(), Failure> {
    let call = Call {
        collective: Collective::AllReduce,
        data_type: DataType::Float,
        operation: Operation::Sum,
        root: 0,
        count: 16 << 20,
        in_place: false,
    };
    engine.allocate(64 << 20)?;
    loop {
        engine.run(&call, 20)?;
    }
}

fn named(name: &str) -> Result<Collective, Failure> {
    Collective::ALL
        .into_iter()
        .find(|it| it.name() == name)
        .ok_or_else(|| usage(&format!("{name} is not a collective")))
}

fn number<T: FromStr>(text: &str) -> Result<T, Failure> {
    text.parse().map_err(|_| usage(&format!("{text} is not a number")))
}

fn usage(detail: &str) -> Failure {
    Cause::Usage { detail: detail.to_owned() }.into()
}

fn variable<T: FromStr>(name: &str, otherwise: T) -> T {
    env::var(name).ok().and_then(|it| it.parse().ok()).unwrap_or(otherwise)
}
