#!/usr/bin/env python3
"""Times and memory of the kernels of a training step on the GPU of this machine, one JSON object per line.

usage: measure.py [PART...] > kernels.jsonl

Parts: gemms, attention, memory, layers, blocking, experts, casts, activations, cpu_adam; all of them if none is named. Needs PyTorch with
CUDA. Matrices hold random numbers, as the power they draw decides the clock; each time is the mean over at least `SECONDS` after a
warm-up, so that the clock has settled. The first line names the machine. h200.jsonl beside this
file is such a result; its `activations` are of the layers of `layers`, without rotary positions.
"""
import datetime, functools, json, os, subprocess, sys, time
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


class Early(torch.nn.Module):
    """One rank's part of a layer as Megatron had it before flash attention: biases, dropout, scores in memory, gradients added up in FP32."""
    def __init__(self, hidden, heads, width, split):
        super().__init__()
        self.heads, self.width = heads // split, width
        make = lambda a, b: torch.nn.Linear(a, b, device="cuda", dtype=torch.bfloat16)
        self.one = torch.nn.LayerNorm(hidden, device="cuda", dtype=torch.bfloat16)
        self.two = torch.nn.LayerNorm(hidden, device="cuda", dtype=torch.bfloat16)
        self.qkv, self.out = make(hidden, 3 * self.heads * width), make(self.heads * width, hidden)
        self.up, self.down = make(hidden, 4 * hidden // split), make(4 * hidden // split, hidden)
        for p in self.parameters():
            p.sum = torch.zeros_like(p, dtype=torch.float32)

    def add_up(self):
        for p in self.parameters():
            p.sum.add_(p.grad)
            p.grad = None

    def forward(self, x):
        drop = torch.nn.functional.dropout
        s, b, h = x.shape
        q, k, v = self.qkv(self.one(x)).view(s, b * self.heads, 3 * self.width).chunk(3, -1)
        scores = torch.bmm(q.transpose(0, 1), k.permute(1, 2, 0)) / self.width**0.5
        mask = torch.ones(s, s, device="cuda", dtype=torch.bool).triu(1)
        scores = drop(torch.softmax(scores.masked_fill(mask, -10000.0), -1), 0.1)
        a = torch.bmm(scores, v.transpose(0, 1)).transpose(0, 1).reshape(s, b, self.heads * self.width)
        x = x + drop(self.out(a), 0.1)
        return x + drop(self.down(torch.nn.functional.gelu(self.up(self.two(x)))), 0.1)


def blocking():
    """What a layer takes longer where the CPU waits for each kernel (CUDA_LAUNCH_BLOCKING=1), forward, recomputed and backward."""
    if "CUDA_LAUNCH_BLOCKING" not in os.environ:
        for value in ("0", "1"):
            subprocess.run([sys.executable, __file__, "blocking"], env={**os.environ, "CUDA_LAUNCH_BLOCKING": value}, check=True)
        return
    from torch.utils.checkpoint import checkpoint
    for hidden, heads, split, batch in ((14336, 64, 8, 1), (14336, 64, 8, 2), (14336, 64, 8, 4), (14336, 64, 4, 2), (14336, 64, 4, 4), (4096, 32, 4, 1)):
        net = [Early(hidden, heads, hidden // heads, split) for _ in range(4)]
        x = torch.randn(2048, batch, hidden, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        def step():
            y = x
            for layer in net:
                y = checkpoint(layer, y, use_reentrant=True)
            y.backward(torch.ones_like(y))
            for layer in net:
                layer.add_up()
        say(kind="blocking", blocked=os.environ["CUDA_LAUNCH_BLOCKING"] == "1", hidden=hidden, heads=heads, split=split, seq=2048, batch=batch, layer_s=timed(step, 0.6) / 4)
        del net, x


def experts():
    """Grouped products of the experts a rank holds, and moving tokens to and from them."""
    for hidden, ffn, held in ((4096, 1536, 16), (4096, 1536, 4), (7168, 2048, 8), (7168, 2048, 4), (2048, 768, 16), (2048, 768, 128), (4096, 14336, 1), (4096, 14336, 8)):
        for tokens in (64, 256, 1024, 4096):
            if held * tokens > 131072:
                continue
            ends = torch.arange(1, held + 1, device="cuda", dtype=torch.int32) * tokens
            x = torch.randn(held * tokens, hidden, device="cuda", dtype=torch.bfloat16)
            w = torch.randn(held, hidden, 2 * ffn, device="cuda", dtype=torch.bfloat16)
            g = torch.randn(held * tokens, 2 * ffn, device="cuda", dtype=torch.bfloat16)
            forward = timed(lambda: torch._grouped_mm(x, w, offs=ends), 0.08)
            weights = timed(lambda: torch._grouped_mm(x.t(), g, offs=ends), 0.08)
            flops = 4 * held * tokens * hidden * ffn
            say(kind="grouped", held=held, tokens=tokens, k=hidden, n=2 * ffn, forward_s=forward, weights_s=weights, forward_tflops=flops / forward / 1e12, weights_tflops=flops / weights / 1e12)
    for hidden, tokens, used in ((4096, 4096, 8), (7168, 4096, 8), (2048, 8192, 8), (4096, 8192, 2)):
        x = torch.randn(tokens, hidden, device="cuda", dtype=torch.bfloat16)
        order = torch.randperm(tokens * used, device="cuda")
        gate = torch.rand(tokens * used, 1, device="cuda", dtype=torch.bfloat16)
        y = x.repeat_interleave(used, 0)
        spread = timed(lambda: x.index_select(0, order // used))
        merge = timed(lambda: torch.zeros_like(x).index_add_(0, order // used, y * gate))
        router = torch.randn(tokens, 128, device="cuda")
        route = timed(lambda: torch.argsort(torch.topk(torch.softmax(router, -1), used, -1)[1].flatten(), stable=True))
        moved = 2 * tokens * used * hidden
        say(kind="permute", hidden=hidden, tokens=tokens, used=used, spread_s=spread, merge_s=merge, route_s=route, spread_gbps=2 * moved / spread / 1e9, merge_gbps=2 * moved / merge / 1e9)


def casts():
    """What 8 bits add to a product: scaling and rounding, and the transposed copy for the gradient of weights."""
    for tokens, width in ((8192, 4096), (8192, 14336), (4096, 8192)):
        x = torch.randn(tokens, width, device="cuda", dtype=torch.bfloat16)
        def cast():
            scale = 448.0 / x.abs().amax().float().clamp(min=1e-12)
            return (x * scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale
        for how, run in (("eager", cast), ("compiled", torch.compile(cast))):
            t = timed(run)
            y = run()[0]
            turn = timed(lambda: y.t().contiguous())
            say(kind="cast", how=how, tokens=tokens, width=width, seconds=t, transpose_s=turn, passes=t * 4.3e12 / (2 * tokens * width), transpose_passes=turn * 4.3e12 / (2 * tokens * width))
    for m, n, k in ((4096, 6144, 4096), (8192, 28672, 4096), (8192, 4096, 14336), (16384, 28672, 4096), (8192, 10240, 8192), (8192, 57344, 8192), (8192, 8192, 28672), (2048, 7168, 8192), (2048, 8192, 3584), (16384, 16384, 16384)):
        a = torch.randn(m, k, device="cuda").to(torch.float8_e4m3fn)
        b = torch.randn(n, k, device="cuda").to(torch.float8_e4m3fn)
        one = torch.tensor(1.0, device="cuda")
        t = timed(lambda: torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True), 0.15)
        say(kind="gemm", precision="fp8", m=m, n=n, k=k, seconds=t, tflops=2 * m * n * k / t / 1e12)


class Llama(torch.nn.Module):
    """A layer as PyTorch's examples write it: RMS norms, rotary positions in FP32, grouped queries, a gated feed-forward part."""
    def __init__(self, hidden, heads, keys, ffn):
        super().__init__()
        self.heads, self.keys, self.width = heads, keys, hidden // heads
        make = lambda a, b: torch.nn.Linear(a, b, bias=False, device="cuda", dtype=torch.bfloat16)
        self.one = torch.nn.RMSNorm(hidden, device="cuda", dtype=torch.bfloat16)
        self.two = torch.nn.RMSNorm(hidden, device="cuda", dtype=torch.bfloat16)
        self.q, self.k, self.v, self.o = make(hidden, hidden), make(hidden, keys * self.width), make(hidden, keys * self.width), make(hidden, hidden)
        self.gate, self.up, self.down = make(hidden, ffn), make(hidden, ffn), make(ffn, hidden)

    def turn(self, x):
        a, b = x.float().chunk(2, -1)
        angle = torch.arange(x.shape[1], device=x.device, dtype=torch.float32).view(1, -1, 1, 1)
        return torch.cat((a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()), -1).to(x.dtype)

    def forward(self, x):
        b, s, h = x.shape
        y = self.one(x)
        q, k, v = (f(y).view(b, s, -1, self.width) for f in (self.q, self.k, self.v))
        q, k = self.turn(q).transpose(1, 2), self.turn(k).transpose(1, 2)
        a = torch.nn.functional.scaled_dot_product_attention(q, k, v.transpose(1, 2), is_causal=True, enable_gqa=True)
        x = x + self.o(a.transpose(1, 2).reshape(b, s, h))
        y = self.two(x)
        return x + self.down(torch.nn.functional.silu(self.gate(y)) * self.up(y))


def by_operator():
    """Keeps attention and every second product, computes the rest again: what PyTorch calls selective checkpointing by operator."""
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts
    aten = torch.ops.aten
    keep = {aten._scaled_dot_product_flash_attention.default, aten._scaled_dot_product_efficient_attention.default, aten._scaled_dot_product_cudnn_attention.default}
    seen = {False: 0, True: 0}
    def policy(context, operator, *args, **more):
        if operator == aten.mm.default:
            seen[context.is_recompute] += 1
            return CheckpointPolicy.MUST_SAVE if seen[context.is_recompute] % 2 else CheckpointPolicy.PREFER_RECOMPUTE
        return CheckpointPolicy.MUST_SAVE if operator in keep else CheckpointPolicy.PREFER_RECOMPUTE
    return create_selective_checkpoint_contexts(policy)


def activations():
    """Peak memory of layers, embedding, head and loss over weights and gradients, and the time of a step."""
    from torch.utils.checkpoint import checkpoint
    hidden, heads, keys, ffn, vocab, seq = 4096, 32, 8, 14336, 128256, 8192
    for compiled in (False, True):
        for mode in ("none", "operators", "full"):
            for count, batch in ((3, 1), (9, 1), (3, 2)):
                torch._dynamo.reset()
                torch.cuda.empty_cache()
                try:
                    layers = [Llama(hidden, heads, keys, ffn) for _ in range(count)]
                    table = torch.nn.Embedding(vocab, hidden, device="cuda", dtype=torch.bfloat16)
                    head = torch.nn.Linear(hidden, vocab, bias=False, device="cuda", dtype=torch.bfloat16)
                    if mode == "none":
                        run = [layer.forward for layer in layers]
                    else:
                        how = {"context_fn": by_operator} if mode == "operators" else {}
                        run = [functools.partial(checkpoint, layer.forward, use_reentrant=False, **how) for layer in layers]
                    loss = lambda y, t: torch.nn.functional.cross_entropy(y.flatten(0, 1).float(), t.flatten())
                    if compiled:
                        run, loss = [torch.compile(one) for one in run], torch.compile(loss)
                    tokens = torch.randint(vocab, (batch, seq), device="cuda")
                    def step():
                        x = table(tokens)
                        for one in run:
                            x = one(x)
                        loss(head(x), tokens).backward()
                    step(); step()
                    torch.cuda.synchronize()
                    weights = sum(p.numel() for part in (*layers, table, head) for p in part.parameters())
                    torch.cuda.empty_cache()
                    torch.cuda.reset_peak_memory_stats()
                    begin = time.perf_counter()
                    for _ in range(4):
                        step()
                    torch.cuda.synchronize()
                    took = (time.perf_counter() - begin) / 4
                    say(kind="activations", compiled=compiled, recompute=mode, layers=count, batch=batch, seq=seq, hidden=hidden, ffn=ffn, vocab=vocab, step_s=took,
                        over_weights_and_gradients_gib=(torch.cuda.max_memory_allocated() - 4 * weights) / 2**30, reserved_gib=(torch.cuda.max_memory_reserved() - 4 * weights) / 2**30)
                except Exception as error:
                    say(kind="activations", compiled=compiled, recompute=mode, layers=count, batch=batch, error=str(error)[:200])
                layers = table = head = run = None


def cpu_adam():
    """The optimizer on the CPU, by threads."""
    count = 1 << 26
    p = torch.randn(count, requires_grad=True)
    p.grad = torch.randn(count)
    adam = torch.optim.AdamW([p], fused=True)
    adam.step()
    for threads in (1, 2, 4, 8, 16):
        if threads > (os.cpu_count() or 1):
            break
        torch.set_num_threads(threads)
        begin, steps = time.perf_counter(), 0
        while time.perf_counter() - begin < 1.0:
            adam.step()
            steps += 1
        say(kind="cpu_adam", threads=threads, params_per_s=count * steps / (time.perf_counter() - begin))


cpu = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "")
say(kind="machine", date=datetime.date.today().isoformat(), torch=torch.__version__, cuda=torch.version.cuda, cpu=cpu, cpus=os.cpu_count())
for part in (gemms, attention, memory, layers, blocking, experts, casts, cpu_adam, activations):
    if len(sys.argv) < 2 or part.__name__ in sys.argv[1:]:
        part()
        torch.cuda.empty_cache()
