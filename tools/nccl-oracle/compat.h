// Included before every file of NCCL's host code: what older releases expect of the headers of older CUDA releases, and includes
// that nvcc's own headers bring along.
#pragma once
#include <dlfcn.h>
#include <stdint.h>
#include <limits>
#include <type_traits>
#include <cuda.h>
#include <cuda_runtime.h>

#if CUDART_VERSION >= 13000
// CUDA 13 has these names only with a version, NCCL to 2.26 uses them without.
#define PFN(name) typedef decltype(&name) PFN_##name
PFN(cuDeviceGet); PFN(cuDeviceGetAttribute); PFN(cuGetErrorString); PFN(cuGetErrorName); PFN(cuMemGetAddressRange); PFN(cuCtxDestroy);
PFN(cuCtxGetCurrent); PFN(cuCtxSetCurrent); PFN(cuCtxGetDevice); PFN(cuLaunchKernel); PFN(cuLaunchKernelEx); PFN(cuMemAddressReserve);
PFN(cuMemAddressFree); PFN(cuMemCreate); PFN(cuMemGetAllocationGranularity); PFN(cuMemExportToShareableHandle);
PFN(cuMemImportFromShareableHandle); PFN(cuMemMap); PFN(cuMemRelease); PFN(cuMemRetainAllocationHandle); PFN(cuMemSetAccess);
PFN(cuMemUnmap); PFN(cuMemGetAllocationPropertiesFromHandle); PFN(cuPointerGetAttribute); PFN(cuMemGetHandleForAddressRange);
PFN(cuMulticastAddDevice); PFN(cuMulticastBindMem); PFN(cuMulticastBindAddr); PFN(cuMulticastCreate); PFN(cuMulticastGetGranularity);
PFN(cuMulticastUnbind); PFN(cuInit); PFN(cuDriverGetVersion);
#undef PFN
typedef CUresult (*PFN_cuCtxCreate)(CUcontext *, ...);  // three arguments or five
typedef CUresult (*PFN_cuGetProcAddress)(const char *, void **, int, cuuint64_t);

// CUDA 13 took the arguments for the data of an edge into the plain names.
#define cudaStreamGetCaptureInfo_v3 cudaStreamGetCaptureInfo
#define cudaStreamUpdateCaptureDependencies_v2 cudaStreamUpdateCaptureDependencies
#define cudaGraphAddDependencies_v2 cudaGraphAddDependencies
static inline cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, cudaStreamCaptureStatus *status, unsigned long long *id = nullptr, cudaGraph_t *graph = nullptr, const cudaGraphNode_t **nodes = nullptr, size_t *count = nullptr) {
  return cudaStreamGetCaptureInfo(stream, status, id, graph, nodes, nullptr, count);
}
template <typename Count, typename = std::enable_if_t<std::is_integral<Count>::value>>
static inline cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t *nodes, Count count, cudaStreamUpdateCaptureDependenciesFlags flags) {
  return cudaStreamUpdateCaptureDependencies(stream, nodes, nullptr, count, flags);
}
static inline cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to, size_t count) {
  return cudaGraphAddDependencies(graph, from, to, nullptr, count);
}
#endif
