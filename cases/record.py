#!/usr/bin/env python3
"""Make the recordings of this folder again: real NCCL jobs on one GPU.

    python3 record.py all OUT            every recording, a folder each below OUT
    python3 record.py OUT NAME...        some of them
    python3 record.py names              what there is

Needs Linux, root, one NVIDIA GPU and a PyTorch with NCCL (trainer-log needs
transformers and accelerate too; under-mpirun needs `mpirun`: put it on PATH, or
point MPIRUN and MPIRUN4 at an Open MPI 5 and an Open MPI 4; healthy-2.28.3 and
mismatched-versions need a second NCCL: point OTHER_NCCL at its libnccl.so.2).

How one GPU becomes a cluster. NCCL refuses two ranks on the same GPU of the same
host, and it knows a host by its name and boot id. So every rank gets a host of its
own: a UTS namespace (the name node-0, node-1, ...) and a network namespace (eth0,
10.77.0.11 and on, all on one bridge). NCCL then sees as many nodes as ranks, and
everything between them goes through NET/Socket. Where namespaces cannot be made,
and in the recordings that say so, the ranks share one host and each has its own
NCCL_HOSTID, which NCCL takes instead of the host's name.

All ranks share the one GPU: what is in the logs is real, how fast it went means
nothing.

The program that each rank runs is this same file, copied as train.py:

    python3 train.py train --steps 5
"""

import argparse
import ctypes
import dataclasses
import datetime
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

JOB = "/tmp/job"


# The program of one rank ---------------------------------------------------------


def place():
    """Rank and world size, from torchrun's variables or Open MPI's."""
    env = os.environ
    rank = int(env.get("RANK", env.get("OMPI_COMM_WORLD_RANK", 0)))
    world = int(env.get("WORLD_SIZE", env.get("OMPI_COMM_WORLD_SIZE", 1)))
    env["RANK"], env["WORLD_SIZE"] = str(rank), str(world)
    return rank, world


def at(text):
    """'2:5' as (2, 5): rank 2, at step 5."""
    rank, step = text.split(":")
    return int(rank), int(step)


def train(a):
    rank, world = place()
    if a.own_host_id:
        os.environ["NCCL_HOSTID"] = f"node-{rank}"
    import torch
    import torch.distributed as dist

    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) if a.device_by_rank else 0)
    torch.cuda.set_device(device)
    if a.hold_port and rank == 0:
        taken = socket.create_server(("", int(os.environ["MASTER_PORT"])))
    dist.init_process_group(
        "nccl",
        timeout=datetime.timedelta(seconds=a.timeout),
        device_id=device if a.eager else None,
    )
    if a.absent == rank:
        time.sleep(600)
    if a.files:
        few = len(os.listdir("/proc/self/fd")) + a.files
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, few))
    if a.fill:
        torch.zeros(1, device=device)
        time.sleep(4)
        if rank == 0:
            filled = torch.empty(torch.cuda.mem_get_info()[0] - (24 << 20),
                                 dtype=torch.uint8, device=device)
        time.sleep(2)
    here = lambda what, step: what == (rank, step)
    sizes = [256, 65536, 1 << 20]
    for step in range(1, a.steps + 1):
        n = sizes[step % len(sizes)]
        if here(a.die, step):
            os.kill(os.getpid(), signal.SIGKILL)
        if here(a.fail, step):
            raise ValueError(f"loss is nan at step {step}")
        if here(a.skip, step):
            time.sleep(600)
        if here(a.slow, step):
            print(f"rank {rank}: tokenizing the next shard", flush=True)
            time.sleep(40)
        if here(a.bigger, step):
            n *= a.times
        x = torch.full((n,), float(rank + 1), device=device)
        if here(a.other, step):
            dist.all_gather([torch.empty_like(x) for _ in range(world)], x)
        else:
            dist.all_reduce(x)
        torch.cuda.synchronize()
        if x[0].item() != world * (world + 1) / 2:
            raise ValueError(f"rank {rank}: wrong sum at step {step}")
        if rank == 0:
            print(f"step {step}/{a.steps}: all_reduce of {4 * n} bytes", flush=True)
        time.sleep(a.pause)
    if a.groups:
        groups(dist, torch, rank, device)
    if a.every:
        every(dist, torch, rank, world, device)
    print(f"rank {rank}: done", flush=True)
    dist.destroy_process_group()


def every(dist, torch, rank, world, device):
    """Each kind of collective once, and a send and a receive."""
    x = torch.ones(4096 * world, device=device)
    part = torch.ones(4096, device=device)
    dist.broadcast(x, 1)
    dist.reduce(x, 2)
    dist.all_gather_into_tensor(x, part)
    dist.reduce_scatter_tensor(part, x)
    dist.all_to_all_single(torch.empty_like(x), x)
    dist.gather(part, [torch.empty_like(part) for _ in range(world)] if rank == 0 else None)
    dist.scatter(part, [part.clone() for _ in range(world)] if rank == 0 else None)
    if rank % 2 == 0:
        dist.send(part, rank + 1)
    else:
        dist.recv(part, rank - 1)
    dist.barrier()
    torch.cuda.synchronize()


def groups(dist, torch, rank, device):
    """A 2x2 mesh of data and tensor parallel groups, then one pair more."""
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("dp", "tp"))
    for dim in ("dp", "tp"):
        x = torch.ones(1024, device=device)
        dist.all_reduce(x, group=mesh.get_group(dim))
        torch.cuda.synchronize()
        if rank == 0:
            print(f"{dim}: all_reduce over {int(x[0].item())} ranks", flush=True)
    pairs = dist.split_group(split_ranks=[[0, 3], [1, 2]])
    x = torch.ones(1024, device=device)
    dist.all_reduce(x, group=pairs)
    torch.cuda.synchronize()
    if rank == 0:
        print(f"pair: all_reduce over {int(x[0].item())} ranks", flush=True)


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


def late(a):
    """NCCL without torch's process group: one rank comes late to the communicator,
    another one to its split."""
    rank, world = place()
    import torch
    from torch.distributed import TCPStore

    nccl = ctypes.CDLL("libnccl.so.2")
    nccl.ncclGetErrorString.restype = ctypes.c_char_p
    nccl.ncclCommInitRank.argtypes = [
        ctypes.c_void_p, ctypes.c_int, UniqueId, ctypes.c_int]
    nccl.ncclAllReduce.argtypes = [
        ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int,
        ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    nccl.ncclCommSplit.argtypes = [
        ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    nccl.ncclCommDestroy.argtypes = [ctypes.c_void_p]

    def ok(code):
        if code != 0:
            raise RuntimeError(nccl.ncclGetErrorString(code).decode())

    def all_reduce(comm):
        x = torch.ones(65536, device="cuda")
        stream = torch.cuda.current_stream().cuda_stream
        float32, add = 7, 0
        ok(nccl.ncclAllReduce(
            x.data_ptr(), x.data_ptr(), x.numel(), float32, add, comm, stream))
        torch.cuda.synchronize()
        return int(x[0].item())

    torch.cuda.set_device(0)
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = TCPStore(host, port, world, is_master=rank == 0)
    uid = UniqueId()
    if rank == 0:
        ok(nccl.ncclGetUniqueId(ctypes.byref(uid)))
        store.set("id", bytes(uid))
    else:
        uid = UniqueId.from_buffer_copy(store.get("id"))
    if rank == 3:
        time.sleep(12)
    comm, half = ctypes.c_void_p(), ctypes.c_void_p()
    ok(nccl.ncclCommInitRank(ctypes.byref(comm), world, uid, rank))
    print(f"rank {rank}: sum over {all_reduce(comm)} ranks", flush=True)
    if rank == 1:
        time.sleep(8)
    ok(nccl.ncclCommSplit(comm, rank % 2, rank, ctypes.byref(half), None))
    print(f"rank {rank}: sum over {all_reduce(half)} ranks", flush=True)
    ok(nccl.ncclCommDestroy(half))
    ok(nccl.ncclCommDestroy(comm))
    store.add("done", 1)
    while rank == 0 and store.add("done", 0) < world:
        time.sleep(0.1)


def trainer(a):
    """A tiny Llama with random weights under the Hugging Face Trainer."""
    rank, world = place()
    import torch
    import transformers
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

    transformers.logging.set_verbosity_info()
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=128))
    rows = torch.randint(0, 1000, (64, 64))
    data = [{"input_ids": row, "labels": row} for row in rows]
    Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=f"{JOB}/out", max_steps=5, logging_steps=1,
            per_device_train_batch_size=2, gradient_accumulation_steps=2,
            learning_rate=2e-5, bf16=True, save_strategy="no", report_to="none"),
        train_dataset=data,
    ).train()


# Hosts ----------------------------------------------------------------------------


IP = os.environ.get("IP_COMMAND", "ip")


def ip(*words, check=True):
    return subprocess.run([IP, *words], check=check, capture_output=True, text=True)


def can_make_hosts():
    try:
        ip("link", "add", "plumb-try", "type", "veth", "peer", "name", "plumb-yrt")
        ip("link", "del", "plumb-try")
        ip("netns", "add", "plumb-try")
        ip("netns", "exec", "plumb-try", "true")
        ip("netns", "del", "plumb-try")
        return True
    except (OSError, subprocess.CalledProcessError) as e:
        print("no namespaces:", e, getattr(e, "stderr", ""), file=sys.stderr)
        return False


class Net:
    """One recording's own network: a bridge, and a namespace for each host."""

    def __init__(self, number, hosts, extra):
        self.number, self.hosts = number, hosts
        self.bridge = f"plumb{number}"
        ip("link", "add", self.bridge, "type", "bridge")
        ip("link", "set", self.bridge, "up")
        names = "127.0.0.1 localhost\n::1 localhost\n"
        for i, host in enumerate(hosts):
            names += f"10.77.0.{11 + i} {host}\n"
        for i, host in enumerate(hosts):
            ns = self.ns(i)
            os.makedirs(f"/etc/netns/{ns}", exist_ok=True)
            with open(f"/etc/netns/{ns}/hosts", "w") as f:
                f.write(names)
            ip("netns", "add", ns)
            ip("-n", ns, "link", "set", "lo", "up")
            for words in extra(i, len(hosts)):
                if words[0] == "sysctl":
                    ip("netns", "exec", ns, "sh", "-c", f"echo {words[2]} > /proc/sys/{words[1]}")
                else:
                    ip("-n", ns, *words)
            ip("link", "add", f"p{number}r{i}", "type", "veth", "peer", "name", "eth0",
               "netns", ns)
            ip("link", "set", f"p{number}r{i}", "master", self.bridge, "up")
            ip("-n", ns, "addr", "add", f"10.77.0.{11 + i}/24", "dev", "eth0")
            ip("-n", ns, "link", "set", "eth0", "up")

    def ns(self, i):
        return f"plumb{self.number}-{i}"

    def enter(self, i):
        return [IP, "netns", "exec", self.ns(i),
                sys.executable, os.path.join(JOB, "train.py"), "host", self.hosts[i]]

    def cut(self, i):
        ip("link", "set", f"p{self.number}r{i}", "down")

    def remove(self):
        for i in range(len(self.hosts)):
            ip("netns", "del", self.ns(i), check=False)
            shutil.rmtree(f"/etc/netns/{self.ns(i)}", ignore_errors=True)
        ip("link", "del", self.bridge, check=False)


def become(a):
    """Takes a host name of its own and runs the command."""
    new_uts = 0x04000000
    if ctypes.CDLL(None, use_errno=True).unshare(new_uts) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    socket.sethostname(a.name)
    os.execvp(a.command[0], a.command)


def ask(a):
    """Asks NCCL's RAS service on this host."""
    with socket.create_connection(("localhost", 28028), timeout=60) as s:
        for line in a.line:
            s.sendall(line.encode() + b"\n")
        while True:
            data = s.recv(65536)
            if not data:
                return
            sys.stdout.write(data.decode())


# Recordings -----------------------------------------------------------------------


def nothing(i, n):
    return []


def second(address):
    """eth1, up but plugged into nothing."""
    return [
        ("link", "add", "eth1", "type", "veth", "peer", "name", "plug"),
        ("addr", "add", address, "dev", "eth1"),
        ("link", "set", "eth1", "up"), ("link", "set", "plug", "up")]


def apart(i, n):
    """eth1: every host on a subnet of its own, no way to the others."""
    return second(f"10.88.{i}.1/24")


def unplugged(i, n):
    """eth1: one subnet, but nobody answers there."""
    return second(f"10.88.0.{11 + i}/24")


def silent(i, n):
    """As unplugged, but what is sent is lost without a word, as in a firewall."""
    return [*unplugged(i, n), ("sysctl", "net/ipv4/tcp_syn_retries", "1"),
            *(("neigh", "add", f"10.88.0.{11 + k}", "lladdr", "02:00:00:00:00:01", "dev", "eth1")
              for k in range(n) if k != i)]


def bridge(i, n):
    """A container bridge that has the same address on every host."""
    return [
        ("link", "add", "br-5c1d0c77", "type", "veth", "peer", "name", "veth9a3f21b"),
        ("addr", "add", "172.18.0.1/16", "dev", "br-5c1d0c77"),
        ("link", "set", "br-5c1d0c77", "up"), ("link", "set", "veth9a3f21b", "up")]


@dataclasses.dataclass
class Recording:
    name: str
    ranks: int = 2
    job: tuple = ("train", "--steps", "5")
    env: dict = dataclasses.field(default_factory=dict)
    rank_env: dict = dataclasses.field(default_factory=dict)
    start: range = None             # which ranks are started; all
    one_host: bool = False          # all ranks on one host, with NCCL_HOSTID each
    host_id: bool = True
    files: bool = False             # NCCL's own files, and stdout apart
    launcher: tuple = None          # torchrun or mpirun starts the ranks
    extra: object = nothing         # more interfaces on each host
    limit: int = 75                 # seconds; then it is killed
    during: object = None           # what else happens
    names: tuple = None             # the hosts' names; node-0, node-1, ...
    alone: bool = False             # nothing else meanwhile


SUBSYSTEMS = "INIT,BOOTSTRAP,ENV,GRAPH,TUNING,NET,COLL"
TORCHRUN = ("{python}", "-m", "torch.distributed.run", "--nproc-per-node", "4")
MPI = ("--allow-run-as-root", "--oversubscribe", "--tag-output")


def ras(run):
    """The status of the whole job from one rank; then with rank 2 stopped."""
    run.wait_for("step 5/")
    run.ask("ras.txt", "verbose status")
    run.ask("ras.json", "set format json", "verbose status")
    run.ranks[2].send_signal(signal.SIGSTOP)
    time.sleep(4)
    run.ask("ras-stopped-4s.txt", "verbose status")
    time.sleep(20)
    run.ask("ras-stopped-25s.txt", "verbose status")
    run.ranks[2].send_signal(signal.SIGCONT)


def ras_killed(run):
    """The status after rank 2 was killed."""
    run.wait_for("step 5/")
    run.ranks[2].send_signal(signal.SIGKILL)
    time.sleep(3)
    run.ask("ras-killed-3s.txt", "verbose status")
    time.sleep(40)
    run.ask("ras-killed-43s.txt", "verbose status")
    run.ask("ras-killed-43s.json", "set format json", "verbose status")


def cut(run):
    run.wait_for("step 3/")
    run.net.cut(2)


def job(*words):
    return ("train", *words)


DETAIL = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL", "GLOO_SOCKET_IFNAME": "eth0"}
FEW_RETRIES = {"NCCL_SOCKET_IFNAME": "eth1", "NCCL_SOCKET_RETRY_CNT": "4"}
OTHER = {"LD_PRELOAD": os.environ.get("OTHER_NCCL")}
MPIRUN = ("{mpirun}", *MPI)
MPIRUN4 = ("{mpirun4}", *MPI)
ONE_HOST_FAILURE = job("--steps", "8", "--fail", "2:4", "--timeout", "30", "--own-host-id")
ONE_HOST = job("--steps", "5", "--own-host-id")

RECORDINGS = [
    # those that take long come first
    Recording("docker-bridge-interface", 4, env={"NCCL_SOCKET_IFNAME": None}, extra=bridge,
              limit=95),
    Recording("loopback-between-nodes", 2, env={"NCCL_SOCKET_IFNAME": "lo"}, limit=95),
    Recording("ras-status", 4, job("--steps", "20", "--pause", "0.5"), during=ras, limit=110),
    Recording("ras-rank-killed", 4, job("--steps", "20", "--pause", "0.5"), during=ras_killed,
              env={"NCCL_DEBUG_SUBSYS": "INIT,ENV,RAS"}, limit=110),
    Recording("network-cut", 4, job("--steps", "30", "--pause", "1", "--timeout", "15"),
              during=cut, limit=125),
    Recording("rank-never-calls", 4, job("--steps", "6", "--skip", "3:4", "--timeout", "15"),
              limit=125),
    Recording("rank-calls-late", 4, job("--steps", "6", "--slow", "0:4", "--timeout", "15"),
              limit=125),
    Recording("mismatched-collectives", 4,
              job("--steps", "8", "--other", "1:6", "--timeout", "15"), limit=125),
    Recording("mismatched-collectives-early", 4,
              job("--steps", "6", "--other", "1:3", "--timeout", "15"), limit=125),
    Recording("mismatched-sizes", 4,
              job("--steps", "6", "--bigger", "1:5", "--times", "16", "--timeout", "15"),
              limit=125),
    Recording("rank-dies", 4,
              job("--steps", "20", "--pause", "0.2", "--die", "2:6", "--timeout", "30"),
              limit=100),
    Recording("mismatched-buffers", 2, job("--timeout", "15"), env={"NCCL_PROTO": "Simple"},
              rank_env={1: {"NCCL_BUFFSIZE": "1048576"}}, limit=110),
    Recording("rank-hangs-init", 4, job("--absent", "3", "--timeout", "15"), limit=45),
    Recording("connection-times-out", 2, env=FEW_RETRIES, extra=silent, limit=60),
    Recording("no-route-to-host", 2, env=FEW_RETRIES, extra=unplugged, limit=60),
    Recording("interface-unreachable", 2, env={"NCCL_SOCKET_IFNAME": "eth1"}, extra=apart,
              limit=40),
    Recording("rank-never-comes", 4, job("--timeout", "20"), start=range(3), limit=60),
    Recording("master-name-unknown", 2, job("--timeout", "20"),
              env={"MASTER_ADDR": "llama-node-0-0.llama"}, limit=60),
    Recording("master-port-in-use", 2, job("--timeout", "20", "--hold-port"), limit=60),
    Recording("mismatched-sizes-unnoticed", 4,
              job("--steps", "6", "--bigger", "1:5", "--times", "2", "--timeout", "15")),
    Recording("mismatched-collectives-detail", 4,
              job("--steps", "6", "--other", "1:3", "--timeout", "15"), env=DETAIL),
    Recording("mismatched-sizes-detail", 4,
              job("--steps", "6", "--bigger", "1:5", "--timeout", "15"), env=DETAIL),
    Recording("late-rank", 4, ("late",)),
    Recording("under-torchrun-failure", 4, ONE_HOST_FAILURE, one_host=True, launcher=TORCHRUN),
    Recording("under-torchrun-killed", 4,
              job("--steps", "8", "--die", "2:4", "--timeout", "30", "--own-host-id"),
              one_host=True, launcher=TORCHRUN),
    Recording("under-mpirun-failure", 4, ONE_HOST_FAILURE, one_host=True,
              launcher=(*MPIRUN, "-np", "4", "{python}")),
    Recording("trainer-log", 2, ("trainer",)),
    Recording("healthy-1-rank", 1),
    Recording("healthy-2-nodes", 2, job("--steps", "9"), one_host=True),
    Recording("healthy-2.28.3", 2, env=OTHER),
    Recording("healthy-4-nodes", 4, files=True,
              env={"NCCL_DEBUG_FILE": f"{JOB}/healthy-4-nodes/rank.%h.%p.log"}),
    Recording("healthy-8-nodes", 8),
    Recording("split-communicators", 4, job("--steps", "3", "--eager", "--groups")),
    Recording("graph-tuning", 4, env={"NCCL_DEBUG_SUBSYS": SUBSYSTEMS}),
    Recording("every-collective", 4, job("--steps", "1", "--every"),
              env={"NCCL_DEBUG_SUBSYS": "INIT,COLL,P2P,TUNING"}),
    Recording("trace-calls", 2, job("--steps", "3"),
              env={"NCCL_DEBUG": "TRACE", "NCCL_DEBUG_SUBSYS": "INIT,CALL"}),
    Recording("duplicate-gpu", 2, one_host=True, host_id=False),
    Recording("hostname-collision", 2, names=("node-0", "node-0"),
              env={"MASTER_ADDR": "10.77.0.11"}),
    Recording("more-ranks-than-gpus", 2, job("--device-by-rank"), one_host=True,
              launcher=(*TORCHRUN[:-1], "2")),
    Recording("missing-interface", 2, env={"NCCL_SOCKET_IFNAME": "eth9"}),
    Recording("missing-interface-one-rank", 2, rank_env={1: {"NCCL_SOCKET_IFNAME": "ens5"}},
              limit=30),
    Recording("plugin-missing", 2, env={"NCCL_NET_PLUGIN": "libnccl-net-nothere.so"}),
    Recording("plugin-missing-net-forced", 2,
              env={"NCCL_NET_PLUGIN": "libnccl-net-nothere.so", "NCCL_NET": "AWS Libfabric"}),
    Recording("mismatched-versions", 2, rank_env={1: OTHER}, limit=30),
    Recording("topo-file-missing", 2, env={"NCCL_TOPO_FILE": "/opt/topo/p4d-24xl-topo.xml"}),
    Recording("topo-file-malformed", 2, env={"NCCL_TOPO_FILE": f"{JOB}/topo.xml"}, limit=30),
    Recording("too-many-open-files", 2, job("--files", "6"), limit=30),
    Recording("timestamps-on", 2, env={"NCCL_DEBUG_TIMESTAMP_LEVELS": "ALL"},
              rank_env={1: {"NCCL_DEBUG_TIMESTAMP_FORMAT": "[%F %T.%3f] "}}),
    Recording("under-torchrun", 4, ONE_HOST, one_host=True, launcher=TORCHRUN),
    Recording("under-mpirun", 4, ONE_HOST, one_host=True,
              launcher=(*MPIRUN, "-np", "4", "{python}")),
    Recording("under-mpirun-timestamps", 2, ONE_HOST, one_host=True,
              launcher=(*MPIRUN, "--timestamp-output", "-np", "2", "{python}")),
    Recording("under-mpirun4", 2, ONE_HOST, one_host=True,
              launcher=(*MPIRUN4, "-np", "2", "{python}")),
    Recording("under-mpirun4-timestamps", 2, ONE_HOST, one_host=True,
              launcher=(*MPIRUN4, "--timestamp-output", "-np", "2", "{python}")),
    Recording("env-rich", 2, env={
        "NCCL_PROTO": "Simple", "NCCL_ALGO": "Ring", "NCCL_BUFFSIZE": "8388608",
        "NCCL_IB_DISABLE": "1", "NCCL_P2P_LEVEL": "5", "NCCL_P2P_DIRECT_READ": "0",
        "NCCL_NTHREADS": "banana", "NCCL_LL_BUFFSIZE": "99999999999999999999",
        "NCCL_NSOCKS_PERTHREAD": "2", "NCCL_SOCKET_NTHREADS": "2", "NCCL_MIN_NCHANNELS": "2",
        "NCCL_CROSS_NIC": "0", "NCCL_NET_GDR_LEVEL": "PHB", "NCCL_CUMEM_ENABLE": "0",
        "NCCL_IB_TIMEOUT": "22"}),
    Recording("warn-only", 2, env={"NCCL_DEBUG": "WARN", "NCCL_SOCKET_IFNAME": "eth9"}),
    Recording("version-only", 2, env={"NCCL_DEBUG": "VERSION"}),
    Recording("gpu-memory-full", 2, job("--fill"), limit=40, alone=True),
    Recording("healthy-40-nodes", 40, job("--steps", "2"), limit=90, alone=True),
]


class Run:
    """One recording being made."""

    def __init__(self, number, recording, out, hosts):
        self.number, self.r, self.hosts = number, recording, hosts
        self.net, self.ranks = None, []
        self.folder = os.path.join(JOB, recording.name)
        self.out = os.path.join(out, recording.name)
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)

    def wait_for(self, text, limit=60):
        end = time.time() + limit
        while time.time() < end:
            with open(os.path.join(self.folder, "job.log"), errors="replace") as f:
                if text in f.read():
                    return
            time.sleep(0.1)

    def ask(self, name, *lines):
        with open(os.path.join(self.folder, name), "w") as f:
            subprocess.run([*self.enter(0), sys.executable, f"{JOB}/train.py", "ask", *lines],
                           stdout=f, stderr=subprocess.STDOUT, timeout=60)

    def enter(self, i):
        return self.net.enter(i) if self.net else []

    def environment(self, rank):
        keep = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "USER")
        env = {k: v for k, v in os.environ.items() if k in keep}
        env.update(NCCL_DEBUG="INFO", PYTHONUNBUFFERED="1", MASTER_PORT="29500",
                   MASTER_ADDR="127.0.0.1", NCCL_SOCKET_IFNAME="lo", HF_HUB_OFFLINE="1",
                   OMPI_MCA_plm_rsh_agent="sh")
        if self.net and not self.r.one_host:
            env.update(MASTER_ADDR="node-0", NCCL_SOCKET_IFNAME="eth0")
        elif not self.net:
            env["MASTER_PORT"] = str(29500 + self.number)
        if not self.r.launcher:
            env.update(RANK=str(rank), WORLD_SIZE=str(self.r.ranks), LOCAL_RANK="0")
            if self.r.host_id and (self.r.one_host or not self.net):
                env["NCCL_HOSTID"] = f"node-{rank}"
        for extra in (self.r.env, self.r.rank_env.get(rank, {})):
            for k, v in extra.items():
                env.pop(k, None)
                if v is not None:
                    env[k] = v
        return env

    def command(self):
        me = f"{JOB}/train.py"
        if not self.r.launcher:
            return [sys.executable, me, *self.r.job]
        tools = {"{python}": sys.executable,
                 "{mpirun}": os.environ.get("MPIRUN", "mpirun"),
                 "{mpirun4}": os.environ.get("MPIRUN4", "mpirun")}
        return [*(tools.get(w, w) for w in self.r.launcher), me, *self.r.job]

    def start(self, i, host, log):
        env = self.environment(i)
        return subprocess.Popen([*self.enter(host), *self.command()], env=env, cwd=JOB,
                                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                start_new_session=True)

    def record(self):
        r = self.r
        if self.hosts:
            names = ["gpu-0"] if r.one_host else [f"node-{i}" for i in range(r.ranks)]
            names = r.names or names
            self.net = Net(self.number, names, r.extra)
        began = time.time()
        try:
            merged = open(os.path.join(self.folder, "job.log"), "ab")
            if r.launcher:
                self.ranks.append(self.start(0, 0, merged))
            else:
                for i in r.start or range(r.ranks):
                    log = merged
                    if r.files:
                        log = open(os.path.join(self.folder, f"node-{i}.out"), "ab")
                    self.ranks.append(self.start(i, 0 if r.one_host else i, log))
            if r.during:
                other = threading.Thread(target=r.during, args=(self,), daemon=True)
                other.start()
            killed = False
            for p in self.ranks:
                try:
                    p.wait(max(0.1, began + r.limit - time.time()))
                except subprocess.TimeoutExpired:
                    killed = True
                    break
            for p in self.ranks:
                try:
                    os.killpg(p.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            codes = [p.wait() for p in self.ranks]
        finally:
            if self.net:
                self.net.remove()
        if r.files:
            os.remove(os.path.join(self.folder, "job.log"))
        shutil.rmtree(self.out, ignore_errors=True)
        shutil.copytree(self.folder, self.out)
        return {"name": r.name, "seconds": round(time.time() - began, 1), "codes": codes,
                "killed": killed}


def record(names, out):
    os.makedirs(JOB, exist_ok=True)
    shutil.copy(os.path.abspath(__file__), os.path.join(JOB, "train.py"))
    with open(os.path.join(JOB, "topo.xml"), "w") as f:
        f.write('<system version="1">\n  <cpu numaid="0" affinity="0000ffff" arch="x86_64">\n'
                '    <pci busid="0000:00:06.0" class=0x030200\n')
    os.makedirs(out, exist_ok=True)
    hosts = can_make_hosts()
    chosen = [r for r in RECORDINGS if not names or r.name in names]
    room = int(os.environ.get("AT_ONCE", 24))
    busy, change, results = [], threading.Condition(), []

    def one(number, r):
        try:
            result = Run(number, r, out, hosts).record()
        except Exception as e:
            result = {"name": r.name, "error": repr(e)}
        with change:
            busy.remove(r)
            results.append(result)
            change.notify()
        print(json.dumps(result), flush=True)

    for number, r in enumerate(chosen, 1):
        alone = r.alone or bool(r.during) and not hosts
        with change:
            while busy and (alone or busy[-1].alone or sum(b.ranks for b in busy) + r.ranks > room):
                change.wait()
            busy.append(r)
        threading.Thread(target=one, args=(number, r)).start()
    with change:
        while busy:
            change.wait()
    with open(os.path.join(out, "results.json"), "w") as f:
        json.dump(sorted(results, key=lambda r: r["name"]), f, indent=1)


def main():
    if len(sys.argv) > 1 and sys.argv[1] not in ("train", "late", "trainer", "host", "ask"):
        if sys.argv[1] == "names":
            print("\n".join(r.name for r in RECORDINGS))
        elif sys.argv[1] == "all":
            record([], sys.argv[2])
        else:
            record(sys.argv[2:], sys.argv[1])
        return
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = p.add_subparsers(required=True)
    t = sub.add_parser("train", help="all_reduce, step by step")
    t.set_defaults(do=train)
    t.add_argument("--steps", type=int, default=5)
    t.add_argument("--pause", type=float, default=0.0, help="seconds after each step")
    t.add_argument("--timeout", type=int, default=600)
    t.add_argument("--eager", action="store_true", help="make the communicator at once")
    t.add_argument("--groups", action="store_true", help="then split it")
    t.add_argument("--own-host-id", action="store_true", help="NCCL_HOSTID by rank")
    t.add_argument("--absent", type=int, help="this rank makes no communicator")
    t.add_argument("--times", type=int, default=2, help="how much --bigger is bigger")
    t.add_argument("--every", action="store_true", help="then every kind of collective")
    t.add_argument("--hold-port", action="store_true", help="rank 0 takes MASTER_PORT itself")
    t.add_argument("--device-by-rank", action="store_true", help="cuda:LOCAL_RANK, not cuda:0")
    t.add_argument("--files", type=int, help="so many more open files and no more")
    t.add_argument("--fill", action="store_true", help="rank 0 takes the GPU's memory")
    for name in ("die", "fail", "skip", "slow", "bigger", "other"):
        t.add_argument(f"--{name}", type=at, metavar="RANK:STEP")
    sub.add_parser("late", help="ranks that come late").set_defaults(do=late)
    sub.add_parser("trainer", help="Hugging Face Trainer").set_defaults(do=trainer)
    h = sub.add_parser("host", help="run a command under another host name")
    h.set_defaults(do=become)
    h.add_argument("name")
    h.add_argument("command", nargs=argparse.REMAINDER)
    q = sub.add_parser("ask", help="ask NCCL's RAS service")
    q.set_defaults(do=ask)
    q.add_argument("line", nargs="+")
    a = p.parse_args()
    a.do(a)


if __name__ == "__main__":
    main()
