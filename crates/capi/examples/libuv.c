// Locks in libuv's loop:
//
//     cc libuv.c $(pkg-config --cflags --libs redbolt libuv) && ./a.out 10.0.0.1 ...
//
// One uv_poll_t is redbolt's file descriptor, one uv_timer_t its deadline. Five jobs want one
// resource and get it one after the other.
#include <redbolt.h>
#include <stdio.h>
#include <uv.h>

#include "nodes.h"

#define JOBS 5

struct host {
    redbolt_driver *driver;
    uv_poll_t readable;
    uv_timer_t deadline;
    uv_timer_t work[JOBS];
    uint64_t locks[JOBS];
    int done;
};

static void step(struct host *host);

static void on_readable(uv_poll_t *handle, int status, int events) {
    (void)status, (void)events;
    step(handle->data);
}

static void on_deadline(uv_timer_t *handle) { step(handle->data); }

// Ends the work of a job, whose index is that of its timer.
static void on_worked(uv_timer_t *timer) {
    struct host *host = timer->data;
    if (redbolt_driver_release(host->driver, host->locks[timer - host->work]) == REDBOLT_STATUS_LOST) {
        printf("job %ld: lost before the work was done\n", (long)(timer - host->work));
    }
    step(host);
}

static void on_event(struct host *host, const redbolt_event *event, redbolt_error *error) {
    long job = (uint64_t *)event->data - host->locks;
    switch (event->kind) {
    case REDBOLT_EVENT_KIND_GRANTED:
        printf("job %ld begins\n", job);
        uv_timer_start(&host->work[job], on_worked, 20, 0);
        break;
    case REDBOLT_EVENT_KIND_RELEASED:
        printf("job %ld ends\n", job);
        host->done++;
        break;
    case REDBOLT_EVENT_KIND_LOST:
        uv_timer_stop(&host->work[job]);
        // A lost lock is released too.
        if (redbolt_driver_release(host->driver, event->lock) == REDBOLT_STATUS_LOST) {
            printf("job %ld: %s\n", job, redbolt_error_message(error));
        }
        host->done++;
        break;
    case REDBOLT_EVENT_KIND_REFUSED:
        printf("job %ld: %s\n", job, redbolt_error_message(error));
        host->done++;
        break;
    default:
        break;
    }
}

// Lets redbolt do what it can, and sets the timer again.
static void step(struct host *host) {
    redbolt_driver_process(host->driver);
    redbolt_event event;
    redbolt_error *error;
    while (redbolt_driver_next_event(host->driver, &event, &error)) {
        on_event(host, &event, error);
        redbolt_error_free(error);
    }
    if (host->done == JOBS && !redbolt_driver_has_pending_releases(host->driver)) {
        uv_stop(host->readable.loop);
        return;
    }
    int left = redbolt_driver_timeout_ms(host->driver);
    if (left < 0) {
        uv_timer_stop(&host->deadline);
    } else {
        uv_timer_start(&host->deadline, on_deadline, (uint64_t)left, 0);
    }
}

static void close_handle(uv_handle_t *handle, void *data) {
    (void)data;
    uv_close(handle, NULL);
}

static int run(struct host *host, uv_loop_t *loop) {
    uv_poll_init(loop, &host->readable, redbolt_driver_fd(host->driver));
    uv_timer_init(loop, &host->deadline);
    host->readable.data = host->deadline.data = host;
    redbolt_request *request = redbolt_request_new("printer");
    redbolt_request_set_wait_ms(request, UINT64_MAX);
    for (int i = 0; i < JOBS; i++) {
        uv_timer_init(loop, &host->work[i]);
        host->work[i].data = host;
        redbolt_driver_acquire(host->driver, request, &host->locks[i], &host->locks[i], NULL);
    }
    redbolt_request_free(request);
    uv_poll_start(&host->readable, UV_READABLE, on_readable);
    step(host);
    uv_run(loop, UV_RUN_DEFAULT);

    uv_walk(loop, close_handle, NULL);
    uv_run(loop, UV_RUN_DEFAULT);
    return uv_loop_close(loop) == 0 ? 0 : 1;
}

int main(int argc, char **argv) {
    struct host host = {0};
    redbolt_error *error = NULL;
    redbolt_config *config = config_of(argc - 1, argv + 1);
    if (config == NULL) {
        return 1;
    }
    redbolt_status status = redbolt_driver_new(config, &host.driver, &error);
    redbolt_config_free(config);
    if (status != REDBOLT_STATUS_OK) {
        return fail("no driver", error);
    }
    uv_loop_t loop;
    uv_loop_init(&loop);
    int outcome = run(&host, &loop);
    redbolt_driver_free(host.driver);
    return outcome;
}
