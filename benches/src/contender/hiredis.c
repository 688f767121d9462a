/*
 * The lock over hiredis, as somebody would write it in C: pipelined to all nodes at once, poll, a majority is
 * enough. It measures whole blocks by itself, so that no pipe is in the times. What is said on the pipes is
 * described in hiredis.rs.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <hiredis/hiredis.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define MAX_NODES 64
#define PATIENCE_MS 5000

/* What is asked for here is counted, hiredis' own demands too. Only glibc has a way to pass it on. */
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

static redisContext *nodes[MAX_NODES];
static int due[MAX_NODES];
static int node_count, quorum;
static char *ask_bytes, *undo_bytes;
static int ask_len, undo_len;
static char failure[256];

static int fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(failure, sizeof failure, format, arguments);
    va_end(arguments);
    return -1;
}

static int say(int at, const char *bytes, int len, int replies) {
    int done = 0;
    if (redisAppendFormattedCommand(nodes[at], bytes, len) != REDIS_OK) return fail("%s", nodes[at]->errstr);
    while (!done) {
        if (redisBufferWrite(nodes[at], &done) != REDIS_OK) return fail("%s", nodes[at]->errstr);
    }
    due[at] += replies;
    return 0;
}

/* Reads what has come. Returns 1 if it was all that is due, 0 if something is still due. */
static int hear(int at) {
    if (redisBufferRead(nodes[at]) != REDIS_OK) return fail("%s", nodes[at]->errstr);
    while (due[at] > 0) {
        redisReply *reply;
        if (redisReaderGetReply(nodes[at]->reader, (void **)&reply) != REDIS_OK)
            return fail("%s", nodes[at]->reader->errstr);
        if (!reply) return 0;
        int yes = reply->type == REDIS_REPLY_STATUS || (reply->type == REDIS_REPLY_INTEGER && reply->integer > 0);
        freeReplyObject(reply);
        if (!yes) return fail("not granted, or not held");
        due[at]--;
    }
    return 1;
}

/* Asks all nodes and waits for a majority. The replies of the others are read with the next call's. */
static int call(const char *bytes, int len, int replies) {
    int answered = 0;
    for (int at = 0; at < node_count; at++)
        if (say(at, bytes, len, replies)) return -1;
    while (answered < quorum) {
        struct pollfd waiting[MAX_NODES];
        int whose[MAX_NODES], count = 0;
        for (int at = 0; at < node_count; at++) {
            if (!due[at]) continue;
            waiting[count].fd = nodes[at]->fd;
            waiting[count].events = POLLIN;
            whose[count++] = at;
        }
        int ready = poll(waiting, count, PATIENCE_MS);
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) return fail("a majority does not answer");
        for (int at = 0; at < count; at++) {
            if (!waiting[at].revents) continue;
            int heard = hear(whose[at]);
            if (heard < 0) return -1;
            answered += heard;
        }
    }
    return 0;
}

static int acquire(void) { return call(ask_bytes, ask_len, 2); }

static int release(void) { return call(undo_bytes, undo_len, 1); }

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

/* An address is a path, or a host and a port. hiredis sets TCP_NODELAY by itself. */
static int dial(char *address) {
    struct timeval patience = {PATIENCE_MS / 1000, 0};
    char *colon = strrchr(address, ':');
    redisContext *node;
    if (node_count == MAX_NODES) return fail("too many nodes");
    if (*address == '/') {
        node = redisConnectUnixWithTimeout(address, patience);
    } else {
        if (!colon) return fail("%s has no port", address);
        *colon = 0;
        node = redisConnectWithTimeout(address, atoi(colon + 1), patience);
    }
    if (!node) return fail("no memory");
    if (node->err) return fail("%s", node->errstr);
    if (redisSetTimeout(node, patience) != REDIS_OK) return fail("%s", node->errstr);
    nodes[node_count++] = node;
    return 0;
}

/* Arguments: resource, TTL, token, guard, digest, and the addresses. */
static int begin(int count, char **arguments) {
    if (count < 7) return fail("too few arguments");
    char *set, *pttl;
    const char *resource = arguments[1], *ttl = arguments[2], *token = arguments[3];
    int set_len = redisFormatCommand(&set, "SET %s %s NX PX %s", resource, token, ttl);
    int pttl_len = redisFormatCommand(&pttl, "PTTL %s", arguments[4]);
    undo_len = redisFormatCommand(&undo_bytes, "EVALSHA %s 1 %s %s", arguments[5], resource, token);
    if (set_len < 0 || pttl_len < 0 || undo_len < 0) return fail("a command cannot be written");
    ask_len = set_len + pttl_len;
    if (!(ask_bytes = malloc(ask_len))) return fail("no memory");
    memcpy(ask_bytes, set, set_len);
    memcpy(ask_bytes + set_len, pttl, pttl_len);
    for (int at = 6; at < count; at++)
        if (dial(arguments[at])) return -1;
    quorum = node_count / 2 + 1;
    return 0;
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
