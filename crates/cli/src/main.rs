//! The binary `plumb`: arguments in, exit code out. The work is done in the other crates.

mod args;
mod bench;
mod bind;
mod browser;
mod check;
mod compare;
mod decide;
mod doctor;
mod env;
mod expect;
mod fleet;
mod input;
mod lint;
mod manifest;
mod mounts;
mod node;
mod output;
mod page;
mod plan;
mod predict;
mod progress;
mod texts;
mod topo;
mod topo_page;
mod validate;
mod write;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use args::{Command, ListFormat, Plumb};

/// Nothing at or above `--fail-on`.
const CLEAN: u8 = 0;
/// Findings.
const FINDINGS: u8 = 1;
/// Bad input, bad usage, or nothing could be decided.
const UNDECIDED: u8 = 2;

fn main() -> ExitCode {
    let plumb = match Plumb::try_parse() {
        Ok(plumb) => plumb,
        // clap repeats arguments as they are: what a terminal obeys is taken out first.
        Err(error)
            if error.use_stderr()
                && std::env::args_os()
                    .any(|it| report::clean(&it.to_string_lossy()) != it.to_string_lossy()) =>
        {
            complain(error.to_string().trim_end());
            return ExitCode::from(UNDECIDED);
        }
        Err(error) => error.exit(),
    };
    let mut out = io::BufWriter::new(io::stdout().lock());
    let result = match &plumb.command {
        Command::Doctor(args) => doctor::run(args, plumb.color, &mut out),
        Command::Lint(args) => lint::run(args, plumb.color, &mut out),
        Command::Manifest(args) => manifest::run(args, &mut out),
        Command::Env(args) => env::run(args, plumb.color, &mut out),
        Command::Topo(args) => topo::run(args, plumb.color, &mut out),
        Command::Expect(args) => expect::run(args, plumb.color, &mut out),
        Command::Compare(args) => compare::run(args, plumb.color, &mut out),
        Command::Predict(args) => predict::run(args, plumb.color, &mut out),
        Command::Plan(args) => plan::run(args, plumb.color, &mut out),
        Command::Validate(args) => validate::run(args, plumb.color, &mut out),
        Command::Node(args) => node::run(args, plumb.color, &mut out),
        Command::Bench(args) => bench::run(args, plumb.color, &mut out),
        Command::Explain { what } => explain(&what.join(" "), &mut out),
        Command::Page(args) => browser::run(args, &mut out),
        Command::Rules { format } => list_rules(*format, &mut out),
        Command::Machines { format } => list_machines(*format, &mut out),
        Command::Completions { shell } => completions(*shell, &mut out),
        Command::Man { command } => man(command.as_deref(), &mut out),
    };
    match result.and_then(|code| out.flush().map(|()| code)) {
        Ok(code) => ExitCode::from(code),
        // The reader, such as `head`, closed the pipe.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::from(CLEAN),
        Err(error) => {
            complain(&format!("error: {error}"));
            ExitCode::from(UNDECIDED)
        }
    }
}

/// Writes a message to standard error.
fn complain(text: &str) {
    // File names and lines may contain control characters.
    let _ = writeln!(io::stderr(), "{}", output::clean_lines(text));
}

fn explain(what: &str, out: &mut impl Write) -> io::Result<u8> {
    let found = ::explain::explain(what);
    if !found.is_empty() {
        report::explanations(&found, doctor::width(), out)?;
        return Ok(CLEAN);
    }
    complain(&format!("error: plumb knows no rule, variable, term, machine, GPU or log line `{what}`"));
    let similar = ::explain::similar(what);
    if !similar.is_empty() {
        complain(&format!("hint: did you mean {}?", similar.join(", ")));
    }
    Ok(UNDECIDED)
}

fn list_rules(format: ListFormat, out: &mut impl Write) -> io::Result<u8> {
    report::rules(format == ListFormat::Json, doctor::list_width(), out)?;
    Ok(CLEAN)
}

fn list_machines(format: ListFormat, out: &mut impl Write) -> io::Result<u8> {
    let machines = report::Machines::of_catalogue();
    match format {
        ListFormat::Text => machines.text(doctor::list_width(), out)?,
        ListFormat::Json => machines.json(out)?,
    }
    Ok(CLEAN)
}

fn completions(shell: clap_complete::Shell, out: &mut impl Write) -> io::Result<u8> {
    // The generator panics when its writer fails, so it writes to memory.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Plumb::command(), "plumb", &mut script);
    out.write_all(&script)?;
    Ok(CLEAN)
}

fn man(command: Option<&str>, out: &mut impl Write) -> io::Result<u8> {
    let mut plumb = Plumb::command();
    plumb.build();
    let page = match command {
        None => plumb,
        Some(name) => match plumb.find_subcommand(name) {
            Some(found) => found.clone(),
            None => {
                complain(&format!("error: plumb has no subcommand `{name}`"));
                return Ok(UNDECIDED);
            }
        },
    };
    clap_mangen::Man::new(page).render(out)?;
    Ok(CLEAN)
}
