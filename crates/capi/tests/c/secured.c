// A lock on nodes with mutual TLS and passwords: secured [OPTION VALUE]... ADDRESS...
//
// Prints the outcome. The options are those of the command line; `--wait` is in ms.
#include "check.h"

static uint64_t wait_ms = 5000;

static bool is(const char *word, const char *option) { return strcmp(word, option) == 0; }

static redbolt_status set(redbolt_config *config, const char *option, const char *value) {
    if (is(option, "--wait")) {
        wait_ms = strtoull(value, NULL, 10);
        return REDBOLT_STATUS_OK;
    }
    if (is(option, "--password-file")) return redbolt_config_set_password_file(config, value);
    if (is(option, "--tls-ca")) return redbolt_config_set_tls_ca(config, value);
    if (is(option, "--tls-cert")) return redbolt_config_set_tls_cert(config, value);
    if (is(option, "--tls-key")) return redbolt_config_set_tls_key(config, value);
    if (is(option, "--tls-server-name")) return redbolt_config_set_tls_server_name(config, value);
    if (is(option, "--danger") && is(value, "accept-any-certificate"))
        return redbolt_config_set_danger_accept_any_certificate(config);
    CHECK(is(option, "--sentinel-password"));
    return redbolt_config_set_sentinel_credentials(config, NULL, (const uint8_t *)value, strlen(value));
}

// Null pointers and texts that are not UTF-8 are refused.
static void doors(void) {
    redbolt_config *config = redbolt_config_new();
    CHECK(redbolt_config_set_password_file(config, NULL) == REDBOLT_STATUS_INVALID_ARGUMENT);
    CHECK(redbolt_config_set_tls_ca(NULL, "x") == REDBOLT_STATUS_INVALID_ARGUMENT);
    CHECK(redbolt_config_set_tls_ca(config, NULL) == REDBOLT_STATUS_INVALID_ARGUMENT);
    CHECK(redbolt_config_set_tls_cert(config, NULL) == REDBOLT_STATUS_INVALID_ARGUMENT);
    CHECK(redbolt_config_set_tls_key(config, NULL) == REDBOLT_STATUS_INVALID_ARGUMENT);
    CHECK(redbolt_config_set_tls_server_name(config, "\xff") == REDBOLT_STATUS_INVALID_ARGUMENT);
    CHECK(redbolt_config_set_danger_accept_any_certificate(NULL) == REDBOLT_STATUS_INVALID_ARGUMENT);
    CHECK(redbolt_config_set_sentinel_credentials(config, "me", NULL, 1) == REDBOLT_STATUS_INVALID_ARGUMENT);
    CHECK(redbolt_config_set_sentinel_credentials(config, "\xff", NULL, 0) == REDBOLT_STATUS_INVALID_ARGUMENT);
    redbolt_config_free(config);
}

static int refused(redbolt_error *error) {
    printf("%d: %s\n", (int)redbolt_error_status(error), redbolt_error_message(error));
    redbolt_error_free(error);
    return 0;
}

int main(int argc, char **argv) {
    doors();
    int first = 1;
    while (first < argc && argv[first][0] == '-') first += 2;
    redbolt_config *config = config_of(argc - first, argv + first);
    for (int i = 1; i < first; i += 2) CHECK(set(config, argv[i], argv[i + 1]) == REDBOLT_STATUS_OK);
    redbolt_client *client = NULL;
    redbolt_lock *lock = NULL;
    redbolt_error *error = NULL;
    redbolt_status status = redbolt_client_new(config, &client, &error);
    redbolt_config_free(config);
    if (status != REDBOLT_STATUS_OK) return refused(error);
    redbolt_request *request = redbolt_request_new("job");
    redbolt_request_set_wait_ms(request, wait_ms);
    status = redbolt_client_acquire(client, request, &lock, &error);
    redbolt_request_free(request);
    if (status == REDBOLT_STATUS_OK) {
        OK(redbolt_lock_release(lock, &error));
        printf("locked and released\n");
    } else {
        refused(error);
    }
    redbolt_client_free(client);
    return 0;
}
