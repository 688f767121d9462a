// Never ends its lock, which valgrind must find.
#include "check.h"

int main(int argc, char **argv) {
    redbolt_config *config = config_of(argc - 1, argv + 1);
    redbolt_client *client = NULL;
    redbolt_lock *lock = NULL;
    OK(redbolt_client_new(config, &client, &error));
    redbolt_config_free(config);
    OK(redbolt_client_lease(client, "leak", 10000, &lock, &error));
    lock = NULL;
    redbolt_client_free(client);
    return 0;
}
