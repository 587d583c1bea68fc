//! Tasks on this machine: what the contract of every way promises.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::time::{Duration, Instant};

use launch::{Client, Ended, Here, Host, How, ObstacleKind, Program, Request, Ssh, Stop, Task, Way as _};
use testbed::{Folder, until};

fn sh(script: &str) -> Task {
    Task {
        host: Host::here(),
        program: Program::Other("sh".into()),
        arguments: vec!["-c".into(), script.into()],
        variables: Vec::new(),
        input: None,
    }
}

fn run(request: &Request, stop: &Stop) -> Vec<Ended> {
    let mut ended = Vec::new();
    Here::with("/bin/true").run(request, stop, &mut |it| ended.push(it.clone())).expect("a run");
    ended.sort_by_key(|it| it.task);
    assert_eq!(
        ended.iter().map(|it| it.task).collect::<Vec<_>>(),
        (0..request.tasks.len()).collect::<Vec<_>>()
    );
    ended
}

fn one(task: Task) -> Ended {
    run(&Request::new("one", vec![task], Duration::from_secs(60)), &Stop::new()).remove(0)
}

/// Whether a process with this word in its command line is alive.
fn alive(word: &str) -> bool {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    entries.filter(|it| it.file_name().to_string_lossy().parse::<u32>().is_ok()).any(|it| {
        fs::read(it.path().join("cmdline"))
            .is_ok_and(|it| String::from_utf8_lossy(&it).split('\0').any(|it| it == word))
    })
}

/// A number of seconds that nothing else sleeps for.
fn nap(tail: u32) -> String {
    format!("{}.{tail}", 10_000 + std::process::id())
}

#[test]
fn output_and_codes() {
    let ended = one(sh("echo out; echo err >&2; printf last; exit 3"));
    assert_eq!(
        (ended.how, &ended.stdout[..], &ended.stderr[..]),
        (How::Code(3), &b"out\nlast"[..], &b"err\n"[..])
    );
    assert_eq!(one(sh("kill -9 $$")).how, How::Signal(9));
    let plumb = Task::plumb(Host::here(), ["x"]);
    assert!(one(plumb).succeeded());
    let mut missing = sh("");
    missing.program = Program::Other("/no/such/program".into());
    assert!(matches!(one(missing).how, How::Unreachable(it) if it.kind == ObstacleKind::NoProgram));
}

#[test]
fn words_arrive_as_they_are() {
    let odd = OsString::from_vec(b"it's $(touch x) `y` \\ \"q\" \n* \xff\xfe ~".to_vec());
    let mut task = sh("printf '%s|%s|%s|' \"$1\" \"$ODD\" \"$#\"; cat");
    task.arguments.extend(["zero".into(), odd.clone()]);
    task.variables.push(("ODD".to_owned(), odd.clone()));
    task.input = Some(b"input \x00\xff without end".to_vec());
    let odd = odd.into_vec();
    assert_eq!(one(task).stdout, [&odd[..], b"|", &odd, b"|1|input \x00\xff without end"].concat());
    let mut wrong = sh("true");
    wrong.variables.push(("A=1; touch x; B".to_owned(), "".into()));
    let request = Request::new("wrong", vec![wrong], Duration::from_secs(60));
    assert!(Here::with("x").run(&request, &Stop::new(), &mut |_| ()).is_err());
}

#[test]
fn a_large_input_and_a_large_output() {
    let mut task = sh("cat; seq 1 3000000; printf end");
    task.input = Some(vec![b'x'; 3 << 20]);
    let ended = one(task);
    assert!(ended.cut && ended.stdout.len() <= 8 << 20, "{}", ended.stdout.len());
    assert!(ended.stdout.starts_with(b"xxx") && ended.stdout.ends_with(b"\n3000000\nend"));
}

#[test]
fn a_task_is_no_rank_of_an_outer_launcher() {
    let task = sh("echo \"[$PLUMB_RANK$RANK$SLURM_PROCID$OMPI_COMM_WORLD_RANK]\"");
    assert_eq!(one(task).text(), "[]\n");
}

#[test]
fn the_limit_ends_all_that_a_task_started() {
    let nap = nap(1);
    let slow = sh(&format!("echo began; sleep {nap} & trap '' TERM; sleep {nap}; sleep {nap}"));
    let request = Request::new("slow", vec![slow, sh("echo quick")], Duration::from_millis(500));
    let began = Instant::now();
    let ended = run(&request, &Stop::new());
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!((&ended[0].how, ended[0].text().as_str()), (&How::TimedOut, "began\n"));
    assert_eq!((&ended[1].how, ended[1].text().as_str()), (&How::Code(0), "quick\n"));
    until("nothing sleeps", || !alive(&nap));
}

#[test]
fn what_a_task_leaves_behind_ends_with_it() {
    let nap = nap(2);
    assert!(one(sh(&format!("sleep {nap} & echo done"))).succeeded());
    until("nothing sleeps", || !alive(&nap));
}

#[test]
fn an_interrupt_ends_all() {
    let nap = nap(3);
    let tasks = (0..6).map(|_| sh(&format!("sleep {nap}"))).collect();
    let stop = Stop::new();
    let setter = {
        let (stop, nap) = (stop.clone(), nap.clone());
        std::thread::spawn(move || {
            until("something sleeps", || alive(&nap));
            stop.set();
        })
    };
    let ended = run(&Request::new("long", tasks, Duration::from_secs(600)), &stop);
    setter.join().expect("a thread");
    assert!(ended.iter().all(|it| it.how == How::Cancelled), "{ended:?}");
    until("nothing sleeps", || !alive(&nap));
}

#[test]
fn tasks_that_need_each_other_run_at_once() {
    let folder = testbed::Folder::new("at-once");
    let script = |me: usize| {
        format!(
            "touch {0}/{me}; while [ $(ls {0} | wc -l) -lt 12 ]; do sleep 0.05; done",
            folder.path().display()
        )
    };
    let tasks = (0..12).map(|it| sh(&script(it))).collect();
    let request = Request { at_once: true, ..Request::new("all", tasks, Duration::from_secs(60)) };
    assert!(run(&request, &Stop::new()).iter().all(Ended::succeeded));
}

#[test]
fn what_is_shown_can_be_pasted() {
    let mut task = sh("echo \"$A\" 'two words'");
    task.variables = vec![("A".to_owned(), "it's".into()), ("PLUMB_TOKEN".to_owned(), "secret".into())];
    let request = Request::new("shown", vec![task], Duration::from_secs(60));
    let shown = Here::with("/bin/true").shown(&request);
    assert!(
        !shown[0].task.as_deref().expect("a task").contains("secret"),
        "{}",
        shown[0].task.as_deref().expect("a task")
    );
    let output =
        testbed::output(testbed::program("sh").args(["-c", shown[0].task.as_deref().expect("a task")]));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "it's two words\n");
}

/// A client that hangs, as one does whose host answers and says nothing.
fn hanging(folder: &Folder) -> Client {
    use std::os::unix::fs::PermissionsExt as _;
    let program = folder.file("ssh");
    fs::write(&program, "#!/bin/sh\ncase \"$*\" in *'-O check'*) exit 1;; esac\nexec sleep 100\n")
        .expect("a script");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it is ours");
    Client {
        program: program.into(),
        most: Some(Duration::from_secs(2)),
        plumb: Some("/bin/true".into()),
        ..Client::ssh()
    }
}

#[test]
fn a_login_that_hangs_ends_when_it_may_take_no_longer() {
    let folder = Folder::new("hangs");
    let mut way = Ssh::new(hanging(&folder)).expect("a way");
    let (began, mut kinds) = (Instant::now(), Vec::new());
    let host = Host::parse("h1").expect("a host");
    way.place(&[host], &Stop::new(), &mut |it| kinds.push(it.outcome.as_ref().err().map(|it| it.kind)))
        .expect("hosts are asked");
    assert_eq!(kinds, [Some(ObstacleKind::NoAnswer)]);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

/// What is shown before a run is what the client is started with.
#[test]
fn the_commands_that_are_shown_are_those_that_are_started() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new("shown");
    let program = folder.file("ssh");
    let log = folder.file("log");
    // It writes its words, one per line, and runs the last here.
    let text = format!(
        "#!/bin/sh\nprintf '%s\\n' \"$0\" \"$@\" >>{0}\necho >>{0}\ncase \"$*\" in *'-O check'*) exit 1;; esac\nfor it; do :; done\nexec sh -c \"$it\"\n",
        log.display()
    );
    fs::write(&program, text).expect("a script");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let client = Client {
        program: program.into(),
        plumb: Some("/bin/true".into()),
        arguments: vec!["-F".into(), "a b".into()],
        ..Client::ssh()
    };
    let mut way = Ssh::new(client).expect("a way");
    let hosts = [Host::parse("user@h1:2222").expect("a host")];
    let request =
        Request::new("one", vec![Task { host: hosts[0].clone(), ..sh("exit 0") }], Duration::from_secs(60));
    let mut shown = way.shown_placing(&hosts);
    shown.extend(way.shown(&request));
    way.place(&hosts, &Stop::new(), &mut |it| assert!(it.outcome.is_ok(), "{it:?}")).expect("a place");
    way.run(&request, &Stop::new(), &mut |it| assert!(it.succeeded(), "{it:?}")).expect("a run");
    let started = fs::read_to_string(&log).expect("a log");
    let started: Vec<Vec<&str>> = started.trim_end().split("\n\n").map(|it| it.lines().collect()).collect();
    let shown: Vec<Vec<String>> = shown
        .iter()
        .map(|it| {
            // As a shell reads it, without what follows: the task that is sent through the connection.
            let line = it.command.split(" <<").next().unwrap_or_default();
            let words =
                testbed::output(testbed::program("sh").arg("-c").arg(format!("printf '%s\\n' {line}")));
            String::from_utf8_lossy(&words.stdout).lines().map(str::to_owned).collect()
        })
        .collect();
    assert_eq!(shown, started);
}
