// The common part of the examples in C: the nodes that the command line names.
#ifndef NODES_H
#define NODES_H

#include <redbolt.h>
#include <stdio.h>

// Prints the reason of a failure, ends the error, and returns the exit status of main.
static inline int fail(const char *what, redbolt_error *error) {
    fprintf(stderr, "%s: %s\n", what, redbolt_error_message(error));
    redbolt_error_free(error);
    return 1;
}

// Returns a configuration of these nodes, or null if an address is not valid, which it prints.
static inline redbolt_config *config_of(int count, char **addresses) {
    redbolt_error *error = NULL;
    redbolt_config *config = redbolt_config_new();
    for (int i = 0; i < count; i++) {
        if (redbolt_config_add_node(config, addresses[i], &error) != REDBOLT_STATUS_OK) {
            fail(addresses[i], error);
            redbolt_config_free(config);
            return NULL;
        }
    }
    redbolt_config_set_new_nodes(config); // wrong where nodes have been in use: see redbolt_init
    return config;
}

#endif
