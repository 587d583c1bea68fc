// A CUDA runtime and driver without a GPU, as far as NCCL's initialisation and connections use them. Memory is host memory that
// is reserved and not touched, every stream is done at once, every kernel launch succeeds and does nothing.
//
// ORACLE_BUSID  PCI bus id of the GPU of this process
// ORACLE_CC     its compute capability, 90 for Hopper
// ORACLE_NVLS   1: the GPU can take part in NVLink multicast
// ORACLE_FABRIC not empty: memory can be shared with other nodes over NVLink
//
// The declarations are loose on purpose: they fit the headers of CUDA 11 to 13, whose types differ.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { VERSION = 13000, INVALID_VALUE = 1, NOT_FOUND = 500 };
typedef size_t word;

static int number(const char *name, int otherwise) {
  const char *it = getenv(name);
  return it && *it ? atoi(it) : otherwise;
}
static void *reserve(word size) {
  if (size == 0) return NULL;
  void *it = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return it == MAP_FAILED ? NULL : it;
}
static int give(void **out, word size) { return (*out = reserve(size)) || size == 0 ? 0 : 2; }
static int handle(void **out) { *out = malloc(1); return 0; }

// Driver API: found by name through cudaGetDriverEntryPoint ------------------------------------------------------------------

static int oracle_cuGetErrorString(int error, const char **out) { (void)error; *out = "error of the stand-in"; return 0; }
static int oracle_cuGetErrorName(int error, const char **out) { (void)error; *out = "STAND_IN"; return 0; }
static int oracle_cuDriverGetVersion(int *out) { *out = VERSION; return 0; }
static int oracle_cuDeviceGet(int *out, int ordinal) { *out = ordinal; return ordinal != 0; }
static int oracle_cuDeviceGetUuid(char *out, int device) {
  const char *bus = getenv("ORACLE_BUSID");
  (void)device; memset(out, 0, 16); if (bus) strncpy(out, bus, 15);
  return 0;
}
static int attribute(int *out, int what, int device) {
  unsigned domain = 0, bus = 0, slot = 0; const char *id = getenv("ORACLE_BUSID"), *fabric = getenv("ORACLE_FABRIC");
  if (id) sscanf(id, "%x:%x:%x", &domain, &bus, &slot);
  (void)device;
  switch (what) {
    case 16: *out = 132; break;                          // multiprocessors
    case 33: *out = bus; break;
    case 34: *out = slot; break;
    case 50: *out = domain; break;
    case 75: *out = number("ORACLE_CC", 90) / 10; break;
    case 76: *out = number("ORACLE_CC", 90) % 10; break;
    case 97: *out = 227 * 1024; break;                   // shared memory of a block, on request
    case 102: *out = 1; break;                           // virtual memory management
    case 110: case 116: *out = 1; break;                 // GPUDirect RDMA, with virtual memory management and without
    case 124: *out = 1; break;                           // DMA-BUF
    case 128: *out = fabric && *fabric; break;           // handles that another node can open
    case 132: *out = number("ORACLE_NVLS", 0); break;    // multicast
    default: *out = 0;                                   // 134, the NUMA node of the host, among them
  }
  return 0;
}
static int oracle_cuDeviceGetAttribute(int *out, int what, int device) { return attribute(out, what, device); }
static int oracle_cuCtxCreate(void **out) { return handle(out); }
static int oracle_cuCtxDestroy(void) { return 0; }
static int oracle_cuCtxGetCurrent(void **out) { static char context; *out = &context; return 0; }
static int oracle_cuCtxSetCurrent(void) { return 0; }
static int oracle_cuCtxGetDevice(int *out) { *out = 0; return 0; }
static int oracle_cuLaunchKernel(void) { return 0; }
static int oracle_cuLaunchKernelEx(void) { return 0; }
static int oracle_cuMemGetAddressRange(uintptr_t *base, word *size, uintptr_t at) { if (base) *base = at; if (size) *size = 1 << 21; return 0; }
static int oracle_cuMemAddressReserve(void **out, word size) { return give(out, size); }
static int oracle_cuMemAddressFree(void) { return 0; }
static int oracle_cuMemCreate(void **out) { return handle(out); }
static int oracle_cuMemGetAllocationGranularity(word *out) { *out = 2 << 20; return 0; }
static int oracle_cuMemExportToShareableHandle(void *out, void *memory, int kind) {
  (void)memory;
  if (kind == 1) { int file = memfd_create("oracle", 0); memcpy(out, &file, sizeof file); return file < 0; }
  memset(out, 1, 64);
  return 0;
}
static int oracle_cuMemImportFromShareableHandle(void **out) { return handle(out); }
static int oracle_cuMemMap(void) { return 0; }
static int oracle_cuMemUnmap(void) { return 0; }
static int oracle_cuMemRelease(void) { return 0; }
static int oracle_cuMemRetainAllocationHandle(void **out) { return handle(out); }
static int oracle_cuMemSetAccess(void) { return 0; }
static int oracle_cuMemGetAllocationPropertiesFromHandle(int *out) { int is[8] = {1, 1, 1, 0}; memcpy(out, is, sizeof is); return 0; }
static int oracle_cuPointerGetAttribute(int *out) { *out = 0; return 0; }
static int oracle_cuMemGetHandleForAddressRange(void) { return INVALID_VALUE; }
static int oracle_cuMulticastAddDevice(void) { return 0; }
static int oracle_cuMulticastBindMem(void) { return 0; }
static int oracle_cuMulticastBindAddr(void) { return 0; }
static int oracle_cuMulticastCreate(void **out) { return handle(out); }
static int oracle_cuMulticastGetGranularity(word *out) { *out = 2 << 20; return 0; }
static int oracle_cuMulticastUnbind(void) { return 0; }

#define ENTRY(name) {#name, (void *)oracle_##name}
static const struct { const char *name; void *is; } driver[] = {
  ENTRY(cuGetErrorString), ENTRY(cuGetErrorName), ENTRY(cuDriverGetVersion), ENTRY(cuDeviceGet), ENTRY(cuDeviceGetUuid),
  ENTRY(cuDeviceGetAttribute), ENTRY(cuCtxCreate), ENTRY(cuCtxDestroy), ENTRY(cuCtxGetCurrent), ENTRY(cuCtxSetCurrent),
  ENTRY(cuCtxGetDevice), ENTRY(cuLaunchKernel), ENTRY(cuLaunchKernelEx), ENTRY(cuMemGetAddressRange), ENTRY(cuMemAddressReserve),
  ENTRY(cuMemAddressFree), ENTRY(cuMemCreate), ENTRY(cuMemGetAllocationGranularity), ENTRY(cuMemExportToShareableHandle),
  ENTRY(cuMemImportFromShareableHandle), ENTRY(cuMemMap), ENTRY(cuMemUnmap), ENTRY(cuMemRelease),
  ENTRY(cuMemRetainAllocationHandle), ENTRY(cuMemSetAccess), ENTRY(cuMemGetAllocationPropertiesFromHandle),
  ENTRY(cuPointerGetAttribute), ENTRY(cuMemGetHandleForAddressRange), ENTRY(cuMulticastAddDevice), ENTRY(cuMulticastBindMem),
  ENTRY(cuMulticastBindAddr), ENTRY(cuMulticastCreate), ENTRY(cuMulticastGetGranularity), ENTRY(cuMulticastUnbind),
};
static int entry(const char *name, void **out, int *status) {
  *out = NULL;
  for (unsigned i = 0; i < sizeof driver / sizeof *driver; i++) if (!strcmp(name, driver[i].name)) *out = driver[i].is;
  if (status) *status = *out ? 0 : 1;
  return *out || status ? 0 : NOT_FOUND;
}
int cudaGetDriverEntryPoint(const char *name, void **out, uint64_t flags, int *status) { (void)flags; return entry(name, out, status); }
int cudaGetDriverEntryPointByVersion(const char *name, void **out, unsigned version, uint64_t flags, int *status) { (void)version; (void)flags; return entry(name, out, status); }

// Releases to 2.20 open libcuda.so themselves.
int cuInit(void) { return 0; }
int cuDriverGetVersion(int *out) { return oracle_cuDriverGetVersion(out); }
int cuGetProcAddress(const char *name, void **out) {
  if (!strcmp(name, "cuInit")) { *out = (void *)cuInit; return 0; }
  if (!strcmp(name, "cuGetProcAddress")) { *out = (void *)cuGetProcAddress; return 0; }
  return entry(name, out, NULL);
}

// Runtime API ------------------------------------------------------------------------------------------------------------------

int cudaDriverGetVersion(int *out) { *out = VERSION; return 0; }
int cudaRuntimeGetVersion(int *out) { *out = VERSION; return 0; }
int cudaGetDevice(int *out) { *out = 0; return 0; }
int cudaSetDevice(int device) { return device != 0; }
int cudaGetDeviceCount(int *out) { *out = 1; return 0; }
int cudaGetDeviceProperties(char *out, int device) { (void)device; memset(out, 0, 600); *(word *)(out + 288) = (word)80 << 30; return 0; }
int cudaGetDeviceProperties_v2(char *out, int device) { return cudaGetDeviceProperties(out, device); }
int cudaDeviceGetAttribute(int *out, int what, int device) { return attribute(out, what, device); }
int cudaDeviceGetPCIBusId(char *out, int size, int device) { const char *id = getenv("ORACLE_BUSID"); (void)device; snprintf(out, size, "%s", id ? id : "0000:00:00.0"); return 0; }
int cudaDeviceCanAccessPeer(int *out) { *out = 1; return 0; }
const char *cudaGetErrorString(int error) { static char text[40]; snprintf(text, sizeof text, "stand-in error %d", error); return text; }
int cudaMalloc(void **out, word size) { return give(out, size); }
int cudaMallocAsync(void **out, word size) { return give(out, size); }
int cudaMallocFromPoolAsync(void **out, word size) { return give(out, size); }
int cudaHostAlloc(void **out, word size) { return give(out, size); }
int cudaHostGetDevicePointer(void **out, void *host) { *out = host; return 0; }
int cudaMemcpy(void *to, const void *from, word size) { memcpy(to, from, size); return 0; }
int cudaMemcpyAsync(void *to, const void *from, word size) { memcpy(to, from, size); return 0; }
int cudaMemset(void *at, int value, word size) { if (value) memset(at, value, size); return 0; }
int cudaMemsetAsync(void *at, int value, word size) { return cudaMemset(at, value, size); }
int cudaPointerGetAttributes(int *out, void *at) { out[0] = 2; out[1] = 0; memcpy(out + 2, &at, sizeof at); memset(out + 4, 0, sizeof at); return 0; }
int cudaIpcGetMemHandle(void *out, void *at) { memset(out, 0, 64); memcpy(out, &at, sizeof at); return 0; }
int cudaIpcOpenMemHandle(void **out) { return give(out, 64 << 20); }
int cudaGetFuncBySymbol(void **out) { return handle(out); }
int cudaLaunchHostFunc(void *stream, void (*call)(void *), void *with) { (void)stream; call(with); return 0; }
int cudaMemPoolCreate(void **out) { return handle(out); }
int cudaEventCreate(void **out) { return handle(out); }
int cudaEventCreateWithFlags(void **out) { return handle(out); }
int cudaStreamCreateWithFlags(void **out) { return handle(out); }
int cudaStreamCreate(void **out) { return handle(out); }
int cudaUserObjectCreate(void **out) { return handle(out); }
int cudaStreamIsCapturing(void *stream, int *out) { (void)stream; *out = 0; return 0; }
int cudaStreamGetCaptureInfo(void *stream, int *out) { (void)stream; *out = 0; return 0; }
int cudaStreamGetCaptureInfo_v2(void *stream, int *out) { (void)stream; *out = 0; return 0; }
int cudaStreamGetCaptureInfo_v3(void *stream, int *out) { (void)stream; *out = 0; return 0; }

#define NOTHING(name) int name(void) { return 0; }
NOTHING(cudaDeviceEnablePeerAccess) NOTHING(cudaDeviceSetLimit) NOTHING(cudaEventDestroy) NOTHING(cudaEventQuery) NOTHING(cudaEventRecord)
NOTHING(cudaEventSynchronize) NOTHING(cudaEventRecordWithFlags) NOTHING(cudaFree) NOTHING(cudaFreeAsync) NOTHING(cudaFreeHost)
NOTHING(cudaFuncGetAttributes) NOTHING(cudaFuncSetAttribute) NOTHING(cudaGetLastError) NOTHING(cudaGraphAddDependencies) NOTHING(cudaGraphAddDependencies_v2)
NOTHING(cudaGraphAddEventRecordNode) NOTHING(cudaGraphAddEventWaitNode) NOTHING(cudaGraphAddHostNode) NOTHING(cudaGraphRetainUserObject)
NOTHING(cudaGraphAddKernelNode) NOTHING(cudaGraphKernelNodeSetAttribute) NOTHING(cudaGraphKernelNodeGetAttribute) NOTHING(cudaGraphHostNodeSetParams)
NOTHING(cudaHostRegister) NOTHING(cudaHostUnregister) NOTHING(cudaIpcCloseMemHandle) NOTHING(cudaLaunchKernel) NOTHING(cudaLaunchKernelExC)
NOTHING(cudaMemPoolDestroy) NOTHING(cudaMemPoolSetAttribute) NOTHING(cudaMemcpyBatchAsync) NOTHING(cudaStreamDestroy)
NOTHING(cudaStreamSynchronize) NOTHING(cudaStreamUpdateCaptureDependencies) NOTHING(cudaStreamUpdateCaptureDependencies_v2)
NOTHING(cudaStreamWaitEvent) NOTHING(cudaThreadExchangeStreamCaptureMode) NOTHING(cudaMemPoolTrimTo)
