//! Names of hosts, wherever something tells that they are hosts.

use proptest::prelude::*;
use report::{Style, json, junit, redact, sarif, text};

use super::{check, kept, read, redacted, written};

#[test]
fn hosts_before_a_thread() {
    check("node-0:191:726 [0] NCCL INFO Using network IB", "host-1:191:726 [0] NCCL INFO Using network IB");
    check(
        "[1,3]<stdout>: gpu-0:5249:5249 [0] NCCL INFO x",
        "[1,3]<stdout>: host-1:5249:5249 [0] NCCL INFO x",
    );
    check("h-1:1:2 NCCL CALL ncclAllReduce(1)", "host-1:1:2 NCCL CALL ncclAllReduce(1)");
    check("\u{1b}[36mnode-0:1:2 [0] NCCL INFO x", "\u{1b}[36mhost-1:1:2 [0] NCCL INFO x");
}

#[test]
fn times_and_source_lines_are_no_hosts() {
    kept("12:34:56 [0] NCCL INFO x");
    kept("2025-01-02T03:04:05 [0] NCCL INFO x");
    kept("[Sun Nov 15 02:56:21 2026] step 1");
    kept("socket.cc:49:12 [error] x");
    kept("[rank7]:[E1129 11:56:57.642513817 ProcessGroupNCCL.cpp:1834] x");
}

#[test]
fn hosts_of_nccl_tests() {
    check(
        "#  Rank  0 Group  0 Pid   1234 on   worker-a device  0 [0x8d] NVIDIA H100",
        "#  Rank  0 Group  0 Pid   1234 on   host-1 device  0 [0x8d] NVIDIA H100",
    );
}

#[test]
fn hosts_where_only_a_host_can_stand() {
    check(
        "NCCL WARN Connection closed by remote peer node-2<55248>",
        "NCCL WARN Connection closed by remote peer host-1<55248>",
    );
    check("remote peer node-a-ib.example.org<51159>", "remote peer host-1<51159>");
    check(
        "failed to connect to host llama-0.llama:29500 - retrying",
        "failed to connect to host host-1:29500 - retrying",
    );
    check(
        "The IPv6 network addresses of (job-x.internal, 50745) cannot be",
        "The IPv6 network addresses of (host-1, 50745) cannot be",
    );
    check("failed to connect to [trainer-7]:29500", "failed to connect to [host-1]:29500");
    check("init_method=tcp://master-0:23456", "init_method=tcp://host-1:23456");
    check("MASTER_ADDR=gpu01 MASTER_PORT=1", "MASTER_ADDR=host-1 MASTER_PORT=1");
    check("--master_addr gpu01 --master_port 1", "--master_addr host-1 --master_port 1");
    kept("curl -H Authorization: x, it is no Authorization");
    check("mpirun --host g0010:8,g0016:8 all_reduce_perf", "mpirun --host host-1:8,host-2:8 all_reduce_perf");
    check("SLURM_JOB_NODELIST=gpu[001-004] x", "SLURM_JOB_NODELIST=host-1 x");
    check("[pod/llama-0/trainer] starts", "[pod/host-1/trainer] starts");
    check("on ip-10-0-5-28.ec2.internal now", "on host-1 now");
    check("instance i-0123456789abcdef0 is gone", "instance host-1 is gone");
}

#[test]
fn hosts_in_messages_of_launchers() {
    for (line, want) in [
        ("srun: error: hopper: task 3: Killed", "srun: error: host-1: task 3: Killed"),
        (
            "0: srun: error: gpu-7: tasks 0-3: Exited with exit code 1",
            "0: srun: error: host-1: tasks 0-3: Exited with exit code 1",
        ),
        ("srun: error: gpu[01-02]: tasks 0-15: Killed", "srun: error: host-1: tasks 0-15: Killed"),
        (
            "srun: error: Task launch for StepId=1.0 failed on node hopper: x",
            "srun: error: Task launch for StepId=1.0 failed on node host-1: x",
        ),
        ("srun: error: Node failure on hopper", "srun: error: Node failure on host-1"),
        (
            "slurmstepd: error: *** STEP 12.0 ON hopper CANCELLED AT 2026-01-01T00:00:00 ***",
            "slurmstepd: error: *** STEP 12.0 ON host-1 CANCELLED AT 2026-01-01T00:00:00 ***",
        ),
        (
            "mpirun noticed that process rank 3 with PID 0 on node hopper exited on signal 9",
            "mpirun noticed that process rank 3 with PID 0 on node host-1 exited on signal 9",
        ),
        ("[hopper:4711] *** Process received signal ***", "[host-1:4711] *** Process received signal ***"),
        ("[hopper:4711:0:4711] Caught signal 11", "[host-1:4711:0:4711] Caught signal 11"),
        ("=   PID 4711 RUNNING AT hopper", "=   PID 4711 RUNNING AT host-1"),
        ("  host      : hopper", "  host      : host-1"),
        ("Nov 15 02:56:21 hopper kernel: NVRM: x", "Nov 15 02:56:21 host-1 kernel: NVRM: x"),
        (
            "2026-11-15T02:56:21.5+00:00 hopper slurmd[7]: x",
            "2026-11-15T02:56:21.5+00:00 host-1 slurmd[7]: x",
        ),
    ] {
        check(line, want);
    }
}

#[test]
fn words_of_launchers_are_no_hosts() {
    for line in [
        "srun: error: task 3 launch failed: tasks 0-3 are gone, error in task",
        "srun: error: Unable to create step for job 12: tasks and nodes do not fit",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0",
        "the job was ON hold, CANCELLED by nobody",
        "ranks on node 3 exit, on node failure too",
        "[12:34:56] *** x, [utils.py:123] *** y, [rank:3] z",
        "12:00:00 INFO kernel: x",
        "kernel: NVRM: x, 12 kernel: x",
    ] {
        kept(line);
    }
}

#[test]
fn a_host_that_one_message_names_is_hidden_everywhere() {
    let lines = redacted(&[
        "lost hopper, gpu03 and gpu3, not hoppers",
        "srun: error: hopper: task 3: Killed",
        "SLURM_JOB_NODELIST=gpu[01-02,03],login",
        "login is down, gpu04 is not",
        "task 3 failed with error",
    ]);
    assert_eq!(lines[0], "lost host-1, host-2 and gpu3, not hoppers");
    assert_eq!(lines[3], "host-4 is down, gpu04 is not");
    assert_eq!(lines[4], "task 3 failed with error");
}

#[test]
fn programs_of_xids() {
    check(
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python3, GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=program-1, GPU has fallen off the bus.",
    );
    check(
        "NVRM: Xid (PCI:0000:3b:00): 13, pid=1, name=my model",
        "NVRM: Xid (PCI:0000:3b:00): 13, pid=1, name=program-1 model",
    );
    check("Xid 13, pid=1, name=our app, Ch 8", "Xid 13, pid=1, name=program-1, Ch 8");
    kept("NVRM: Xid (PCI:0000:02:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.");
    kept("torch.save(name=model)");
}

#[test]
fn what_is_said_beside_the_answer_has_the_same_names() {
    let log = "hopper:1:1 [0] x.cc:1 NCCL WARN lost hopper\n";
    let mut doctor = read(&[("logs/hopper.log", log)]);
    let mut redactor = redact(&mut doctor);
    assert_eq!(redactor.file("logs/hopper.log"), "input-1.log");
    assert_eq!(redactor.file("my logs/of zelda.log"), "input-2.log");
    assert_eq!(redactor.file("standard input"), "standard input");
    assert_eq!(
        redactor.text("logs/hopper.log: hopper: /home/zelda/x is gone, says zelda"),
        "input-1.log: host-1: /path-1 is gone, says secret-1"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever first tells that it is a host.
    #[test]
    fn no_known_host_survives_in_any_format(
        host in "[a-z]{3,6}(-[a-z]{2,4})?-?[0-9]{1,3}|zq[a-z]{4,8}",
        domain in prop_oneof![Just(""), Just(".cluster.local")],
        teller in 0..6_usize,
    ) {
        let told = [
            format!("{host}{domain}:1:2 [0] NCCL INFO NCCL version 2.27.3+cuda12.4\n"),
            format!("srun: error: {host}{domain}: task 3: Killed\n"),
            format!("slurmstepd: error: *** STEP 12.0 ON {host} CANCELLED AT 2026-01-01T00:00:00 ***\n"),
            format!("a-1:1:2 [0] x.cc:1 NCCL WARN socketProgress: Connection closed by remote peer {host}{domain}<55248>\n"),
            format!("NCCL WARN x\nMASTER_ADDR={host}{domain} MASTER_PORT=1 srun: error: {host}: task 1: Killed\n"),
            format!("Nov 15 02:56:21 {host} kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=a, GPU has fallen off the bus.\n"),
        ];
        let log = format!(
            "{}srun: error: {host}: tasks 0-3: Killed\nb-1:1:2 [0] x.cc:1 NCCL WARN lost {host}, ({host}) and {host}.\n",
            told[teller]
        );
        let mut doctor = read(&[(&format!("logs/{host}.log"), &log)]);
        prop_assert!(!doctor.findings.is_empty(), "{log}");
        redact(&mut doctor);
        let style = Style { colour: false, width: 100, verbose: true };
        let mut all = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
        let [plain, as_json, as_sarif, as_junit] = &mut all;
        text(&doctor, style, plain).unwrap();
        json(&doctor, as_json).unwrap();
        sarif(&doctor, as_sarif).unwrap();
        junit(&doctor, Some(rules::Severity::Error), as_junit).unwrap();
        for text in all {
            let text = String::from_utf8(text).unwrap();
            let words = text.split(|it: char| !it.is_ascii_alphanumeric() && it != '-');
            for word in words {
                prop_assert_ne!(word, &host);
            }
        }
    }
}

#[test]
fn a_host_has_one_name_everywhere() {
    let lines = redacted(&[
        "node-10:1:1 [0] NCCL INFO x",
        "node-1:1:1 [0] NCCL INFO connects to node-10.cluster.local and node-1.",
        "node-100 is another, nccl.node-1.17.log is a file of node-1, so is node-1_eth0",
    ]);
    assert_eq!(lines[0], "host-1:1:1 [0] NCCL INFO x");
    assert_eq!(lines[1], "host-2:1:1 [0] NCCL INFO connects to host-1 and host-2.");
    assert_eq!(lines[2], "node-100 is another, nccl.host-2 is a file of host-2, so is host-2_eth0");
}

#[test]
fn a_host_inside_a_longer_name() {
    let lines = redacted(&[
        "node-1:1:1 [0] NCCL INFO x",
        "node-1-2:1:1 [0] NCCL INFO x",
        "hopper:1:1 [0] NCCL INFO x",
        "[prterun-node-1-3157@1,2] node-1-2 node-1x hopper-tuned",
    ]);
    assert_eq!(lines[3], "[prterun-host-1-3157@1,2] host-2 node-1x hopper-tuned");
}

#[test]
fn two_files_that_name_a_host_agree() {
    let a = "node-7:1:1 [0] NCCL INFO NCCL version 2.20.5+cuda12.4\n";
    let b = "node-8:2:2 [0] NCCL INFO NCCL version 2.19.3+cuda12.4\nnode-8:2:2 [0] x.cc:1 NCCL WARN lost node-7\n";
    let mut doctor = read(&[("logs/node-7.log", a), ("logs/node-8.log", b)]);
    redact(&mut doctor);
    let text = written(&doctor);
    assert!(!text.contains("node-7") && !text.contains("node-8"), "{text}");
    let lines: Vec<&str> =
        doctor.findings.iter().flat_map(|it| &it.evidence).map(|it| it.text.as_str()).collect();
    let lost = lines.iter().find(|it| it.contains("lost")).unwrap();
    let (named, seen) = (lost.split("lost ").nth(1).unwrap(), lost.split(':').next().unwrap());
    assert_ne!(named, seen);
    assert!(lines.iter().any(|it| it.starts_with(&format!("{named}:1:1 "))), "{lines:#?}");
    assert_eq!(doctor.inputs[0].file, "input-1.log");
    assert_eq!(doctor.inputs[1].file, "input-2.log");
    assert_eq!(doctor.facts.job.hosts.len(), 2);
}

#[test]
fn a_host_called_like_a_word_leaves_the_word_alone() {
    let lines = redacted(&["rank:1:2 [0] NCCL INFO comm 0x1 rank 0 nranks 2", "process 1 on rank failed"]);
    assert_eq!(lines, ["host-1:1:2 [0] NCCL INFO comm 0x1 rank 0 nranks 2", "process 1 on host-1 failed"]);
    // Any other name is hidden wherever it stands.
    let lines = redacted(&["hopper:1:2 [0] NCCL INFO x", "lost hopper today"]);
    assert_eq!(lines, ["host-1:1:2 [0] NCCL INFO x", "lost host-1 today"]);
}
