"""Measures the search of Calculon, in one process, on a random sample of its own space.

    calculon.py FOLDER MODEL SYSTEM GPUS BATCH SECONDS

FOLDER is a checkout of github.com/calculon-ai/calculon; MODEL and SYSTEM are files in it. Prints one JSON object: the size of
the space, how many layouts were evaluated and how many of them run, in how many seconds, and the best time of a step among them.
"""

import json
import random
import sys
import time

folder, model, system, gpus, batch, seconds = sys.argv[1:7]
gpus, batch, seconds = int(gpus), int(batch), float(seconds)
sys.path.insert(0, folder)

import calculon.io  # noqa: E402
from calculon.llm import Llm, OptimalExecution  # noqa: E402
from calculon.system import System  # noqa: E402
from calculon.util import arg_true_false_all, pick  # noqa: E402

app = Llm.Application(calculon.io.read_json_file(f"{folder}/{model}"))
syst = System(calculon.io.read_json_file(f"{folder}/{system}"))
fused = arg_true_false_all("true")


def parts():
    """The same parts of the space that `llm-optimal-execution` gives to its processes."""
    for tp in Llm.get_all_tensor_parallelisms(gpus, app.hidden, app.attn_heads):
        for pp in Llm.get_all_pipeline_parallelisms(gpus, tp, app.num_blocks):
            dp = Llm.get_data_parallelism(gpus, tp, pp)
            for interleaving in Llm.get_valid_pipeline_interleavings(app.num_blocks, pp):
                size = OptimalExecution.get_batch_size(dp, batch)
                if size is None:
                    continue
                for recompute in ["full", "attn_only", "none"]:
                    for sharding in pick(dp > 1, [True, False], [False]):
                        for comm in ["ar", "p2p_rs_ag", "rs_ag"]:
                            yield (tp, pp, dp, interleaving, size, recompute, sharding, comm)


def search(part, debug):
    tp, pp, dp, interleaving, size, recompute, sharding, comm = part
    return OptimalExecution.search(
        debug, 1, False, gpus, batch, "float16", app, syst, tp, pp, dp, interleaving, size, recompute,
        sharding, comm, fused, False, True, True,
    )


everything = list(parts())
space = sum(search(part, True)[1] for part in everything)
random.Random(1).shuffle(everything)
evaluated = good = 0
rate, size = 0.0, 1
begin, cpu = time.monotonic(), time.process_time()
for part in everything:
    best, count, fit, _, _, _ = search(part, False)
    evaluated += count
    good += fit
    if best and best[0][0] > rate:
        rate, size = best[0][0], best[0][1]["batch_size"]
    if time.monotonic() - begin > seconds:
        break
print(json.dumps({
    "space": space, "evaluated": evaluated, "good": good, "seconds": time.monotonic() - begin,
    "cpu_seconds": time.process_time() - cpu, "best_step_s": size / rate if rate else None,
}))
