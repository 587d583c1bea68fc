//! Tasks on the nodes of a real Slurm, as steps of an allocation and from a batch script.

mod bed;
mod lines;

use std::time::Duration;

use bed::{host, place, placed_scripts, run, small_plumb};
use launch::{Across, BatchScript, Client, Ended, Host, How, ObstacleKind, Request, Srun, Stop, Way as _};
use testbed::{Folder, Hosts, Signal, need, output, signal, until};

const REMOTE: &str = env!("CARGO_BIN_EXE_remote");
const WHOAMI: &str = env!("CARGO_BIN_EXE_whoami");

fn all(hosts: &Hosts) -> Vec<Host> {
    hosts.iter().map(|(_, it)| host(&it.name)).collect()
}

/// What a host has besides the daemons of Slurm.
#[track_caller]
fn nothing_remains(hosts: &Hosts) {
    for (number, it) in hosts.iter() {
        for name in ["plumb", "sleep", "whoami", "sh"] {
            // The first process of a host is a shell.
            let usual = usize::from(name == "sh");
            until(&format!("no {name} on {}", it.name), || it.processes(name).len() <= usual);
        }
        let left = || -> Vec<String> {
            hosts.temporary_files(number).into_iter().filter(|it| it.starts_with("plumb")).collect()
        };
        until(&format!("no file is left on {}", it.name), || left().is_empty());
    }
}

#[test]
fn steps_of_an_allocation() {
    let hosts = Hosts::with_slurm(4);
    let folder = Folder::new("srun");
    let allocated = output(hosts.slurm_command("salloc").args(["-N4", "--no-shell"]));
    let said = String::from_utf8_lossy(&allocated.stderr).into_owned();
    let job =
        said.split("job allocation ").nth(1).and_then(|it| it.split_whitespace().next()).expect("a job");
    let srun = folder.file("srun");
    let variables = [("SLURM_CONF", hosts.slurm_settings()), ("SLURM_JOB_ID", job)];
    hosts[1].wrapper(need("srun"), &variables, &srun);
    let options = Client {
        program: srun.into_os_string(),
        plumb: Some(small_plumb(folder.file("plumb"), "0.0.1")),
        ..Client::srun()
    };
    let mut way = Srun::new(options.clone()).expect("a way");
    let mut wanted = all(&hosts);
    wanted.push(host("h99"));
    let placed = place(&mut way, &wanted);
    for (name, outcome) in &placed {
        match outcome {
            Ok(place) => assert_eq!((place.hostname.as_str(), place.copied), (name.as_str(), true)),
            Err(obstacle) => {
                assert_eq!((name.as_str(), obstacle.kind), ("h99", ObstacleKind::NameUnknown), "{obstacle}");
            }
        }
    }
    // Codes, output and the marks of a rank that a task does not have.
    let script = "hostname; echo fine >&2; echo \"[$SLURM_PROCID$PMI_RANK]\"; exit 7";
    for it in run(&mut way, &placed_scripts(&all(&hosts), script, Duration::from_secs(60))) {
        assert_eq!((&it.how, it.text()), (&How::Code(7), format!("{}\n[]\n", it.host)), "{it:?}");
        assert_eq!(it.stderr, b"fine\n");
    }
    // The limit, and input that arrives.
    let mut slow = placed_scripts(&all(&hosts), "cat; sleep 1000 & sleep 1000", Duration::from_secs(2));
    slow.at_once = true;
    slow.tasks.iter_mut().for_each(|it| it.input = Some(b"input\n".to_vec()));
    for it in run(&mut way, &slow) {
        assert_eq!((&it.how, it.text().as_str()), (&How::TimedOut, "input\n"));
    }
    until("no task sleeps", || hosts.iter().all(|(_, it)| it.processes("sleep").is_empty()));
    let shown = way.shown(&slow)[1].command.clone();
    assert!(shown.contains(" --overlap ") && shown.contains(" --nodelist=h2 "), "{shown}");
    assert_eq!(way.clean(), []);
    drop(way);
    nothing_remains(&hosts);

    // Ranks across nodes.
    let mut way = Srun::new(Client { plumb: Some(WHOAMI.into()), ..options.clone() }).expect("a way");
    assert!(place(&mut way, &all(&hosts)).values().all(Result::is_ok));
    let across = Across {
        hosts: all(&hosts).into_iter().map(|it| (it, 2)).collect(),
        first_address: "h1".to_owned(),
        arguments: Vec::new(),
        variables: vec![("WHOAMI_STDERR".to_owned(), "1".into())],
    };
    let tasks = across.tasks().expect("tasks");
    let ended =
        run(&mut way, &Request { at_once: true, ..Request::new("whoami", tasks, Duration::from_secs(60)) });
    assert!(ended.iter().all(Ended::succeeded), "{ended:?}");
    lines::check(&ended.iter().flat_map(|it| it.stderr.clone()).collect::<Vec<u8>>(), 8, "plumb", "Endpoint");
    drop(way);

    // An interrupt.
    let mut way = Srun::new(options).expect("a way");
    assert!(place(&mut way, &all(&hosts)).values().all(Result::is_ok));
    let stop = Stop::new();
    let request = placed_scripts(&all(&hosts), "sleep 1000", Duration::from_secs(1000));
    let running = {
        let stop = stop.clone();
        std::thread::spawn(move || {
            let mut ended = Vec::new();
            way.run(&request, &stop, &mut |it| ended.push(it.how.clone())).expect("it begins");
            (way, ended)
        })
    };
    until("all are busy", || hosts.iter().all(|(_, it)| !it.processes("sleep").is_empty()));
    stop.set();
    let (mut way, ended) = running.join().expect("a thread");
    assert_eq!(ended, vec![How::Cancelled; 4]);
    assert_eq!(way.clean(), []);
    nothing_remains(&hosts);

    // A driver that is killed in the middle: a batch script, whose nodes are its own.
    output(hosts.slurm_command("scancel").arg(job));
}

#[test]
fn a_batch_script() {
    let hosts = Hosts::with_slurm(3);
    let plumb = small_plumb(hosts.file("plumb").into(), "0.0.1");
    let script = BatchScript {
        nodes: Some(3),
        minutes: Some(5),
        name: "fleet".to_owned(),
        output: Some(hosts.file("out")),
        ..BatchScript::default()
    };
    let submit = |what: &str| {
        let command = [REMOTE, "srun", plumb.to_str().expect("a path"), what].map(Into::into);
        let text = script.text(&command).expect("a script");
        std::fs::write(hosts.file("script"), text).expect("a script");
        let submitted = output(hosts.slurm_command("sbatch").arg("--parsable").arg(hosts.file("script")));
        assert!(submitted.status.success(), "{submitted:?}");
        String::from_utf8_lossy(&submitted.stdout).trim().to_owned()
    };
    let printed = || std::fs::read_to_string(hosts.file("out")).unwrap_or_default();
    submit("echo on $(hostname) of ${SLURM_JOB_NAME:-none}");
    until("the batch is done", || printed().lines().count() == 6);
    let mut lines: Vec<String> = printed().lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(
        lines,
        [
            "h1 exit code 0",
            "h2 exit code 0",
            "h3 exit code 0",
            "on h1 of fleet",
            "on h2 of fleet",
            "on h3 of fleet"
        ]
    );
    nothing_remains(&hosts);

    // The driver is killed in the middle: the steps end by themselves.
    submit("sleep 1000 & sleep 1000");
    until("all are busy", || hosts.iter().all(|(_, it)| !it.processes("sleep").is_empty()));
    hosts[1].processes("remote").into_iter().for_each(|it| signal(it, Signal::KILL));
    nothing_remains(&hosts);
}
