// The blocking API from C: every kind of lock, every function. The test gives it three nodes.
#include "check.h"

#include <inttypes.h>

static redbolt_client *client_of(int count, char **addresses) {
    redbolt_config *config = config_of(count, addresses);
    redbolt_client *client = NULL;
    OK(redbolt_client_new(config, &client, &error));
    redbolt_config_free(config);
    OK(redbolt_client_warm_up(client, 15000, &error));
    return client;
}

static redbolt_lock *acquired(redbolt_client *client, redbolt_request *request) {
    redbolt_lock *lock = NULL;
    OK(redbolt_client_acquire(client, request, &lock, &error));
    redbolt_request_free(request);
    CHECK(lock != NULL && redbolt_lock_is_valid(lock));
    return lock;
}

static void exclusive(redbolt_client *ours, redbolt_client *theirs) {
    redbolt_lock *lock = NULL, *none = NULL;
    OK(redbolt_client_lease(ours, "invoices", 10000, &lock, &error));
    CHECK(redbolt_lock_mode(lock) == REDBOLT_MODE_EXCLUSIVE);
    uint64_t left = redbolt_lock_remaining_ms(lock);
    CHECK(left > 0 && left <= 10000);
    uint64_t token = 7;
    uint16_t slot = 7;
    CHECK(!redbolt_lock_fencing_token(lock, &token) && token == 7);
    CHECK(!redbolt_lock_slot(lock, &slot) && slot == 7);

    redbolt_error *error = NULL;
    CHECK(redbolt_client_try_lease(theirs, "invoices", 10000, &none, &error) == REDBOLT_STATUS_CONTENDED);
    CHECK(none == NULL && redbolt_error_is_contended(error));
    CHECK(redbolt_error_node_count(error) == 3);
    redbolt_node_error node;
    CHECK(redbolt_error_node(error, 0, &node) == REDBOLT_STATUS_OK);
    CHECK(node.number == 1 && strstr(node.message, node.address) != NULL);
    CHECK(redbolt_error_node(error, 3, &node) == REDBOLT_STATUS_INVALID_ARGUMENT);
    redbolt_error_free(error);

    OK(redbolt_lock_extend(lock, 20000, &error));
    CHECK(redbolt_lock_remaining_ms(lock) > left);
    EXPECT(REDBOLT_STATUS_REQUEST, redbolt_lock_extend(lock, 3600000, &error));
    OK(redbolt_lock_release(lock, &error));
    // Freeing is releasing without waiting.
    OK(redbolt_client_try_lease(ours, "invoices", 10000, &lock, &error));
    redbolt_lock_free(lock);
    OK(redbolt_client_lease(theirs, "invoices", 10000, &lock, &error));
    OK(redbolt_lock_release(lock, &error));
}

static void waiting(redbolt_client *ours, redbolt_client *theirs) {
    redbolt_lock *lock = NULL, *none = NULL;
    OK(redbolt_client_lease(ours, "queue", 10000, &lock, &error));
    redbolt_request *request = redbolt_request_new("queue");
    redbolt_request_set_wait_ms(request, 50);
    redbolt_error *error = NULL;
    redbolt_status status = redbolt_client_acquire(theirs, request, &none, &error);
    CHECK(status == REDBOLT_STATUS_OUT_OF_TIME && redbolt_error_is_contended(error));
    redbolt_error_free(error);
    // A try does not wait, even if the request has a wait.
    redbolt_request_set_wait_ms(request, UINT64_MAX);
    EXPECT(REDBOLT_STATUS_CONTENDED, redbolt_client_try_acquire(theirs, request, &none, &error));
    OK(redbolt_lock_release(lock, &error));
    OK(redbolt_client_try_acquire(theirs, request, &lock, &error));
    OK(redbolt_lock_release(lock, &error));
    // A lease that is not extended has ended when another client gets the lock.
    redbolt_request_set_wait_ms(request, UINT64_MAX);
    redbolt_request_set_ttl_ms(request, 1500);
    redbolt_lock *brief = acquired(theirs, request);
    request = redbolt_request_new("queue");
    redbolt_request_set_wait_ms(request, UINT64_MAX);
    lock = acquired(ours, request);
    CHECK(!redbolt_lock_is_valid(brief));
    EXPECT(REDBOLT_STATUS_LOST, redbolt_lock_extend(brief, 1000, &error));
    // Its client has forgotten it by now, and all calls still work.
    CHECK(redbolt_lock_mode(brief) == REDBOLT_MODE_EXCLUSIVE);
    EXPECT(REDBOLT_STATUS_LOST, redbolt_lock_release(brief, &error));
    OK(redbolt_lock_release(lock, &error));
}

static void shared(redbolt_client *ours, redbolt_client *theirs) {
    redbolt_request *request = redbolt_request_new("prices");
    redbolt_request_set_shared(request);
    redbolt_lock *reader = acquired(ours, request);
    CHECK(redbolt_lock_mode(reader) == REDBOLT_MODE_SHARED);
    request = redbolt_request_new("prices");
    redbolt_request_set_shared(request);
    redbolt_lock *other = acquired(theirs, request);
    EXPECT(REDBOLT_STATUS_CONTENDED, redbolt_lock_try_upgrade(reader, &error));
    OK(redbolt_lock_release(other, &error));
    OK(redbolt_lock_try_upgrade(reader, &error));
    CHECK(redbolt_lock_mode(reader) == REDBOLT_MODE_EXCLUSIVE);
    EXPECT(REDBOLT_STATUS_REQUEST, redbolt_lock_try_upgrade(reader, &error));
    OK(redbolt_lock_downgrade(reader, &error));
    CHECK(redbolt_lock_mode(reader) == REDBOLT_MODE_SHARED);
    OK(redbolt_lock_release(reader, &error));
}

static void permits(redbolt_client *ours, redbolt_client *theirs) {
    redbolt_lock *locks[2], *none = NULL;
    bool seen[2] = {false, false};
    for (int i = 0; i < 2; i++) {
        redbolt_request *request = redbolt_request_new("printers");
        redbolt_request_set_permits(request, 2);
        locks[i] = acquired(i == 0 ? ours : theirs, request);
        CHECK(redbolt_lock_mode(locks[i]) == REDBOLT_MODE_PERMIT);
        uint16_t slot = 99;
        CHECK(redbolt_lock_slot(locks[i], &slot) && slot < 2 && !seen[slot]);
        seen[slot] = true;
    }
    redbolt_request *request = redbolt_request_new("printers");
    redbolt_request_set_permits(request, 2);
    EXPECT(REDBOLT_STATUS_CONTENDED, redbolt_client_acquire(ours, request, &none, &error));
    redbolt_request_free(request);
    OK(redbolt_lock_release(locks[0], &error));
    OK(redbolt_lock_release(locks[1], &error));
}

static void many_keys_and_tokens(redbolt_client *ours, redbolt_client *theirs) {
    const uint8_t bytes[] = {'a', 0, 0xff};
    redbolt_request *request = NULL;
    CHECK(redbolt_request_new_bytes(bytes, sizeof bytes, &request) == REDBOLT_STATUS_OK);
    redbolt_request_and(request, "b");
    redbolt_request_and_bytes(request, bytes, 2);
    redbolt_lock *lock = acquired(ours, request), *none = NULL;
    EXPECT(REDBOLT_STATUS_CONTENDED, redbolt_client_try_lease(theirs, "b", 10000, &none, &error));
    OK(redbolt_lock_release(lock, &error));

    uint64_t before = 0;
    for (int i = 0; i < 3; i++) {
        request = redbolt_request_new("fenced");
        redbolt_request_set_fenced(request);
        lock = acquired(i % 2 == 0 ? ours : theirs, request);
        uint64_t token = 0;
        CHECK(redbolt_lock_fencing_token(lock, &token) && token > before);
        before = token;
        OK(redbolt_lock_release(lock, &error));
    }
}

static void formats_of_others(redbolt_client *ours, redbolt_client *theirs) {
    redbolt_request *request = redbolt_request_new("format");
    CHECK(redbolt_request_set_format(request, "jedisson") == REDBOLT_STATUS_INVALID_ARGUMENT);
    CHECK(redbolt_request_set_format(request, NULL) == REDBOLT_STATUS_INVALID_ARGUMENT);
    CHECK(redbolt_request_set_format(request, "redisson") == REDBOLT_STATUS_OK);
    CHECK(redbolt_request_set_prefix(request, "lock:") == REDBOLT_STATUS_OK);
    redbolt_lock *lock = acquired(ours, request), *none = NULL;
    EXPECT(REDBOLT_STATUS_CONTENDED, redbolt_client_try_lease(theirs, "lock:format", 10000, &none, &error));
    OK(redbolt_lock_release(lock, &error));
    request = redbolt_request_new("format");
    redbolt_request_set_format(request, "redisson");
    redbolt_request_set_shared(request);
    EXPECT(REDBOLT_STATUS_REQUEST, redbolt_client_acquire(ours, request, &none, &error));
    redbolt_request_free(request);
}

// Only data in the scope is deleted. The test has set "setnx" to a lock of that format, and "data"
// to other data.
static void scopes(redbolt_client *client) {
    redbolt_inspection seen;
    EXPECT(REDBOLT_STATUS_NO_QUORUM,
           redbolt_client_force_unlock(client, "setnx", REDBOLT_UNLOCK_LOCKS, NULL, NULL, &error));
    EXPECT(REDBOLT_STATUS_NO_QUORUM,
           redbolt_client_force_unlock(client, "setnx", REDBOLT_UNLOCK_LOCKS_OF, "spring", NULL, &error));
    OK(redbolt_client_inspect(client, "setnx", &seen, NULL, &error));
    CHECK(seen.owner == REDBOLT_OWNER_OTHER);
    OK(redbolt_client_force_unlock(client, "setnx", REDBOLT_UNLOCK_LOCKS_OF, "setnx", NULL, &error));
    OK(redbolt_client_inspect(client, "setnx", &seen, NULL, &error));
    CHECK(seen.owner == REDBOLT_OWNER_NOBODY);
    EXPECT(REDBOLT_STATUS_NO_QUORUM,
           redbolt_client_force_unlock(client, "data", REDBOLT_UNLOCK_LOCKS_OF, "setnx", NULL, &error));
    OK(redbolt_client_force_unlock(client, "data", REDBOLT_UNLOCK_ANYTHING, NULL, NULL, &error));
    OK(redbolt_client_inspect(client, "data", &seen, NULL, &error));
    CHECK(seen.owner == REDBOLT_OWNER_NOBODY);
    const struct {
        int32_t scope;
        const char *format;
    } wrong[] = {{REDBOLT_UNLOCK_LOCKS, "redisson"},
                 {REDBOLT_UNLOCK_ANYTHING, "redisson"},
                 {REDBOLT_UNLOCK_LOCKS_OF, NULL},
                 {REDBOLT_UNLOCK_LOCKS_OF, "jedisson"},
                 {3, NULL},
                 {-1, NULL}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        EXPECT(REDBOLT_STATUS_INVALID_ARGUMENT,
               redbolt_client_force_unlock(client, "data", wrong[i].scope, wrong[i].format, NULL, &error));
    }
}

static void many_locks(redbolt_client *ours, redbolt_client *theirs) {
    const char *names[] = {"one", "two", "three", ""};
    const redbolt_request *requests[4];
    redbolt_lock *locks[4], *two = NULL;
    redbolt_status statuses[4];
    for (int i = 0; i < 4; i++) {
        requests[i] = redbolt_request_new(names[i]);
    }
    OK(redbolt_client_lease(theirs, "two", 10000, &two, &error));
    EXPECT(REDBOLT_STATUS_CONTENDED, redbolt_client_acquire_all(ours, requests, 4, locks, statuses, &error));
    const redbolt_status wanted[] = {REDBOLT_STATUS_OK, REDBOLT_STATUS_CONTENDED, REDBOLT_STATUS_OK,
                                     REDBOLT_STATUS_REQUEST};
    for (int i = 0; i < 4; i++) {
        CHECK(statuses[i] == wanted[i] && redbolt_lock_is_valid(locks[i]) == (wanted[i] == REDBOLT_STATUS_OK));
        redbolt_lock_free(locks[i]);
    }
    OK(redbolt_lock_release(two, &error));
    OK(redbolt_client_acquire_all(ours, requests, 3, locks, NULL, &error));
    for (int i = 0; i < 3; i++) {
        OK(redbolt_lock_release(locks[i], &error));
    }
    OK(redbolt_client_acquire_all(ours, NULL, 0, NULL, NULL, &error));
    EXPECT(REDBOLT_STATUS_INVALID_ARGUMENT, redbolt_client_acquire_all(ours, NULL, 1, locks, NULL, &error));
    EXPECT(REDBOLT_STATUS_INVALID_ARGUMENT, redbolt_client_acquire_all(ours, requests, 1, NULL, NULL, &error));
    CHECK(locks[0] == NULL);
    const size_t most = SIZE_MAX;
    EXPECT(REDBOLT_STATUS_INVALID_ARGUMENT,
           redbolt_client_acquire_all(ours, requests, most, locks, NULL, &error));
    for (int i = 0; i < 4; i++) {
        redbolt_request_free((redbolt_request *)requests[i]);
    }
}

static void inspected(redbolt_client *ours, redbolt_client *theirs) {
    redbolt_lock *lock = NULL;
    redbolt_inspection seen;
    char *words = NULL;
    OK(redbolt_client_inspect(ours, "seen", &seen, NULL, &error));
    CHECK(seen.owner == REDBOLT_OWNER_NOBODY && !seen.is_locked && seen.remaining_ms == -1);
    OK(redbolt_client_lease(ours, "seen", 10000, &lock, &error));
    OK(redbolt_client_inspect(ours, "seen", &seen, &words, &error));
    CHECK(seen.owner == REDBOLT_OWNER_MINE && seen.is_locked && seen.remaining_ms > 0);
    CHECK(strstr(words, "node 3 ") != NULL);
    redbolt_text_free(words);
    OK(redbolt_client_inspect(theirs, "seen", &seen, NULL, &error));
    CHECK(seen.owner == REDBOLT_OWNER_OTHER);
    OK(redbolt_client_force_unlock(theirs, "seen", REDBOLT_UNLOCK_LOCKS, NULL, &words, &error));
    CHECK(strstr(words, "of 3 nodes") != NULL);
    redbolt_text_free(words);
    EXPECT(REDBOLT_STATUS_LOST, redbolt_lock_extend(lock, 10000, &error));
    redbolt_lock_free(lock);
    EXPECT(REDBOLT_STATUS_INVALID_ARGUMENT, redbolt_client_inspect(ours, NULL, &seen, &words, &error));
    EXPECT(REDBOLT_STATUS_INVALID_ARGUMENT, redbolt_client_inspect(ours, "seen", NULL, &words, &error));
    EXPECT(REDBOLT_STATUS_REQUEST, redbolt_client_force_unlock(ours, "", REDBOLT_UNLOCK_ANYTHING, NULL, &words, &error));
    CHECK(words == NULL);
}

// A name that continues after a zero byte is different from its first part.
static void names_of_bytes(redbolt_client *ours, redbolt_client *theirs) {
    const uint8_t name[] = {'a', 0, 'b'};
    redbolt_lock *before = NULL;
    redbolt_request *request = NULL;
    redbolt_inspection seen;
    char *words = NULL;
    OK(redbolt_client_lease(ours, "a", 10000, &before, &error));
    OK(redbolt_client_inspect_bytes(theirs, name, sizeof name, &seen, NULL, &error));
    CHECK(seen.owner == REDBOLT_OWNER_NOBODY);
    CHECK(redbolt_request_new_bytes(name, sizeof name, &request) == REDBOLT_STATUS_OK);
    redbolt_lock *lock = acquired(ours, request);
    OK(redbolt_client_inspect_bytes(theirs, name, sizeof name, &seen, &words, &error));
    CHECK(seen.owner == REDBOLT_OWNER_OTHER && strstr(words, "node 3 ") != NULL);
    redbolt_text_free(words);
    OK(redbolt_client_force_unlock_bytes(theirs, name, sizeof name, REDBOLT_UNLOCK_LOCKS, NULL, &words, &error));
    CHECK(strstr(words, "of 3 nodes") != NULL);
    redbolt_text_free(words);
    EXPECT(REDBOLT_STATUS_LOST, redbolt_lock_extend(lock, 10000, &error));
    redbolt_lock_free(lock);
    OK(redbolt_lock_extend(before, 10000, &error));
    OK(redbolt_lock_release(before, &error));
    EXPECT(REDBOLT_STATUS_INVALID_ARGUMENT, redbolt_client_inspect_bytes(ours, NULL, 1, &seen, &words, &error));
    EXPECT(REDBOLT_STATUS_REQUEST, redbolt_client_force_unlock_bytes(ours, NULL, 0, REDBOLT_UNLOCK_ANYTHING, NULL, &words, &error));

    CHECK(redbolt_request_new_bytes((const uint8_t *)"c", 1, &request) == REDBOLT_STATUS_OK);
    CHECK(redbolt_request_set_prefix_bytes(request, name, sizeof name) == REDBOLT_STATUS_OK);
    CHECK(redbolt_request_set_prefix_bytes(request, NULL, 1) == REDBOLT_STATUS_INVALID_ARGUMENT);
    lock = acquired(ours, request);
    OK(redbolt_client_inspect_bytes(theirs, (const uint8_t *)"a\0bc", 4, &seen, NULL, &error));
    CHECK(seen.owner == REDBOLT_OWNER_OTHER);
    OK(redbolt_lock_release(lock, &error));
}

static void detached(redbolt_client *ours, redbolt_client *theirs) {
    redbolt_lock *lock = NULL, *none = NULL;
    OK(redbolt_client_lease(ours, "baton", 10000, &lock, &error));
    char *text = NULL;
    OK(redbolt_lock_detach(lock, &text, &error));
    EXPECT(REDBOLT_STATUS_CONTENDED, redbolt_client_try_lease(theirs, "baton", 10000, &none, &error));
    OK(redbolt_client_attach(theirs, text, &lock, &error));
    redbolt_text_free(text);
    CHECK(redbolt_lock_is_valid(lock));
    OK(redbolt_lock_release(lock, &error));
    EXPECT(REDBOLT_STATUS_INVALID_ARGUMENT, redbolt_client_attach(ours, "x", &lock, &error));
    CHECK(lock == NULL);
}

static void statuses(void) {
    CHECK(strcmp(redbolt_status_message(REDBOLT_STATUS_LOST), "the lock is lost") == 0);
    CHECK(strcmp(redbolt_status_message(REDBOLT_STATUS_OK), "success") == 0);
    CHECK(strstr(redbolt_status_message(redbolt_request_set_fenced(NULL)), "a pointer is null") != NULL);
    CHECK(strstr(redbolt_status_message(-7), "does not know") != NULL);
}

// Null pointers and undefined numbers are refused.
static void doors(redbolt_client *client) {
    redbolt_lock *lock = NULL;
    redbolt_client *none = NULL;
    EXPECT(REDBOLT_STATUS_INVALID_ARGUMENT, redbolt_client_new(NULL, &none, &error));
    EXPECT(REDBOLT_STATUS_INVALID_ARGUMENT, redbolt_client_lease(NULL, "x", 10000, &lock, &error));
    EXPECT(REDBOLT_STATUS_INVALID_ARGUMENT, redbolt_client_lease(client, NULL, 10000, &lock, &error));
    EXPECT(REDBOLT_STATUS_INVALID_ARGUMENT, redbolt_client_lease(client, "x", 10000, NULL, &error));
    EXPECT(REDBOLT_STATUS_INVALID_ARGUMENT, redbolt_client_acquire(client, NULL, &lock, &error));
    EXPECT(REDBOLT_STATUS_INVALID_ARGUMENT, redbolt_lock_release(NULL, &error));
    EXPECT(REDBOLT_STATUS_INVALID_ARGUMENT, redbolt_lock_extend(NULL, 1, &error));
    EXPECT(REDBOLT_STATUS_REQUEST, redbolt_client_lease(client, "", 10000, &lock, &error));
    CHECK(redbolt_client_lease(client, "", 10000, &lock, NULL) == REDBOLT_STATUS_REQUEST);
    CHECK(redbolt_request_new(NULL) == NULL);
    CHECK(redbolt_request_set_shared(NULL) == REDBOLT_STATUS_INVALID_ARGUMENT);
    CHECK(!redbolt_lock_is_valid(NULL) && redbolt_lock_remaining_ms(NULL) == 0);
    CHECK(redbolt_lock_mode(NULL) == REDBOLT_MODE_UNKNOWN);
    redbolt_config *config = redbolt_config_new();
    EXPECT(REDBOLT_STATUS_CONFIG, redbolt_config_add_node(config, "redis://:sec%ret@", &error));
    EXPECT(REDBOLT_STATUS_INVALID_ARGUMENT, redbolt_config_add_node(config, "\xff", &error));
    EXPECT(REDBOLT_STATUS_INVALID_ARGUMENT, redbolt_config_add_node_with(config, "x", 9, &error));
    EXPECT(REDBOLT_STATUS_CONFIG, redbolt_client_new(config, &none, &error));
    CHECK(redbolt_config_set_wake(config, -1) == REDBOLT_STATUS_INVALID_ARGUMENT);
    CHECK(redbolt_config_set_log(config, 0, NULL, NULL, NULL) == REDBOLT_STATUS_INVALID_ARGUMENT);
    redbolt_config_free(config);
    redbolt_config_free(NULL);
    redbolt_request_free(NULL);
    redbolt_client_free(NULL);
    redbolt_lock_free(NULL);
    redbolt_error_free(NULL);
    redbolt_text_free(NULL);
    // A client will not extend a lock between two calls.
    redbolt_request *request = redbolt_request_new("x");
    redbolt_request_set_auto_extend(request, 0, 0);
    EXPECT(REDBOLT_STATUS_REQUEST, redbolt_client_acquire(client, request, &lock, &error));
    redbolt_request_free(request);
}

struct heard {
    redbolt_client *client;
    redbolt_lock *lock;
    int lines;
};

// Uses the client that calls it, which is against the rules, and does no harm.
static void hear(void *data, redbolt_log_level level, const char *line) {
    struct heard *heard = data;
    CHECK(level >= REDBOLT_LOG_LEVEL_DEBUG && line[0] != '\0');
    heard->lines++;
    redbolt_lock *none = NULL;
    if (heard->client != NULL) {
        EXPECT(REDBOLT_STATUS_IN_USE, redbolt_client_lease(heard->client, "x", 10000, &none, &error));
    }
    if (heard->lock != NULL) {
        CHECK(!redbolt_lock_is_valid(heard->lock));
        redbolt_lock_free(heard->lock);
        heard->lock = NULL;
    }
}

static void logged(int count, char **addresses) {
    struct heard heard = {NULL, NULL, 0};
    redbolt_config *config = config_of(count, addresses);
    redbolt_config_set_log(config, REDBOLT_LOG_LEVEL_DEBUG, hear, &heard, NULL);
    redbolt_client *client = NULL;
    OK(redbolt_client_new(config, &client, &error));
    redbolt_config_free(config);
    redbolt_lock *first = NULL, *second = NULL;
    OK(redbolt_client_lease(client, "first", 10000, &first, &error));
    heard.client = client;
    heard.lock = first; // let go of while the next call is inside
    OK(redbolt_client_lease(client, "second", 10000, &second, &error));
    CHECK(heard.lines > 0 && heard.lock == NULL);
    heard.client = NULL;
    OK(redbolt_client_lease(client, "first", 10000, &first, &error));
    OK(redbolt_lock_release(first, &error));
    // A lock keeps the connections of a client that was freed.
    redbolt_client_free(client);
    CHECK(redbolt_lock_is_valid(second));
    OK(redbolt_lock_release(second, &error));
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    CHECK(redbolt_abi_version() == REDBOLT_ABI_VERSION);
    CHECK(strchr(redbolt_version(), '.') != NULL);
    redbolt_client *ours = client_of(argc - 1, argv + 1);
    redbolt_client *theirs = client_of(argc - 1, argv + 1);
    exclusive(ours, theirs);
    waiting(ours, theirs);
    shared(ours, theirs);
    permits(ours, theirs);
    many_keys_and_tokens(ours, theirs);
    formats_of_others(ours, theirs);
    scopes(ours);
    many_locks(ours, theirs);
    inspected(ours, theirs);
    names_of_bytes(ours, theirs);
    detached(ours, theirs);
    statuses();
    doors(ours);
    char *metrics = NULL;
    OK(redbolt_client_metrics(ours, &metrics, &error));
    CHECK(strstr(metrics, "# TYPE redbolt_") != NULL);
    redbolt_text_free(metrics);
    redbolt_client_free(ours);
    redbolt_client_free(theirs);
    logged(argc - 1, argv + 1);
    printf("all of it\n");
    return 0;
}
