//! Which machines, and how they are reached.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::time::Duration;

use ::validate::live::{Failed, Run};
use launch::{
    BatchScript, Client, Host, Inside, Joined, Kubernetes, KubernetesOptions, Obstacle, RankIdentity, Srun,
    Ssh, Stop, Way, hosts_of_file, hosts_of_list, hosts_of_slurm,
};

use ::manifest::Request;

use super::args::Validate;

/// The longest hostfile that is read.
const LONGEST: u64 = 1 << 20;
/// The name of the pods begins with this.
const POD: &str = "plumb-validate";
/// How long pods may take to start: images are pulled, nodes are added.
const START: Duration = Duration::from_secs(600);
/// How long the processes of a launcher may take to find each other.
const JOIN: Duration = Duration::from_secs(60);

/// Machines and the way to them.
pub(super) struct Fleet {
    pub(super) hosts: Vec<Host>,
    pub(super) way: Box<dyn Way>,
    /// Machines that did not come: ranks of the launcher, pods.
    pub(super) missing: Vec<(String, Failed)>,
}

/// How machines are reached.
#[derive(Clone, Copy)]
enum Kind {
    Ssh,
    Srun,
    Inside,
    Kubernetes,
}

/// Machines to validate, or what was done instead.
pub(super) enum Opened {
    Fleet(Fleet),
    /// This process is a worker of another and has done its work.
    Worked,
    /// A batch script is written: nothing is validated yet.
    Written,
}

pub(super) fn open(args: &Validate, earlier: Option<&Run>) -> Result<Opened, String> {
    let kind = match (args.slurm, earlier.map(|it| it.plan().way.as_str())) {
        _ if args.kubernetes => Kind::Kubernetes,
        (_, Some("kubectl")) => {
            return Err("pods of another job are on other nodes: start the validation again".to_owned());
        }
        (true, _) | (_, Some("srun")) => Kind::Srun,
        (_, Some("the launcher")) => Kind::Inside,
        _ if args.hosts.is_some() || earlier.is_some() => Kind::Ssh,
        _ => Kind::Inside,
    };
    match kind {
        Kind::Ssh => over_ssh(args, earlier).map(Opened::Fleet),
        Kind::Srun if !in_allocation() => {
            if earlier.is_some() {
                return Err("not inside a Slurm allocation: continue it inside salloc or sbatch".to_owned());
            }
            script(args)?;
            Ok(Opened::Written)
        }
        Kind::Srun => {
            let hosts = match earlier {
                Some(run) => parsed(run)?,
                None => hosts_of_slurm(&variable).map_err(|it| it.to_string())?,
            };
            let way = Srun::new(Client { most: Some(args.timeout()), ..Client::srun() })
                .map_err(|it| it.to_string())?;
            Ok(Opened::Fleet(Fleet { hosts, way: Box::new(way), missing: Vec::new() }))
        }
        Kind::Inside => inside(),
        Kind::Kubernetes => in_pods(args).map(Opened::Fleet),
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn in_allocation() -> bool {
    variable("SLURM_JOB_ID").is_some()
}

fn over_ssh(args: &Validate, earlier: Option<&Run>) -> Result<Fleet, String> {
    let hosts = match (&args.hosts, earlier) {
        (Some(text), _) => listed(text)?,
        (None, Some(run)) => parsed(run)?,
        (None, None) => Vec::new(),
    };
    let mut client = Client { most: Some(args.timeout()), ..Client::ssh() };
    if let Some(path) = &args.ssh_config {
        client.arguments = vec!["-F".into(), path.clone().into_os_string()];
    }
    let way = Ssh::new(client).map_err(|error| error.to_string())?;
    Ok(Fleet { hosts, way: Box::new(way), missing: Vec::new() })
}

/// The machines of an earlier run.
fn parsed(run: &Run) -> Result<Vec<Host>, String> {
    run.plan().hosts.iter().map(|it| Host::parse(it).map_err(|error| error.to_string())).collect()
}

/// The processes of a launcher: rank 0 drives, the others work for it until it is done.
fn inside() -> Result<Opened, String> {
    let identity = RankIdentity::detect(&variable).map_err(|it| it.to_string())?.ok_or(
        "which machines? --hosts node[01-16], --hosts FILE, --slurm, or start plumb with mpirun, srun or torchrun",
    )?;
    match Inside::join(identity, JOIN).map_err(|it| it.to_string())? {
        Joined::Followed => Ok(Opened::Worked),
        Joined::Driver(way) => {
            let absent = |rank: &usize| {
                let text = "did not connect to rank 0".to_owned();
                let action = "look at the launcher's output: did it start this rank?".to_owned();
                (format!("rank{rank}"), Failed { text, action })
            };
            let (hosts, missing) = (way.hosts(), way.missing().iter().map(absent).collect());
            Ok(Opened::Fleet(Fleet { hosts, way: Box::new(way), missing }))
        }
    }
}

/// A pod on each of some nodes, which are deleted when the way is cleaned.
fn in_pods(args: &Validate) -> Result<Fleet, String> {
    let (Some(nodes), Some(machine)) = (args.nodes, args.instance) else {
        return Err("--kubernetes needs --nodes N and --instance NAME".to_owned());
    };
    let pods = u32::try_from(nodes).ok().filter(|it| *it > 0).ok_or("--nodes: too many or none")?;
    // Two validations in one namespace have a job each.
    let own = format!("{POD}-{:x}{:x}", super::folder::now() & 0xff_ffff, std::process::id());
    let name = if args.dry_run { POD.to_owned() } else { own };
    let request = Request {
        image: args.image.clone(),
        name: Some(name.clone()),
        namespace: args.namespace.clone(),
        ..Request::new(::manifest::Kind::Job, machine, pods)
    };
    // Pods that nobody deletes end some time after plumb would have ended.
    let seconds = u32::try_from(args.budget().as_secs().saturating_add(START.as_secs())).unwrap_or(u32::MAX);
    let options = KubernetesOptions {
        manifest: ::manifest::write_waiting(&request, seconds)?,
        name,
        namespace: args.namespace.clone(),
        pods: nodes,
        container: "node".to_owned(),
        wait: START,
    };
    let mut way =
        Kubernetes::new(Client { most: Some(args.timeout()), ..Client::kubectl() }, options.clone())
            .map_err(|it| it.to_string())?;
    if args.dry_run {
        return around(&way, &options.manifest).map(|()| Fleet {
            hosts: way.hosts(),
            way: Box::new(way),
            missing: Vec::new(),
        });
    }
    let stop = Stop::on_signals().map_err(|it| it.to_string())?;
    let failed = match way.start(&stop) {
        Ok(it) => it,
        Err(error) => {
            way.clean();
            return Err(error.to_string());
        }
    };
    let absent = |(name, obstacle): (String, Obstacle)| {
        let action = "kubectl describe pod shows why it does not run".to_owned();
        (name, Failed { text: obstacle.to_string(), action })
    };
    Ok(Fleet { hosts: way.hosts(), way: Box::new(way), missing: failed.into_iter().map(absent).collect() })
}

/// `--dry-run`: what is created before and deleted after everything else.
fn around(way: &Kubernetes, manifest: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    let lines = way.shown_around();
    let text = format!("# before and after: {} with this manifest\n{manifest}\n", lines.join("; "));
    out.write_all(text.as_bytes()).map_err(|error| error.to_string())
}

/// The batch script that runs this command inside an allocation.
fn script(args: &Validate) -> Result<(), String> {
    let Some(nodes) = args.nodes else {
        return Err(
            "not inside a Slurm allocation, where plumb writes the batch script that validates one: --nodes N says how many nodes it asks for"
                .to_owned(),
        );
    };
    let own = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let mut command: Vec<OsString> = vec![own.into_os_string()];
    // An allocation has its nodes; the rest is for plumb.
    let mut given = std::env::args_os().skip(1).peekable();
    while let Some(word) = given.next() {
        let text = word.to_string_lossy();
        if ["--nodes", "--partition"].contains(&text.as_ref()) {
            given.next();
        } else if text != "--dry-run" && !["--nodes=", "--partition="].iter().any(|it| text.starts_with(it)) {
            command.push(word);
        }
    }
    let script = BatchScript {
        nodes: Some(nodes),
        partition: args.partition.clone(),
        // Slurm ends the job some time after plumb has ended itself.
        minutes: Some(args.budget().as_secs().div_ceil(60) + 5),
        name: "plumb-validate".to_owned(),
        output: Some("plumb-validate-%j.out".to_owned()),
        ..BatchScript::default()
    };
    let text = script.text(&command).map_err(|error| error.to_string())?;
    if !args.dry_run {
        crate::complain(
            "note: not inside a Slurm allocation: nothing was validated. This is the script that validates one; submit it with: plumb validate --slurm --dry-run ... | sbatch",
        );
    }
    io::stdout().write_all(text.as_bytes()).map_err(|error| error.to_string())
}

/// A file, if there is one of this name; otherwise a list.
fn listed(text: &str) -> Result<Vec<Host>, String> {
    let path = Path::new(text);
    // A pipe of the shell, `<(scontrol show hostnames)`, is a file too.
    if path.exists() && !path.is_dir() {
        let mut lines = String::new();
        let file = File::open(path).map_err(|error| format!("{text}: {error}"))?;
        file.take(LONGEST + 1).read_to_string(&mut lines).map_err(|error| format!("{text}: {error}"))?;
        if lines.len() as u64 > LONGEST {
            return Err(format!("{text}: is longer than 1 MiB: not a list of hosts"));
        }
        let hosts = hosts_of_file(&lines).map_err(|error| format!("{text}: {error}"))?;
        let counted = |it: &&Host| {
            let word = it.slots().map(|slots| format!("{}:{slots}", it.name()));
            let words = || lines.trim_start_matches('\u{feff}').split_whitespace();
            word.is_some_and(|word| words().any(|it| it == word))
        };
        if let Some(host) = hosts.iter().find(counted) {
            let slots = host.slots().unwrap_or_default();
            crate::complain(&format!(
                "note: {text}: {host}:{slots} is {slots} processes on {host}, as in a machinefile of MPICH; ports of ssh below 1024 are written in --hosts or the ssh configuration"
            ));
        }
        return Ok(hosts);
    }
    if path.is_dir() {
        return Err(format!("{text}: is a folder, not a list of hosts"));
    }
    if text.contains('/') {
        return Err(format!("{text}: no such file"));
    }
    hosts_of_list(text).map_err(|error| error.to_string())
}
