/*
 * The lock over hiredis, as somebody would write it in C: pipelined to all nodes at once, poll, a majority is enough.
 */
#include "program.h"

#include <hiredis/hiredis.h>
#include <poll.h>

#define MAX_NODES 64

static redisContext *nodes[MAX_NODES];
static int due[MAX_NODES];
static int node_count, quorum;
static char *ask_bytes, *undo_bytes;
static int ask_len, undo_len;
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
