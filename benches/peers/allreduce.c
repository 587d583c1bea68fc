// all_reduce of float sums on an MPI library, measured on request.
//
//   mpirun ... allreduce SOCKET
//
// Every rank connects to the Unix socket and says `RANK PID`. Then it serves lines `BYTES ITERATIONS BATCHES`:
// it fills a send buffer, reduces it once, checks every element, runs one batch that is not counted and BATCHES
// that are, and answers `ok MICROSECONDS-OF-CPU TIME...`, the times of the batches in nanoseconds, or `wrong`.
// A rank without a task sleeps in read(), so that it does not disturb the one that is measured.

#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static long long nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static long long cpu_microseconds(void) {
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1000000LL + use.ru_utime.tv_usec + use.ru_stime.tv_usec;
}

static void *memory(size_t bytes) {
    void *got = NULL;
    if (posix_memalign(&got, 4096, bytes) != 0) exit(3);
    return got;
}

int main(int argc, char **argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);

    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (argc < 2 || strlen(argv[1]) >= sizeof address.sun_path) return 2;
    strcpy(address.sun_path, argv[1]);
    int end = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(end, (struct sockaddr *)&address, sizeof address) != 0) return 2;
    FILE *in = fdopen(end, "r"), *out = fdopen(dup(end), "w");

    // Every connection is made before anything is measured.
    float one = 1, all = 0;
    for (int i = 0; i < 10; i++) MPI_Allreduce(&one, &all, 1, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    fprintf(out, "%d %d\n", rank, (int)getpid());
    fflush(out);

    size_t bytes;
    int iterations, batches;
    while (fscanf(in, "%zu %d %d", &bytes, &iterations, &batches) == 3) {
        long long cpu = cpu_microseconds();
        size_t count = bytes / sizeof(float);
        float *send = memory(bytes), *receive = memory(bytes);
        long long *times = malloc(sizeof *times * batches);
        for (size_t i = 0; i < count; i++) {
            send[i] = (float)(i % 7 + 1 + rank);
            receive[i] = 0;
        }
        MPI_Allreduce(send, receive, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        int right = 1;
        for (size_t i = 0; i < count; i++)
            right &= receive[i] == (float)(ranks * (i % 7 + 1) + ranks * (ranks - 1) / 2);
        for (int batch = -1; batch < batches; batch++) {
            long long start = nanoseconds();
            for (int i = 0; i < iterations; i++)
                MPI_Allreduce(send, receive, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
            if (batch >= 0) times[batch] = nanoseconds() - start;
        }
        fprintf(out, "%s %lld", right ? "ok" : "wrong", cpu_microseconds() - cpu);
        for (int batch = 0; batch < batches; batch++) fprintf(out, " %lld", times[batch]);
        fputc('\n', out);
        fflush(out);
        free(times);
        free(send);
        free(receive);
    }
    MPI_Finalize();
    return 0;
}
