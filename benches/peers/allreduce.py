"""all_reduce of float sums on PyTorch's gloo, measured on request: the protocol of allreduce.c.

    allreduce.py SOCKET FOLDER RANK RANKS

PyTorch reduces in place, so the values are set to zero once they were checked.
"""

import os
import socket
import sys
import time

import torch
import torch.distributed as dist


def main():
    path, folder, rank, ranks = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    end = socket.socket(socket.AF_UNIX)
    end.connect(path)
    lines = end.makefile("rw")
    for _ in range(10):
        dist.all_reduce(torch.ones(1))
    lines.write(f"{rank} {os.getpid()}\n")
    lines.flush()
    for line in lines:
        size, iterations, batches = map(int, line.split())
        cpu = time.process_time_ns()
        base = torch.arange(size // 4, dtype=torch.int32).remainder_(7).add_(1).to(torch.float32)
        data = base + rank
        dist.all_reduce(data)
        right = torch.equal(data, base.mul_(ranks).add_(ranks * (ranks - 1) // 2))
        del base
        data.zero_()
        times = []
        for batch in range(batches + 1):
            start = time.monotonic_ns()
            for _ in range(iterations):
                dist.all_reduce(data)
            if batch > 0:
                times.append(time.monotonic_ns() - start)
        del data
        spent = (time.process_time_ns() - cpu) // 1000
        lines.write(f"{'ok' if right else 'wrong'} {spent} {' '.join(map(str, times))}\n")
        lines.flush()
    dist.destroy_process_group()


main()
