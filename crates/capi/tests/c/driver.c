// The embedded API from C: every event, every kind of lock. The test gives it three nodes.
#include "check.h"

#include <poll.h>

// The last event of a lock.
static redbolt_event next(redbolt_driver *driver, redbolt_error **error) {
    redbolt_event event;
    for (;;) {
        while (redbolt_driver_next_event(driver, &event, error)) {
            if (event.kind != REDBOLT_EVENT_KIND_NODE) {
                return event;
            }
            CHECK(event.node >= 1 && event.node <= 3 && event.lock == 0);
            CHECK((event.status == REDBOLT_STATUS_OK) == (*error == NULL));
            redbolt_error_free(*error);
        }
        CHECK(*error == NULL);
        struct pollfd readable = {redbolt_driver_fd(driver), POLLIN, 0};
        poll(&readable, 1, redbolt_driver_timeout_ms(driver));
        CHECK(redbolt_driver_process(driver) == REDBOLT_STATUS_OK);
    }
}

static redbolt_event await(redbolt_driver *driver, redbolt_event_kind kind, uint64_t lock, int line) {
    redbolt_error *error = NULL;
    redbolt_event event = next(driver, &error);
    if (event.kind != kind || event.lock != lock) {
        fprintf(stderr, "line %d: event %d of lock %d, not %d of %d: %s\n", line, (int)event.kind,
                (int)event.lock, (int)kind, (int)lock, redbolt_error_message(error));
        exit(1);
    }
    CHECK(redbolt_error_status(error) == event.status);
    redbolt_error_free(error);
    return event;
}

#define AWAIT(kind, lock) await(driver, REDBOLT_EVENT_KIND_##kind, lock, __LINE__)

static uint64_t asked(redbolt_driver *driver, redbolt_request *request, void *data) {
    uint64_t lock = 0;
    OK(redbolt_driver_acquire(driver, request, data, &lock, &error));
    redbolt_request_free(request);
    CHECK(lock != 0);
    return lock;
}

static void released(redbolt_driver *driver, uint64_t lock) {
    CHECK(redbolt_driver_release(driver, lock) == REDBOLT_STATUS_OK);
    CHECK(AWAIT(RELEASED, lock).confirmed >= 2);
    // Its number means nothing any longer.
    CHECK(redbolt_driver_release(driver, lock) == REDBOLT_STATUS_REQUEST);
    CHECK(!redbolt_driver_is_valid(driver, lock));
}

static void exclusive(redbolt_driver *driver) {
    int ours = 0, theirs = 0;
    redbolt_request *request = redbolt_request_new("job");
    redbolt_request_set_fenced(request);
    uint64_t lock = asked(driver, request, &ours), token = 0;
    CHECK(AWAIT(GRANTED, lock).data == &ours);
    CHECK(redbolt_driver_is_valid(driver, lock));
    CHECK(redbolt_driver_remaining_ms(driver, lock) <= 10000);
    CHECK(redbolt_driver_mode(driver, lock) == REDBOLT_MODE_EXCLUSIVE);
    CHECK(redbolt_driver_fencing_token(driver, lock, &token) && token > 0);
    OK(redbolt_driver_extend(driver, lock, 20000, &error));
    AWAIT(EXTENDED, lock);
    CHECK(redbolt_driver_remaining_ms(driver, lock) > 10000);

    // Another acquisition is refused, or cancelled, or waits.
    uint64_t other = asked(driver, redbolt_request_new("job"), &theirs);
    redbolt_event event = AWAIT(REFUSED, other);
    CHECK(event.status == REDBOLT_STATUS_CONTENDED && event.data == &theirs);
    request = redbolt_request_new("job");
    redbolt_request_set_wait_ms(request, UINT64_MAX);
    other = asked(driver, request, NULL);
    CHECK(redbolt_driver_release(driver, other) == REDBOLT_STATUS_OK);
    CHECK(AWAIT(REFUSED, other).status == REDBOLT_STATUS_CANCELLED);
    released(driver, lock);
}

static void lost_and_extended(redbolt_driver *driver) {
    redbolt_request *request = redbolt_request_new("brief");
    redbolt_request_set_ttl_ms(request, 1500);
    uint64_t lock = asked(driver, request, NULL);
    AWAIT(GRANTED, lock);
    redbolt_event event = AWAIT(LOST, lock);
    CHECK(event.loss == REDBOLT_LOSS_EXPIRED && event.status == REDBOLT_STATUS_LOST);
    CHECK(redbolt_driver_release(driver, lock) == REDBOLT_STATUS_LOST);
    CHECK(redbolt_driver_release(driver, lock) == REDBOLT_STATUS_REQUEST);

    request = redbolt_request_new("long");
    redbolt_request_set_ttl_ms(request, 10000);
    redbolt_request_set_auto_extend(request, 30, 0);
    lock = asked(driver, request, NULL);
    AWAIT(GRANTED, lock);
    AWAIT(AUTO_EXTENDED, lock);
    AWAIT(AUTO_EXTENDED, lock);
    CHECK(redbolt_driver_release(driver, lock) == REDBOLT_STATUS_OK);
    redbolt_error *error = NULL;
    do { // one may be under way
        event = next(driver, &error);
        CHECK(error == NULL && event.lock == lock);
    } while (event.kind == REDBOLT_EVENT_KIND_AUTO_EXTENDED);
    CHECK(event.kind == REDBOLT_EVENT_KIND_RELEASED);
}

static void shared_and_permits(redbolt_driver *driver) {
    redbolt_request *request = redbolt_request_new("prices");
    redbolt_request_set_shared(request);
    uint64_t reader = asked(driver, request, NULL);
    AWAIT(GRANTED, reader);
    OK(redbolt_driver_try_upgrade(driver, reader, &error));
    AWAIT(UPGRADED, reader);
    OK(redbolt_driver_downgrade(driver, reader, &error));
    AWAIT(DOWNGRADED, reader);
    CHECK(redbolt_driver_mode(driver, reader) == REDBOLT_MODE_SHARED);
    request = redbolt_request_new("prices");
    redbolt_request_set_shared(request);
    uint64_t other = asked(driver, request, NULL);
    AWAIT(GRANTED, other);
    OK(redbolt_driver_try_upgrade(driver, reader, &error));
    CHECK(AWAIT(NOT_UPGRADED, reader).status == REDBOLT_STATUS_CONTENDED);
    released(driver, other);
    released(driver, reader);

    request = redbolt_request_new("printers");
    redbolt_request_set_permits(request, 3);
    uint64_t permit = asked(driver, request, NULL);
    AWAIT(GRANTED, permit);
    uint16_t slot = 99;
    CHECK(redbolt_driver_slot(driver, permit, &slot) && slot < 3);
    released(driver, permit);
}

static void many(redbolt_driver *driver) {
    const char *names[] = {"one", "two", "", "three"};
    const redbolt_request *requests[4];
    uint64_t locks[4];
    int data = 0;
    for (int i = 0; i < 4; i++) {
        requests[i] = redbolt_request_new(names[i]);
    }
    EXPECT(REDBOLT_STATUS_REQUEST, redbolt_driver_acquire_all(driver, requests, 4, &data, locks, &error));
    CHECK(locks[0] != 0 && locks[1] != 0 && locks[2] == 0 && locks[3] == 0);
    for (int i = 0; i < 2; i++) {
        redbolt_error *error = NULL;
        redbolt_event event = next(driver, &error);
        CHECK(event.kind == REDBOLT_EVENT_KIND_GRANTED && event.data == &data && error == NULL);
        CHECK(event.lock == locks[0] || event.lock == locks[1]);
    }
    released(driver, locks[0]);
    released(driver, locks[1]);
    for (int i = 0; i < 4; i++) {
        redbolt_request_free((redbolt_request *)requests[i]);
    }
}

// Returns the number of a view that is complete.
static void viewed(redbolt_driver *driver, uint64_t view, void *data) {
    redbolt_error *error = NULL;
    redbolt_event event = next(driver, &error);
    CHECK(event.kind == REDBOLT_EVENT_KIND_VIEWED && event.view == view && event.data == data && event.lock == 0);
    CHECK(event.status == REDBOLT_STATUS_OK && error == NULL);
}

static void inspected(redbolt_driver *driver) {
    int ours = 0;
    uint64_t lock = asked(driver, redbolt_request_new("seen"), NULL), view = 0;
    AWAIT(GRANTED, lock);
    redbolt_inspection seen;
    char *words = NULL;
    OK(redbolt_driver_inspect(driver, "seen", &ours, &view, &error));
    CHECK(view != 0 && view != lock);
    viewed(driver, view, &ours);
    EXPECT(REDBOLT_STATUS_REQUEST, redbolt_driver_take_force_unlock(driver, view, &words, &error));
    EXPECT(REDBOLT_STATUS_INVALID_ARGUMENT, redbolt_driver_take_inspection(driver, view, NULL, &words, &error));
    OK(redbolt_driver_take_inspection(driver, view, &seen, &words, &error));
    CHECK(seen.owner == REDBOLT_OWNER_MINE && seen.is_locked && strstr(words, "node 3 ") != NULL);
    redbolt_text_free(words);
    EXPECT(REDBOLT_STATUS_REQUEST, redbolt_driver_take_inspection(driver, view, &seen, &words, &error));
    CHECK(words == NULL);

    OK(redbolt_driver_force_unlock(driver, "seen", REDBOLT_UNLOCK_LOCKS, NULL, &ours, &view, &error));
    EXPECT(REDBOLT_STATUS_REQUEST, redbolt_driver_take_force_unlock(driver, view, NULL, &error));
    viewed(driver, view, &ours);
    OK(redbolt_driver_take_force_unlock(driver, view, &words, &error));
    CHECK(strstr(words, "of 3 nodes") != NULL);
    redbolt_text_free(words);
    OK(redbolt_driver_extend(driver, lock, 10000, &error));
    AWAIT(LOST, lock);
    CHECK(redbolt_driver_release(driver, lock) == REDBOLT_STATUS_LOST);

    // A name that continues after a zero byte is different from its first part.
    const uint8_t name[] = {'s', 'e', 'e', 'n', 0, 0xff};
    OK(redbolt_driver_inspect_bytes(driver, name, sizeof name, NULL, &view, &error));
    viewed(driver, view, NULL);
    OK(redbolt_driver_take_inspection(driver, view, &seen, NULL, &error));
    CHECK(seen.owner == REDBOLT_OWNER_NOBODY);
    OK(redbolt_driver_force_unlock_bytes(driver, name, sizeof name, REDBOLT_UNLOCK_ANYTHING, NULL, NULL, &view, &error));
    viewed(driver, view, NULL);
    OK(redbolt_driver_take_force_unlock(driver, view, NULL, &error));

    EXPECT(REDBOLT_STATUS_REQUEST, redbolt_driver_inspect(driver, "", NULL, &view, &error));
    CHECK(view == 0);
    EXPECT(REDBOLT_STATUS_INVALID_ARGUMENT, redbolt_driver_inspect(driver, "seen", NULL, NULL, &error));
    EXPECT(REDBOLT_STATUS_INVALID_ARGUMENT,
           redbolt_driver_force_unlock(driver, "seen", REDBOLT_UNLOCK_LOCKS_OF, NULL, NULL, &view, &error));
}

static void detached(redbolt_driver *driver) {
    uint64_t lock = asked(driver, redbolt_request_new("baton"), NULL);
    AWAIT(GRANTED, lock);
    char *text = NULL;
    OK(redbolt_driver_detach(driver, lock, &text, &error));
    CHECK(!redbolt_driver_is_valid(driver, lock));
    int again = 0;
    OK(redbolt_driver_attach(driver, text, &again, &lock, &error));
    redbolt_text_free(text);
    CHECK(redbolt_driver_is_valid(driver, lock));
    released(driver, lock);
}

static void doors(redbolt_driver *driver) {
    uint64_t lock = 7;
    redbolt_event event;
    EXPECT(REDBOLT_STATUS_INVALID_ARGUMENT, redbolt_driver_new(NULL, &driver, &error));
    CHECK(driver == NULL);
    EXPECT(REDBOLT_STATUS_INVALID_ARGUMENT, redbolt_driver_acquire(NULL, NULL, NULL, &lock, &error));
    CHECK(lock == 0);
    CHECK(redbolt_driver_process(NULL) == REDBOLT_STATUS_INVALID_ARGUMENT);
    CHECK(redbolt_driver_fd(NULL) == -1 && redbolt_driver_timeout_ms(NULL) == -1);
    CHECK(!redbolt_driver_next_event(NULL, &event, NULL) && !redbolt_driver_is_valid(NULL, 1));
    redbolt_driver_free(NULL);
}

int main(int argc, char **argv) {
    redbolt_config *config = config_of(argc - 1, argv + 1);
    redbolt_driver *driver = NULL;
    OK(redbolt_driver_new(config, &driver, &error));
    redbolt_config_free(config);
    exclusive(driver);
    lost_and_extended(driver);
    shared_and_permits(driver);
    many(driver);
    inspected(driver);
    detached(driver);
    OK(redbolt_driver_nodes(driver, &error));
    char *metrics = NULL;
    OK(redbolt_driver_metrics(driver, &metrics, &error));
    CHECK(strstr(metrics, "# TYPE redbolt_") != NULL);
    redbolt_text_free(metrics);
    EXPECT(REDBOLT_STATUS_REQUEST, redbolt_driver_extend(driver, 999, 1000, &error));
    CHECK(!redbolt_driver_next_event(driver, NULL, NULL));
    doors(driver);
    redbolt_driver_free(driver);
    printf("all of it\n");
    return 0;
}
