/* Prints the verdict of hiredis's reader on each stream (accepts, waits or rejects) and a digest of
 * the accepted replies. Its output is verdicts.txt in this folder. To write it, in the folder above:
 *
 *   apt-get install libhiredis-dev
 *   cc -O2 -Wall -o /tmp/verdicts hiredis/verdicts.c -lhiredis
 *   cargo run -p resp-tests --example unpack -- /tmp/streams
 *   (cd /tmp/streams && find vectors recorded -type f | LC_ALL=C sort | xargs /tmp/verdicts) \
 *     > hiredis/verdicts.txt
 *
 * The digest is FNV-1a, 64 bits, over one line for each element ("DEPTH KIND LENGTH-OR-VALUE"),
 * each text followed by its bytes and a line feed. hiredis knows one nil; so does the digest. */

#include <hiredis/hiredis.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t digest;

static void add(const void *bytes, size_t len) {
    for (size_t at = 0; at < len; at++)
        digest = (digest ^ ((const unsigned char *)bytes)[at]) * 0x100000001b3;
}

static void add_line(int depth, const char *kind, long long number) {
    char line[64];
    add(line, snprintf(line, sizeof line, "%d %s %lld\n", depth, kind, number));
}

static void add_reply(const redisReply *reply, int depth) {
    switch (reply->type) {
    case REDIS_REPLY_INTEGER: add_line(depth, "int", reply->integer); return;
    case REDIS_REPLY_NIL: add_line(depth, "nil", 0); return;
    case REDIS_REPLY_ARRAY:
        add_line(depth, "array", reply->elements);
        for (size_t at = 0; at < reply->elements; at++) add_reply(reply->element[at], depth + 1);
        return;
    case REDIS_REPLY_STATUS: add_line(depth, "simple", reply->len); break;
    case REDIS_REPLY_ERROR: add_line(depth, "error", reply->len); break;
    case REDIS_REPLY_STRING: add_line(depth, "bulk", reply->len); break;
    default: fprintf(stderr, "a reply of type %d\n", reply->type); exit(1);
    }
    add(reply->str, reply->len);
    add("\n", 1);
}

static const char *judge(const char *bytes, size_t len) {
    redisReader *reader = redisReaderCreate();
    void *reply = NULL;
    digest = 0xcbf29ce484222325;
    redisReaderFeed(reader, bytes, len);
    while (redisReaderGetReply(reader, &reply) == REDIS_OK && reply != NULL) {
        add_reply(reply, 0);
        freeReplyObject(reply);
    }
    /* A reader that was asked for a missing reply has begun one whose type is unknown. */
    int idle = reader->ridx < 0 || (reader->ridx == 0 && reader->rstack[0].type < 0);
    int all_read = reader->pos == reader->len;
    const char *verdict = reader->err ? "rejects" : idle && all_read ? "accepts" : "waits";
    redisReaderFree(reader);
    return verdict;
}

int main(int argc, char **argv) {
    printf("# hiredis %d.%d.%d\n", HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH);
    for (int at = 1; at < argc; at++) {
        static char bytes[1 << 22];
        FILE *file = fopen(argv[at], "rb");
        if (file == NULL) { perror(argv[at]); return 1; }
        size_t len = fread(bytes, 1, sizeof bytes, file);
        fclose(file);
        const char *verdict = judge(bytes, len);
        printf("%s %s", argv[at], verdict);
        if (strcmp(verdict, "accepts") == 0) printf(" %016llx", (unsigned long long)digest);
        printf("\n");
    }
    return 0;
}
