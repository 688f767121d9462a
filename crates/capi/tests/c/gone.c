// A node that was killed: gone PID ADDRESS. A write to its connection must not end this program by
// SIGPIPE, which C programs do not ignore by default.
#include "check.h"

#include <signal.h>

int main(int argc, char **argv) {
    CHECK(argc == 3);
    redbolt_config *config = config_of(1, argv + 2);
    if (strncmp(argv[2], "rediss", 6) == 0) {
        CHECK(redbolt_config_set_danger_accept_any_certificate(config) == REDBOLT_STATUS_OK);
    }
    redbolt_client *client = NULL;
    redbolt_lock *lock = NULL;
    OK(redbolt_client_new(config, &client, &error));
    redbolt_config_free(config);
    OK(redbolt_client_lease(client, "job", 10000, &lock, &error));
    CHECK(kill(atoi(argv[1]), SIGKILL) == 0);
    redbolt_lock_free(lock);
    for (int i = 0; i < 20; i++) {
        EXPECT(REDBOLT_STATUS_NO_QUORUM, redbolt_client_try_lease(client, "other", 10000, &lock, &error));
    }
    redbolt_client_free(client);
    printf("still here\n");
    return 0;
}
