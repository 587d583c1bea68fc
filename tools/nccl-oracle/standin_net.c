// A network plugin that describes NICs and connects to anything without sending a byte.
//
// ORACLE_NET   name of the network in the log
// ORACLE_NICS  name:Mbps:gpudirect:latencyUs of each NIC, separated by commas
//
// Built with -DCOLLNET the network also claims to reduce; with -DMERGE it makes one device of several when NCCL asks for it, as NET/IB does.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, MOST = 64, HOST = 1, CUDA = 2 };
typedef struct { char name[320]; int speed, gpudirect; float latency; int first; } Nic;
static Nic nics[MOST];
static int count;

static int init(void) {
  count = 0;
  const char *text = getenv("ORACLE_NICS");
  for (const char *at = text ? text : ""; *at && count < MOST; count++) {
    Nic *it = &nics[count];
    if (sscanf(at, "%63[^:]:%d:%d:%f", it->name, &it->speed, &it->gpudirect, &it->latency) != 4) return 5;
    it->first = count;
    at += strcspn(at, ","); at += *at == ',';
  }
  return SUCCESS;
}
static int devices(int *out) { *out = count; return SUCCESS; }

// 2.18 takes version 6, 2.19 version 7, newer releases version 8.
typedef struct { char *name, *pciPath; uint64_t guid; int ptrSupport, speed, port; float latency; int maxComms, maxRecvs; } Properties6;
typedef struct { char *name, *pciPath; uint64_t guid; int ptrSupport, speed, port; float latency; int maxComms, maxRecvs, deviceType, deviceVersion; } Properties7;
typedef struct { char *name, *pciPath; uint64_t guid; int ptrSupport, regIsGlobal, speed, port; float latency; int maxComms, maxRecvs, deviceType, deviceVersion; } Properties8;
#define PROPERTIES(version) \
  static int properties##version(int index, Properties##version *out) { \
    Nic *it = &nics[index]; \
    *out = (Properties##version){.name = it->name, .guid = it->first + 1, .ptrSupport = HOST | (it->gpudirect ? CUDA : 0), .speed = it->speed, .port = 1, .latency = it->latency, .maxComms = 65536, .maxRecvs = 1}; \
    return SUCCESS; \
  }
PROPERTIES(6)
PROPERTIES(7)
PROPERTIES(8)

static char connection;
static int listens(int index, void *handle, void **out) { (void)index; (void)handle; *out = &connection; return SUCCESS; }
static int connects(int index, void *handle, void **out, void **device) { (void)index; (void)handle; (void)device; *out = &connection; return SUCCESS; }
static int accepts(void *listener, void **out, void **device) { (void)listener; (void)device; *out = &connection; return SUCCESS; }
static int registers(void *to, void *at, size_t size, int kind, void **out) { (void)to; (void)at; (void)size; (void)kind; *out = &connection; return SUCCESS; }
static int nothing(void) { return SUCCESS; }
static int tests(void *request, int *done, int *size) { (void)request; *done = 1; if (size) *size = 0; return SUCCESS; }

typedef struct { const char *name; void *init, *devices, *properties, *listen, *connect, *accept, *regMr, *regMrDmaBuf, *deregMr, *isend, *irecv, *iflush, *test, *closeSend, *closeRecv, *closeListen, *deviceMr, *consumed; } Net;
#define NET(version) \
  Net ncclNetPlugin_v##version = {"Libfabric", init, devices, properties##version, listens, connects, accepts, registers, NULL, nothing, nothing, nothing, nothing, tests, nothing, nothing, nothing, NULL, NULL}
NET(6);
NET(7);
NET(8);

#ifdef MERGE
// Version 9, which 2.24 and newer take.
typedef struct { int count, members[4]; } Members;
typedef struct { char *name, *pciPath; uint64_t guid; int ptrSupport, regIsGlobal, forceFlush, speed, port; float latency; int maxComms, maxRecvs, deviceType, deviceVersion; Members members; size_t most, mostOfCollective; } Properties9;
static Members members[MOST];
static int properties9(int index, Properties9 *out) {
  Nic *it = &nics[index];
  if (!members[index].count) members[index] = (Members){1, {index}};
  *out = (Properties9){.name = it->name, .guid = it->first + 1, .ptrSupport = HOST | (it->gpudirect ? CUDA : 0), .speed = it->speed, .port = 1, .latency = it->latency, .maxComms = 65536, .maxRecvs = 1, .members = members[index], .most = 1L << 30, .mostOfCollective = 1L << 30};
  return SUCCESS;
}
static int merges(int *out, Members *wanted) {
  const char *merge = getenv("NCCL_IB_MERGE_NICS");
  if (count == MOST || wanted->count < 1 || wanted->count > 4 || (wanted->count > 1 && merge && !atoi(merge))) return 5;
  Nic *it = &nics[count];
  *it = nics[wanted->members[0]];
  for (int i = 1; i < wanted->count; i++) {
    Nic *other = &nics[wanted->members[i]];
    it->speed += other->speed;
    snprintf(it->name + strlen(it->name), sizeof it->name - strlen(it->name), "+%s", other->name);
  }
  members[count] = *wanted;
  *out = count++;
  return SUCCESS;
}
struct { Net net; void *merge; } ncclNetPlugin_v9 = {{"Libfabric", init, devices, properties9, listens, connects, accepts, registers, NULL, nothing, nothing, nothing, nothing, tests, nothing, nothing, nothing, NULL, NULL}, merges};
#endif

#ifdef COLLNET
static int joins(void **handles, int ranks, int rank, void *listener, void **out) { (void)handles; (void)ranks; (void)rank; (void)listener; *out = &connection; return SUCCESS; }
static int reduces(int type, int operation, int *out) { (void)type; (void)operation; *out = 1; return SUCCESS; }
typedef struct { const char *name; void *init, *devices, *properties, *listen, *connect, *reduceSupport, *regMr, *regMrDmaBuf, *deregMr, *iallreduce, *rest[6]; } CollNet;
#define COLL(version, ...) \
  CollNet ncclCollNetPlugin_v##version = {"Oracle", init, devices, properties##version, listens, joins, reduces, registers, NULL, nothing, nothing, {__VA_ARGS__ nothing, tests, nothing, nothing}}
COLL(6, );
COLL(7, );
COLL(8, nothing, nothing,);
#endif

__attribute__((constructor)) static void name(void) {
  const char *it = getenv("ORACLE_NET");
  if (!it || !*it) return;
  ncclNetPlugin_v6.name = ncclNetPlugin_v7.name = ncclNetPlugin_v8.name = it;
#ifdef MERGE
  ncclNetPlugin_v9.net.name = it;
#endif
}
