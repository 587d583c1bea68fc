//! What `redact` hides, what it leaves, and that it forgets nothing.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use evidence::read_texts;
use proptest::prelude::*;
use report::{
    Doctor, Entity, Environment, Evidence, Finding, FirstFailure, Input, NodePair, Options, Rank, Style,
    Training, json, junit, redact, sarif, text,
};
use rules::EntityKind;

fn read(texts: &[(&str, &str)]) -> Doctor {
    let log = rules::Log::new(read_texts(texts.iter().map(|(name, text)| (*name, text.as_bytes()))));
    Doctor::new(&log, &rules::diagnose(&log), Options { matrix: true })
}

fn evidence(file: &str, text: &str) -> Evidence {
    Evidence { file: file.to_owned(), line: 1, text: text.to_owned(), span: None }
}

fn finding(message: &str, lines: &[&str]) -> Finding {
    Finding {
        id: "test-rule".to_owned(),
        severity: rules::Severity::Warning,
        confidence: rules::Confidence::Likely,
        role: rules::Role::Cause,
        title: "a title".to_owned(),
        message: message.to_owned(),
        evidence: lines.iter().map(|it| evidence("job.log", it)).collect(),
        why: "why".to_owned(),
        fix: "fix".to_owned(),
        references: vec!["https://example.org/home/someone".to_owned()],
        entities: Vec::new(),
        also: Vec::new(),
        cost: None,
        price: None,
        fixable: false,
    }
}

fn written(doctor: &Doctor) -> String {
    let mut out = Vec::new();
    json(doctor, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// The lines as they are after redaction, all in one answer.
fn redacted(lines: &[&str]) -> Vec<String> {
    static EMPTY: LazyLock<Doctor> = LazyLock::new(|| read(&[]));
    let mut doctor = EMPTY.clone();
    doctor.findings.push(finding("message", lines));
    redact(&mut doctor);
    doctor.findings[0].evidence.iter().map(|it| it.text.clone()).collect()
}

#[track_caller]
fn check(line: &str, want: &str) {
    assert_eq!(redacted(&[line]), [want]);
}

#[track_caller]
fn kept(line: &str) {
    check(line, line);
}

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

#[test]
fn addresses() {
    check("Bootstrap : Using eth0:10.77.0.12<0>", "Bootstrap : Using eth0:addr-1<0>");
    check("connect to 172.18.0.1<45365> from 10.0.0.1:80", "connect to addr-1<45365> from addr-2:80");
    check("[2]veth9a3f21b:fe80::dc2b:e2ff:fed7:2666%veth9a3f21b<0>", "[2]veth9a3f21b:addr-1%veth9a3f21b<0>");
    check("tcp://[2001:db8::1]:29500", "tcp://[addr-1]:29500");
    check("inet 10.0.0.131/31 scope global", "inet addr-1/31 scope global");
    check("10.0.0.10: node-a:1:2 [0] NCCL INFO x", "addr-1: host-1:1:2 [0] NCCL INFO x");
    check("link/ether 0a:58:0a:f4:00:0b brd", "link/ether addr-1 brd");
    check("rank-10.0.0.12.out", "rank-addr-1.out");
    check("It is 10.0.0.1.", "It is addr-1.");
}

#[test]
fn one_address_written_in_several_ways_has_one_name() {
    assert_eq!(
        redacted(&[
            "10.0.0.6",
            "GID[  3]: ::ffff:10.0.0.6, RoCE v2",
            "0000:0000:0000:0000:0000:ffff:0a00:0006",
            "fe80:0::1",
            "FE80::1"
        ]),
        ["addr-1", "GID[  3]: addr-1, RoCE v2", "addr-1", "addr-2", "addr-2"],
    );
}

#[test]
fn what_only_looks_like_an_address() {
    for line in [
        "NCCL version 2.27.3+cuda12.4",
        "plugin version 1.2.3.4",
        "driver: 535.104.5.1",
        "pip install nvidia-nccl==2.21.5.1",
        "libfoo-1.2.3.4.so",
        "12:34:56",
        "2025-10-16 22:16:08.123",
        "NIC group 0 device #0 0000:31:00.0",
        "0000:00:1e.0/0000:10:1c.0",
        "GUID for dev[0]: 00000000000000000a00051c00000000",
        "node_guid ec0d:9a03:0029:f5a2 and 0x506b4b03005c2740",
        "lo:127.0.0.1<0> and ::1 and 0.0.0.0:29500, mask 255.255.255.0",
        "NCCL WARN localGid ::ffff: remoteGid ::ffff:",
        "c10d::ProcessGroupNCCL::run() c10::Error::Error(c10::SourceLocation) std::vector<int>",
        "libfabric:35:1668017255::efa:cq:rxr_cq_write_tx_error():243<warn> x",
        "order 0:1:2:3:4:5:6:7",
        "Trees [0] -1/-1/-1->3->2 [1] 1/-1/-1->3->-1",
        "comm 0x556ea5166cf0 rank 0 nranks 16 busId 38000 commId 0x81dca7568efe26d7",
        "1.2.3.4.5",
    ] {
        kept(line);
    }
}

#[test]
fn paths() {
    check("#3 main from /tmp/job/train.py:728", "#3 main from /path-1.py:728");
    check("File \"/fsx/team/model/train.py\", line 3", "File \"/path-1.py\", line 3");
    check(
        "LD_LIBRARY_PATH=/fsx/a/lib:/fsx/b/lib:/usr/local/nvidia/lib",
        "LD_LIBRARY_PATH=/path-1:/path-2:/usr/local/nvidia/lib",
    );
    check("/fsx/x/libnccl-net.so.2.1 (not found).", "/path-1.so (not found).");
    check("/logs/a/b.log.gz, /logs/a/b.alice", "/path-1.log.gz, /path-2");
    check("saved to s3://bucket/run/x.pt now", "saved to s3://path-1.pt now");
    check("see /data/x. And /data/x again", "see /path-1. And /path-1 again");
    check("-I/home/alice/include", "-I/path-1");
    check("cd ~/secret-project/x", "cd /path-1");
    check("/usr/lib/../../home/alice/x.so", "/path-1.so");
}

#[test]
fn paths_that_are_the_same_everywhere() {
    for line in [
        "failed to extend /dev/shm/nccl-WU88OE to 9637892 bytes",
        "Could not find real path of /sys/class/pci_bus/0000:21/../../0000:21:00.0",
        "/opt/amazon/efa/lib/libfabric.so.1: version `FABRIC_1.7' not found",
        "0x7f59 in /lib/x86_64-linux-gnu/libc.so.6 and /usr/lib64/libibverbs.so",
        "/proc/sys/net/core/somaxconn is 128",
        "via NET/Socket/0, P2P/CUMEM, SHM/direct/direct, NET/Libfabric/0/GDRDMA",
        "threadThresholds 8/8/64 | 32/8/64 | 512 | 512",
        "/tmp is full, 10 / 20 / 30",
        "https://github.com/NVIDIA/nccl/issues/1241",
        "misc/socket.cc:49 and ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275",
    ] {
        kept(line);
    }
}

#[test]
fn urls() {
    check("http://wandb.corp.example/team/run?x", "http://host-1/path-1");
    check("https://me:pass@git.example.com/a/b", "https://secret-1@host-1/path-1");
    check("file:///home/alice/x.log", "file:///path-1.log");
    check("push to https://github.com/o/r?token=abc123", "push to https://github.com/o/r?token=secret-1");
}

#[test]
fn users_of_home_folders() {
    assert_eq!(
        redacted(&["/home/alice/x.py", "uid=1000(alice) gid", "/home/ubuntu/y.py", "as ubuntu"]),
        ["/path-1.py", "uid=1000(secret-1) gid", "/path-2.py", "as ubuntu"],
    );
    assert_eq!(redacted(&["node-1:1:1 [0] NCCL INFO x", "ssh carol@node-1"])[1], "ssh secret-1@host-1");
    check("USER=dave", "USER=secret-1");
    kept("USER=root");
}

#[test]
fn secrets_by_their_form() {
    for secret in [
        "AKIAIOSFODNN7EXAMPLE",
        "ASIAIOSFODNN7EXAMPLE",
        "hf_AbCdEfGhIjKlMnOpQrStUvWxYz0123456",
        "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        "gho_16C7e42F292c6912E7710c838347Ae178B4a",
        "github_pat_11ABCDEFG0abcdefghij_klmnop",
        "sk-proj-abcdefghijklmnop1234",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N",
        "someone.else+x@example.org",
    ] {
        check(&format!("before {secret}, after"), "before secret-1, after");
        check(&format!("\"{secret}\""), "\"secret-1\"");
    }
}

#[test]
fn secrets_by_their_place() {
    check(
        "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "aws_secret_access_key = secret-1",
    );
    check("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG+x=", "AWS_SECRET_ACCESS_KEY=secret-1");
    check("Authorization: Bearer abcDEF123.x-y", "Authorization: Bearer secret-1");
    check("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic secret-1");
    check("password=hunter2 user", "password=secret-1 user");
    check("{\"token\": \"a b c\", \"n\": 1}", "{\"token\": \"secret-1\", \"n\": 1}");
    check("secret='x y'", "secret='secret-1'");
    check("--api-key 123abc --steps 5", "--api-key secret-1 --steps 5");
    check("wandb: using key 0123456789abcdef0123456789abcdef01234567", "wandb: using key secret-1");
    check("WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567", "WANDB_API_KEY=secret-1");
    check(
        "image 123456789012.dkr.ecr.us-west-2.amazonaws.com/x",
        "image secret-1.dkr.ecr.us-west-2.amazonaws.com/x",
    );
}

#[test]
fn what_is_no_secret() {
    for line in [
        "commit 0123456789abcdef0123456789abcdef01234567",
        "max_tokens=512 tokens=3 token=7 pad_token=<pad> eos_token='</s>'",
        "Invalid token: expected a string",
        "token=$HF_TOKEN password=${PASSWORD} secret=None token=****",
        "the bearer of this",
        "hf_transformers hf_hub_download sk-learn",
        "secretName: credentials",
        "memcpy@GLIBC_2.14",
    ] {
        kept(line);
    }
}

#[test]
fn a_secret_is_hidden_wherever_it_stands() {
    let lines = redacted(&["HF_TOKEN=correct-horse", "value: correct-horse"]);
    assert_eq!(lines, ["HF_TOKEN=secret-1", "value: secret-1"]);
    let mut doctor = read(&[]);
    doctor.facts.environment.push(Environment {
        name: "MY_API_KEY".to_owned(),
        value: "correct-horse".to_owned(),
        set_by: report::SetBy::Manifest,
        processes: 0,
        evidence: evidence("pod.yaml", "    value: \"correct-horse\""),
    });
    redact(&mut doctor);
    assert_eq!(doctor.facts.environment[0].value, "secret-1");
    assert_eq!(doctor.facts.environment[0].name, "MY_API_KEY");
    assert_eq!(doctor.facts.environment[0].evidence.text, "    value: \"secret-1\"");
}

#[test]
fn other_writing_systems_are_left_whole() {
    check("größe 10.0.0.1 – 日本 /home/alice/日本.log ☃", "größe addr-1 – 日本 /path-1.log ☃");
    check("é=ü password=日本語 ok", "é=ü password=secret-1 ok");
}

/// An answer with something to hide in every field that can hold it.
fn full() -> Doctor {
    let log = include_str!("../../../cases/healthy-2-nodes/job.log");
    let mut doctor = read(&[("/home/zelda/logs/rank-0.log", log), ("standard input", log)]);
    let line = "hyrule-1:1:2 [0] NCCL INFO Bootstrap : Using eth0:203.0.113.77<0> /home/zelda/job.py hf_abcDEFghiJKLmno1234";
    let quote = || evidence("/home/zelda/logs/rank-0.log", line);
    let mut it = finding(&format!("rank 0 {line}"), &[line, line]);
    it.why = format!("because {line}");
    it.fix = format!("repair {line}; write /tmp/nccl.%h.%p.log, look at 192.0.2.1");
    let entity = |kind: EntityKind, name: &str| Entity { kind, name: name.to_owned() };
    it.entities = vec![
        entity(EntityKind::Host, "hyrule-1"),
        entity(EntityKind::Host, "203.0.113.77"),
        entity(EntityKind::File, "/home/zelda/job.py"),
        entity(EntityKind::Rank, "0"),
        entity(EntityKind::Variable, "NCCL_DEBUG"),
    ];
    doctor.findings.push(it);
    line.clone_into(&mut doctor.verdict.text);
    for check in &mut doctor.checks {
        line.clone_into(&mut check.text);
        check.evidence = Some(quote());
    }
    doctor.inputs.push(Input {
        file: "/home/zelda/logs/rank-1.log".to_owned(),
        kind: evidence::Kind::Unknown,
        lines: 0,
        understood: 0,
        blank: 0,
        cut: 0,
        problem: Some("/home/zelda/logs/rank-1.log: cut".to_owned()),
    });
    let facts = &mut doctor.facts;
    facts.job.hosts.push("hyrule-1".to_owned());
    facts.job.instance = Some(line.to_owned());
    facts.job.machine = Some(line.to_owned());
    facts.job.networks.push(line.to_owned());
    facts.job.inside.insert(line.to_owned(), 1);
    facts.stack.nccl = Some(line.to_owned());
    facts.stack.cuda_driver = Some(line.to_owned());
    facts.stack.plugin = Some(line.to_owned());
    facts.stack.libfabric = Some(line.to_owned());
    facts.first_failure = Some(FirstFailure {
        rank: Some(0),
        host: Some("hyrule-1".to_owned()),
        time: Some("12:34:56".to_owned()),
        what: line.to_owned(),
        evidence: quote(),
        certain: true,
    });
    facts.ranks.push(Rank {
        rank: 0,
        host: "hyrule-1.example.org".to_owned(),
        pid: 1,
        cuda_device: None,
        nvml_device: None,
        bus_id: Some("38000".to_owned()),
        complete: true,
    });
    facts.protocols = Some(vec![line.to_owned()]);
    facts.training = Some(Training {
        settings: [(line.to_owned(), line.to_owned())].into(),
        runtime_seconds: None,
        loss_lines: 0,
        mean_step_ms: None,
        gpu_memory_max_gb: None,
        host_memory_max_percent: None,
    });
    assert!(!facts.communicators.is_empty());
    for it in &mut facts.communicators {
        line.clone_into(&mut it.name);
        it.parent = Some(line.to_owned());
        it.network = Some(line.to_owned());
        it.paths_by_kind.insert(line.to_owned(), 1);
        it.paths_by_nodes.push(NodePair {
            from: "hyrule-1".to_owned(),
            to: line.to_owned(),
            ways: [(line.to_owned(), 1)].into(),
        });
        for edge in it.paths.iter_mut().flatten() {
            line.clone_into(&mut edge.way);
        }
    }
    doctor
}

#[test]
fn nothing_survives_in_any_field() {
    let mut doctor = full();
    redact(&mut doctor);
    let text = written(&doctor);
    for original in
        ["hyrule", "zelda", "203.0.113.77", "hf_abc", "job.py", "rank-0.log", "rank-1.log", "gpu-0"]
    {
        let place = text.find(original).map(|at| &text[at.saturating_sub(200)..(at + 100).min(text.len())]);
        assert_eq!(place, None, "{original} survived");
    }
    assert_eq!(doctor.inputs[0].file, "input-1.log");
    assert_eq!(doctor.inputs[1].file, "standard input");
    assert_eq!(doctor.inputs[2].problem.as_deref(), Some("input-2.log: cut"));
}

#[test]
fn the_words_of_plumb_stay() {
    let mut doctor = full();
    let before = doctor.clone();
    redact(&mut doctor);
    let (old, new) = (before.findings.last().unwrap(), doctor.findings.last().unwrap());
    assert_eq!(
        (&old.id, &old.severity, &old.confidence, &old.title),
        (&new.id, &new.severity, &new.confidence, &new.title)
    );
    assert_eq!(old.references, new.references);
    assert!(new.fix.ends_with("; write /tmp/nccl.%h.%p.log, look at 192.0.2.1"), "{}", new.fix);
    assert_eq!(new.entities[3].name, "0");
    assert_eq!(new.entities[4].name, "NCCL_DEBUG");
    assert_eq!(doctor.not_checked, before.not_checked);
    assert_eq!(doctor.schema, before.schema);
    assert_eq!(doctor.facts.ranks.last().unwrap().bus_id.as_deref(), Some("38000"));
    assert_eq!(doctor.facts.first_failure.unwrap().time.as_deref(), Some("12:34:56"));
}

#[test]
fn the_texts_of_rules_stay() {
    let log = "n-1:1:2 [0] init.cc:497 NCCL WARN Duplicate GPU detected : rank 2 and rank 0 both on CUDA device 1000\n";
    let mut doctor = read(&[("job.log", log)]);
    let before = doctor.clone();
    redact(&mut doctor);
    assert_eq!(doctor.findings[0].fix, before.findings[0].fix);
    assert_eq!(doctor.findings[0].message, before.findings[0].message);
    assert_eq!(doctor.findings[0].evidence[0].file, "input-1.log");
    // What was not checked tells what is needed, in plumb's words.
    let needs = |it: &Doctor| {
        it.checks
            .iter()
            .filter(|it| it.state == rules::State::NotChecked)
            .map(|it| it.text.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(needs(&doctor), needs(&before));
}

#[test]
fn the_same_input_gives_the_same_output() {
    let (mut a, mut b) = (full(), full());
    redact(&mut a);
    redact(&mut b);
    assert_eq!(written(&a), written(&b));
}

/// Pieces of everything that is looked for, put together at random.
#[test]
fn any_text_is_survived() {
    let pieces = [
        "password",
        "=",
        ":",
        "\"",
        "'",
        " ",
        "/",
        "//",
        "://",
        "~",
        "é",
        "日本",
        "\u{1b}[36m",
        "m",
        "::",
        "fe80",
        "10.0.0.1",
        ".",
        "-",
        "_",
        "@",
        "host ",
        "<",
        "0",
        ">",
        "[",
        "]",
        "tcp",
        "s3",
        "/home/alice",
        "node-1",
        ":1:2 [0] NCCL INFO ",
        "eyJabc",
        "hf_",
        "AKIA",
        "%",
        "\\",
        "Bearer ",
        "token",
        "--",
        "nodelist",
        "\u{a0}",
        "ffff",
        "0000:31:00.0",
        "x.log",
        ",",
        "(",
        ")",
        "ip-10-0-0-1",
    ];
    let mut state: u64 = 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap()
    };
    for _ in 0..40 {
        let mut line = || (0..next() % 14).map(|_| pieces[next() % pieces.len()]).collect::<String>();
        let lines: Vec<String> =
            (0..100).map(|_| line()).chain(["node-1:1:2 [0] NCCL INFO x".to_owned()]).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let after = redacted(&lines);
        for (line, after) in lines.iter().zip(&after) {
            assert!(!after.contains("alice"), "{line:?} -> {after:?}");
        }
        assert_eq!(after, redacted(&lines));
    }
}

fn case_files() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases");
    let mut files: Vec<PathBuf> = fs::read_dir(root)
        .unwrap()
        .filter_map(|it| fs::read_dir(it.unwrap().path()).ok())
        .flatten()
        .map(|it| it.unwrap().path())
        .filter(|it| it.is_file() && it.file_name().is_some_and(|it| it != "README.md"))
        .collect();
    files.sort();
    files
}

/// Every recorded case, whole.
#[test]
fn nothing_survives_in_the_recorded_cases() {
    let files = case_files();
    assert!(files.len() > 50, "{} files", files.len());
    for file in files {
        let (name, bytes) = (file.display().to_string(), fs::read(&file).unwrap());
        let log = rules::Log::new(read_texts([(name.as_str(), bytes.as_slice())]));
        let mut doctor = Doctor::new(&log, &rules::diagnose(&log), Options { matrix: true });
        let (before, hosts) = (written(&doctor), doctor.facts.job.hosts.clone());
        redact(&mut doctor);
        let after = written(&doctor);
        assert!(!after.contains(env!("CARGO_MANIFEST_DIR")) && !after.contains("cases/"), "{name}");
        for host in hosts {
            assert!(!after.contains(&host), "{host} survives in {name}");
        }
        let numbers = before
            .split(|it: char| !it.is_ascii_digit() && it != '.')
            .filter_map(|it| it.parse::<Ipv4Addr>().ok());
        for address in numbers.filter(|it| !it.is_loopback() && !it.is_unspecified()) {
            assert!(!after.contains(&address.to_string()), "{address} survives in {name}");
        }
        for home in ["/tmp/job", "/opt/torch"] {
            assert!(!after.contains(home), "{home} survives in {name}");
        }
    }
}
