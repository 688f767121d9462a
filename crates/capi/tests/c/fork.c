// A child after fork() holds nothing, is refused, and does no harm. The test gives it three nodes.
#include "check.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

struct handles {
    redbolt_client *client;
    redbolt_driver *driver;
    redbolt_engine *engine;
    redbolt_lock *of_client, *of_engine;
    uint64_t of_driver;
};

static void child(struct handles *ours) {
    redbolt_lock *none = NULL;
    uint64_t lock = 0;
    redbolt_request *request = redbolt_request_new("other");
    EXPECT(REDBOLT_STATUS_FORKED, redbolt_client_acquire(ours->client, request, &none, &error));
    EXPECT(REDBOLT_STATUS_FORKED, redbolt_engine_acquire(ours->engine, request, &none, &error));
    EXPECT(REDBOLT_STATUS_FORKED, redbolt_driver_acquire(ours->driver, request, NULL, &lock, &error));
    redbolt_request_free(request);
    char *text = NULL;
    redbolt_event event;
    redbolt_inspection seen;
    EXPECT(REDBOLT_STATUS_FORKED, redbolt_client_warm_up(ours->client, 15000, &error));
    EXPECT(REDBOLT_STATUS_FORKED, redbolt_client_inspect(ours->client, "client", &seen, NULL, &error));
    EXPECT(REDBOLT_STATUS_FORKED, redbolt_client_metrics(ours->client, &text, &error));
    EXPECT(REDBOLT_STATUS_FORKED, redbolt_engine_warm_up(ours->engine, 15000, &error));
    EXPECT(REDBOLT_STATUS_FORKED, redbolt_engine_inspect(ours->engine, "engine", &seen, NULL, &error));
    EXPECT(REDBOLT_STATUS_FORKED, redbolt_engine_metrics(ours->engine, &text, &error));
    EXPECT(REDBOLT_STATUS_FORKED, redbolt_engine_shutdown(ours->engine, 15000, &error));
    redbolt_status status = redbolt_driver_process(ours->driver);
    CHECK(status == REDBOLT_STATUS_FORKED && strstr(redbolt_status_message(status), "before the fork") != NULL);
    CHECK(redbolt_driver_release(ours->driver, ours->of_driver) == REDBOLT_STATUS_FORKED);
    EXPECT(REDBOLT_STATUS_FORKED, redbolt_driver_extend(ours->driver, ours->of_driver, 10000, &error));
    EXPECT(REDBOLT_STATUS_FORKED, redbolt_driver_detach(ours->driver, ours->of_driver, &text, &error));
    EXPECT(REDBOLT_STATUS_FORKED, redbolt_driver_nodes(ours->driver, &error));
    EXPECT(REDBOLT_STATUS_FORKED, redbolt_driver_metrics(ours->driver, &text, &error));
    // The event of the grant is pending, and belongs to the parent.
    CHECK(!redbolt_driver_next_event(ours->driver, &event, NULL) && !redbolt_driver_process_busy(ours->driver));
    CHECK(!redbolt_driver_is_valid(ours->driver, ours->of_driver) && text == NULL);
    CHECK(!redbolt_lock_is_valid(ours->of_client) && !redbolt_lock_is_valid(ours->of_engine));
    EXPECT(REDBOLT_STATUS_LOST, redbolt_lock_release(ours->of_client, &error));
    EXPECT(REDBOLT_STATUS_LOST, redbolt_lock_release(ours->of_engine, &error));
    redbolt_client_free(ours->client);
    redbolt_driver_free(ours->driver);
    redbolt_engine_free(ours->engine);
    exit(0);
}

// Acquires a lock, and leaves its event pending.
static uint64_t granted(redbolt_driver *driver) {
    uint64_t lock = 0;
    redbolt_request *request = redbolt_request_new("driver");
    // A busy machine can refuse one attempt.
    redbolt_request_set_wait_ms(request, UINT64_MAX);
    OK(redbolt_driver_acquire(driver, request, NULL, &lock, &error));
    redbolt_request_free(request);
    while (!redbolt_driver_is_valid(driver, lock)) {
        struct pollfd readable = {redbolt_driver_fd(driver), POLLIN, 0};
        poll(&readable, 1, redbolt_driver_timeout_ms(driver));
        CHECK(redbolt_driver_process(driver) == REDBOLT_STATUS_OK);
    }
    return lock;
}

int main(int argc, char **argv) {
    redbolt_config *config = config_of(argc - 1, argv + 1);
    struct handles ours = {0};
    OK(redbolt_client_new(config, &ours.client, &error));
    OK(redbolt_driver_new(config, &ours.driver, &error));
    OK(redbolt_engine_new(config, &ours.engine, &error));
    OK(redbolt_client_lease(ours.client, "client", 10000, &ours.of_client, &error));
    OK(redbolt_engine_lock(ours.engine, "engine", &ours.of_engine, &error));
    ours.of_driver = granted(ours.driver);
    pid_t forked = fork();
    CHECK(forked >= 0);
    if (forked == 0) {
        child(&ours);
    }
    int status = 0;
    CHECK(waitpid(forked, &status, 0) == forked && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    // The parent still has its locks.
    CHECK(redbolt_lock_is_valid(ours.of_engine) && redbolt_driver_is_valid(ours.driver, ours.of_driver));
    redbolt_event event;
    do {
        CHECK(redbolt_driver_next_event(ours.driver, &event, NULL));
    } while (event.kind == REDBOLT_EVENT_KIND_NODE);
    CHECK(event.kind == REDBOLT_EVENT_KIND_GRANTED && event.lock == ours.of_driver);
    CHECK(redbolt_driver_release(ours.driver, ours.of_driver) == REDBOLT_STATUS_OK);
    OK(redbolt_lock_extend(ours.of_client, 10000, &error));
    OK(redbolt_lock_release(ours.of_client, &error));
    OK(redbolt_lock_release(ours.of_engine, &error));
    redbolt_client_free(ours.client);
    redbolt_driver_free(ours.driver);
    redbolt_engine_free(ours.engine);
    redbolt_config_free(config);
    printf("all of it\n");
    return 0;
}
