#!/usr/bin/env python3
"""Times of the kernels of a training step on the GPU of this machine, one JSON object per line.

usage: measure.py > kernels.jsonl

Needs PyTorch with CUDA. Matrices hold random numbers, as the power they draw decides the clock; each time is the mean over at
least `SECONDS` after a warm-up, so that the clock has settled.
"""
import json, time, sys
import torch

SECONDS = 0.25
torch.manual_seed(0)
name = torch.cuda.get_device_name()


def timed(run, seconds=SECONDS):
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record(); run(); run(); end.record(); torch.cuda.synchronize()
    each = begin.elapsed_time(end) / 2e3
    count = max(3, int(seconds / max(each, 1e-6)))
    begin.record()
    for _ in range(count):
        run()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3 / count


def say(**fields):
    print(json.dumps({"gpu": name, **fields}), flush=True)


def gemms():
    shapes = []
    for tokens in (1024, 2048, 4096, 8192, 16384):
        for hidden in (1024, 2048, 4096, 8192):
            shapes += [(tokens, 3 * hidden, hidden), (tokens, 4 * hidden, hidden), (tokens, hidden, 4 * hidden)]
    shapes += [(2048, 1536, 12288), (2048, 6144, 12288), (2048, 12288, 1536), (2048, 12288, 6144), (4096, 7680, 20480), (4096, 28672, 8192), (4096, 8192, 28672),
               (4096, 128256, 4096), (8192, 8192, 8192), (16384, 16384, 16384), (4096, 4096, 512), (4096, 4096, 256), (512, 4096, 4096), (256, 4096, 4096), (4096, 3456, 13824), (4096, 1800, 14400)]
    for m, n, k in shapes:
        a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
        b = torch.randn(n, k, device="cuda", dtype=torch.bfloat16)
        t = timed(lambda: a @ b.t(), 0.15)
        say(kind="gemm", precision="bf16", m=m, n=n, k=k, seconds=t, tflops=2 * m * n * k / t / 1e12)
    for m, n, k in ((4096, 4096, 4096), (8192, 8192, 8192), (4096, 28672, 8192), (2048, 6144, 12288), (8192, 16384, 4096), (4096, 8192, 2048)):
        a = torch.randn(m, k, device="cuda").to(torch.float8_e4m3fn)
        b = torch.randn(n, k, device="cuda").to(torch.float8_e4m3fn)
        one = torch.tensor(1.0, device="cuda")
        t = timed(lambda: torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16), 0.15)
        say(kind="gemm", precision="fp8", m=m, n=n, k=k, seconds=t, tflops=2 * m * n * k / t / 1e12)


def attention():
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention as sdpa
    for which, backend in (("flash", SDPBackend.FLASH_ATTENTION), ("cudnn", SDPBackend.CUDNN_ATTENTION)):
        for seq, batch, heads, width in ((1024, 16, 16, 128), (2048, 8, 16, 128), (4096, 4, 16, 128), (8192, 2, 16, 128), (32768, 1, 16, 128), (2048, 8, 32, 64), (8192, 2, 32, 64)):
            try:
                q, k, v = (torch.randn(batch, heads, seq, width, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
                with sdpa_kernel(backend):
                    forward = timed(lambda: sdpa(q, k, v, is_causal=True), 0.15)
                    out = sdpa(q, k, v, is_causal=True)
                    grad = torch.randn_like(out)
                    backward = timed(lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True), 0.15)
                flops = 2 * batch * heads * seq * seq * width
                say(kind="attention", by=which, seq=seq, batch=batch, heads=heads, width=width, forward_s=forward, backward_s=backward, forward_tflops=flops / forward / 1e12, backward_tflops=2.5 * flops / backward / 1e12)
            except Exception as error:
                say(kind="attention", by=which, seq=seq, width=width, error=str(error)[:100])


def memory():
    x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    y = torch.randn_like(x)
    w = torch.randn(8192, device="cuda", dtype=torch.bfloat16)
    bytes = x.numel() * 2
    for what, run, moved in (("copy", lambda: y.copy_(x), 2), ("add", lambda: torch.add(x, y), 3), ("gelu", lambda: torch.nn.functional.gelu(x), 2),
                             ("layer_norm", lambda: torch.nn.functional.layer_norm(x, (8192,), w, w), 2), ("softmax", lambda: torch.softmax(x, -1), 2), ("dropout", lambda: torch.nn.functional.dropout(x, 0.1), 2.5)):
        t = timed(run)
        say(kind="memory", what=what, seconds=t, gbps=moved * bytes / t / 1e9)
    params = [torch.randn(4096, 4096, device="cuda", requires_grad=True) for _ in range(32)]
    for p in params:
        p.grad = torch.randn_like(p)
    for fused in (False, True):
        adam = torch.optim.AdamW(params, fused=fused)
        t = timed(adam.step)
        count = sum(p.numel() for p in params)
        say(kind="adam", fused=fused, seconds=t, params=count, bytes_per_param_at_4e12=t / count * 4e12)
    host = torch.empty(1 << 30, dtype=torch.uint8, pin_memory=True)
    device = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    say(kind="copy", what="host to device", gbps=(1 << 30) / timed(lambda: device.copy_(host, non_blocking=True)) / 1e9)
    say(kind="copy", what="device to host", gbps=(1 << 30) / timed(lambda: host.copy_(device, non_blocking=True)) / 1e9)


class Layer(torch.nn.Module):
    def __init__(self, hidden, heads, ffn, gated):
        super().__init__()
        self.heads, self.gated = heads, gated
        make = lambda a, b: torch.nn.Linear(a, b, bias=False, device="cuda", dtype=torch.bfloat16)
        self.one = torch.nn.LayerNorm(hidden, device="cuda", dtype=torch.bfloat16)
        self.two = torch.nn.LayerNorm(hidden, device="cuda", dtype=torch.bfloat16)
        self.qkv, self.out = make(hidden, 3 * hidden), make(hidden, hidden)
        self.up, self.down = make(hidden, ffn * (2 if gated else 1)), make(ffn, hidden)

    def forward(self, x):
        b, s, h = x.shape
        q, k, v = self.qkv(self.one(x)).view(b, s, 3, self.heads, h // self.heads).permute(2, 0, 3, 1, 4)
        a = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, s, h))
        y = self.up(self.two(x))
        if self.gated:
            g, u = y.chunk(2, -1)
            y = torch.nn.functional.silu(g) * u
        else:
            y = torch.nn.functional.gelu(y)
        return x + self.down(y)


def layers():
    for hidden, heads, ffn, gated, seq, batch in ((4096, 32, 14336, True, 4096, 1), (4096, 32, 16384, False, 2048, 6), (2048, 16, 8192, False, 2048, 12), (2560, 20, 10240, False, 2048, 8), (8192, 64, 28672, True, 4096, 1), (5120, 40, 20480, False, 2048, 4), (1024, 16, 4096, False, 1024, 1), (1024, 16, 4096, False, 2048, 18)):
        count = 4 if hidden >= 8192 else 8
        net = torch.nn.Sequential(*(Layer(hidden, heads, ffn, gated) for _ in range(count)))
        x = torch.randn(batch, seq, hidden, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        def step():
            net(x).sum().backward()
        def forward():
            with torch.no_grad():
                net(x)
        whole, only = timed(step, 0.6) / count, timed(forward, 0.3) / count
        begin = time.perf_counter()
        y = net(x)
        host_forward = (time.perf_counter() - begin) / count
        torch.cuda.synchronize()
        flops = batch * seq * (2 * (4 * hidden * hidden + (3 if gated else 2) * hidden * ffn) + 2 * seq * hidden)
        say(kind="layer", hidden=hidden, heads=heads, ffn=ffn, gated=gated, seq=seq, batch=batch, step_s=whole, forward_s=only, host_forward_s=host_forward, tflops=3 * flops / whole / 1e12)
        del y, net


for part in (gemms, attention, memory, layers):
    if len(sys.argv) < 2 or part.__name__ in sys.argv[1:]:
        part()
