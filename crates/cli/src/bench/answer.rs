//! What rank 0 says, while it runs and at the end. The other ranks say nothing.

use std::io::{self, IsTerminal as _, Write};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use ::bench::{Event, Plan, Run};
use forecast::Cluster;
use nccl::Settings;
use report::bench::{self, Bench as Report, BenchConfig, BenchRow, Context};
use report::{Doctor, Options, Style};

use super::Bench;
use crate::args::{Colour, ListFormat, Machines};
use crate::{complain, expect, input, output};

/// Away with what stands in the line, and back to its beginning: last, as for whoever passes lines on the next one begins there.
const CLEAR: &str = "\x1b[2K\r";

/// Takes away what a rank has left on the terminal.
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
    config: BenchConfig,
    started: u64,
    clock: Instant,
    /// A line of progress stands on the terminal.
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
            return Err("there are more --output than --format".to_owned());
        }
        if formats > args.output.len() + 1 {
            return Err(
                "only one --format can go to standard output: give each of the others an --output".to_owned()
            );
        }
        let mut config = BenchConfig::new(plan);
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
                Some(it) => *it == ListFormat::Text,
                None => formats.is_empty() && self.args.output.is_empty(),
            }
    }

    pub(super) fn tell(&mut self, engine: &str, version: &str, event: &Event<'_>) -> io::Result<()> {
        if self.rank > 0 {
            return Ok(());
        }
        match event {
            Event::Ready(devices) => {
                self.cluster = self.expected(engine, devices);
                if self.live() {
                    let head =
                        Report::begun(self.plan.collective, self.config.clone(), (engine, version), devices);
                    bench::header(&head, &mut self.out)?;
                    self.out.flush()?;
                }
            }
            Event::Size(bytes, done, all) => {
                // An endless run has no total.
                let of = if done < all { format!(", {} of {all}", done + 1) } else { String::new() };
                self.progress(&format!("measuring {bytes} bytes{of}"));
            }
            Event::Look(number, all) => self.progress(&format!("looking again, {} of {all}", number + 1)),
            Event::Row(row) => {
                self.clear();
                if self.live() {
                    let row = BenchRow::new(self.plan.collective, row, None);
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

    /// Takes the progress away.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = write!(io::stderr(), "{CLEAR}");
            // The row goes another way to the same terminal, through whoever started this rank, and is not to overtake this.
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The machines that were named, if the ranks fit them.
    fn expected(&self, engine: &str, devices: &[::bench::Device]) -> Option<Cluster> {
        let machines = &self.args.machines;
        if machines.instance.is_none() && machines.cluster.is_none() {
            if machines.nodes.is_some() || machines.pods.is_some() {
                complain("note: nothing is expected: --nodes and --pods need --instance or --cluster");
            }
            return None;
        }
        if engine != "nccl" {
            complain(
                "note: nothing is expected: what is normal is known of NCCL on GPUs, not of host memory",
            );
            return None;
        }
        let mut hosts: Vec<&str> = devices.iter().map(|it| it.host.as_str()).collect();
        hosts.sort_unstable();
        hosts.dedup();
        let nodes = machines.nodes.or(u32::try_from(hosts.len()).ok());
        let each = devices.len().checked_div(hosts.len()).and_then(|it| u32::try_from(it).ok());
        let machines = Machines {
            instance: machines.instance.clone(),
            cluster: machines.cluster.clone(),
            nodes,
            pods: machines.pods.or(each.map(|it| (1, it))),
        };
        match expect::cluster(&machines, &Settings::new(Settings::NEWEST)) {
            Ok(it) => Some(it),
            Err(reason) => {
                complain(&format!("note: nothing is expected: {}", reason.0));
                None
            }
        }
    }

    /// Writes the answer, and says how it ends.
    pub(super) fn end(mut self, run: &Run, log: Option<&Path>) -> io::Result<u8> {
        self.clear();
        let code = super::code(run.wrong.is_some());
        if self.rank > 0 {
            return Ok(code);
        }
        let context = Context { started: self.started, ended: now(), cluster: self.cluster.as_ref() };
        let report = Report::new(run, self.config.clone(), context);
        let live = self.live();
        let formats = if self.args.format.is_empty() { &[ListFormat::Text][..] } else { &self.args.format };
        for (i, format) in formats.iter().enumerate() {
            match self.args.output.get(i) {
                Some(path) => {
                    let style = Style { colour: self.colour == Colour::Always, ..self.style };
                    output::write_file(path, |out| write(&report, *format, false, style, out))?;
                }
                None => write(&report, *format, live, self.style, self.out)?,
            }
        }
        if live && run.engine == "nccl" {
            self.reasons(log)?;
        }
        self.out.flush()?;
        if let Some(path) = &self.args.plot {
            output::write_file(path, |mut out| bench::svg(&report, &mut out))?;
        }
        if let Some(path) = &self.args.json {
            let arguments: Vec<String> = std::iter::once(format!("{}_perf", report.collective))
                .chain(std::env::args().skip(1))
                .collect();
            let path = output::write_new(path, |mut out| bench::nccl_tests(&report, &arguments, &mut out))?;
            complain(&format!("note: nccl-tests' JSON is in {}", path.display()));
        }
        if let Some(it) = &report.first_wrong {
            complain(&format!(
                "error: wrong result on rank {} at index {}: {} instead of {} ({} of {} bytes)",
                it.rank, it.index, it.got, it.expected, report.collective, it.bytes
            ));
        }
        Ok(code)
    }

    /// What NCCL's own log says of this run.
    fn reasons(&mut self, folder: Option<&Path>) -> io::Result<()> {
        let Some(path) = folder.and_then(|_| ::bench::nccl::log::file()).filter(|it| it.exists()) else {
            return Ok(());
        };
        let inputs = input::read(std::slice::from_ref(&path));
        let doctor = Doctor::new(&inputs.case, Options { matrix: false });
        writeln!(self.out, "  NCCL's log: {}: {}", doctor.verdict.level, doctor.verdict.text)
    }
}

fn write(
    report: &Report,
    format: ListFormat,
    live: bool,
    style: Style,
    mut out: &mut dyn Write,
) -> io::Result<()> {
    if format == ListFormat::Json {
        return bench::json(report, &mut out);
    }
    if !live {
        bench::header(report, &mut out)?;
        for row in &report.results {
            bench::row(&report.config, row, &mut out)?;
        }
    }
    bench::footer(report, &mut out)?;
    bench::summary(report, style, &mut out)?;
    bench::plot(report, unicode(), &mut out)
}

/// Whether the terminal shows more than ASCII, as its locale says.
fn unicode() -> bool {
    let told = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|it| std::env::var(it).ok().filter(|it| !it.is_empty()));
    told.is_some_and(|it| {
        let it = it.to_lowercase();
        it.contains("utf-8") || it.contains("utf8")
    })
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |it| it.as_secs())
}
