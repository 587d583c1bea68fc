//! Drives a validation of real machines: asks the run what is next, has a way do it, writes down what came of it.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;

use ::validate::Step;
use ::validate::live::{Chosen, Engine, Entry, Failed, Launch, Node, Plan, Reached, Run, SCHEMA};
use launch::{Host, Obstacle, ObstacleKind, Placed, Stop, Way};
use report::{Beside, Validate};

use super::fleet::Opened;
use super::folder::{self, Journal};
use super::measure::{Outcome, Site, tries};
use super::progress::Progress;
use super::{args, fleet, nccl_logs, node, parts};
use crate::args::Colour;
use crate::{UNDECIDED, complain};

/// Ranks on one machine alone, on host memory: two processes that share memory.
const LOCAL_RANKS: usize = 2;

/// Everything that a validation works with.
pub(super) struct Drive {
    args: args::Validate,
    way: Box<dyn Way>,
    site: Site,
    journal: Journal,
    run: Run,
    progress: Progress,
    stop: Stop,
    /// How the journal names the machines.
    names: Vec<(String, Host)>,
}

/// What is to be done.
enum Begun {
    /// A validation.
    Drive(Box<Drive>),
    /// Nothing more: this process was a worker of another, or said what it would do.
    Done,
    /// Nothing more: a batch script is written.
    Written,
}

/// How it ended.
enum End {
    /// There is a verdict.
    Whole,
    /// The time is spent.
    Late,
    /// Somebody stopped it.
    Interrupted,
}

pub(super) fn run(args: &args::Validate, colour: Colour, out: &mut impl Write) -> io::Result<u8> {
    let drive = match Drive::begin(args.clone()) {
        Ok(Begun::Drive(it)) => it,
        Ok(Begun::Done) => return Ok(crate::CLEAN),
        // Nothing was validated.
        Ok(Begun::Written) => return Ok(UNDECIDED),
        Err(reason) => return Ok(failed(&reason)),
    };
    match drive.run_all() {
        Ok(validate) => super::show(&validate, args, colour, out),
        Err(reason) => Ok(failed(&reason)),
    }
}

fn failed(reason: &dyn std::fmt::Display) -> u8 {
    complain(&format!("error: {reason}"));
    UNDECIDED
}

impl Drive {
    fn begin(mut args: args::Validate) -> Result<Begun, String> {
        let (run, journal) = match &args.resume {
            Some(path) => {
                let (journal, mut run) = Journal::resume(path)?;
                args = args.continuing(run.plan());
                run.set_limits(args.budget().as_secs(), args.timeout().as_secs());
                (Some(run), Some(journal))
            }
            None => (None, None),
        };
        let mut fleet = match fleet::open(&args, run.as_ref())? {
            Opened::Fleet(it) => it,
            Opened::Written if !args.dry_run => return Ok(Begun::Written),
            Opened::Written | Opened::Worked => return Ok(Begun::Done),
        };
        // From here on: a worker of a launcher ends as its launcher wants.
        let stop = Stop::on_signals().map_err(|error| error.to_string())?;
        let names: Vec<(String, Host)> = fleet.hosts.iter().map(|it| (it.to_string(), it.clone())).collect();
        let missing = fleet.missing;
        let plan = Plan {
            schema: SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            way: fleet.way.name().to_owned(),
            hosts: names.iter().map(|it| it.0.clone()).chain(missing.iter().map(|it| it.0.clone())).collect(),
            budget_s: args.budget().as_secs(),
            timeout_s: args.timeout().as_secs(),
            links: match args.links {
                args::Links::Auto => ::validate::live::Links::Auto,
                args::Links::All => ::validate::live::Links::All,
                args::Links::Few => ::validate::live::Links::Few,
            },
            least: args.least,
            seed: 1,
            asked: args.asked(),
        };
        let site = Site { hosts: names.iter().cloned().collect(), net: args.net.clone(), ..Site::default() };
        if args.dry_run {
            super::dry_run::show(&mut *fleet.way, &site, plan, &args).map_err(|error| error.to_string())?;
            return Ok(Begun::Done);
        }
        let (run, journal) = match (run, journal) {
            (Some(run), Some(journal)) => (run, journal),
            _ => {
                let path = args.results.clone().unwrap_or_else(folder::default_name);
                (Run::new(plan.clone()), Journal::create(&path, &plan)?)
            }
        };
        let progress = Progress::new(journal.elapsed());
        let (mut run, mut journal) = (run, journal);
        for (host, failed) in missing {
            let failed = Some(failed);
            let entry = Reached { host, failed, address: None, version: None, clock_s: None };
            journal.add(&mut run, Entry::Reached(entry));
        }
        let drive = Self { args, way: fleet.way, site, journal, run, progress, stop, names };
        Ok(Begun::Drive(Box::new(drive)))
    }

    fn run_all(mut self) -> Result<Validate, String> {
        complain(&format!(
            "plumb validate: {} over {}, at most {} s; results in {}",
            super::machines(self.run.plan().hosts.len()),
            self.way.name(),
            self.run.plan().budget_s,
            self.journal.path().display()
        ));
        let end = self.stages();
        // After a failure and an interruption too.
        let left = self.way.clean();
        let end = end?;
        for host in left {
            complain(&format!(
                "note: {host}: could not be asked whether everything of plumb is removed there"
            ));
        }
        self.progress.clear();
        let nodes = node::judge(&self.run);
        let ended = match end {
            End::Interrupted => Some("interrupted".to_owned()),
            End::Whole | End::Late => None,
        };
        let results = Some(self.journal.path().display().to_string());
        let unmeasured = node::unmeasured(&self.run);
        let validate = Validate::live(
            &self.run,
            &Beside { nodes, unmeasured, gpus: node::gpus(&self.run), ended, results },
        );
        self.keep(&validate).map_err(|error| format!("{}: {error}", self.journal.path().display()))?;
        Ok(validate)
    }

    /// The answer beside the journal, for people and programs that come later.
    fn keep(&self, validate: &Validate) -> io::Result<()> {
        let write = |name: &str, fill: &dyn Fn(&mut Vec<u8>) -> io::Result<()>| {
            let mut text = Vec::new();
            fill(&mut text)?;
            std::fs::write(self.journal.file(name), text)
        };
        write("answer.json", &|mut out| validate.json(&mut out))?;
        let style = report::Style { colour: false, width: 100, verbose: true };
        write("answer.txt", &|mut out| validate.text(style, &mut out))
    }

    fn stages(&mut self) -> Result<End, String> {
        self.journal.add(&mut self.run, Entry::Started { at: folder::now() });
        self.reach()?;
        if self.stop.is_set() {
            return Ok(End::Interrupted);
        }
        // Measurements without them would fail one after the other, and be taken for results.
        if !self.run.lost().is_empty() {
            return Ok(End::Whole);
        }
        if self.run.chosen().is_none() {
            self.probe()?;
            if self.stop.is_set() {
                return Ok(End::Interrupted);
            }
            match self.choose() {
                Some(chosen) => self.journal.add(&mut self.run, Entry::Chosen(chosen)),
                None => return Ok(End::Whole),
            }
        }
        while let Some(launch) = self.run.next() {
            self.journal.result()?;
            if self.journal.elapsed().as_secs() >= self.run.plan().budget_s {
                return Ok(End::Late);
            }
            self.launch(&launch)?;
            if self.stop.is_set() {
                return Ok(End::Interrupted);
            }
        }
        self.read_logs();
        self.journal.result()?;
        Ok(End::Whole)
    }

    /// Stage 0.
    fn reach(&mut self) -> Result<(), String> {
        let hosts: Vec<Host> = self.names.iter().map(|it| it.1.clone()).collect();
        let (many, mut done, mut bad) = (hosts.len(), 0, Vec::new());
        let Self { way, journal, run, progress, site, stop, names, args, .. } = self;
        let mut each = |placed: &Placed| {
            done += 1;
            let Some((name, _)) = names.iter().find(|it| it.1 == placed.host) else { return };
            let reached = match &placed.outcome {
                Ok(place) => {
                    if let Some(address) = &place.address {
                        site.addresses.insert(name.clone(), address.clone());
                    }
                    Reached {
                        host: name.clone(),
                        failed: None,
                        address: place.address.clone(),
                        version: place.installed.clone(),
                        // What the question itself took is not the clock's fault.
                        clock_s: place.clock.map(|it| {
                            let sure = (it.ahead.abs() - it.within).max(0.0);
                            (sure.copysign(it.ahead) * 1e3).round() / 1e3
                        }),
                    }
                }
                Err(obstacle) => {
                    bad.push(name.clone());
                    Reached {
                        host: name.clone(),
                        failed: Some(Failed {
                            text: obstacle.to_string(),
                            action: remedy(&placed.host, obstacle, args.hosts.as_deref()),
                        }),
                        address: None,
                        version: None,
                        clock_s: None,
                    }
                }
            };
            journal.add(run, Entry::Reached(reached));
            progress.count(0, "reach", done, many);
        };
        way.place(&hosts, stop, &mut each).map_err(|error| error.to_string())?;
        let not = match &bad[..] {
            [] => String::new(),
            [one] => format!("; {one} does not"),
            several => format!("; {} do not", report::compact(several)),
        };
        progress.line(0, "reach", &format!("{} of {many} machines answer{not}", many - bad.len()));
        Ok(())
    }

    /// Stage 1.
    fn probe(&mut self) -> Result<(), String> {
        let known: BTreeSet<String> = self.run.nodes().keys().cloned().collect();
        let usable = |name: &String| self.run.reached().get(name).is_some_and(|it| it.failed.is_none());
        let open: Vec<(String, Host)> =
            self.names.iter().filter(|it| usable(&it.0) && !known.contains(&it.0)).cloned().collect();
        if open.is_empty() {
            return Ok(());
        }
        let request = node::request(&open, self.run.plan().timeout_s, &self.args);
        let (many, mut done) = (open.len(), 0);
        let Self { way, journal, run, progress, stop, .. } = self;
        let mut each = |ended: &launch::Ended| {
            done += 1;
            let Some((name, _)) = open.get(ended.task) else { return };
            // Nothing was found out about a machine that was not asked.
            if ended.how != launch::How::Cancelled {
                journal.add(run, Entry::Node(node::answer(name, ended)));
            }
            progress.count(1, "node", done, many);
        };
        way.run(&request, stop, &mut each).map_err(|error| error.to_string())?;
        let unfit = node::judge(run);
        let bad: BTreeSet<&str> = unfit.iter().filter(|it| it.blocks).map(|it| it.host.as_str()).collect();
        let text = if bad.is_empty() {
            format!("{} looked at", super::machines(many))
        } else {
            let names: Vec<&str> = bad.into_iter().collect();
            format!("{} looked at; not as they should be: {}", super::machines(many), names.join(", "))
        };
        progress.line(1, "node", &text);
        Ok(())
    }

    /// With what is measured; none if no machine can take part.
    fn choose(&self) -> Option<Chosen> {
        let doubles = node::doubles(&self.run);
        let answered: Vec<&Node> = self
            .names
            .iter()
            .filter(|it| doubles.iter().all(|(name, _)| *name != it.0))
            .filter_map(|it| self.run.nodes().get(&it.0))
            .filter(|it| it.facts.is_some())
            .collect();
        let gpus = parts::usual_gpus(&answered);
        let engine = match self.args.engine {
            args::Engine::Nccl => Engine::Nccl,
            args::Engine::Host => Engine::Host,
            args::Engine::Auto if gpus > 0 => Engine::Nccl,
            args::Engine::Auto => Engine::Host,
        };
        let takes_part = |it: &&&Node| engine == Engine::Host || parts::gpus(it) == gpus;
        let hosts: Vec<String> = answered.iter().filter(takes_part).map(|it| it.host.clone()).collect();
        if hosts.is_empty() {
            return None;
        }
        let (ranks, local_ranks) = match engine {
            Engine::Nccl => (gpus.max(1), gpus.max(1)),
            Engine::Host => (1, LOCAL_RANKS),
        };
        let expected = super::expected::of(&self.args, engine, hosts.len(), ranks);
        Some(Chosen {
            nics: parts::nics(&answered, engine, self.args.net.as_deref()),
            hosts,
            engine,
            ranks,
            local_ranks,
            local_least: expected.local,
            all_least: expected.all,
            machine: expected.machine,
        })
    }

    /// Stages 2 to 6: one launch.
    fn launch(&mut self, launch: &Launch) -> Result<(), String> {
        let (stage, name) = place(&launch.step);
        let mut open = Launch { items: launch.items.clone(), ..launch.clone() };
        let many = launch.items.len();
        let mut done = 0;
        for attempt in 1..=tries() {
            let mut again = Vec::new();
            for mut batch in self.site.batches(&self.run, &open)? {
                if self.stop.is_set() {
                    return Ok(());
                }
                let request = batch.request.clone();
                let measurements = batch.len();
                let Self { way, journal, run, progress, stop, .. } = &mut *self;
                let mut ended = 0;
                let mut each = |end: &launch::Ended| {
                    if end.how == launch::How::Cancelled {
                        return;
                    }
                    match batch.take(run, launch, end.clone(), attempt == tries()) {
                        Some(Outcome::Again(item)) => again.push(item),
                        None => {}
                        Some(Outcome::Measured(it)) => {
                            journal.add(run, Entry::Measured(it));
                            ended += 1;
                            progress.count(stage, name, done + ended, many);
                        }
                    }
                };
                way.run(&request, stop, &mut each).map_err(|error| error.to_string())?;
                done += measurements;
                if matches!(launch.step, Step::All(_) | Step::Without(_) | Step::Scale(_)) {
                    nccl_logs::keep(journal.path(), launch, &batch)?;
                }
            }
            if again.is_empty() {
                break;
            }
            open.items = again;
        }
        let same = |it: &Launch| it.number == launch.number && it.items.len() == many;
        if !self.stop.is_set() && self.run.next().as_ref().is_some_and(same) {
            return Err(format!("{} gave no result for {}", self.way.name(), super::machines(many)));
        }
        // The run knows it as ended now, if all of it has.
        if let Some(ended) = self.run.launches().last().filter(|it| it.number == launch.number) {
            let line = report::launched(&self.run, ended);
            let mark = match line.ok {
                true => "",
                false if line.result.starts_with("failed") => "",
                false => "  <- low",
            };
            let failed = match &line.failures[..] {
                [] => String::new(),
                [one] => format!("  <- {one}"),
                [one, ..] => format!("  <- {one}, and {} more", line.failures.len() - 1),
            };
            self.progress.line(stage, name, &format!("{}: {}{mark}{failed}", line.what, line.result));
        }
        Ok(())
    }

    /// Stage 7.
    fn read_logs(&mut self) {
        if self.run.logs().is_some() || self.run.chosen().is_none_or(|it| it.engine != Engine::Nccl) {
            return;
        }
        if let Some(logs) = nccl_logs::judge(self.journal.path(), &self.run) {
            self.progress.line(7, "logs", &logs.text);
            self.journal.add(&mut self.run, Entry::Logs(logs));
        }
    }
}

/// The number and the name of the stage of a step.
pub(super) const fn place(step: &Step) -> (usize, &'static str) {
    match step {
        Step::Local(_) => (2, "local"),
        Step::Smoke(_) => (3, "smoke"),
        Step::Scale(_) | Step::All(_) => (4, "all"),
        Step::Pairs(_) => (5, "pairs"),
        Step::Nics(_) => (5, "nics"),
        Step::Without(_) => (6, "without"),
    }
}

/// What to do about a machine that cannot be used. `given`: the list of machines, or the file.
fn remedy(host: &Host, obstacle: &Obstacle, given: Option<&str>) -> String {
    if let Some(command) = forget_key(host, obstacle) {
        return format!(
            "the machine was reinstalled or is another one: check it, then remove the old key: {command}"
        );
    }
    // `nodes.txt` where there is no such file is taken for a machine.
    let file = match given {
        Some(one)
            if obstacle.kind == ObstacleKind::NameUnknown
                && !one.contains([',', '['])
                && !Path::new(one).exists() =>
        {
            format!("; if it is a hostfile: there is no file `{one}`")
        }
        _ => String::new(),
    };
    format!("{}{file}", usual_remedy(obstacle.kind))
}

/// The command that removes the key that a machine had.
fn forget_key(host: &Host, obstacle: &Obstacle) -> Option<String> {
    let (_, rest) =
        obstacle.detail.split_once(" key in ").filter(|_| obstacle.kind == ObstacleKind::KeyChanged)?;
    let (place, name) = rest.split_once(", for ").unwrap_or((rest, host.name()));
    let (file, line) = place.rsplit_once(':')?;
    line.parse::<u64>().ok()?;
    // A port that is not that of ssh is part of the name in known_hosts.
    let name = match host.port().filter(|it| *it != 22) {
        Some(port) if !name.starts_with('[') => format!("[{name}]:{port}"),
        _ => name.to_owned(),
    };
    Some(format!("ssh-keygen -R {} -f {}", report::quoted(&name), report::quoted(file)))
}

const fn usual_remedy(kind: ObstacleKind) -> &'static str {
    match kind {
        ObstacleKind::NameUnknown => "correct the name, or add it to DNS or to the ssh configuration",
        ObstacleKind::Refused => {
            "start sshd there; if it was not stopped on purpose, look at its console: replace or reboot it"
        }
        ObstacleKind::NoRoute | ObstacleKind::NoAnswer => {
            "look at its console and power state: reboot or replace it, or take it out of the list"
        }
        ObstacleKind::Closed => "raise MaxStartups of its sshd, or look at its log",
        ObstacleKind::KeyChanged => {
            "the machine was reinstalled or is another one: check it, then remove the old key with ssh-keygen -R"
        }
        ObstacleKind::KeyUnknown => {
            "connect once by hand with ssh and accept its key, or add the key to known_hosts"
        }
        ObstacleKind::AsksForPassword | ObstacleKind::Denied => {
            "copy your public key there (ssh-copy-id), or load it into ssh-agent"
        }
        ObstacleKind::NoShell => {
            "give the user a POSIX shell there; if there is one, look for what ends it: ForceCommand of its sshd, `command=` in authorized_keys, or `exit` in ~/.bashrc"
        }
        ObstacleKind::DiskFull => "free space in /tmp or the home folder there",
        ObstacleKind::NoFolder => {
            "make a folder there writable and executable, for example /tmp without noexec"
        }
        ObstacleKind::NoProgram => "install plumb for that machine's processor there",
        _ => "look at its log",
    }
}

#[cfg(test)]
mod tests {
    use launch::{Host, Obstacle, ObstacleKind};

    use super::remedy;

    fn of(host: &str, kind: ObstacleKind, detail: &str, given: Option<&str>) -> String {
        remedy(&Host::parse(host).expect("a host"), &Obstacle::new(kind, detail), given)
    }

    #[test]
    fn the_command_that_forgets_a_key_is_whole() {
        let key = |host: &str, detail: &str| of(host, ObstacleKind::KeyChanged, detail, None);
        let here = "Offending ED25519 key in /root/.ssh/known_hosts:3, for h1";
        assert!(key("h1", here).ends_with(": ssh-keygen -R h1 -f /root/.ssh/known_hosts"));
        assert!(key("h1:2222", here).ends_with(": ssh-keygen -R '[h1]:2222' -f /root/.ssh/known_hosts"));
        let spaced = "Offending RSA key in /home/a b/known:12";
        assert!(key("h4", spaced).ends_with(": ssh-keygen -R h4 -f '/home/a b/known'"));
        assert!(key("h4", "Host key verification failed.").contains("ssh-keygen -R"));
    }

    #[test]
    fn a_name_that_may_be_a_file_is_said_to_be_none() {
        let unknown = |given: &str| of("nope.txt", ObstacleKind::NameUnknown, "", Some(given));
        assert!(unknown("nope.txt").ends_with("there is no file `nope.txt`"));
        assert!(!unknown("nope.txt,h2").contains("file"));
        assert!(!unknown("/dev/null").contains("file"));
    }
}
