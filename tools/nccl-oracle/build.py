"""NCCL of any release from its sources, without kernels: the host code alone, linked with the stand-in for CUDA.

What NCCL decides does not depend on its kernels, so nothing is compiled for a GPU. The sources are a checkout of
https://github.com/NVIDIA/nccl at the tag of a release; of CUDA only the headers are needed, and those of CUDA 13 do for all
releases from 2.18 on (`compat.h` says what they miss).
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
# Files that are other programs, other systems, or the GPU's side of a NIC.
SKIP = re.compile(r"(^|/)(device|gdaki|doca-gpunetio)/|ras/client\.cc$|param/ncclparam\.cc$|enhcompat\.cc$|_stub\.cc$|/windows")
FLAGS = ["-O1", "-w", "-fPIC", "-fvisibility=hidden", "-fpermissive", "-DNCCL_OS_LINUX", "-DNCCL_GIN_PROXY_ENABLE=1", "-DNCCL_GIN_GDAKI_ENABLE=0"]


def standins(work):
    """Builds the libraries that stand in for CUDA, NVML and the network."""
    lib = work / "standin"
    lib.mkdir(parents=True, exist_ok=True)
    parts = (("cuda", "libcudart.so"), ("nvml", "libnvidia-ml.so.1"), ("net", "libnccl-net-oracle.so"), ("net", "libnccl-net-oraclecoll.so", "-DCOLLNET"), ("net", "libnccl-net-oraclemerge.so", "-DMERGE"))
    for source, name, *flags in parts:
        call("gcc", "-O1", "-shared", "-fPIC", *flags, f"-Wl,-soname,{name}", "-o", lib / name, HERE / f"standin_{source}.c")
    for other in ("libcuda.so", "libcuda.so.1"):
        (lib / other).unlink(missing_ok=True)
        (lib / other).symlink_to("libcudart.so")
    return lib


def release(source, cuda, work):
    """Builds the NCCL of a checkout into WORK/RELEASE/ and returns the release."""
    source, cuda = pathlib.Path(source).resolve(), pathlib.Path(cuda).resolve()
    if not (cuda / "cuda_runtime.h").exists():
        raise SystemExit(f"oracle: {cuda} has no cuda_runtime.h: --cuda is the include folder of a CUDA toolkit")
    if not (source / "makefiles/version.mk").exists():
        raise SystemExit(f"oracle: {source} is not a checkout of NCCL")
    parts = dict(re.findall(r"^NCCL_(\w+)\s*:=\s*(\d+)", (source / "makefiles/version.mk").read_text(), re.M))
    name = "{MAJOR}.{MINOR}.{PATCH}".format(**parts)
    lib, into = standins(work), work / name
    (into / "include").mkdir(parents=True, exist_ok=True)
    (into / "obj").mkdir(exist_ok=True)
    header(source, parts, into)
    files = [it for it in sorted((source / "src").rglob("*.cc")) if not SKIP.search(str(it.relative_to(source / "src")))]
    version = re.search(r"define CUDART_VERSION\s+(\d+)", (cuda / "cuda_runtime_api.h").read_text()).group(1)
    flags = FLAGS + [f"-DCUDA_MAJOR={int(version) // 1000}", f"-DCUDA_MINOR={int(version) % 1000 // 10}", "-include", HERE / "compat.h"]
    flags += [f"-I{it}" for it in (into / "include", ".", "include", "include/plugin", HERE / "include", cuda)]

    def compile_one(file):
        out = into / "obj" / (str(file.relative_to(source / "src")).replace("/", "_") + ".o")
        if not out.exists():
            call("g++", "-std=c++17", *flags, "-c", file, "-o", out, cwd=source / "src")
        return out

    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS", os.cpu_count() or 1))) as pool:
        objects = list(pool.map(compile_one, files))
    library = link(objects, lib, into)
    call("gcc", "-O1", "-o", into / "rank", HERE / "rank.c", f"-I{cuda}", f"-I{into / 'include'}", library, lib / "libcudart.so", "-ldl")
    return name


def header(source, parts, into):
    text = (source / "src/nccl.h.in").read_text()
    number = f"{int(parts['MAJOR'])}{int(parts['MINOR']):02d}{int(parts['PATCH']):02d}"
    for key, value in (("Major", parts["MAJOR"]), ("Minor", parts["MINOR"]), ("Patch", parts["PATCH"]), ("Suffix", ""), ("Version", number)):
        text = text.replace("${nccl:" + key + "}", value)
    (into / "include/nccl.h").write_text(text)
    (into / "include/nccl_git_version.h").write_text('#define NCCL_GIT_BRANCH "unknown"\n#define NCCL_GIT_COMMIT_HASH "unknown"\n')


def link(objects, lib, into):
    """Links the objects. What they miss are tables of kernels, which stay empty, and functions that start kernels, which do nothing."""
    whole, draft = into / "libnccl.so.2", into / "draft.so"
    call("g++", "-shared", "-o", draft, *objects)
    have = set(symbols("--defined-only", lib / "libcudart.so"))
    # A name with @ is of the C or C++ library; the others are weak and may be missing.
    missing = [it for it in symbols("-u", draft) if "@" not in it and it not in have and not it.startswith(("_ITM", "__gmon", "__cxa", "_ZTH"))]
    draft.unlink()
    functions = [it for it in missing if it.startswith("_Z")]
    lines = [".data", ".balign 64"]
    lines += [f".globl {it}; {it}: .skip 65536" for it in missing if it not in functions]
    lines += [".text"]
    lines += [f".globl {it}; .type {it},@function; {it}: xorl %eax,%eax; ret" for it in functions]
    lines += ['.section .note.GNU-stack,"",@progbits', ""]
    (into / "missing.s").write_text("\n".join(lines))
    call("g++", "-shared", "-Wl,-soname,libnccl.so.2", "-o", whole, *objects, into / "missing.s", lib / "libcudart.so", "-lpthread", "-lrt", "-ldl")
    return whole


def symbols(which, library):
    return [line.split()[-1] for line in call("nm", "-D", which, library).splitlines()]


def call(*words, cwd=None):
    it = subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True)
    if it.returncode:
        raise SystemExit(f"oracle: {words[0]} failed: {' '.join(str(word) for word in words)}\n{it.stderr[-3000:]}")
    return it.stdout
