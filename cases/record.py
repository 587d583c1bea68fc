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
    try:
        steps(a)
    finally:
        if a.dump_at_end:
            dump(place()[0], a.dump_at_end, "json")
            dump(place()[0], a.dump_at_end, "pickle")
    if not a.no_destroy:
        import torch.distributed as dist

        dist.destroy_process_group()


def steps(a):
    rank, world = place()
    if a.own_host_id:
        os.environ["NCCL_HOSTID"] = f"node-{rank}"
    import torch
    import torch.distributed as dist

    if a.no_module:
        import apex.optimizers  # noqa: F401
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
    if a.dump:
        dump_later(rank, a.dump)
    halves = [dist.new_group([0, 1]), dist.new_group([2, 3])] if a.halves else []
    here = lambda what, step: what == (rank, step)
    sizes = [256, 65536, 1 << 20]
    steps = a.fewer[1] if a.fewer and a.fewer[0] == rank else a.steps
    for step in range(1, steps + 1):
        n = sizes[step % len(sizes)]
        if a.unused and step == 2:
            unused(dist, torch, rank, device)
        if a.trouble and here(at(a.trouble[1]), step):
            TROUBLES[a.trouble[0]](dist, torch, rank, device)
        if halves:
            in_halves(dist, torch, rank, device, halves, here(a.swap, step), here(a.skip, step))
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
        if here(a.double, step):
            x = x.double()
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


def in_halves(dist, torch, rank, device, halves, swapped, skipped):
    """One all_reduce in each half of the ranks, then one over all; or the other way round."""
    if skipped:
        time.sleep(600)
    small = torch.ones(2048, device=device)
    whole = torch.ones(4096, device=device)
    calls = [lambda: dist.all_reduce(small, group=halves[rank // 2]), lambda: dist.all_reduce(whole)]
    for call in reversed(calls) if swapped else calls:
        call()
        torch.cuda.synchronize()


def dump(rank, path, what):
    from torch._C import _distributed_c10d as c10d
    end, dump = {"json": (".json", c10d._dump_nccl_trace_json), "pickle": ("", c10d._dump_nccl_trace)}[what]
    data = dump()
    with open(f"{path}{rank}{end}", "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())


def dump_later(rank, text):
    """After some seconds, what PyTorch's flight recorder has, as JSON."""
    path, seconds = text.split(":")

    def write():
        dump(rank, path, "json")

    timer = threading.Timer(float(seconds), write)
    timer.daemon = True
    timer.start()


# What a rank can do to itself: each is called in the middle of a job.


def device_assert(dist, torch, rank, device):
    table = torch.randn(1000, 64, device=device)
    tokens = torch.tensor([3, 17, 1000], device=device)
    rows = torch.nn.functional.embedding(tokens, table)
    print("loss", rows.sum().item())


def illegal_access(dist, torch, rank, device):
    few = torch.ones(1024, device=device)

    class Wrong:
        __cuda_array_interface__ = {"shape": (1 << 36,), "typestr": "<f4", "version": 3,
                                    "data": (few.data_ptr(), False), "strides": None}

    torch.as_tensor(Wrong(), device=device).fill_(0.5)
    torch.cuda.synchronize()


def raise_error(dist, torch, rank, device):
    raise ValueError("Expected input batch_size (8) to match target batch_size (7).")


def exit_3(dist, torch, rank, device):
    print("config check failed, giving up", flush=True)
    sys.exit(3)


def quick_exit(dist, torch, rank, device):
    os._exit(1)


def segfault(dist, torch, rank, device):
    ctypes.string_at(16)


def end(number):
    return lambda dist, torch, rank, device: os.kill(os.getpid(), number)


def send(dist, torch, rank, device):
    """To the next rank, which does not receive."""
    dist.send(torch.ones(512, device=device), (rank + 1) % dist.get_world_size())
    torch.cuda.synchronize()


def unused(dist, torch, rank, device):
    """A model one of whose layers takes no part, under DistributedDataParallel."""
    layers = torch.nn.ModuleDict({"used": torch.nn.Linear(8, 8), "unused": torch.nn.Linear(8, 8)}).to(device)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = layers

        def forward(self, x):
            return self.layers["used"](x)

    model = torch.nn.parallel.DistributedDataParallel(Model(), device_ids=[0])
    for _ in range(2):
        model(torch.ones(4, 8, device=device)).sum().backward()


def stop(dist, torch, rank, device):
    os.kill(os.getpid(), signal.SIGSTOP)


def cpu_tensor(dist, torch, rank, device):
    dist.all_reduce(torch.ones(256))


def nan(dist, torch, rank, device):
    dist.all_reduce(torch.full((256,), float("nan"), device=device))
    torch.cuda.synchronize()


def no_memory(dist, torch, rank, device):
    torch.empty(200 << 30, dtype=torch.uint8, device=device)


def new_group(dist, torch):
    group = dist.new_group()
    dist.all_reduce(torch.ones(1024, device="cuda"), group=group)
    torch.cuda.synchronize()


def few_files(dist, torch, rank, device):
    few = len(os.listdir("/proc/self/fd")) + 4
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, few))
    new_group(dist, torch)


def few_threads(dist, torch, rank, device):
    """Limits of processes do not bind root, so the rank becomes a user of its own first."""
    now = len(os.listdir("/proc/self/task"))
    resource.setrlimit(resource.RLIMIT_NPROC, (now, now))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.setresgid(42000 + rank, 42000 + rank, 42000 + rank)
    libc.setresuid(42000 + rank, 42000 + rank, 42000 + rank)
    new_group(dist, torch)


def little_memory(dist, torch, rank, device):
    with open("/proc/self/statm") as f:
        now = int(f.read().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (now + (4 << 20), now + (4 << 20)))
    new_group(dist, torch)


def host_memory(dist, torch, rank, device):
    """A control group of its own with a limit, then more than that: the kernel ends the process."""
    top = f"/tmp/cgroup-{os.getpid()}"
    group = f"{top}/plumb-{os.getpid()}"
    os.makedirs(top)
    subprocess.run(["mount", "-t", "cgroup2", "none", top], check=True)
    with open(f"{top}/cgroup.subtree_control", "w") as f:
        f.write("+memory")
    os.makedirs(group)
    for name, value in (("memory.max", 1 << 30), ("memory.swap.max", 0), ("cgroup.procs", os.getpid())):
        with open(f"{group}/{name}", "w") as f:
            f.write(str(value))
    kept = []
    while True:
        kept.append(bytearray(b"x" * (64 << 20)))


def barrier(dist, torch, rank, device):
    """Every rank but the last comes to a monitored barrier; that one is still busy."""
    group = dist.new_group(backend="gloo")
    if rank == dist.get_world_size() - 1:
        time.sleep(60)
    dist.monitored_barrier(group, timeout=datetime.timedelta(seconds=10), wait_all_ranks=True)


def capture(dist, torch, rank, device):
    graph, x = torch.cuda.CUDAGraph(), torch.ones(256, device=device)
    with torch.cuda.graph(graph):
        dist.all_reduce(x)
        print("norm", x.norm().item())


def abort(dist, torch, rank, device):
    print(f"rank {rank}: giving up on this process group", flush=True)
    dist.distributed_c10d._abort_process_group()
    time.sleep(20)


def forked(dist, torch, rank, device):
    import torch.multiprocessing as mp
    child = mp.get_context("fork").Process(target=lambda: print(torch.ones(4, device=device)))
    child.start()
    child.join()
    if child.exitcode != 0:
        raise RuntimeError(f"augmentation worker failed with exit code {child.exitcode}")


class Rows:
    def __len__(self):
        return 64

    def __getitem__(self, i):
        import torch
        return torch.ones(1 << 20)


def loader(dist, torch, rank, device):
    from torch.utils.data import DataLoader
    for batch in DataLoader(Rows(), batch_size=8, num_workers=2):
        batch.to(device)


TROUBLES = {
    "device-assert": device_assert, "illegal-access": illegal_access, "raise": raise_error,
    "exit-3": exit_3, "quick-exit": quick_exit, "segfault": segfault, "kill": end(signal.SIGKILL),
    "terminate": end(signal.SIGTERM), "stop": stop, "cpu-tensor": cpu_tensor, "nan": nan,
    "no-memory": no_memory, "few-files": few_files, "few-threads": few_threads,
    "little-memory": little_memory, "host-memory": host_memory, "capture": capture,
    "send": send, "abort": abort, "forked": forked, "loader": loader,
}


def together(a):
    """The whole job comes to one call that goes wrong."""
    place()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "eth0")
    import torch
    import torch.distributed as dist

    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=30))
    new_group(dist, torch)
    barrier(dist, torch, dist.get_rank(), device)


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
    if a.misuse == "destroy-twice":
        ok(nccl.ncclCommDestroy(comm))
        ok(nccl.ncclCommDestroy(comm))
    elif a.misuse == "null-buffer":
        ok(nccl.ncclAllReduce(None, None, 256, 7, 0, comm, None))
    elif a.misuse == "bad-root":
        x = torch.ones(256, device="cuda").data_ptr()
        nccl.ncclBroadcast.argtypes = nccl.ncclAllReduce.argtypes
        ok(nccl.ncclBroadcast(x, x, 256, 7, world + 1, comm, None))
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
        vocab_size=1000, hidden_size=a.hidden, intermediate_size=2 * a.hidden,
        num_hidden_layers=a.layers, num_attention_heads=4, num_key_value_heads=4,
        max_position_embeddings=2 * a.tokens))
    rows = torch.randint(0, 1000, (64, a.tokens))
    data = [{"input_ids": row, "labels": row} for row in rows]
    run = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=a.out, max_steps=a.steps, logging_steps=a.logging_steps,
            per_device_train_batch_size=a.batch, gradient_accumulation_steps=2,
            learning_rate=2e-5, bf16=True, save_strategy="no", report_to="none",
            include_num_input_tokens_seen="all" if a.count_tokens else "no"),
        train_dataset=data,
    )
    result = run.train()
    if a.state:
        run.log_metrics("train", result.metrics)
        run.save_state()


def gpt(a):
    """A GPT on random tokens with DistributedDataParallel, printing what nanoGPT prints."""
    rank, world = place()
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(0)
    dist.init_process_group("nccl")
    torch.manual_seed(rank)
    layer = torch.nn.TransformerEncoderLayer(
        a.hidden, 12, 4 * a.hidden, dropout=0.0, batch_first=True, norm_first=True)
    model = torch.nn.ModuleDict({
        "embed": torch.nn.Embedding(50304, a.hidden),
        "blocks": torch.nn.TransformerEncoder(layer, a.layers, enable_nested_tensor=False),
        "head": torch.nn.Linear(a.hidden, 50304, bias=False)}).cuda()
    model["head"].weight = model["embed"].weight

    class Gpt(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = model
            self.mask = torch.nn.Transformer.generate_square_subsequent_mask(a.tokens, device="cuda")

        def forward(self, x, y):
            x = self.parts["blocks"](self.parts["embed"](x), mask=self.mask, is_causal=True)
            return torch.nn.functional.cross_entropy(self.parts["head"](x).flatten(0, 1), y.flatten())

    net = torch.nn.parallel.DistributedDataParallel(Gpt(), device_ids=[0])
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-4)
    if rank == 0:
        print(f"tokens per iteration will be: {world * a.batch * a.tokens:,}")
        count = sum(p.numel() for p in model.parameters())
        print(f"number of parameters: {count / 1e6:.2f}M")
    before = time.time()
    for step in range(a.steps):
        x = torch.randint(0, 50304, (a.batch, a.tokens + 1), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = net(x[:, :-1], x[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        now = time.time()
        if rank == 0:
            print(f"iter {step}: loss {value:.4f}, time {(now - before) * 1000:.2f}ms, mfu -100.00%", flush=True)
        before = now
    if rank == 0:
        print(f"max memory allocated: {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB")
    dist.destroy_process_group()


def lightning(a):
    """A few layers under PyTorch Lightning, with its progress bar."""
    rank, world = place()
    import pytorch_lightning as pl
    import torch

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(8)))

        def training_step(self, batch, _):
            loss = (self.layers(batch[0]) - batch[0]).square().mean()
            self.log("train_loss", loss, prog_bar=True)
            return loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    data = torch.utils.data.TensorDataset(torch.randn(8 * a.steps * world, 2048))
    pl.Trainer(
        accelerator="gpu", devices=1, num_nodes=world, strategy="ddp", max_epochs=2, logger=False,
        enable_checkpointing=False, precision="bf16-mixed",
    ).fit(Module(), torch.utils.data.DataLoader(data, batch_size=8))


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

    def enter(self, i, shm=None):
        return [IP, "netns", "exec", self.ns(i),
                sys.executable, os.path.join(JOB, "train.py"), "host", *(["--shm", shm] if shm else []),
                self.hosts[i]]

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
    if a.shm:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={a.shm}", "tmpfs", "/dev/shm"], check=True)
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
    shm: str = None                 # size of each host's /dev/shm
    kernel: bool = False            # also what the kernel wrote of it


GPT = ("gpt", "--steps", "40")


def training(name, *words):
    """The Trainer with a model of some size, its state and NCCL's own files: a folder of one run."""
    return Recording(
        name, 2, ("trainer", "--steps", "40", "--hidden", "1024", "--layers", "8", "--tokens", "256",
                  "--logging-steps", "5", "--state", "--out", f"{JOB}/{name}/out", *words),
        files=True, alone=True, env={"NCCL_DEBUG_FILE": f"{JOB}/{name}/rank.%h.%p.log"})


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


def ras_hung(run):
    """The status of a job in which all ranks but one wait for ever."""
    run.wait_for("step 2/")
    time.sleep(8)
    run.ask("ras.txt", "verbose status")
    run.ask("ras-0s.json", "set format json", "verbose status")
    time.sleep(10)
    run.ask("ras-10s.json", "set format json", "verbose status")
    run.finish()


def ras_stopped(run):
    """The status with rank 2 stopped, until RAS takes it for dead."""
    run.wait_for("step 5/")
    run.ranks[2].send_signal(signal.SIGSTOP)
    for seconds, wait in ((5, 5), (30, 25), (85, 55)):
        time.sleep(wait)
        run.ask(f"ras-{seconds}s.json", "set format json", "verbose status")
        run.ask(f"ras-{seconds}s.txt", "verbose status")
    run.finish()


def signal_launcher(number):
    def send(run):
        run.wait_for("step 3/")
        run.ranks[0].send_signal(number)
    return send


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

# A rank of four in the middle of a job, and short timeouts for the others.
QUIET = {"NCCL_DEBUG": None}


def trouble(name, what, where="2:4", ranks=4, **more):
    more = {"files": True, "limit": 100, **more}
    return Recording(name, ranks, job("--steps", "12", "--pause", "0.2", "--timeout", "20",
                                      "--trouble", what, where), **more)


AT_END = ("--dump-at-end", "")


def recorded(name, *words, ranks=4, dump=("--dump", ":12"), **more):
    """With PyTorch's flight recorder: a pickle of each rank at the timeout, JSON before it."""
    folder = f"{JOB}/{name}"
    env = {"TORCH_NCCL_TRACE_BUFFER_SIZE": "2000", "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
           "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{folder}/nccl_trace_rank_"}
    option, end = dump
    return Recording(name, ranks, job(*words, option, f"{folder}/nccl_trace_rank_{end}"), env=env, files=True, **{"limit": 110, **more})


RECORDINGS = [
    recorded("recorder-rank-never-calls", "--steps", "6", "--skip", "3:4", "--timeout", "20"),
    recorded("recorder-other-collective", "--steps", "6", "--other", "1:3", "--timeout", "20"),
    recorded("recorder-other-size", "--steps", "6", "--bigger", "1:5", "--times", "16",
             "--timeout", "20"),
    recorded("recorder-size-unnoticed", "--steps", "6", "--bigger", "1:5", "--times", "2",
             "--timeout", "30", dump=AT_END),
    recorded("recorder-other-type", "--steps", "6", "--double", "2:5", "--timeout", "20", dump=AT_END),
    recorded("recorder-rank-stopped", "--steps", "6", "--trouble", "stop", "2:4", "--timeout", "20"),
    recorded("recorder-order-swapped", "--steps", "6", "--halves", "--swap", "1:4", "--timeout", "20"),
    recorded("recorder-group", "--steps", "6", "--halves", "--skip", "3:4", "--timeout", "20"),
    recorded("recorder-uneven-steps", "--steps", "6", "--fewer", "1:4", "--timeout", "20"),
    recorded("recorder-send-alone", "--steps", "6", "--trouble", "send", "0:4", "--timeout", "20"),
    recorded("recorder-network-cut", "--steps", "40", "--pause", "0.5", "--timeout", "15", during=cut,
             dump=("--dump", ":20")),
    recorded("recorder-running", "--steps", "8", "--pause", "1", "--timeout", "30", dump=("--dump", ":5")),
    recorded("recorder-healthy", "--steps", "4", "--timeout", "30", dump=AT_END),
    Recording("ras-rank-never-calls", 4,
              job("--steps", "8", "--pause", "0.5", "--skip", "3:6", "--timeout", "90"),
              during=ras_hung, files=True, limit=110),
    Recording("ras-other-collective", 4,
              job("--steps", "6", "--pause", "0.5", "--other", "1:3", "--timeout", "90"),
              during=ras_hung, files=True, limit=110),
    Recording("ras-rank-stopped", 4, job("--steps", "60", "--pause", "0.5", "--timeout", "200"),
              during=ras_stopped, files=True, limit=150),
    Recording("uneven-steps", 4,
              job("--steps", "8", "--fewer", "1:5", "--timeout", "20"), files=True, limit=100),
    Recording("desync-debug", 4, job("--steps", "6", "--skip", "3:4", "--timeout", "20"),
              env={"TORCH_NCCL_DESYNC_DEBUG": "1"}, files=True, limit=100),
    Recording("blocking-wait", 4, job("--steps", "6", "--skip", "3:4", "--timeout", "20"),
              env={"TORCH_NCCL_BLOCKING_WAIT": "1"}, files=True, limit=100),
    Recording("other-type", 4, job("--steps", "6", "--double", "1:5", "--timeout", "20"), files=True,
              limit=100),
    trouble("rank-stopped", "stop"),
    trouble("rank-raises", "raise"),
    trouble("rank-raises-no-debug", "raise", env=QUIET),
    trouble("rank-exits", "exit-3"),
    trouble("rank-quits-silently", "quick-exit"),
    trouble("rank-segfaults", "segfault"),
    trouble("rank-killed-no-debug", "kill", env=QUIET),
    trouble("rank-terminated", "terminate"),
    trouble("device-assert", "device-assert"),
    trouble("device-assert-no-debug", "device-assert", env=QUIET),
    trouble("illegal-access", "illegal-access"),
    trouble("illegal-access-warn-only", "illegal-access", env={"NCCL_DEBUG": "WARN"}),
    trouble("cpu-tensor", "cpu-tensor", "1:4", ranks=2),
    trouble("nan-check", "nan", "1:4", ranks=2, env={"TORCH_NCCL_NAN_CHECK": "1"}),
    trouble("program-out-of-gpu-memory", "no-memory", "1:4", ranks=2),
    trouble("open-files-run-out-later", "few-files", "0:4", ranks=2, limit=60),
    trouble("thread-limit", "few-threads", "1:4", ranks=2, limit=60),
    trouble("address-space-limit", "little-memory", "1:4", ranks=2, limit=60),
    trouble("killed-by-memory-limit", "host-memory", "1:4", ranks=3, kernel=True),
    trouble("capture-broken", "capture", "1:4", ranks=2),
    trouble("rank-aborts-group", "abort", "1:4", ranks=3),
    trouble("cuda-after-fork", "forked", "1:4", ranks=2),
    trouble("loader-small-shm", "loader", "1:4", ranks=2, shm="48m"),
    Recording("tiny-shm", 2, job("--timeout", "20"), shm="1m", files=True, limit=60),
    Recording("monitored-barrier", 4, ("together",), env={"GLOO_SOCKET_IFNAME": "eth0"}, files=True,
              limit=90),
    Recording("destroyed-twice", 2, ("late", "--misuse", "destroy-twice"), files=True, limit=40),
    Recording("null-buffer", 2, ("late", "--misuse", "null-buffer"), files=True, limit=40,
              env={"NCCL_CHECK_POINTERS": "1"}),
    Recording("bad-root", 2, ("late", "--misuse", "bad-root"), files=True, limit=40),
    Recording("no-destroy", 2, job("--no-destroy"), files=True, limit=60),
    Recording("module-missing", 2, job("--no-module"), files=True, limit=40),
    Recording("no-gpu-visible", 2, job("--timeout", "20"), env={"CUDA_VISIBLE_DEVICES": ""}, files=True,
              limit=60),
    Recording("no-gpu-visible-one-rank", 2, job("--timeout", "20"), files=True, limit=60,
              rank_env={1: {"CUDA_VISIBLE_DEVICES": ""}}),
    Recording("algo-not-possible", 2, env={"NCCL_ALGO": "NVLS"}, files=True, limit=60),
    Recording("algo-not-possible-warn-only", 2, env={"NCCL_ALGO": "CollnetChain", "NCCL_DEBUG": "WARN"},
              files=True, limit=60),
    Recording("algo-not-possible-no-debug", 2, env={"NCCL_ALGO": "NVLSTree", **QUIET}, files=True,
              limit=60),
    Recording("algo-misspelt", 2, env={"NCCL_ALGO": "Rign"}, files=True, limit=60),
    Recording("proto-misspelt", 2, env={"NCCL_PROTO": "LL256"}, files=True, limit=60),
    Recording("net-unknown", 2, env={"NCCL_NET": "RoCE"}, files=True, limit=60),
    Recording("net-ib-forced", 2, env={"NCCL_NET": "IB"}, files=True, limit=60),
    Recording("plugin-without-symbols", 2, files=True, limit=60,
              env={"NCCL_NET_PLUGIN": "/lib/x86_64-linux-gnu/libm.so.6"}),
    Recording("comm-id-elsewhere", 2, job("--timeout", "20"), files=True, limit=60,
              env={"NCCL_COMM_ID": "10.77.0.99:23456"}),
    Recording("socket-family-mixed", 2, job("--timeout", "20"), files=True, limit=60,
              rank_env={1: {"NCCL_SOCKET_FAMILY": "AF_INET6"}}),
    Recording("master-refuses", 2, job("--timeout", "20"), files=True, limit=60,
              env={"MASTER_ADDR": "10.77.0.12"}),
    Recording("master-no-such-host", 2, job("--timeout", "20"), files=True, limit=60,
              env={"MASTER_ADDR": "10.77.0.99"}),
    Recording("torchrun-terminated", 4, job("--steps", "40", "--pause", "0.5", "--own-host-id"),
              one_host=True, launcher=TORCHRUN, during=signal_launcher(signal.SIGTERM)),
    Recording("torchrun-interrupted", 4, job("--steps", "40", "--pause", "0.5", "--own-host-id"),
              one_host=True, launcher=TORCHRUN, during=signal_launcher(signal.SIGINT)),
    Recording("torchrun-restarts", 4,
              job("--steps", "8", "--trouble", "device-assert", "2:4", "--timeout", "20", "--own-host-id"),
              one_host=True, launcher=(*TORCHRUN, "--max-restarts", "1"), env=QUIET, limit=100),
    Recording("torchrun-segfault", 4,
              job("--steps", "8", "--trouble", "segfault", "2:4", "--timeout", "20", "--own-host-id"),
              one_host=True, launcher=TORCHRUN, env=QUIET),
    Recording("torchrun-exit-3", 4,
              job("--steps", "8", "--trouble", "exit-3", "1:4", "--timeout", "20", "--own-host-id"),
              one_host=True, launcher=TORCHRUN, env=QUIET),
    Recording("mpirun-segfault", 4,
              job("--steps", "8", "--trouble", "segfault", "2:4", "--timeout", "20", "--own-host-id"),
              one_host=True, launcher=(*MPIRUN, "-np", "4", "{python}"), env=QUIET),
    Recording("mpirun-exit-3", 4,
              job("--steps", "8", "--trouble", "exit-3", "1:4", "--timeout", "20", "--own-host-id"),
              one_host=True, launcher=(*MPIRUN, "-np", "4", "{python}")),
    Recording("mpirun-killed", 4,
              job("--steps", "8", "--trouble", "kill", "3:4", "--timeout", "20", "--own-host-id"),
              one_host=True, launcher=("{mpirun}", "--allow-run-as-root", "--oversubscribe", "-np", "4",
                                       "{python}"), env=QUIET),
    Recording("unused-parameters", 2, job("--unused", "--timeout", "20"), files=True, limit=60),
    Recording("torchrun-node-missing", 2, ONE_HOST, one_host=True, limit=70,
              launcher=("{python}", "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2",
                        "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:29400",
                        "--rdzv-conf", "join_timeout=15")),
    Recording("torchrun-no-script", 2, ONE_HOST, one_host=True, limit=40,
              launcher=("{python}", "-m", "torch.distributed.run", "--nproc-per-node", "2",
                        "/workspace/finetune.py")),
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
    Recording("training-1-rank", 1, GPT, alone=True),
    Recording("training-2-nodes", 2, GPT, alone=True),
    Recording("training-2-nodes-1-channel", 2, GPT, alone=True, env={"NCCL_MAX_NCHANNELS": "1"}),
    training("training-state", "--batch", "8"),
    training("training-state-small-batch", "--batch", "2", "--count-tokens"),
    Recording("training-lightning", 2, ("lightning", "--steps", "40"), alone=True,
              rank_env={i: {"NODE_RANK": str(i)} for i in range(2)}),
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
            for name in os.listdir(self.folder):
                if name.endswith((".log", ".out")):
                    with open(os.path.join(self.folder, name), errors="replace") as f:
                        if text in f.read():
                            return
            time.sleep(0.1)

    def ask(self, name, *lines):
        with open(os.path.join(self.folder, name), "w") as f:
            subprocess.run([*self.enter(0), sys.executable, f"{JOB}/train.py", "ask", *lines],
                           stdout=f, stderr=subprocess.STDOUT, timeout=60)

    def enter(self, i):
        return self.net.enter(i, self.r.shm) if self.net else []

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

    def finish(self):
        for p in self.ranks:
            p.kill()

    def start(self, i, host, log):
        env = self.environment(i)
        return subprocess.Popen([*self.enter(host), *self.command()], env=env, cwd=JOB,
                                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                start_new_session=True)

    def kernel(self):
        """The kernel's lines about processes it ended."""
        lines = subprocess.run(["dmesg", "-T"], capture_output=True, text=True).stdout.splitlines()
        begins = [i for i, line in enumerate(lines) if "invoked oom-killer" in line]
        ends = [i for i, line in enumerate(lines) if "Killed process" in line]
        if begins and ends:
            with open(os.path.join(self.folder, "kernel.log"), "w") as f:
                f.write("\n".join(lines[begins[-1]:ends[-1] + 1]) + "\n")

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
        if r.kernel:
            self.kernel()
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
    if len(sys.argv) > 1 and sys.argv[1] not in ("train", "together", "late", "trainer", "gpt", "lightning", "host", "ask"):
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
    t.add_argument("--trouble", nargs=2, metavar=("WHAT", "RANK:STEP"),
                   help="what a rank does to itself: " + ", ".join(TROUBLES))
    t.add_argument("--unused", action="store_true", help="a model with a layer that takes no part")
    t.add_argument("--halves", action="store_true", help="a group for each half of 4 ranks, too")
    t.add_argument("--no-destroy", action="store_true", help="leave the process group as it is")
    t.add_argument("--no-module", action="store_true", help="import what is not installed")
    t.add_argument("--dump", metavar="PREFIX:SECONDS", help="the flight recorder, later")
    t.add_argument("--dump-at-end", metavar="PREFIX", help="the flight recorder, at the end")
    t.add_argument("--fewer", type=at, metavar="RANK:STEPS", help="this rank has fewer steps")
    for name in ("die", "fail", "skip", "slow", "bigger", "other", "double", "swap"):
        t.add_argument(f"--{name}", type=at, metavar="RANK:STEP")
    sub.add_parser("together", help="a monitored barrier").set_defaults(do=together)
    b = sub.add_parser("late", help="ranks that come late")
    b.set_defaults(do=late)
    b.add_argument("--misuse", choices=("destroy-twice", "null-buffer", "bad-root"))
    f = sub.add_parser("trainer", help="Hugging Face Trainer")
    f.set_defaults(do=trainer)
    f.add_argument("--steps", type=int, default=5)
    f.add_argument("--hidden", type=int, default=128)
    f.add_argument("--layers", type=int, default=2)
    f.add_argument("--tokens", type=int, default=64, help="of a sequence")
    f.add_argument("--batch", type=int, default=2, help="sequences of a micro-batch")
    f.add_argument("--logging-steps", type=int, default=1)
    f.add_argument("--count-tokens", action="store_true", help="include_num_input_tokens_seen")
    f.add_argument("--state", action="store_true", help="write trainer_state.json at the end")
    f.add_argument("--out", default=f"{JOB}/out")
    g = sub.add_parser("gpt", help="a GPT that prints as nanoGPT does")
    g.set_defaults(do=gpt)
    g.add_argument("--steps", type=int, default=40)
    g.add_argument("--hidden", type=int, default=768)
    g.add_argument("--layers", type=int, default=12)
    g.add_argument("--tokens", type=int, default=512, help="of a sequence")
    g.add_argument("--batch", type=int, default=8, help="sequences of a rank and step")
    i = sub.add_parser("lightning", help="PyTorch Lightning")
    i.set_defaults(do=lightning)
    i.add_argument("--steps", type=int, default=40, help="of an epoch")
    h = sub.add_parser("host", help="run a command under another host name")
    h.set_defaults(do=become)
    h.add_argument("--shm", help="a /dev/shm of this size (the mount namespace must be its own)")
    h.add_argument("name")
    h.add_argument("command", nargs=argparse.REMAINDER)
    q = sub.add_parser("ask", help="ask NCCL's RAS service")
    q.set_defaults(do=ask)
    q.add_argument("line", nargs="+")
    a = p.parse_args()
    a.do(a)


if __name__ == "__main__":
    main()
