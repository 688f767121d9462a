/*
 * What a contender in C has in common with the others in C: it measures whole blocks by itself, so that no pipe is in the
 * times. What is said on the pipes is described in program.rs. A contender defines `begin`, `acquire` and `release`.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_MS 5000

/* Arguments: resource, TTL, token, guard, digest, and the addresses. All three return 0, or -1 after `fail`. */
static int begin(int count, char **arguments);
static int acquire(void);
static int release(void);

/* What is asked for here is counted, the demands of libraries too. Only glibc has a way to pass it on. */
static uint64_t allocations, allocated_bytes;

#ifdef __GLIBC__
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void __libc_free(void *);

void *malloc(size_t size) {
    allocations++;
    allocated_bytes += size;
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    allocations++;
    allocated_bytes += count * size;
    return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size) {
    allocations++;
    allocated_bytes += size;
    return __libc_realloc(old, size);
}

void free(void *old) { __libc_free(old); }
#define COUNTED 1
#else
#define COUNTED 0
#endif

static char failure[256];

static int fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(failure, sizeof failure, format, arguments);
    va_end(arguments);
    return -1;
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static uint64_t nanoseconds(struct timeval time) {
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_usec * 1000;
}

static void tell(const void *bytes, size_t len) {
    const char *at = bytes;
    while (len > 0) {
        ssize_t written = write(1, at, len);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) exit(1);
        at += written;
        len -= written;
    }
}

static void tell_failure(void) {
    uint64_t head[2] = {UINT64_MAX, strlen(failure)};
    tell(head, sizeof head);
    tell(failure, head[1]);
}

/* How much this process has used until now: CPU, both kinds of context switches, allocations, bytes. */
static void usage(uint64_t used[5]) {
    struct rusage rusage;
    getrusage(RUSAGE_SELF, &rusage);
    used[0] = nanoseconds(rusage.ru_utime) + nanoseconds(rusage.ru_stime);
    used[1] = rusage.ru_nvcsw;
    used[2] = rusage.ru_nivcsw;
    used[3] = allocations;
    used[4] = allocated_bytes;
}

/* Measures a block of pairs into `times`, and returns how many it was, or -1. */
static int64_t block(uint64_t pairs, uint64_t until, uint64_t *times) {
    uint64_t begin = now(), end = begin, done = 0;
    while (done < pairs && end - begin < until) {
        uint64_t start = now();
        if (acquire()) return -1;
        uint64_t held = now();
        if (release()) return -1;
        end = now();
        times[2 * done] = held - start;
        times[2 * done + 1] = end - held;
        done++;
    }
    return done;
}

static int obey(const uint64_t order[3]) {
    uint64_t before[5], after[5], *times = NULL;
    int64_t done = 0;
    if (order[0] == 'b' && !(times = malloc((order[1] + 1) * 2 * sizeof *times))) return fail("no memory");
    usage(before);
    switch (order[0]) {
    case 'a': done = acquire(); break;
    case 'r': done = release(); break;
    case 'b': done = block(order[1], order[2], times); break;
    default: done = fail("an unknown order");
    }
    usage(after);
    if (done >= 0) {
        uint64_t count = done;
        for (int at = 0; at < 5; at++) after[at] -= before[at];
        if (!COUNTED) after[3] = after[4] = UINT64_MAX;
        tell(&count, sizeof count);
        tell(times, count * 2 * sizeof *times);
        tell(after, sizeof after);
    }
    free(times);
    return done < 0 ? -1 : 0;
}

int main(int count, char **arguments) {
    uint64_t order[3], ready = 0;
    if (begin(count, arguments)) {
        tell_failure();
        return 1;
    }
    tell(&ready, sizeof ready);
    while (fread(order, sizeof order, 1, stdin) == 1) {
        if (obey(order)) {
            tell_failure();
            return 1;
        }
    }
    return 0;
}
