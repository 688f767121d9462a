// Acquires a lock on the calling thread:
//
//     cc lock.c $(pkg-config --cflags --libs redbolt) && ./a.out 10.0.0.1 10.0.0.2 10.0.0.3
#include <redbolt.h>
#include <stdio.h>

#include "nodes.h"

static int work(redbolt_client *client) {
    redbolt_error *error = NULL;
    redbolt_request *request = redbolt_request_new("invoices");
    redbolt_request_set_ttl_ms(request, 5000);
    redbolt_request_set_wait_ms(request, 5000);
    redbolt_request_set_fenced(request);

    redbolt_lock *lock = NULL;
    redbolt_status status = redbolt_client_acquire(client, request, &lock, &error);
    redbolt_request_free(request);
    if (status != REDBOLT_STATUS_OK) {
        return fail("not locked", error);
    }

    uint64_t token = 0;
    redbolt_lock_fencing_token(lock, &token);
    printf("locked, with a token: %s\n", token > 0 ? "yes" : "no");
    for (int step = 1; step <= 3 && redbolt_lock_is_valid(lock); step++) {
        printf("step %d\n", step); // each is to be short against the TTL
    }
    if (redbolt_lock_extend(lock, 5000, &error) != REDBOLT_STATUS_OK) {
        fail("not extended", error);
    }

    if (redbolt_lock_release(lock, &error) != REDBOLT_STATUS_OK) {
        return fail("the work was not covered", error);
    }
    printf("released\n");
    return 0;
}

int main(int argc, char **argv) {
    redbolt_error *error = NULL;
    redbolt_config *config = config_of(argc - 1, argv + 1);
    if (config == NULL) {
        return 1;
    }

    redbolt_client *client = NULL;
    redbolt_status status = redbolt_client_new(config, &client, &error);
    redbolt_config_free(config);
    if (status != REDBOLT_STATUS_OK) {
        return fail("no client", error);
    }
    int outcome = work(client);
    redbolt_client_free(client);
    return outcome;
}
