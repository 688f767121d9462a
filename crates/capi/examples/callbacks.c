// Locks for many threads, with outcomes in callbacks:
//
//     cc callbacks.c -pthread $(pkg-config --cflags --libs redbolt)
//
// A callback runs on the engine's thread. It passes the outcome on, here to the main thread, and
// does no work.
#include <pthread.h>
#include <redbolt.h>
#include <stdio.h>

#include "nodes.h"

// An outcome that is passed on: a granted lock, or none.
struct mailbox {
    pthread_mutex_t mutex;
    pthread_cond_t filled;
    redbolt_lock *lock;
    int outcomes;
};

static void fill(struct mailbox *box, redbolt_lock *lock) {
    pthread_mutex_lock(&box->mutex);
    box->lock = lock;
    box->outcomes++;
    pthread_cond_signal(&box->filled);
    pthread_mutex_unlock(&box->mutex);
}

// Waits until there were this many outcomes in all.
static redbolt_lock *await(struct mailbox *box, int outcomes) {
    pthread_mutex_lock(&box->mutex);
    while (box->outcomes < outcomes) {
        pthread_cond_wait(&box->filled, &box->mutex);
    }
    redbolt_lock *lock = box->lock;
    pthread_mutex_unlock(&box->mutex);
    return lock;
}

static void on_acquired(void *data, redbolt_status status, redbolt_lock *lock, const redbolt_error *error) {
    if (status != REDBOLT_STATUS_OK) {
        fprintf(stderr, "not locked: %s\n", redbolt_error_message(error));
    }
    fill(data, lock);
}

static void on_released(void *data, redbolt_status status, const redbolt_error *error) {
    if (status != REDBOLT_STATUS_OK) {
        fprintf(stderr, "%s\n", redbolt_error_message(error));
    }
    fill(data, NULL);
}

static void on_loss(void *data, redbolt_loss loss) {
    (void)data;
    fprintf(stderr, "stop: the lock is lost (%d)\n", (int)loss);
}

static int run(redbolt_engine *engine) {
    struct mailbox box = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, 0};
    redbolt_request *request = redbolt_request_new("report");
    redbolt_request_set_wait_ms(request, 5000);
    redbolt_request_set_auto_extend(request, 0, 0); // until it is released
    redbolt_status status = redbolt_engine_acquire_async(engine, request, on_acquired, &box, NULL);
    redbolt_request_free(request);
    if (status != REDBOLT_STATUS_OK) {
        fprintf(stderr, "not asked: %s\n", redbolt_status_message(status));
        return 1;
    }
    redbolt_lock *lock = await(&box, 1);
    if (lock == NULL) {
        return 1;
    }
    redbolt_lock_on_loss(lock, on_loss, NULL, NULL, NULL);
    printf("locked: the report is written\n");
    redbolt_lock_release_async(lock, on_released, &box, NULL);
    await(&box, 2);
    printf("released\n");
    return 0;
}

int main(int argc, char **argv) {
    redbolt_error *error = NULL;
    redbolt_config *config = config_of(argc - 1, argv + 1);
    if (config == NULL) {
        return 1;
    }
    redbolt_engine *engine = NULL;
    redbolt_status status = redbolt_engine_new(config, &engine, &error);
    redbolt_config_free(config);
    if (status != REDBOLT_STATUS_OK) {
        return fail("no engine", error);
    }
    int outcome = run(engine);
    redbolt_engine_free(engine);
    return outcome;
}
