//! Tasks over real ssh servers, on hosts with all kinds of trouble.

mod bed;
mod lines;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bed::{host, nothing_remains, place, placed_scripts, processes, run, scripts, small_plumb};
use launch::{
    Across, Client, Ended, Host, How, ObstacleKind, Request, Ssh, Stop, Task, Way as _, hosts_of_list,
};
use testbed::{Folder, Hosts, Login, Running, Signal, need, signal, unlaunched, until};

const WHOAMI: &str = env!("CARGO_BIN_EXE_whoami");
const REMOTE: &str = env!("CARGO_BIN_EXE_remote");

/// Hosts with their ssh servers, and a client on their head.
struct Bed {
    hosts: Hosts,
    /// Seen by no host but the head.
    folder: Folder,
    options: Client,
    /// The processes of each host when nothing runs there.
    idle: BTreeMap<usize, usize>,
}

impl Bed {
    fn new(name: &str, count: usize, login: &dyn Fn(&Hosts, usize) -> Login) -> Self {
        let hosts = Hosts::new(count);
        let folder = Folder::new(name);
        let settings = hosts.ssh_with(&|number| login(&hosts, number));
        let client = folder.file("ssh");
        hosts.head().wrapper(need("ssh"), &[], &client);
        let options = Client {
            program: client.into_os_string(),
            arguments: vec!["-F".into(), settings.into()],
            patience: Duration::from_secs(8),
            most: None,
            parallel: 8,
            plumb: Some(small_plumb(folder.file("plumb"), "0.0.1")),
        };
        let idle = processes(&hosts);
        Self { hosts, folder, options, idle }
    }

    fn way(&self) -> Ssh {
        Ssh::new(self.options.clone()).expect("a way")
    }

    fn all(&self) -> Vec<Host> {
        self.hosts.iter().map(|(_, it)| host(&it.name)).collect()
    }
}

#[test]
fn every_trouble_is_reported_as_itself() {
    let bed = Bed::new("troubles", 16, &|hosts, number| match number {
        3 => Login::None,
        4 => Login::Password,
        5 => Login::OtherKey,
        6 => {
            let garbage = hosts.file("garbage");
            let script = "unset BASH_ENV; echo '*** Welcome ***'; printf 'plumb-0 begin\\n\\377\\000\\033[31m'; echo oops >&2; printf half";
            std::fs::write(&garbage, script).expect("a script");
            std::fs::write(hosts.file("banner"), "Authorised use only!\n").expect("a banner");
            Login::With(format!("SetEnv BASH_ENV={garbage}\nBanner {}\n", hosts.file("banner")))
        }
        11 => Login::With("ForceCommand /usr/sbin/nologin\n".to_owned()),
        _ => Login::Key,
    });
    bed.hosts.fill_disk(7);
    bed.hosts[8].ip("link set eth0 down");
    bed.hosts.silence(9);
    let known = bed.hosts.file("known_hosts");
    let lines = std::fs::read_to_string(&known).expect("keys");
    let without: Vec<&str> = lines.lines().filter(|it| !it.starts_with("h10,")).collect();
    std::fs::write(&known, without.join("\n") + "\n").expect("keys");

    let mut all = bed.all();
    all.push(host("no-such-host"));
    let mut way = bed.way();
    let began = Instant::now();
    let placed = place(&mut way, &all);
    assert!(began.elapsed() < Duration::from_secs(120), "{:?}", began.elapsed());
    let trouble = |name: &str| match name {
        "h3" => Some(ObstacleKind::Refused),
        "h4" => Some(ObstacleKind::AsksForPassword),
        "h5" => Some(ObstacleKind::KeyChanged),
        "h7" => Some(ObstacleKind::DiskFull),
        "h8" => Some(ObstacleKind::NoRoute),
        "h9" => Some(ObstacleKind::NoAnswer),
        "h10" => Some(ObstacleKind::KeyUnknown),
        "h11" => Some(ObstacleKind::NoShell),
        "no-such-host" => Some(ObstacleKind::NameUnknown),
        _ => None,
    };
    for (name, outcome) in &placed {
        assert_eq!(outcome.as_ref().err().map(|it| it.kind), trouble(name), "{name}: {outcome:?}");
        if let Ok(place) = outcome {
            assert_eq!((place.hostname.as_str(), place.copied), (name.as_str(), true));
            let number = name.trim_start_matches('h');
            assert_eq!(place.address.as_deref(), Some(format!("10.77.0.{number}").as_str()));
            let clock = place.clock.expect("a clock");
            assert!(clock.ahead.abs() <= clock.within + 0.05, "{clock:?}");
        }
    }
    let key = placed["h5"].as_ref().expect_err("another key").to_string();
    assert!(key.contains("known_hosts:5"), "{key}");

    // The others run, with the output that their task printed and nothing else.
    let ended =
        run(&mut way, &placed_scripts(&all, "hostname; echo fine >&2; exit 7", Duration::from_secs(60)));
    for it in &ended {
        let name = it.host.to_string();
        match (trouble(&name), &it.how) {
            (Some(kind), How::Unreachable(obstacle)) => assert_eq!(obstacle.kind, kind, "{name}"),
            (None, How::Code(7)) => {
                assert_eq!((it.text(), &it.stderr[..]), (format!("{name}\n"), &b"fine\n"[..]));
            }
            (_, how) => panic!("{name}: {how:?}"),
        }
    }
    // A program that needs no copy runs on a full disk, too.
    let ended = run(&mut way, &scripts(&[host("h7"), host("h4")], "echo here", Duration::from_secs(60)));
    assert_eq!((&ended[0].how, ended[0].text().as_str()), (&How::Code(0), "here\n"));
    assert!(matches!(&ended[1].how, How::Unreachable(it) if it.kind == ObstacleKind::AsksForPassword));
    assert_eq!(way.clean(), []);
    drop(way);
    nothing_remains(&bed.hosts, &bed.idle);
}

#[test]
fn hosts_that_die_or_hang_half_way() {
    let bed = Bed::new("half-way", 5, &|_, _| Login::Key);
    let all = bed.all();
    let mut way = bed.way();
    assert!(place(&mut way, &all).values().all(Result::is_ok));
    let task = "echo began; echo $$ > /tmp/began; tail -f /dev/null; rm /tmp/began; echo done";
    let request = placed_scripts(&all, task, Duration::from_secs(40));
    let running = std::thread::spawn(move || {
        let mut ended: Vec<Ended> = Vec::new();
        way.run(&request, &Stop::new(), &mut |it| ended.push(it.clone())).expect("it begins");
        (way, ended)
    });
    let tail = |number: usize| bed.hosts[number].processes("tail");
    until("all are busy", || bed.hosts.iter().all(|(number, _)| !tail(number).is_empty()));
    // h2: its ssh server dies, with all connections. h3: the task stops. h4: the host freezes.
    let all_get = |to: Vec<u32>, what: Signal| to.into_iter().for_each(|it| signal(it, what));
    all_get(bed.hosts[2].processes("sshd"), Signal::KILL);
    all_get(tail(3), Signal::STOP);
    all_get(bed.hosts[4].all_processes(), Signal::STOP);
    // h1 and h5 go on, after that.
    all_get(tail(1), Signal::KILL);
    all_get(tail(5), Signal::KILL);
    let (mut way, mut ended) = running.join().expect("a thread");
    ended.sort_by_key(|it| it.task);
    let how: Vec<&How> = ended.iter().map(|it| &it.how).collect();
    assert!(matches!(how[1], How::Lost { .. }), "{:?}", how[1]);
    // Its task took too long, unless ssh has found out before that nobody answers.
    assert!(matches!(how[3], How::TimedOut | How::Lost { .. }), "{:?}", how[3]);
    assert_eq!([how[0], how[2], how[4]], [&How::Code(0), &How::TimedOut, &How::Code(0)]);
    assert_eq!(ended[0].text(), "began\ndone\n");
    // h2 removed its folder by itself when the connection broke; a later task says that it is lost.
    until("the folder is gone", || bed.hosts.temporary_files(2).iter().all(|it| it == "began"));
    let later = run(&mut way, &placed_scripts(&all[..2], "echo again", Duration::from_secs(20)));
    assert!(later[0].succeeded() && matches!(&later[1].how, How::Unreachable(_)), "{later:?}");
    // Nobody can confirm what h2 and h4 did.
    assert_eq!(way.clean(), [host("h2"), host("h4")]);
    all_get(bed.hosts[4].all_processes(), Signal::CONT);
    for number in 1..=5 {
        // The task's own file, which no task that was ended could remove.
        let _ = std::fs::remove_file(bed.hosts.file(&format!("tmp.{number}/began")));
    }
    nothing_remains(&bed.hosts, &bed.idle);
}

#[test]
fn an_interrupt_and_a_death_of_the_driver_leave_nothing() {
    let bed = Bed::new("driver", 3, &|_, _| Login::Key);
    for request in [Signal::INT, Signal::KILL] {
        let settings = bed.options.arguments[1].to_str().expect("a path");
        let mut driver = unlaunched(REMOTE);
        driver.arg("ssh").arg(&bed.options.program).arg(settings).arg(bed.folder.file("plumb"));
        driver.args(["h1,h2,h3", "echo $$ > /tmp/began; sleep 1000 & sleep 1000"]);
        let driver = Running::start(&mut driver);
        for number in 1..=3 {
            until("a host is busy", || bed.hosts.temporary_files(number).iter().any(|it| it == "began"));
        }
        signal(driver.pid(), request);
        let output = driver.finish(Duration::from_secs(60));
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        if request == Signal::INT {
            assert!(output.status.success(), "{output:?}");
            assert_eq!(printed.matches("interrupted").count(), 3, "{printed}");
        }
        for number in 1..=3 {
            let _ = std::fs::remove_file(bed.hosts.file(&format!("tmp.{number}/began")));
        }
        nothing_remains(&bed.hosts, &bed.idle);
    }
}

#[test]
fn the_same_file_is_not_copied() {
    let mut bed = Bed::new("same", 2, &|_, _| Login::Key);
    let seen_by_all = small_plumb(PathBuf::from(bed.hosts.file("plumb")), "0.0.1");
    bed.options.plumb = Some(seen_by_all.clone());
    let mut way = bed.way();
    let placed = place(&mut way, &bed.all());
    for place in placed.values() {
        let place = place.as_ref().expect("a place");
        assert_eq!((place.path.as_str(), place.copied), (seen_by_all.to_str().expect("a path"), false));
    }
    assert!(
        run(&mut way, &placed_scripts(&bed.all(), "true", Duration::from_secs(60)))
            .iter()
            .all(Ended::succeeded)
    );
    assert_eq!(way.clean(), []);
    assert!(seen_by_all.exists());
    // A file that differs is not used.
    small_plumb(seen_by_all.clone(), "0.0.2");
    let mut way =
        Ssh::new(Client { plumb: Some(bed.folder.file("plumb")), ..bed.options.clone() }).expect("a way");
    assert!(place(&mut way, &bed.all()).values().all(|it| it.as_ref().is_ok_and(|it| it.copied)));
    drop(way);
    nothing_remains(&bed.hosts, &bed.idle);
}

/// A connection that the user has opened is used: it may be the only way in.
#[test]
fn a_connection_of_the_users_is_shared() {
    let bed = Bed::new("master", 2, &|_, _| Login::Key);
    let settings = bed.options.arguments[1].to_str().expect("a path").to_owned();
    let lines = std::fs::read_to_string(&settings).expect("settings");
    let socket = format!("Host h2\n ControlPath {}\n", bed.folder.file("socket").display());
    std::fs::write(&settings, format!("{socket}{lines}")).expect("settings");
    let ssh = |words: &[&str]| {
        let mut command = testbed::program(bed.options.program.to_str().expect("a path"));
        command.args(["-F", &settings]).args(words);
        command
    };
    let answers = |words: &[&str]| testbed::output(&mut ssh(words)).status.success();
    let master = Running::start(&mut ssh(&["-M", "-N", "h2"]));
    master.until("the connection is open", || answers(&["-O", "check", "h2"]));
    // From now on no login to h2 works.
    std::fs::write(&settings, format!("{socket} ProxyCommand false\n{lines}")).expect("settings");
    let mut way = bed.way();
    assert!(place(&mut way, &bed.all()).values().all(Result::is_ok));
    let ended = run(&mut way, &placed_scripts(&bed.all(), "hostname", Duration::from_secs(60)));
    assert_eq!(ended.iter().map(Ended::text).collect::<Vec<_>>(), ["h1\n", "h2\n"], "{ended:?}");
    assert_eq!(way.clean(), []);
    drop(way);
    assert!(answers(&["-O", "check", "h2"]), "it is still the user's");
    assert!(answers(&["-O", "exit", "h2"]));
    nothing_remains(&bed.hosts, &bed.idle);
}

/// Two ranks on each of three hosts, whose tasks each start the ranks of their host.
#[test]
fn ranks_across_hosts_meet() {
    let mut bed = Bed::new("across", 3, &|_, _| Login::Key);
    bed.options.plumb = Some(WHOAMI.into());
    let mut way = bed.way();
    let placed = place(&mut way, &bed.all());
    let job = Across {
        hosts: bed.all().into_iter().map(|it| (it, 2)).collect(),
        first_address: placed["h1"].as_ref().expect("a place").address.clone().expect("an address"),
        arguments: Vec::new(),
        variables: vec![("WHOAMI_STDERR".to_owned(), "1".into())],
    };
    let request = Request {
        at_once: true,
        ..Request::new("whoami", job.tasks().expect("tasks"), Duration::from_secs(60))
    };
    let ended = run(&mut way, &request);
    assert!(ended.iter().all(Ended::succeeded), "{ended:?}");
    lines::check(&ended.iter().flat_map(|it| it.stderr.clone()).collect::<Vec<u8>>(), 6, "plumb", "Endpoint");
    drop(way);
    nothing_remains(&bed.hosts, &bed.idle);
}

/// As many hosts as a cluster has, here behind few servers; and what is shown can be pasted.
#[test]
fn many_hosts() {
    let mut bed = Bed::new("many", 2, &|_, _| Login::With("MaxStartups 1000\nMaxSessions 100\n".to_owned()));
    let settings = bed.options.arguments[1].to_str().expect("a path").to_owned();
    let lines = std::fs::read_to_string(&settings).expect("settings");
    let names = "Host node*1 node*3 node*5 node*7 node*9\n HostName h1\n HostKeyAlias h1\nHost node*\n HostName h2\n HostKeyAlias h2\n";
    std::fs::write(&settings, format!("{names}{lines}")).expect("settings");
    bed.options.plumb = Some(small_plumb(PathBuf::from(bed.hosts.file("plumb")), "0.0.1"));
    let all = hosts_of_list("node[001-060]").expect("hosts");
    let mut way = bed.way();
    assert!(place(&mut way, &all).values().all(Result::is_ok));
    let request = Request { at_once: true, ..placed_scripts(&all, "hostname", Duration::from_secs(100)) };
    let ended = run(&mut way, &request);
    assert!(ended.iter().all(Ended::succeeded), "{ended:?}");
    assert_eq!(ended.iter().filter(|it| it.text() == "h1\n").count(), 30);

    let mut task = Task::plumb(all[0].clone(), ["printf %s \"$ODD\" \"it's\""]);
    task.variables.push(("ODD".to_owned(), "a'b $x ".into()));
    let shown = way.shown(&Request::new("shown", vec![task], Duration::from_secs(9)));
    // What runs there can be pasted into a shell there.
    let line = shown[0].task.as_deref().expect("a task");
    let pasted =
        testbed::output(testbed::program(&bed.options.program).args(["-F", &settings, "node001", line]));
    assert_eq!(String::from_utf8_lossy(&pasted.stdout), "a'b $x it's", "{line} {pasted:?}");
    assert_eq!(way.clean(), []);
    drop(way);
    nothing_remains(&bed.hosts, &bed.idle);
}
