//! Every command that a validation would start, and where.

use std::io::{self, Write as _};

use ::validate::live::{Chosen, Engine, Entry, Launch, Line, Measurement, Plan, Run};
use launch::{Host, Request, Shown, Way};

use super::live::place;
use super::measure::Site;
use super::{args, node};

/// A bandwidth that makes every launch look alike and normal, in GB/s: no fault is searched for.
const EVEN: f64 = 1.0;

/// Prints the commands of a validation in which nothing is slow, and of the first round of pairs.
pub(super) fn show(way: &mut dyn Way, site: &Site, plan: Plan, args: &args::Validate) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "# plumb validate --dry-run: {} over {}; nothing is started",
        super::machines(plan.hosts.len()),
        way.name()
    )?;
    writeln!(
        out,
        "\n# 0 reach: ask for a connection to share, connect to every machine, compare clocks, copy plumb where it is missing or another one"
    )?;
    let all: Vec<Host> = site.hosts.values().cloned().collect();
    let placing = way.shown_placing(&all);
    if placing.is_empty() {
        writeln!(out, "# nothing is started: the processes of {} are connected", way.name())?;
    }
    commands(&mut out, &placing)?;
    if let Some(script) = way.shown_script() {
        if args.verbose {
            writeln!(out, "# each of these shells reads on its standard input, with a random MARK:")?;
            script.lines().try_for_each(|it| writeln!(out, "#   {it}"))?;
        } else {
            writeln!(out, "# each of these shells reads a script on its standard input, which -v shows")?;
        }
    }
    let probe: Vec<_> = site.hosts.iter().map(|it| (it.0.clone(), it.1.clone())).collect();
    writeln!(out, "\n# 1 node: what each machine says about itself")?;
    commands(&mut out, &way.shown(&node::request(&probe, plan.timeout_s, args)))?;
    let hosts = plan.hosts.clone();
    let gpus = args.health.gpus.or(args.instance.map(|it| it.gpus)).and_then(|it| usize::try_from(it).ok());
    let engine = match args.engine {
        args::Engine::Nccl => Engine::Nccl,
        args::Engine::Auto if gpus.is_some_and(|it| it > 0) => Engine::Nccl,
        args::Engine::Auto | args::Engine::Host => Engine::Host,
    };
    let (ranks, local_ranks) = match (engine, gpus) {
        (Engine::Nccl, gpus) => (gpus.unwrap_or(1).max(1), gpus.unwrap_or(1).max(1)),
        (Engine::Host, _) => (1, 2),
    };
    let assumed = match (engine, gpus) {
        (Engine::Nccl, Some(gpus)) => format!("NCCL with {gpus} GPUs per machine"),
        (Engine::Nccl, None) => {
            "NCCL with one GPU per machine; --gpus or --instance say how many there are".to_owned()
        }
        (Engine::Host, _) => {
            "host memory; machines with GPUs run NCCL, for which --gpus or --instance say how many there are"
                .to_owned()
        }
    };
    writeln!(out, "\n# the rest as if nothing was wrong, with {assumed}")?;
    let mut run = Run::new(plan);
    let chosen = Chosen {
        hosts,
        engine,
        ranks,
        local_ranks,
        nics: Vec::new(),
        local_least: None,
        all_least: None,
        machine: None,
    };
    run.take(Line { elapsed_s: 0.0, entry: Entry::Chosen(chosen) });
    while let Some(launch) = run.next() {
        let (stage, name) = place(&launch.step);
        let many = launch.items.len();
        writeln!(out, "\n# {stage} {name}: {many} at the same time")?;
        for batch in site.batches(&run, &launch).map_err(io::Error::other)? {
            commands(&mut out, &shown(way, &batch.request))?;
        }
        if name == "pairs" {
            writeln!(
                out,
                "\n# further rounds of pairs, NICs of suspects and the proof without them depend on what is measured"
            )?;
            break;
        }
        pretend(&mut run, &launch);
    }
    Ok(())
}

fn shown(way: &dyn Way, request: &Request) -> Vec<Shown> {
    way.shown(request)
}

fn commands(out: &mut impl io::Write, all: &[Shown]) -> io::Result<()> {
    let wide = all.iter().map(|it| it.host.to_string().len()).max().unwrap_or(0);
    for it in all {
        writeln!(out, "{:<wide$}  {}", it.host.to_string(), it.command)?;
        if let Some(task) = &it.task {
            writeln!(out, "{:<wide$}    runs {task}", "")?;
        }
    }
    Ok(())
}

/// As if it had been measured.
fn pretend(run: &mut Run, launch: &Launch) {
    for item in &launch.items {
        let entry = Entry::Measured(Measurement {
            launch: launch.number,
            stage: launch.step.name().to_owned(),
            hosts: run.names(item),
            nic: None,
            bytes: 0,
            rate: Some(EVEN),
            resent: Vec::new(),
            failed: None,
            seconds: 0.0,
        });
        run.take(Line { elapsed_s: 0.0, entry });
    }
}
