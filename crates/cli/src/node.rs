//! `plumb node`: is this machine fit to train, and are several alike?

use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum, ValueHint};
use evidence::node::NodeState;
use fabric::catalogue::Model;
use report::{Nagios, Nodes, Style};
use rules::Severity;
use rules::node::{Fitness, judge, judge_together};

use crate::args::{Colour, FailOn, PageFormat, machine};
use crate::{CLEAN, FINDINGS, UNDECIDED, complain, doctor, input, output, page};

/// The largest recorded state that is read.
const MOST: u64 = 1 << 24;

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 fit; 1 not fit (a finding at or above --fail-on); 2 could not be judged, or bad input. With --exit-style nagios: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN."
)]
pub(crate) struct Node {
    /// States that `plumb node --format json` recorded; `-` for standard input. Several are compared with each other, two of one host
    /// for what changed. Without one, plumb looks at this machine.
    #[arg(value_name = "STATE", value_hint = ValueHint::FilePath)]
    pub(crate) states: Vec<PathBuf>,

    /// The machine by its name, where its firmware does not say it: dgx-h100. `plumb machines` lists all.
    #[arg(long, value_name = "NAME", value_parser = machine)]
    pub(crate) instance: Option<&'static Model>,

    /// Output format; JSON has the schema plumb.node/1, for several states plumb.nodes/1.
    #[arg(long, short, value_enum, default_value_t = PageFormat::Text)]
    pub(crate) format: PageFormat,

    /// Write metrics for the textfile collector of `node_exporter` instead.
    #[arg(long, conflicts_with_all = ["format", "mode", "exit_style"])]
    pub(crate) prometheus: bool,

    /// Write to this file, which is replaced in one step, instead of standard output.
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) health: Health,

    /// The lowest severity that makes the exit code 1.
    #[arg(long, value_enum, default_value_t = FailOn::Error, value_name = "SEVERITY")]
    pub(crate) fail_on: FailOn,

    /// Show everything: why, every device, rules that were not checked.
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

/// How a scheduler or a monitor asks.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Health {
    /// How many GPUs each machine must have; 0 for a machine without GPUs, such as a login node. A machine on which no GPU is seen cannot
    /// be judged without it, unless its firmware or --instance says what it is.
    #[arg(long, value_name = "N")]
    pub(crate) gpus: Option<u32>,

    /// `healthcheck`: look at this machine only, in less than a minute, and write one line, `plumb: REASON`, or nothing where it is fit. For
    /// `HealthCheckProgram` and prologs of Slurm.
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) mode: Option<Mode>,

    /// Exit codes and output of another family of programs.
    #[arg(long, value_enum, value_name = "STYLE")]
    pub(crate) exit_style: Option<ExitStyle>,
}

impl Health {
    /// Whether one of them asks.
    pub(crate) fn is_asked(self) -> bool {
        self.mode.is_some() || self.exit_style.is_some()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// One line, or nothing.
    Healthcheck,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExitStyle {
    /// A Nagios plugin: one line with performance data.
    Nagios,
}

pub(crate) fn run(args: &Node, colour: Colour, out: &mut impl Write) -> io::Result<u8> {
    if !output::spares(&args.output, &args.states, false) {
        return Ok(UNDECIDED);
    }
    if let Some(read) = page::only(&args.states, "node") {
        let form = page::Form::new(args.format, args.verbose);
        let mut bytes = Vec::new();
        let code = page::show(read, form, args.fail_on, &mut bytes)?;
        if bytes.is_empty() {
            return Ok(code);
        }
        return written(args.output.as_deref(), out, |out| out.write_all(&bytes)).map(|()| code);
    }
    let (mut states, unread) = match gather(&args.states) {
        Ok(it) => it,
        Err(reason) => {
            complain(&format!("error: {reason}"));
            // A monitor knows 3 as unknown, and 2 as critical.
            return Ok(if args.health.exit_style.is_some() { 3 } else { UNDECIDED });
        }
    };
    for it in &mut states {
        expect(it, args.instance, args.health.gpus);
    }
    let judged = judged(args, states, colour, out)?;
    for it in &unread {
        complain(&format!("error: {it}"));
    }
    // A machine whose state could not be read may be the one that is not fit.
    Ok(if judged == CLEAN && !unread.is_empty() { UNDECIDED } else { judged })
}

fn judged(args: &Node, mut states: Vec<NodeState>, colour: Colour, out: &mut impl Write) -> io::Result<u8> {
    let Some(state) = (if states.len() == 1 { states.pop() } else { None }) else {
        return several(args, states, colour, out);
    };
    let node = report::Node::new(state.clone(), &judge(&state));
    if args.health.is_asked() {
        return answer(args.health, &node, args.fail_on, out);
    }
    let style = style(args, colour);
    written(args.output.as_deref(), out, |mut out| match (args.prometheus, args.format) {
        (true, _) => node.prometheus(&mut out),
        (false, PageFormat::Json) => node.json(&mut out),
        (false, PageFormat::Text) => node.text(style, &mut out),
        (false, PageFormat::Html) => report::html::write(&node, &mut out),
    })?;
    // Metrics carry the verdict themselves, and a collector takes any other code for a failure to collect.
    Ok(if args.prometheus { CLEAN } else { code(node.verdict, node.worst(), args.fail_on) })
}

/// What the machine should be, as the user says.
fn expect(state: &mut NodeState, instance: Option<&Model>, gpus: Option<u32>) {
    state.machine.named = instance.map(|it| it.name.to_owned()).or(state.machine.named.take());
    state.machine.expected_gpus = gpus.or(state.machine.expected_gpus);
}

/// Looks at this machine and answers as a scheduler or a monitor asks: what `plumb validate --mode healthcheck` does too.
pub(crate) fn healthcheck(health: Health, instance: Option<&Model>, out: &mut impl Write) -> io::Result<u8> {
    let mut state = match gather(&[]) {
        Ok((mut states, _)) => states.pop().unwrap_or_default(),
        Err(reason) => {
            complain(&format!("error: {reason}"));
            return Ok(if health.exit_style.is_some() { 3 } else { UNDECIDED });
        }
    };
    expect(&mut state, instance, health.gpus);
    let node = report::Node::new(state.clone(), &judge(&state));
    answer(health, &node, FailOn::Error, out)
}

fn answer(health: Health, node: &report::Node, fail_on: FailOn, out: &mut impl Write) -> io::Result<u8> {
    if health.exit_style == Some(ExitStyle::Nagios) {
        let nagios = Nagios::new(node);
        writeln!(out, "{}", nagios.line)?;
        return Ok(nagios.code);
    }
    if let Some(line) = report::health_line(node) {
        writeln!(out, "{line}")?;
    }
    Ok(code(node.verdict, node.worst(), fail_on))
}

fn several(args: &Node, states: Vec<NodeState>, colour: Colour, out: &mut impl Write) -> io::Result<u8> {
    if args.prometheus || args.health.is_asked() {
        complain(
            "error: --prometheus, --mode and --exit-style are about one machine: give one STATE, or none",
        );
        return Ok(UNDECIDED);
    }
    let together = judge_together(&states);
    let judged = |it: NodeState| {
        let judged = judge(&it);
        (it, judged)
    };
    let nodes = Nodes::new(states.into_iter().map(judged).collect(), &together);
    let style = style(args, colour);
    written(args.output.as_deref(), out, |mut out| match args.format {
        PageFormat::Json => nodes.json(&mut out),
        PageFormat::Text => nodes.text(style, &mut out),
        PageFormat::Html => report::html::write(&nodes, &mut out),
    })?;
    Ok(code(nodes.verdict, nodes.worst(), args.fail_on))
}

fn style(args: &Node, colour: Colour) -> Style {
    let colour = args.output.is_none() && doctor::coloured(colour);
    Style { colour, width: doctor::width(), verbose: args.verbose }
}

fn written(
    path: Option<&Path>,
    out: &mut impl Write,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    match path {
        Some(path) => output::write_file(path, write),
        None => write(out),
    }
}

fn code(verdict: Fitness, worst: Option<Severity>, fail_on: FailOn) -> u8 {
    match fail_on.severity() {
        Some(least) if worst.is_some_and(|it| it >= least) => FINDINGS,
        _ if verdict == Fitness::Unknown => UNDECIDED,
        _ => CLEAN,
    }
}

/// The states of the files, or that of this machine.
/// The states, and why others could not be read. No state at all is an error.
fn gather(paths: &[PathBuf]) -> Result<(Vec<NodeState>, Vec<String>), String> {
    if paths.is_empty() {
        return this_machine().map(|it| (vec![it], Vec::new()));
    }
    let read = |path: &PathBuf| {
        let name = input::name(path);
        let mut bytes = Vec::new();
        input::open_whole(path)
            .and_then(|it| it.take(MOST + 1).read_to_end(&mut bytes))
            .map_err(|error| format!("{name}: {error}"))?;
        if report::html::is_page(&bytes) {
            let page = String::from_utf8_lossy(&bytes).into_owned();
            bytes = page::json_of(&name, page, "node")?.into_bytes();
        }
        NodeState::read(&bytes).map_err(|reason| format!("{name}: {reason}"))
    };
    let (mut states, mut unread): (Vec<NodeState>, Vec<String>) = (Vec::new(), Vec::new());
    for path in paths {
        match read(path) {
            // Two recordings of one look are one machine.
            Ok(state) if states.contains(&state) => complain(&format!(
                "note: {}: the same recording of {} is given again: it is counted once",
                input::name(path),
                report::clean(&state.host)
            )),
            Ok(state) => states.push(state),
            Err(reason) => unread.push(reason),
        }
    }
    if states.is_empty() { Err(unread.join("\nerror: ")) } else { Ok((states, unread)) }
}

#[cfg(target_os = "linux")]
#[expect(clippy::unnecessary_wraps, reason = "elsewhere it is an error")]
fn this_machine() -> Result<NodeState, String> {
    Ok(::node::state(env!("CARGO_PKG_VERSION")))
}

#[cfg(not(target_os = "linux"))]
fn this_machine() -> Result<NodeState, String> {
    Err("plumb node looks at the local machine on Linux only: give STATE files".to_owned())
}
