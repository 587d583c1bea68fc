"""An ordinary libnccl.so.2 on one GPU: a libcuda.so.1 that forwards every call to the driver and describes another GPU.

It changes the PCI bus id (ORACLE_BUSID), the compute capability (ORACLE_CC) and multicast (ORACLE_NVLS) once
oracle_describe(1) was called: the CUDA runtime wants the truth when it starts.
"""

import os
import pathlib
import subprocess

import build

HERE = pathlib.Path(__file__).resolve().parent
OURS = {"cuDeviceGetPCIBusId", "cuDeviceGetAttribute", "cuGetProcAddress", "cuGetProcAddress_v2"}

CODE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef unsigned long long Flags;
extern void *oracle_table[] __attribute__((visibility("hidden")));
static const char *names[] = {NAMES};
static int (*bus)(char *, int, int), (*attribute)(int *, int, int), (*find)(const char *, void **, int, Flags), (*find_v2)(const char *, void **, int, Flags, void *);
static int describes;
void oracle_describe(int on) { describes = on; }
__attribute__((constructor)) static void start(void) {
  void *real = dlopen("REAL", RTLD_NOW | RTLD_LOCAL);
  if (!real) { fprintf(stderr, "oracle: %s\n", dlerror()); exit(9); }
  for (unsigned i = 0; i < sizeof names / sizeof *names; i++) oracle_table[i] = dlsym(real, names[i]);
  bus = dlsym(real, "cuDeviceGetPCIBusId"); attribute = dlsym(real, "cuDeviceGetAttribute");
  find = dlsym(real, "cuGetProcAddress"); find_v2 = dlsym(real, "cuGetProcAddress_v2");
}
int cuDeviceGetPCIBusId(char *out, int size, int device) {
  const char *id = getenv("ORACLE_BUSID");
  if (!describes || !id) return bus(out, size, device);
  snprintf(out, size, "%s", id);
  return 0;
}
int cuDeviceGetAttribute(int *out, int what, int device) {
  const char *cc = getenv("ORACLE_CC"), *id = getenv("ORACLE_BUSID"), *nvls = getenv("ORACLE_NVLS"); unsigned domain, number, slot;
  if (!describes) return attribute(out, what, device);
  if (cc && what == 75) { *out = atoi(cc) / 10; return 0; }
  if (cc && what == 76) { *out = atoi(cc) % 10; return 0; }
  if (nvls && what == 132) { *out = atoi(nvls); return 0; }
  if (id && (what == 33 || what == 34 || what == 50) && sscanf(id, "%x:%x:%x", &domain, &number, &slot) == 3) { *out = what == 33 ? number : what == 34 ? slot : domain; return 0; }
  return attribute(out, what, device);
}
int cuGetProcAddress(const char *name, void **out, int version, Flags flags);
int cuGetProcAddress_v2(const char *name, void **out, int version, Flags flags, void *status);
static int ours(const char *name, void **out, int version, int result) {
  if (!out || !*out) return result;
  if (!strcmp(name, "cuDeviceGetPCIBusId")) *out = cuDeviceGetPCIBusId;
  if (!strcmp(name, "cuDeviceGetAttribute")) *out = cuDeviceGetAttribute;
  if (!strcmp(name, "cuGetProcAddress")) *out = version >= 12000 ? (void *)cuGetProcAddress_v2 : (void *)cuGetProcAddress;
  return result;
}
int cuGetProcAddress(const char *name, void **out, int version, Flags flags) { return ours(name, out, version, find(name, out, version, flags)); }
int cuGetProcAddress_v2(const char *name, void **out, int version, Flags flags, void *status) { return ours(name, out, version, find_v2(name, out, version, flags, status)); }
"""


def prepare(library, cuda, work):
    """Builds what a run with this libnccl.so.2 needs and returns the folder."""
    if not cuda:
        raise SystemExit("oracle: --library needs --cuda, the include folder of a CUDA toolkit")
    library, real = pathlib.Path(library).resolve(), driver()
    lib, into = build.standins(work), work / "forwarding"
    into.mkdir(parents=True, exist_ok=True)
    names = sorted({line.split()[-1].split("@")[0] for line in build.call("nm", "-D", "--defined-only", real).splitlines() if line.split()[-2] in "TtiW"} - OURS)
    table = [".text"]
    for index, name in enumerate(names):
        table += [f".globl {name}", f".type {name},@function", f"{name}: jmp *oracle_table+{8 * index}(%rip)"]
    table += [".bss", ".balign 8", ".globl oracle_table", ".hidden oracle_table", f"oracle_table: .skip {8 * len(names)}", '.section .note.GNU-stack,"",@progbits', ""]
    (into / "forward.s").write_text("\n".join(table))
    (into / "forward.c").write_text(CODE.replace("NAMES", ", ".join(f'"{it}"' for it in names)).replace("REAL", str(real)))
    build.call("gcc", "-shared", "-fPIC", "-O1", "-Wl,-soname,libcuda.so.1", "-o", into / "libcuda.so.1", into / "forward.c", into / "forward.s", "-ldl")
    for name in ("libnvidia-ml.so.1", "libnccl-net-oracle.so"):
        (into / name).unlink(missing_ok=True)
        (into / name).symlink_to(lib / name)
    cudart = runtime()
    include = library.parent.parent / "include"
    build.call("gcc", "-O1", "-o", into / "rank", HERE / "rank.c", f"-I{cuda}", f"-I{include}", library, cudart, f"-Wl,-rpath,{library.parent}:{cudart.parent}", "-ldl")
    return into


def driver():
    for line in build.call("ldconfig", "-p").splitlines():
        if "libcuda.so.1 " in line:
            return pathlib.Path(line.split("=> ")[1]).resolve()
    for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") + ["/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu"]:
        if folder and (pathlib.Path(folder) / "libcuda.so.1").exists():
            return (pathlib.Path(folder) / "libcuda.so.1").resolve()
    raise SystemExit("oracle: no libcuda.so.1: a run with --library needs an NVIDIA driver")


def runtime():
    found = subprocess.run(["find", "/usr/local", "/opt", "-name", "libcudart.so.1*"], capture_output=True, text=True).stdout.split()
    if not found:
        raise SystemExit("oracle: no libcudart.so: a run with --library needs the CUDA runtime")
    return pathlib.Path(found[0])
