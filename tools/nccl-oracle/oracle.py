#!/usr/bin/env python3
"""What the real NCCL decides on machines that you do not have. README.md says how it works and what it cannot do.

    oracle.py machines
    oracle.py build --source NCCL --cuda INCLUDE
    oracle.py run MACHINE LAYOUT [NAME=VALUE...] --nccl RELEASE [--out LOG.gz] [--then connect|sweep] [--no-nvls]
    oracle.py run MACHINE LAYOUT [NAME=VALUE...] --library libnccl.so.2 --cuda INCLUDE
    oracle.py record FOLDER [FILE...]

LAYOUT is NODESxGPUS, `2x8`, the number of GPUs of each node, `8+4`: the first ones of the machine, or the GPUs themselves,
`0,2/0,2`. MACHINE is one name, or one for each node: `p5+p5lost`. `record` makes the logs of FOLDER/jobs.json again. After the initialisation `--then connect` connects all ranks (`via` lines) and `--then sweep` calls
every collective with sizes from 1 KiB to 1 GiB.
"""

import argparse
import gzip
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True

import build
import forwarding
import machines

WORK = pathlib.Path(os.environ.get("ORACLE_WORK", "/tmp/nccl-oracle"))


def layout(text, nodes):
    """The node and the GPU of each rank; `nodes` are the machines, one for all nodes or one for each."""
    if re.fullmatch(r"\d+x\d+", text):
        count, gpus = map(int, text.split("x"))
        lists = [list(range(gpus))] * count
    elif re.fullmatch(r"\d+(\+\d+)*", text):
        lists = [list(range(int(it))) for it in text.split("+")]
    elif re.fullmatch(r"[\d,/]+", text):
        lists = [[int(it) for it in gpus.split(",")] for gpus in text.split("/")]
    else:
        raise SystemExit(f"oracle: layout {text} is neither NODESxGPUS nor GPUS+GPUS+... nor GPU,GPU/GPU,GPU")
    for node, gpus in enumerate(lists):
        most = len(of_list(nodes, node).gpus)
        if not gpus or max(gpus) >= most:
            raise SystemExit(f"oracle: layout {text}: node {node} has the GPUs 0 to {most - 1}")
    return [(node, gpu) for node, gpus in enumerate(lists) for gpu in gpus]


def of_list(nodes, node):
    return nodes[node] if len(nodes) > 1 else nodes[0]


def run(nodes, text, settings, folder, *, then=None, nvls=None, timeout=300):
    """Runs one job with the NCCL of `folder` and returns the logs of all ranks, in the order of ranks; of a sweep that of rank 0.

    `nodes` are the machines, one for all nodes or one for each.
    """
    ranks = layout(text, nodes)
    libraries = [folder, WORK / "standin"] if (folder / "libnccl.so.2").exists() else [folder]
    with tempfile.TemporaryDirectory(prefix="oracle.") as place:
        place = pathlib.Path(place)
        for node in {node for node, _ in ranks}:
            machine = of_list(nodes, node)
            (place / str(node)).mkdir()
            (place / str(node) / f"{machine.name}.xml").write_text(of_node(machine, node))
        jobs = []
        for rank, (node, local) in enumerate(ranks):
            machine = of_list(nodes, node)
            net = machine.net
            nics = ",".join(f"{name}:{net['mbps']}:{int(net['gpudirect'])}:{net['latency_us']}" for name in machine.nics)
            environment = {
                **{name: value for name, value in os.environ.items() if not name.startswith(("NCCL_", "ORACLE_"))},
                "LD_LIBRARY_PATH": ":".join([*map(str, libraries), os.environ.get("LD_LIBRARY_PATH", "")]),
                "ORACLE_BUSID": machine.gpus[local],
                "ORACLE_BUSIDS": ",".join(machine.gpus),
                "ORACLE_CC": str(machine.cc),
                "ORACLE_NVLS": str(int(machine.nvls if nvls is None else nvls)),
                "ORACLE_PEER": str(int(machine.peer)),
                "ORACLE_FABRIC": str(7 + node // machine.fabric) if machine.fabric else "",
                "ORACLE_NET": net["name"],
                "ORACLE_NICS": nics,
                "NCCL_HOSTID": f"host{node}",
                "NCCL_TOPO_FILE": f"{machine.name}.xml",
                "NCCL_NET_PLUGIN": "oraclecoll" if net.get("collnet") else "oraclemerge" if net.get("merges") else "oracle",
                "NCCL_SOCKET_IFNAME": "lo",
                "NCCL_DEBUG": "INFO",
                "NCCL_DEBUG_SUBSYS": "INIT,ENV,GRAPH,TUNING",
                **settings,
            }
            words = [folder / "rank", str(rank), str(len(ranks)), place / "id"] + ([then] if then else [])
            with open(place / f"{rank}.log", "wb") as log:
                jobs.append(subprocess.Popen(words, env=environment, cwd=place / str(node), stdout=log, stderr=subprocess.STDOUT))
        failed = wait(jobs, place / "id", timeout)
        own = f"{WORK / 'standin'}/".encode()
        logs = [(place / f"{rank}.log").read_bytes().replace(own, b"") for rank in range(len(ranks))]
    complete = sum(b"Init COMPLETE" in it for it in logs)
    if failed or complete != len(ranks):
        warnings = [it for it in b"".join(logs).decode(errors="replace").splitlines() if "NCCL WARN" in it or it.startswith("oracle:")]
        raise RuntimeError(f"{complete} of {len(ranks)} ranks initialised; ranks that failed: {failed}; {' | '.join(warnings[:3])}")
    return logs[0] if then == "sweep" else b"".join(logs)


def of_node(machine, node):
    """The XML of one node. Where NVLink joins nodes NCCL to 2.26 takes the hosts of a domain apart by a hash that only its own XML has."""
    if not machine.fabric:
        return machine.xml
    value = 5381
    for byte in f"host{node}".encode():
        value = (value * 33 ^ byte) % 2**64
    return machine.xml.replace("<cpu ", f'<cpu host_hash="{value:#x}" ')


def wait(jobs, id_file, timeout):
    """Waits until all ranks are done, lets them leave, and returns those that failed or were not done in time."""
    done, end = set(), time.monotonic() + timeout
    try:
        while len(done) < len(jobs) and time.monotonic() < end:
            done |= {rank for rank in range(len(jobs)) if rank not in done and pathlib.Path(f"{id_file}.{rank}").exists()}
            if any(job.poll() not in (None, 0) for job in jobs):
                break
            time.sleep(0.05)
        pathlib.Path(f"{id_file}.end").touch()
        if len(done) == len(jobs):
            for job in jobs:
                job.wait(30)
    finally:
        for job in jobs:
            job.kill()
            job.wait()
    return [rank for rank in range(len(jobs)) if rank not in done]


def built(release):
    folder = WORK / release
    if not (folder / "rank").exists():
        raise SystemExit(f"oracle: NCCL {release} is not built in {WORK}: oracle.py build --source NCCL --cuda INCLUDE")
    build.standins(WORK)
    return folder


def write(path, log):
    # No time and no name in the header: the same log gives the same file.
    with open(path, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(log)


def record(folder, files):
    """Makes the logs of a folder again, as its jobs.json says."""
    folder = pathlib.Path(folder)
    index = json.loads((folder / "jobs.json").read_text())
    bad = 0
    for job in index["jobs"]:
        if files and job["file"] not in files:
            continue
        nodes = [machines.recorded(it, folder, index) for it in job.get("machines", [index["machine"]])]
        for machine in nodes:
            (folder / f"{machine.name}.xml").write_text(machine.xml)
        try:
            log = run(nodes, job["layout"], job["environment"], built(job["nccl"]), then=job.get("then"), nvls=job["nvls"])
            (folder / job["file"]).parent.mkdir(exist_ok=True)
            write(folder / job["file"], log)
            print(f"{folder.name}/{job['file']}: {len(log)} bytes", flush=True)
        except RuntimeError as error:
            bad += 1
            print(f"{folder.name}/{job['file']}: {error}", flush=True)
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("machines")
    it = commands.add_parser("build")
    it.add_argument("--source", required=True)
    it.add_argument("--cuda", required=True)
    it = commands.add_parser("run")
    it.add_argument("machine")
    it.add_argument("layout")
    it.add_argument("settings", nargs="*")
    it.add_argument("--nccl")
    it.add_argument("--library")
    it.add_argument("--cuda")
    it.add_argument("--out")
    it.add_argument("--then", choices=["connect", "sweep"])
    it.add_argument("--no-nvls", action="store_true")
    it = commands.add_parser("record")
    it.add_argument("folder")
    it.add_argument("files", nargs="*")
    given = parser.parse_args()

    if given.command == "machines":
        for name in machines.names():
            print(f"{name:10} {machines.machine(name).about}")
    elif given.command == "build":
        print(f"NCCL {build.release(given.source, given.cuda, WORK)} is in {WORK}")
    elif given.command == "record":
        sys.exit(min(1, record(given.folder, given.files)))
    else:
        nodes = [machines.machine(it) for it in given.machine.split("+")]
        settings = dict(it.split("=", 1) for it in given.settings if "=" in it)
        if len(settings) != len(given.settings):
            raise SystemExit("oracle: settings are NAME=VALUE")
        if bool(given.nccl) == bool(given.library):
            raise SystemExit("oracle: one of --nccl and --library says which NCCL is asked")
        folder = built(given.nccl) if given.nccl else forwarding.prepare(given.library, given.cuda, WORK)
        nvls = False if given.no_nvls or given.library else None
        try:
            log = run(nodes, given.layout, settings, folder, then=given.then, nvls=nvls)
        except RuntimeError as error:
            raise SystemExit(f"oracle: {error}")
        if given.out:
            write(given.out, log)
        else:
            sys.stdout.buffer.write(log)


if __name__ == "__main__":
    main()
