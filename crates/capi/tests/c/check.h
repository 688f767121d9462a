// The common part of the test programs.
#ifndef CHECK_H
#define CHECK_H

#include <redbolt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Ends the program if a condition does not hold.
#define CHECK(what)                                                        \
    do {                                                                   \
        if (!(what)) {                                                     \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what); \
            exit(1);                                                       \
        }                                                                  \
    } while (0)

// Checks the status. An error comes with every status other than OK, has the same status, and has a
// text.
static inline void expect(int line, redbolt_status wanted, redbolt_status status, redbolt_error *error) {
    const char *message = redbolt_error_message(error);
    if (status != wanted) {
        fprintf(stderr, "line %d: status %d, not %d: %s\n", line, (int)status, (int)wanted, message);
        exit(1);
    }
    CHECK((status == REDBOLT_STATUS_OK) == (error == NULL));
    CHECK(redbolt_error_status(error) == status);
    CHECK((error == NULL) == (message[0] == '\0'));
    redbolt_error_free(error);
}

#define EXPECT(wanted, call)                          \
    do {                                              \
        redbolt_error *error = NULL;                  \
        redbolt_status status = call;                 \
        expect(__LINE__, wanted, status, error);      \
    } while (0)

#define OK(call) EXPECT(REDBOLT_STATUS_OK, call)

// Returns a configuration of the nodes that the test names. Its timeouts are long, because machines
// are busy.
static inline redbolt_config *config_of(int count, char **addresses) {
    redbolt_config *config = redbolt_config_new();
    for (int i = 0; i < count; i++) {
        OK(redbolt_config_add_node(config, addresses[i], &error));
    }
    CHECK(redbolt_config_set_new_nodes(config) == REDBOLT_STATUS_OK);
    CHECK(redbolt_config_set_response_timeout_ms(config, 15000) == REDBOLT_STATUS_OK);
    CHECK(redbolt_config_set_connect_timeout_ms(config, 15000) == REDBOLT_STATUS_OK);
    return config;
}

#endif
