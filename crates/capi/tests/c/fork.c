// A child after fork() holds nothing, is refused, and harms nobody. The test gives it three nodes.
#include "check.h"

#include <sys/wait.h>
#include <unistd.h>

struct handles {
    redbolt_client *client;
    redbolt_driver *driver;
    redbolt_engine *engine;
    redbolt_lock *of_client, *of_engine;
};

static void child(struct handles *ours) {
    redbolt_lock *none = NULL;
    uint64_t lock = 0;
    redbolt_request *request = redbolt_request_new("other");
    EXPECT(REDBOLT_STATUS_FORKED, redbolt_client_acquire(ours->client, request, &none, &error));
    EXPECT(REDBOLT_STATUS_FORKED, redbolt_engine_acquire(ours->engine, request, &none, &error));
    EXPECT(REDBOLT_STATUS_FORKED, redbolt_driver_acquire(ours->driver, request, NULL, &lock, &error));
    redbolt_request_free(request);
    CHECK(!redbolt_lock_is_valid(ours->of_client) && !redbolt_lock_is_valid(ours->of_engine));
    EXPECT(REDBOLT_STATUS_LOST, redbolt_lock_release(ours->of_client, &error));
    EXPECT(REDBOLT_STATUS_LOST, redbolt_lock_release(ours->of_engine, &error));
    redbolt_client_free(ours->client);
    redbolt_driver_free(ours->driver);
    redbolt_engine_free(ours->engine);
    exit(0);
}

int main(int argc, char **argv) {
    redbolt_config *config = config_of(argc - 1, argv + 1);
    struct handles ours = {0};
    OK(redbolt_client_new(config, &ours.client, &error));
    OK(redbolt_driver_new(config, &ours.driver, &error));
    OK(redbolt_engine_start(config, 0, &ours.engine, &error));
    OK(redbolt_client_lock(ours.client, "client", &ours.of_client, &error));
    OK(redbolt_engine_lock(ours.engine, "engine", &ours.of_engine, &error));
    pid_t forked = fork();
    CHECK(forked >= 0);
    if (forked == 0) {
        child(&ours);
    }
    int status = 0;
    CHECK(waitpid(forked, &status, 0) == forked && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    // The parent has what it had.
    CHECK(redbolt_lock_is_valid(ours.of_engine));
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
