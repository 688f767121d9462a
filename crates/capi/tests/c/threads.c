// Threads that use one client at once, against the rule: they are refused and nothing breaks. The
// test gives it three nodes.
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>

#define THREADS 4
#define TURNS 200

static atomic_int granted, refused, inside;

static void *disturb(void *data) {
    redbolt_client *client = data;
    redbolt_request *request = redbolt_request_new("shared client");
    redbolt_request_set_wait_ms(request, 20);
    redbolt_request_set_ttl_ms(request, 30000); // no pause of this machine ends one
    for (int turn = 0; turn < TURNS; turn++) {
        redbolt_lock *lock = NULL;
        redbolt_error *error = NULL;
        switch (redbolt_client_acquire(client, request, &lock, &error)) {
        case REDBOLT_STATUS_OK:
            CHECK(atomic_fetch_add(&inside, 1) == 0);
            granted++;
            redbolt_lock_remaining_ms(lock); // 0 while another thread is inside
            CHECK(atomic_fetch_sub(&inside, 1) == 1);
            redbolt_lock_free(lock); // taken at any time
            break;
        case REDBOLT_STATUS_IN_USE:
            refused++;
            break;
        case REDBOLT_STATUS_OUT_OF_TIME: // the lock was let go of, and that is not sent yet
        case REDBOLT_STATUS_CONTENDED:
            break;
        default:
            fprintf(stderr, "%s\n", redbolt_error_message(error));
            exit(1);
        }
        CHECK((lock == NULL) == (error != NULL));
        redbolt_error_free(error);
    }
    redbolt_request_free(request);
    return NULL;
}

int main(int argc, char **argv) {
    redbolt_config *config = config_of(argc - 1, argv + 1);
    redbolt_client *client = NULL;
    OK(redbolt_client_new(config, &client, &error));
    OK(redbolt_client_warm_up(client, 15000, &error));
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, disturb, client) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    CHECK(granted > 0 && refused > 0);
    // The dropped locks are released, and the client still works.
    redbolt_lock *lock = NULL;
    OK(redbolt_client_lease(client, "shared client", 10000, &lock, &error));
    OK(redbolt_lock_release(lock, &error));
    redbolt_client_free(client);
    redbolt_config_free(config);
    printf("all of it\n");
    return 0;
}
