#!/usr/bin/env python3
"""Forward and backward passes of whole models of Hugging Face transformers on one GPU, one JSON object per line.

usage: steps.py [SECONDS] > steps.jsonl

What a trainer without kernels of its own runs: the model code of transformers as it is, in BF16, with PyTorch's attention, eager or
compiled, with and without gradient checkpointing. No optimizer and no communication. Times are means over at least three passes
after two others; memory is the peak of one pass besides weights and gradients. Weights are random. It stops after SECONDS (default 300)
and says which shapes were left out.
"""
import gc, json, sys, time
import torch, transformers
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig

deadline = time.monotonic() + float(sys.argv[1] if len(sys.argv) > 1 else 300)
torch.manual_seed(0)
gpu = torch.cuda.get_device_name()


def say(**fields):
    print(json.dumps({"gpu": gpu, **fields}), flush=True)


def llama(hidden, ffn, heads, kv, vocab, layers):
    return LlamaConfig(hidden_size=hidden, intermediate_size=ffn, num_attention_heads=heads, num_key_value_heads=kv, vocab_size=vocab, num_hidden_layers=layers, max_position_embeddings=32768)


SHAPES = {
    "llama-3-8b": (lambda n: llama(4096, 14336, 32, 8, 128256, n), 8),
    "llama-2-7b": (lambda n: llama(4096, 11008, 32, 32, 32000, n), 8),
    "llama-3.2-1b": (lambda n: llama(2048, 8192, 32, 8, 128256, n), 16),
    "gpt2-xl": (lambda n: GPT2Config(n_embd=1600, n_head=25, n_layer=n, vocab_size=50257, n_positions=2048), 24),
}
RUNS = [(name, layers, seq, batch, checkpoint, compiled)
        for name, (_, most) in SHAPES.items()
        for layers in (most, most // 2)
        for seq, batch in ((2048, 1), (2048, 4), (4096, 1), (4096, 2), (8192, 1), (512, 4))
        for checkpoint in (False, True)
        for compiled in (False, True)
        if not (name == "gpt2-xl" and seq > 2048) and (layers == most or (seq, batch) in ((2048, 4), (4096, 1)))
        and not (compiled and (checkpoint or layers != most or (seq, batch) not in ((2048, 4), (4096, 1))))]


def run(name, layers, seq, batch, checkpoint, compiled):
    torch._dynamo.reset()
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(SHAPES[name][0](layers), dtype=torch.bfloat16, attn_implementation="sdpa")
    model.train()
    model.config.use_cache = False
    if checkpoint:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    parameters = sum(it.numel() for it in model.parameters())
    forward = torch.compile(model) if compiled else model
    tokens = torch.randint(0, 30000, (batch, seq), device="cuda")

    def once():
        forward(input_ids=tokens, labels=tokens).loss.backward()

    for _ in range(2):
        once()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    begin, count = time.monotonic(), 0
    while count < 3 or time.monotonic() - begin < 0.8:
        once()
        count += 1
        if count % 3 == 0:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    seconds = (time.monotonic() - begin) / count
    say(kind="step", model=name, layers=layers, seq=seq, micro_batch=batch, checkpoint=checkpoint, compiled=compiled, parameters=parameters,
        seconds=seconds, activations_gib=(torch.cuda.max_memory_allocated() - before) / 2**30)


say(kind="machine", torch=torch.__version__, transformers=transformers.__version__, cuda=torch.version.cuda)
for each in RUNS:
    if time.monotonic() > deadline:
        say(kind="left out", run=each)
        continue
    try:
        run(*each)
    except Exception as error:
        say(kind="failed", run=each, error=str(error)[:200])
    gc.collect()
    torch.cuda.empty_cache()
