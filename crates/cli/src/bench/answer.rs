//! What rank 0 prints, during the run and at the end. The other ranks print nothing.

use std::io::{self, IsTerminal as _, Write};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use ::bench::engines::Event;
use ::bench::engines::nccl::log;
use ::bench::record::{Config, Context, Expected, Row};
use ::bench::{Device, EngineKind, Plan, Record, Run};
use forecast::Cluster;
use nccl::Settings;
use report::{Style, bench};

use super::Bench;
use super::measure::code;
use crate::args::{Colour, Machines, PageFormat};
use crate::{complain, expect, input, output};

/// Clears the line, then returns to its beginning: a program that forwards lines ends one at the carriage return.
const CLEAR: &str = "\x1b[2K\r";

/// Removes the progress that a rank has left on the terminal.
pub(super) fn clear_line() {
    if io::stderr().is_terminal() {
        let _ = write!(io::stderr(), "{CLEAR}");
    }
}

/// The answer of a run.
pub(super) struct Answer<'a> {
    args: &'a Bench,
    plan: &'a Plan,
    rank: usize,
    colour: Colour,
    style: Style,
    out: &'a mut dyn Write,
    config: Config,
    started: u64,
    clock: Instant,
    /// Whether a progress line is on the terminal.
    shown: bool,
    terminal: bool,
    cluster: Option<Cluster>,
}

impl<'a> Answer<'a> {
    pub(super) fn new(
        args: &'a Bench,
        plan: &'a Plan,
        rank: usize,
        (colour, style): (Colour, Style),
        out: &'a mut dyn Write,
    ) -> Result<Self, String> {
        let formats = args.format.len().max(1);
        if args.output.len() > formats {
            return Err("more --output than --format options".to_owned());
        }
        if formats > args.output.len() + 1 {
            return Err(
                "only one --format can go to standard output: give each of the others an --output".to_owned()
            );
        }
        let mut config = Config::new(plan);
        config.timestamps = args.timestamps();
        config.private = args.private;
        config.transport = args.transport.map(|it| it.to_string());
        config.algorithm = args.algo.map(|it| it.to_string());
        config.network.clone_from(&args.net);
        let terminal = std::env::var_os("PLUMB_TERMINAL").is_some() || io::stderr().is_terminal();
        Ok(Self {
            args,
            plan,
            rank,
            colour,
            style,
            out,
            config,
            started: now(),
            clock: Instant::now(),
            shown: false,
            terminal,
            cluster: None,
        })
    }

    /// The table grows while it is measured, where it goes to standard output.
    fn live(&self) -> bool {
        let formats = &self.args.format;
        self.rank == 0
            && match formats.get(self.args.output.len()) {
                Some(it) => *it == PageFormat::Text,
                None => formats.is_empty() && self.args.output.is_empty(),
            }
    }

    pub(super) fn show(&mut self, engine: EngineKind, version: &str, event: &Event<'_>) -> io::Result<()> {
        if self.rank > 0 {
            return Ok(());
        }
        match event {
            Event::Ready(devices) => {
                self.cluster = self.expected(engine, devices);
                if self.live() {
                    let config = self.config.clone();
                    let head = Record::begun(self.plan.collective, config, Some(engine), version, devices);
                    bench::header(&head, &mut self.out)?;
                    self.out.flush()?;
                }
            }
            Event::Size { bytes, done, total } => {
                // An endless run has no total.
                let of = if done < total { format!(", {} of {total}", done + 1) } else { String::new() };
                self.progress(&format!("measuring {bytes} bytes{of}"));
            }
            Event::Repeat { number, total } => {
                self.progress(&format!("measuring again, {} of {total}", number + 1));
            }
            Event::CheckedOnHost { rank, reason } => {
                self.clear();
                complain(&format!(
                    "note: rank {rank} fills and compares its buffers on the host, which takes longer: {reason}"
                ));
            }
            Event::Row(row) => {
                self.clear();
                if self.live() {
                    let row = Row::new(self.plan.collective, row, None);
                    bench::row(&self.config, &row, &mut self.out)?;
                    self.out.flush()?;
                }
            }
        }
        Ok(())
    }

    /// On a terminal, and only if it takes long.
    fn progress(&mut self, text: &str) {
        if self.terminal && self.clock.elapsed() >= Duration::from_secs(1) {
            let _ = write!(io::stderr(), "{CLEAR}{text}");
            self.shown = true;
            self.clock = Instant::now();
        }
    }

    /// Removes the progress.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = write!(io::stderr(), "{CLEAR}");
            // The row reaches the same terminal through the parent process, and must be written later.
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The machines from the command line, if the ranks fit on them.
    fn expected(&self, engine: EngineKind, devices: &[Device]) -> Option<Cluster> {
        let machines = &self.args.machines;
        if machines.instance.is_none() && machines.cluster.is_none() {
            if machines.nodes.is_some() || machines.pods.is_some() {
                complain("note: no expected bandwidth: --nodes and --pods need --instance or --cluster");
            }
            return None;
        }
        if engine == EngineKind::Host {
            complain("note: no expected bandwidth: plumb models NCCL on GPUs, not the host-memory engine");
            return None;
        }
        let mut hosts: Vec<&str> = devices.iter().map(|it| it.host.as_str()).collect();
        hosts.sort_unstable();
        hosts.dedup();
        let nodes = machines.nodes.or(u32::try_from(hosts.len()).ok());
        let each = devices.len().checked_div(hosts.len()).and_then(|it| u32::try_from(it).ok());
        let machines = Machines {
            instance: machines.instance,
            cluster: machines.cluster.clone(),
            nodes,
            pods: machines.pods.or(each.map(|it| (1, it))),
        };
        match expect::cluster(&machines, &Settings::new(Settings::NEWEST)) {
            Ok(it) => Some(it),
            Err(reason) => {
                complain(&format!("note: no expected bandwidth: {}", reason.0));
                None
            }
        }
    }

    /// Writes the answer, and returns the exit code.
    pub(super) fn end(mut self, run: &Run, folder: Option<&Path>) -> io::Result<u8> {
        self.clear();
        let code = code(run.wrong.is_some());
        if self.rank > 0 {
            return Ok(code);
        }
        let expected = |bytes: u64| {
            let normal = forecast::normal(run.collective, self.cluster.as_ref()?, bytes)?;
            Some(Expected { low: normal.low, expected: normal.expected, high: normal.high })
        };
        let context = Context {
            started: self.started,
            ended: now(),
            machine: self.cluster.as_ref().map(|it| it.machine.as_str()),
            expected: Some(&expected),
        };
        let record = Record::new(run, self.config.clone(), context);
        let live = self.live();
        let formats = if self.args.format.is_empty() { &[PageFormat::Text][..] } else { &self.args.format };
        for (i, format) in formats.iter().enumerate() {
            match self.args.output.get(i) {
                Some(path) => {
                    let style = Style { colour: self.colour == Colour::Always, ..self.style };
                    output::write_file(path, |out| write(&record, *format, false, style, out))?;
                }
                None => write(&record, *format, live, self.style, self.out)?,
            }
        }
        if live && run.engine == EngineKind::Nccl {
            self.reasons(folder)?;
        }
        self.out.flush()?;
        if let Some(path) = &self.args.plot {
            output::write_file(path, |mut out| bench::svg(&record, &mut out))?;
        }
        if let Some(path) = &self.args.json {
            let arguments: Vec<String> = std::iter::once(format!("{}_perf", record.collective))
                .chain(std::env::args().skip(1))
                .collect();
            let path = output::write_new(path, |mut out| bench::nccl_tests(&record, &arguments, &mut out))?;
            complain(&format!("note: nccl-tests' JSON is in {}", path.display()));
        }
        if let Some(it) = &record.first_wrong {
            complain(&format!(
                "error: wrong result on rank {} at index {}: got {}, expected {} ({} of {} bytes)",
                it.rank, it.index, it.got, it.expected, record.collective, it.bytes
            ));
        }
        Ok(code)
    }

    /// The verdict of `plumb doctor` on NCCL's own log.
    fn reasons(&mut self, folder: Option<&Path>) -> io::Result<()> {
        let Some(path) = folder.and_then(|_| log::file()).filter(|it| it.exists()) else {
            return Ok(());
        };
        let log = rules::Log::new(input::read(std::slice::from_ref(&path)).case);
        let verdict = rules::diagnose(&log).verdict;
        writeln!(self.out, "  NCCL's log: {}: {}", verdict.level.name(), verdict.text)
    }
}

fn write(
    record: &Record,
    format: PageFormat,
    live: bool,
    style: Style,
    mut out: &mut dyn Write,
) -> io::Result<()> {
    match format {
        PageFormat::Json => return bench::json(record, &mut out),
        PageFormat::Html => return report::html::write(record, &mut out),
        PageFormat::Text => {}
    }
    if !live {
        bench::header(record, &mut out)?;
        for row in &record.results {
            bench::row(&record.config, row, &mut out)?;
        }
    }
    bench::footer(record, &mut out)?;
    bench::summary(record, style, &mut out)?;
    bench::plot(record, unicode(), &mut out)
}

/// Whether the locale is UTF-8.
fn unicode() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|it| std::env::var(it).ok().filter(|it| !it.is_empty()));
    locale.is_some_and(|it| {
        let it = it.to_lowercase();
        it.contains("utf-8") || it.contains("utf8")
    })
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |it| it.as_secs())
}
