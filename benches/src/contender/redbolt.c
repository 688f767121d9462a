/*
 * The blocking API of redbolt, through its library for C.
 */
#include "program.h"

#include <redbolt.h>

static redbolt_client *client;
static redbolt_request *request;
static redbolt_lock *held;

/* Passes on what went wrong, if something did. */
static int done(redbolt_status status, redbolt_error *error) {
    if (status == REDBOLT_STATUS_OK) return 0;
    fail("%s", redbolt_error_message(error));
    redbolt_error_free(error);
    return -1;
}

static int acquire(void) {
    redbolt_error *error = NULL;
    return done(redbolt_client_acquire(client, request, &held, &error), error);
}

static int release(void) {
    redbolt_error *error = NULL;
    return done(redbolt_lock_release(held, &error), error);
}

static int add_node(redbolt_config *config, const char *address) {
    char path[256];
    redbolt_error *error = NULL;
    snprintf(path, sizeof path, "%s%s", *address == '/' ? "unix://" : "", address);
    return done(redbolt_config_add_node(config, path, &error), error);
}

/* Its tokens are its own, and it writes the guards by itself. */
static int begin(int count, char **arguments) {
    if (count < 7) return fail("too few arguments");
    redbolt_error *error = NULL;
    redbolt_config *config = redbolt_config_new();
    for (int at = 6; at < count; at++)
        if (add_node(config, arguments[at])) return -1;
    redbolt_config_set_response_timeout_ms(config, PATIENCE_MS);
    redbolt_config_set_dead_peer_timeout_ms(config, 2 * PATIENCE_MS);
    redbolt_config_set_new_nodes(config);
    if (done(redbolt_client_new(config, &client, &error), error)) return -1;
    redbolt_config_free(config);
    request = redbolt_request_new(arguments[1]);
    redbolt_request_set_ttl_ms(request, strtoull(arguments[2], NULL, 10));
    return done(redbolt_client_warm_up(client, PATIENCE_MS, &error), error);
}
