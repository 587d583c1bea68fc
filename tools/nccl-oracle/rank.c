// One rank of a communicator that is initialised, and connected where that is asked for: what NCCL decides is in its log.
// usage: rank RANK RANKS ID_FILE [connect|sweep]
#define _GNU_SOURCE
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(call, text) do { int result = (call); if (result) { fprintf(stderr, "oracle: %s: %s\n", #call, text(result)); _exit(4); } } while (0)
#define NCCL(call) CHECK(call, ncclGetErrorString)
#define CUDA(call) CHECK(call, cudaGetErrorString)

static void share(ncclUniqueId *id, int rank, const char *path) {
  char draft[4096];
  snprintf(draft, sizeof draft, "%s.draft", path);
  if (rank == 0) {
    NCCL(ncclGetUniqueId(id));
    FILE *file = fopen(draft, "wb");
    if (!file || fwrite(id, sizeof *id, 1, file) != 1 || fclose(file) || rename(draft, path)) { perror(path); _exit(2); }
    return;
  }
  FILE *file;
  while (!(file = fopen(path, "rb"))) usleep(20000);
  if (fread(id, sizeof *id, 1, file) != 1) { perror(path); _exit(2); }
  fclose(file);
}

// A rank that is gone shows in the logs of the others: all wait for ID_FILE.end, which is there when each has its ID_FILE.RANK.
static void leave_together(int rank, const char *path) {
  char mine[4096], end[4096];
  snprintf(mine, sizeof mine, "%s.%d", path, rank);
  snprintf(end, sizeof end, "%s.end", path);
  FILE *file = fopen(mine, "w");
  if (!file || fclose(file)) { perror(mine); _exit(2); }
  while (access(end, F_OK)) usleep(20000);
}

// Small, large and send/recv: each connects what it needs.
static void connect_all(ncclComm_t comm, int ranks) {
  char *memory; cudaStream_t stream; size_t half = 16 << 20;
  CUDA(cudaMalloc((void **)&memory, 2 * half));
  CUDA(cudaStreamCreate(&stream));
  NCCL(ncclAllReduce(memory, memory, 256, ncclFloat, ncclSum, comm, stream));
  CUDA(cudaStreamSynchronize(stream));
  NCCL(ncclAllReduce(memory, memory, half / sizeof(float), ncclFloat, ncclSum, comm, stream));
  CUDA(cudaStreamSynchronize(stream));
  NCCL(ncclGroupStart());
  for (int peer = 0; peer < ranks; peer++) {
    NCCL(ncclSend(memory + peer * 4096, 1024, ncclFloat, peer, comm, stream));
    NCCL(ncclRecv(memory + half + peer * 4096, 1024, ncclFloat, peer, comm, stream));
  }
  NCCL(ncclGroupEnd());
  CUDA(cudaStreamSynchronize(stream));
}

// Every collective with sizes from 1 KiB to 1 GiB: from 2.20 on NCCL writes which algorithm and protocol it takes.
static void sweep(ncclComm_t comm, int ranks) {
  char *memory; cudaStream_t stream; size_t half = (size_t)1 << 30;
  CUDA(cudaMalloc((void **)&memory, 2 * half));
  CUDA(cudaStreamCreate(&stream));
  for (size_t size = 1024; size <= half; size *= 2) {
    size_t all = size / sizeof(float), part = all / ranks ? all / ranks : 1;
    NCCL(ncclAllReduce(memory, memory + half, all, ncclFloat, ncclSum, comm, stream));
    NCCL(ncclAllGather(memory, memory + half, part, ncclFloat, comm, stream));
    NCCL(ncclReduceScatter(memory, memory + half, part, ncclFloat, ncclSum, comm, stream));
    NCCL(ncclBroadcast(memory, memory + half, all, ncclFloat, 0, comm, stream));
    NCCL(ncclReduce(memory, memory + half, all, ncclFloat, ncclSum, 0, comm, stream));
  }
}

int main(int count, char **words) {
  if (count < 4) { fprintf(stderr, "usage: rank RANK RANKS ID_FILE [connect|sweep]\n"); return 1; }
  int rank = atoi(words[1]), ranks = atoi(words[2]);
  ncclUniqueId id; ncclComm_t comm;
  share(&id, rank, words[3]);
  CUDA(cudaSetDevice(0));
  // With a GPU: the CUDA runtime inside libnccl starts with the truth, from here on the forwarding libcuda describes another machine.
  void *libcuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  void (*describe)(int) = libcuda ? (void (*)(int))dlsym(libcuda, "oracle_describe") : NULL;
  if (describe) {
    int (*start)(void **, size_t) = (int (*)(void **, size_t))dlsym(RTLD_DEFAULT, "ncclMemAlloc");  // not before 2.19
    void *memory;
    if (start) NCCL(start(&memory, 1 << 20));
    describe(1);
  }
  NCCL(ncclCommInitRank(&comm, ranks, id, rank));
  if (count > 4 && !strcmp(words[4], "connect")) connect_all(comm, ranks);
  if (count > 4 && !strcmp(words[4], "sweep")) sweep(comm, ranks);
  fflush(NULL);
  leave_together(rank, words[3]);
  _exit(0);
}
