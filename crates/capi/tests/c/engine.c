// The engine from C: many threads, and callbacks on its thread. The test gives it three nodes.
#include "check.h"

#include <pthread.h>
#include <unistd.h>

#define THREADS 4
#define TURNS 5

struct heard {
    pthread_mutex_t mutex;
    pthread_cond_t told;
    int calls;
    redbolt_status status;
    redbolt_loss loss;
    redbolt_lock *lock;
    redbolt_engine *engine;
    redbolt_client *client;
    redbolt_lock *held, *ended;
};

static struct heard fresh(redbolt_engine *engine) {
    struct heard heard = {.mutex = PTHREAD_MUTEX_INITIALIZER, .told = PTHREAD_COND_INITIALIZER};
    heard.engine = engine;
    return heard;
}

static void tell(struct heard *heard) {
    heard->calls++;
    pthread_cond_broadcast(&heard->told);
    pthread_mutex_unlock(&heard->mutex);
}

static void await(struct heard *heard, int calls) {
    pthread_mutex_lock(&heard->mutex);
    while (heard->calls < calls) {
        pthread_cond_wait(&heard->told, &heard->mutex);
    }
    CHECK(heard->calls == calls);
    pthread_mutex_unlock(&heard->mutex);
}

// A client's calls wait as well, and all locks of the engine would wait with them.
static void client_in_callback(struct heard *heard) {
    redbolt_lock *none = NULL;
    redbolt_inspection seen;
    char *text = NULL;
    redbolt_request *request = redbolt_request_new("x");
    const redbolt_request *requests[] = {request};
    EXPECT(REDBOLT_STATUS_IN_CALLBACK, redbolt_client_lease(heard->client, "x", 10000, &none, &error));
    EXPECT(REDBOLT_STATUS_IN_CALLBACK, redbolt_client_try_lease(heard->client, "x", 10000, &none, &error));
    EXPECT(REDBOLT_STATUS_IN_CALLBACK, redbolt_client_acquire(heard->client, request, &none, &error));
    EXPECT(REDBOLT_STATUS_IN_CALLBACK,
           redbolt_client_acquire_all(heard->client, requests, 1, &none, NULL, &error));
    EXPECT(REDBOLT_STATUS_IN_CALLBACK, redbolt_client_warm_up(heard->client, 1, &error));
    EXPECT(REDBOLT_STATUS_IN_CALLBACK, redbolt_client_inspect(heard->client, "x", &seen, NULL, &error));
    EXPECT(REDBOLT_STATUS_IN_CALLBACK, redbolt_client_force_unlock(heard->client, "x", REDBOLT_UNLOCK_LOCKS, NULL, NULL, &error));
    EXPECT(REDBOLT_STATUS_IN_CALLBACK, redbolt_lock_extend(heard->held, 1000, &error));
    EXPECT(REDBOLT_STATUS_IN_CALLBACK, redbolt_lock_downgrade(heard->held, &error));
    EXPECT(REDBOLT_STATUS_IN_CALLBACK, redbolt_lock_try_upgrade(heard->held, &error));
    // Its handle is ended all the same, and the lock is released.
    EXPECT(REDBOLT_STATUS_IN_CALLBACK, redbolt_lock_release(heard->ended, &error));
    CHECK(none == NULL && redbolt_lock_is_valid(heard->held));
    OK(redbolt_client_metrics(heard->client, &text, &error));
    redbolt_text_free(text);
    redbolt_request_free(request);
}

static void acquired(void *data, redbolt_status status, redbolt_lock *lock, const redbolt_error *error) {
    struct heard *heard = data;
    CHECK((status == REDBOLT_STATUS_OK) == (lock != NULL));
    CHECK((status == REDBOLT_STATUS_OK) == (error == NULL));
    CHECK(redbolt_error_status(error) == status);
    // Calls that wait are refused, because they would wait for this thread.
    redbolt_lock *none = NULL;
    EXPECT(REDBOLT_STATUS_IN_CALLBACK, redbolt_engine_lock(heard->engine, "x", &none, &error));
    EXPECT(REDBOLT_STATUS_IN_CALLBACK, redbolt_engine_warm_up(heard->engine, 1, &error));
    EXPECT(REDBOLT_STATUS_IN_CALLBACK, redbolt_engine_shutdown(heard->engine, 1, &error));
    if (lock != NULL) {
        EXPECT(REDBOLT_STATUS_IN_CALLBACK, redbolt_lock_extend(lock, 1000, &error));
    }
    if (heard->client != NULL) {
        client_in_callback(heard);
    }
    pthread_mutex_lock(&heard->mutex);
    heard->status = status;
    heard->lock = lock;
    tell(heard);
}

static void done(void *data, redbolt_status status, const redbolt_error *error) {
    struct heard *heard = data;
    CHECK(redbolt_error_status(error) == status);
    pthread_mutex_lock(&heard->mutex);
    heard->status = status;
    tell(heard);
}

static void lost(void *data, redbolt_loss loss) {
    struct heard *heard = data;
    pthread_mutex_lock(&heard->mutex);
    heard->loss = loss;
    tell(heard);
}

static void must_not_be_called(void *data, redbolt_loss loss) {
    (void)data, (void)loss;
    CHECK(!"a lock that was released is not lost");
}

// Counts how often `end` was called for the data of callbacks.
static void ended(void *data) {
    struct heard *heard = data;
    pthread_mutex_lock(&heard->mutex);
    tell(heard);
}

static int inside = 0;

static void *take_turns(void *data) {
    redbolt_engine *engine = data;
    redbolt_request *request = redbolt_request_new("counter");
    redbolt_request_set_wait_ms(request, UINT64_MAX);
    for (int turn = 0; turn < TURNS; turn++) {
        redbolt_lock *lock = NULL;
        OK(redbolt_engine_acquire(engine, request, &lock, &error));
        CHECK(++inside == 1); // no other protection than the lock's
        usleep(1000);
        CHECK(--inside == 0);
        OK(redbolt_lock_release(lock, &error));
    }
    redbolt_request_free(request);
    return NULL;
}

static void many_threads(redbolt_engine *engine) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, take_turns, engine) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
}

static void blocking(redbolt_engine *engine) {
    redbolt_lock *lock = NULL, *none = NULL;
    OK(redbolt_engine_lock(engine, "job", &lock, &error));
    struct heard heard = fresh(engine);
    OK(redbolt_lock_on_loss(lock, must_not_be_called, &heard, ended, &error));
    CHECK(redbolt_lock_is_valid(lock) && redbolt_lock_remaining_ms(lock) > 0);
    CHECK(redbolt_lock_mode(lock) == REDBOLT_MODE_EXCLUSIVE);
    OK(redbolt_lock_extend(lock, 20000, &error));
    OK(redbolt_lock_downgrade(lock, &error));
    CHECK(redbolt_lock_mode(lock) == REDBOLT_MODE_SHARED);
    OK(redbolt_lock_try_upgrade(lock, &error));
    EXPECT(REDBOLT_STATUS_CONTENDED, redbolt_engine_try_lock(engine, "job", &none, &error));
    char *text = NULL;
    OK(redbolt_lock_detach(lock, &text, &error));
    OK(redbolt_engine_attach(engine, text, &lock, &error));
    redbolt_text_free(text);
    await(&heard, 1); // it was the detached handle's
    EXPECT(REDBOLT_STATUS_INVALID_ARGUMENT, redbolt_lock_on_loss(lock, NULL, &heard, ended, &error));
    await(&heard, 2);
    OK(redbolt_lock_release(lock, &error));
    OK(redbolt_engine_try_lock(engine, "job", &lock, &error));
    redbolt_lock_free(lock);
}

// A lease ends after its TTL, and a lock does not.
static void leases(redbolt_engine *engine) {
    redbolt_lock *lock = NULL, *lease = NULL, *none = NULL;
    OK(redbolt_engine_lease(engine, "lease", 1000, &lease, &error));
    EXPECT(REDBOLT_STATUS_CONTENDED, redbolt_engine_try_lease(engine, "lease", 1000, &none, &error));
    // Waits until the lease ends.
    OK(redbolt_engine_lock(engine, "lease", &lock, &error));
    CHECK(!redbolt_lock_is_valid(lease) && redbolt_lock_is_valid(lock));
    EXPECT(REDBOLT_STATUS_LOST, redbolt_lock_release(lease, &error));
    redbolt_request *request = redbolt_request_new("lease");
    redbolt_request_set_wait_ms(request, UINT64_MAX);
    EXPECT(REDBOLT_STATUS_CONTENDED, redbolt_engine_try_acquire(engine, request, &none, &error));
    redbolt_request_free(request);
    OK(redbolt_lock_release(lock, &error));
    OK(redbolt_engine_try_lease(engine, "lease", 5000, &lease, &error));
    CHECK(redbolt_lock_remaining_ms(lease) <= 5000);
    OK(redbolt_lock_release(lease, &error));
}

static redbolt_lock *entered(redbolt_engine *engine, redbolt_request *request, const char *owner) {
    redbolt_lock *lock = NULL;
    const uint8_t *name = (const uint8_t *)owner;
    OK(redbolt_engine_acquire_reentrant(engine, request, name, strlen(owner), &lock, &error));
    return lock;
}

static void entering(redbolt_engine *engine) {
    struct heard heard = fresh(engine);
    redbolt_request *request = redbolt_request_new("invoice:7");
    redbolt_request_set_fenced(request);
    redbolt_lock *outer = entered(engine, request, "request:42"), *none = NULL;
    redbolt_lock *inner = entered(engine, request, "request:42");
    redbolt_lock *innermost = entered(engine, request, "request:42");
    CHECK(redbolt_lock_hold_count(innermost) == 3 && redbolt_lock_is_valid(innermost));
    uint64_t tokens[2] = {0, 1};
    CHECK(redbolt_lock_fencing_token(outer, &tokens[0]) && redbolt_lock_fencing_token(inner, &tokens[1]));
    CHECK(tokens[0] == tokens[1] && redbolt_lock_mode(inner) == REDBOLT_MODE_EXCLUSIVE);
    EXPECT(REDBOLT_STATUS_CONTENDED,
           redbolt_engine_acquire_reentrant(engine, request, (const uint8_t *)"x", 1, &none, &error));
    EXPECT(REDBOLT_STATUS_REQUEST, redbolt_lock_downgrade(inner, &error));
    OK(redbolt_lock_on_loss(inner, must_not_be_called, NULL, NULL, &error));
    OK(redbolt_lock_extend(inner, 20000, &error));
    OK(redbolt_lock_release_async(innermost, done, &heard, &error));
    await(&heard, 1);
    OK(redbolt_lock_release(inner, &error));
    CHECK(redbolt_lock_hold_count(outer) == 1 && redbolt_lock_is_valid(outer));
    OK(redbolt_lock_release(outer, &error));
    outer = entered(engine, request, "another");
    OK(redbolt_lock_release(outer, &error));
    redbolt_request_free(request);

    char *metrics = NULL;
    OK(redbolt_engine_metrics(engine, &metrics, &error));
    CHECK(strstr(metrics, "# TYPE redbolt_") != NULL);
    redbolt_text_free(metrics);
}

static void many_locks(redbolt_engine *engine) {
    const redbolt_request *requests[] = {redbolt_request_new("one"), redbolt_request_new("two"),
                                         redbolt_request_new("one")};
    redbolt_lock *locks[3];
    redbolt_status statuses[3];
    // A request that could only wait for its own batch is refused at once.
    EXPECT(REDBOLT_STATUS_REQUEST, redbolt_engine_acquire_all(engine, requests, 3, locks, statuses, &error));
    CHECK(statuses[0] == REDBOLT_STATUS_OK && statuses[1] == REDBOLT_STATUS_OK && locks[2] == NULL);
    for (int i = 0; i < 2; i++) {
        OK(redbolt_lock_release(locks[i], &error));
    }
    for (int i = 0; i < 3; i++) {
        redbolt_request_free((redbolt_request *)requests[i]);
    }
}

static void inspected(redbolt_engine *engine) {
    redbolt_lock *lock = NULL;
    redbolt_inspection seen;
    char *words = NULL;
    OK(redbolt_engine_lock(engine, "seen", &lock, &error));
    OK(redbolt_engine_inspect(engine, "seen", &seen, &words, &error));
    CHECK(seen.owner == REDBOLT_OWNER_MINE && seen.is_locked && strstr(words, "node 1 ") != NULL);
    redbolt_text_free(words);
    OK(redbolt_lock_release(lock, &error));
    OK(redbolt_engine_force_unlock(engine, "seen", REDBOLT_UNLOCK_ANYTHING, NULL, NULL, &error));

    // A name that continues after a zero byte is different from its first part.
    const uint8_t name[] = {'s', 'e', 'e', 'n', 0, 0xff};
    redbolt_request *request = NULL;
    redbolt_lock *before = NULL;
    CHECK(redbolt_request_new_bytes(name, sizeof name, &request) == REDBOLT_STATUS_OK);
    OK(redbolt_engine_acquire(engine, request, &lock, &error));
    redbolt_request_free(request);
    OK(redbolt_engine_lock(engine, "seen", &before, &error));
    OK(redbolt_engine_inspect_bytes(engine, name, sizeof name, &seen, NULL, &error));
    CHECK(seen.owner == REDBOLT_OWNER_MINE && seen.is_locked);
    OK(redbolt_engine_force_unlock_bytes(engine, name, sizeof name, REDBOLT_UNLOCK_LOCKS, NULL, NULL, &error));
    EXPECT(REDBOLT_STATUS_LOST, redbolt_lock_extend(lock, 10000, &error));
    OK(redbolt_lock_extend(before, 10000, &error));
    OK(redbolt_lock_release(before, &error));
    redbolt_lock_free(lock);
    EXPECT(REDBOLT_STATUS_INVALID_ARGUMENT, redbolt_engine_inspect_bytes(engine, name, 6, NULL, NULL, &error));
}

static void calling_back(redbolt_engine *engine) {
    struct heard heard = fresh(engine);
    redbolt_request *request = redbolt_request_new("async");
    CHECK(redbolt_engine_acquire_async(engine, request, acquired, &heard, NULL) == REDBOLT_STATUS_OK);
    await(&heard, 1);
    CHECK(heard.status == REDBOLT_STATUS_OK && redbolt_lock_is_valid(heard.lock));
    redbolt_lock *lock = heard.lock;
    OK(redbolt_lock_on_loss(lock, must_not_be_called, NULL, NULL, &error));
    OK(redbolt_lock_extend_async(lock, 20000, done, &heard, &error));
    await(&heard, 2);
    CHECK(heard.status == REDBOLT_STATUS_OK && redbolt_lock_remaining_ms(lock) > 10000);

    // The acquisitions are refused, cancelled while they wait, and refused without being sent.
    CHECK(redbolt_engine_acquire_async(engine, request, acquired, &heard, NULL) == REDBOLT_STATUS_OK);
    await(&heard, 3);
    CHECK(heard.status == REDBOLT_STATUS_CONTENDED);
    redbolt_request_set_wait_ms(request, UINT64_MAX);
    redbolt_pending *pending = NULL;
    CHECK(redbolt_engine_acquire_async(engine, request, acquired, &heard, &pending) == REDBOLT_STATUS_OK);
    redbolt_pending_cancel(pending);
    await(&heard, 4);
    CHECK(heard.status == REDBOLT_STATUS_CANCELLED);
    redbolt_pending_cancel(pending); // too late, and harmless
    redbolt_pending_free(pending);
    redbolt_request_free(request);
    request = redbolt_request_new("");
    CHECK(redbolt_engine_acquire_async(engine, request, acquired, &heard, NULL) == REDBOLT_STATUS_OK);
    await(&heard, 5);
    CHECK(heard.status == REDBOLT_STATUS_REQUEST);
    redbolt_request_free(request);

    OK(redbolt_lock_release_async(lock, done, &heard, &error));
    await(&heard, 6);
    CHECK(heard.status == REDBOLT_STATUS_OK);
    OK(redbolt_engine_lock(engine, "async", &lock, &error));
    OK(redbolt_lock_release_async(lock, NULL, NULL, &error));
}

static void beside_a_client(redbolt_engine *engine, redbolt_config *config) {
    struct heard heard = fresh(engine);
    OK(redbolt_client_new(config, &heard.client, &error));
    OK(redbolt_client_lease(heard.client, "held", 10000, &heard.held, &error));
    OK(redbolt_client_lease(heard.client, "ended", 10000, &heard.ended, &error));
    redbolt_request *request = redbolt_request_new("async");
    redbolt_request_set_wait_ms(request, UINT64_MAX);
    CHECK(redbolt_engine_acquire_async(engine, request, acquired, &heard, NULL) == REDBOLT_STATUS_OK);
    await(&heard, 1);
    OK(redbolt_lock_release(heard.lock, &error));
    OK(redbolt_lock_release(heard.held, &error));
    OK(redbolt_client_lease(heard.client, "ended", 10000, &heard.ended, &error));
    OK(redbolt_lock_release(heard.ended, &error));
    redbolt_request_free(request);
    redbolt_client_free(heard.client);
}

static void losing(redbolt_engine *engine) {
    struct heard heard = fresh(engine);
    redbolt_request *request = redbolt_request_new("brief");
    redbolt_request_set_ttl_ms(request, 1500);
    redbolt_request_set_wait_ms(request, UINT64_MAX);
    redbolt_lock *lock = NULL;
    OK(redbolt_engine_acquire(engine, request, &lock, &error));
    OK(redbolt_lock_on_loss(lock, lost, &heard, NULL, &error));
    await(&heard, 1);
    CHECK(heard.loss == REDBOLT_LOSS_EXPIRED && !redbolt_lock_is_valid(lock));
    OK(redbolt_lock_on_loss(lock, lost, &heard, NULL, &error)); // at once
    await(&heard, 2);
    OK(redbolt_lock_extend_async(lock, 1500, done, &heard, &error));
    await(&heard, 3);
    CHECK(heard.status == REDBOLT_STATUS_LOST);
    EXPECT(REDBOLT_STATUS_LOST, redbolt_lock_release(lock, &error));
    redbolt_request_free(request);
}

// Pending calls get an outcome at the end.
static void ending(redbolt_engine *engine) {
    struct heard heard = fresh(engine);
    redbolt_lock *lock = NULL, *none = NULL;
    OK(redbolt_engine_lock(engine, "end", &lock, &error));
    OK(redbolt_lock_on_loss(lock, lost, &heard, NULL, &error));
    redbolt_request *request = redbolt_request_new("end");
    redbolt_request_set_wait_ms(request, UINT64_MAX);
    CHECK(redbolt_engine_acquire_async(engine, request, acquired, &heard, NULL) == REDBOLT_STATUS_OK);
    OK(redbolt_engine_shutdown(engine, 15000, &error));
    await(&heard, 2);
    CHECK(heard.loss == REDBOLT_LOSS_SHUT_DOWN && heard.status == REDBOLT_STATUS_SHUT_DOWN);
    CHECK(!redbolt_lock_is_valid(lock));
    EXPECT(REDBOLT_STATUS_LOST, redbolt_lock_release(lock, &error));
    EXPECT(REDBOLT_STATUS_SHUT_DOWN, redbolt_engine_acquire(engine, request, &none, &error));
    redbolt_request_free(request);
}

static void doors(redbolt_engine *engine, redbolt_config *config) {
    redbolt_engine *none = NULL;
    redbolt_client *client = NULL;
    redbolt_lock *lock = NULL;
    EXPECT(REDBOLT_STATUS_INVALID_ARGUMENT, redbolt_engine_new(NULL, &none, &error));
    CHECK(redbolt_config_set_in_flight(config, SIZE_MAX) == REDBOLT_STATUS_OK);
    EXPECT(REDBOLT_STATUS_CONFIG, redbolt_engine_new(config, &none, &error));
    CHECK(redbolt_config_set_in_flight(config, 64) == REDBOLT_STATUS_OK);
    EXPECT(REDBOLT_STATUS_INVALID_ARGUMENT, redbolt_engine_lock(engine, NULL, &lock, &error));
    redbolt_status status = redbolt_engine_acquire_async(engine, NULL, acquired, NULL, NULL);
    CHECK(status == REDBOLT_STATUS_INVALID_ARGUMENT);
    EXPECT(REDBOLT_STATUS_INVALID_ARGUMENT, redbolt_lock_on_loss(NULL, lost, NULL, NULL, &error));
    redbolt_pending_cancel(NULL);
    redbolt_pending_free(NULL);
    redbolt_engine_free(NULL);
    // A client's lock has no thread that could call back.
    OK(redbolt_client_new(config, &client, &error));
    OK(redbolt_client_lease(client, "client", 10000, &lock, &error));
    EXPECT(REDBOLT_STATUS_REQUEST, redbolt_lock_on_loss(lock, lost, NULL, NULL, &error));
    EXPECT(REDBOLT_STATUS_REQUEST, redbolt_lock_extend_async(lock, 1000, done, NULL, &error));
    EXPECT(REDBOLT_STATUS_REQUEST, redbolt_lock_release_async(lock, done, NULL, &error));
    redbolt_client_free(client);
}

int main(int argc, char **argv) {
    redbolt_config *config = config_of(argc - 1, argv + 1);
    redbolt_engine *engine = NULL;
    OK(redbolt_engine_new(config, &engine, &error));
    OK(redbolt_engine_warm_up(engine, 15000, &error));
    many_threads(engine);
    blocking(engine);
    leases(engine);
    entering(engine);
    many_locks(engine);
    inspected(engine);
    calling_back(engine);
    beside_a_client(engine, config);
    losing(engine);
    doors(engine, config);
    ending(engine);
    redbolt_engine_free(engine);
    redbolt_config_free(config);
    printf("all of it\n");
    return 0;
}
