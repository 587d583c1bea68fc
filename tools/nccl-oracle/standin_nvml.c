// An NVML that answers for the GPUs of one described machine.
//
// ORACLE_BUSIDS  their PCI bus ids, separated by commas
// ORACLE_CC      their compute capability, 90 for Hopper
// ORACLE_PEER    0: no GPU can reach another one's memory
// ORACLE_FABRIC  CLIQUE: the NVLink domain that reaches over several nodes; empty: there is none
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, MOST = 64 };
typedef struct { int index; char id[32]; } Device;
static Device devices[MOST];
static int count = -1;

static int number(const char *name, int otherwise) {
  const char *it = getenv(name);
  return it && *it ? atoi(it) : otherwise;
}
static void load(void) {
  if (count >= 0) return;
  count = 0;
  const char *ids = getenv("ORACLE_BUSIDS");
  for (const char *at = ids ? ids : ""; *at && count < MOST; count++) {
    size_t size = strcspn(at, ",");
    devices[count].index = count;
    if (size < sizeof devices[count].id) memcpy(devices[count].id, at, size);
    at += size + (at[size] == ',');
  }
}
// The domain has four digits in some releases and eight in others.
static const char *without_domain(const char *id) { const char *colon = strchr(id, ':'); return colon ? colon + 1 : id; }

int nvmlInit(void) { load(); return SUCCESS; }
int nvmlInit_v2(void) { return nvmlInit(); }
int nvmlShutdown(void) { return SUCCESS; }
int nvmlDeviceGetCount(unsigned *out) { load(); *out = count; return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *out) { return nvmlDeviceGetCount(out); }
int nvmlDeviceGetHandleByPciBusId(const char *id, Device **out) {
  load();
  for (int i = 0; i < count; i++) if (!strcasecmp(without_domain(devices[i].id), without_domain(id))) { *out = &devices[i]; return SUCCESS; }
  return NOT_FOUND;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, Device **out) { return nvmlDeviceGetHandleByPciBusId(id, out); }
int nvmlDeviceGetHandleByIndex(unsigned index, Device **out) { load(); if ((int)index >= count) return INVALID_ARGUMENT; *out = &devices[index]; return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **out) { return nvmlDeviceGetHandleByIndex(index, out); }
int nvmlDeviceGetIndex(Device *it, unsigned *out) { *out = it->index; return SUCCESS; }
const char *nvmlErrorString(int error) { (void)error; return "error of the stand-in"; }
int nvmlDeviceGetCudaComputeCapability(Device *it, int *major, int *minor) { (void)it; int cc = number("ORACLE_CC", 90); *major = cc / 10; *minor = cc % 10; return SUCCESS; }
int nvmlDeviceGetP2PStatus(Device *a, Device *b, int what, int *out) { (void)a; (void)b; (void)what; *out = number("ORACLE_PEER", 1) ? 0 : 1; return SUCCESS; }
// NVLinks stand in the XML; NCCL asks here only for GPUs that have none.
int nvmlDeviceGetNvLinkState(void) { return NOT_SUPPORTED; }
int nvmlDeviceGetNvLinkRemotePciInfo(void) { return NOT_SUPPORTED; }
int nvmlDeviceGetNvLinkCapability(void) { return NOT_SUPPORTED; }
int nvmlDeviceGetFieldValues(void) { return NOT_SUPPORTED; }
// From 2.21 on; the struct is version 2, with the health mask.
typedef struct { unsigned version; unsigned char uuid[16]; int status; unsigned clique; unsigned char state; unsigned health; } Fabric;
int nvmlDeviceGetGpuFabricInfoV(Device *it, Fabric *out) {
  const char *fabric = getenv("ORACLE_FABRIC");
  (void)it;
  if (!fabric || !*fabric) return NOT_SUPPORTED;
  memset(out->uuid, 0x11, sizeof out->uuid); out->status = SUCCESS; out->clique = atoi(fabric); out->state = 3; out->health = 0;
  return SUCCESS;
}
