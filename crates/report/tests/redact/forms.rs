//! What is hidden by its form: addresses, paths, users, secrets.

use report::{Environment, redact};

use super::{check, evidence, kept, read, redacted};

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
        ranks: Vec::new(),
        hosts: Vec::new(),
        evidence: evidence("pod.yaml", "    value: \"correct-horse\""),
        having: Vec::new(),
        without: Vec::new(),
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
