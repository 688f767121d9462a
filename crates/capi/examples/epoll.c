// Locks in the program's own loop, over epoll:
//
//     cc epoll.c $(pkg-config --cflags --libs redbolt) && ./a.out 10.0.0.1 ...
//
// The loop watches one file descriptor of redbolt, sleeps no longer than redbolt's deadline, and
// never waits in a call.
#include <redbolt.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "nodes.h"

// The state that an event of a lock returns: `data` of its acquisition.
struct job {
    const char *name;
    int extensions;
    bool is_done;
};

static void on_event(redbolt_driver *driver, const redbolt_event *event, redbolt_error *error) {
    struct job *job = event->data;
    switch (event->kind) {
    case REDBOLT_EVENT_KIND_GRANTED:
        printf("%s: granted\n", job->name);
        break;
    case REDBOLT_EVENT_KIND_AUTO_EXTENDED:
        // The work ends after three extensions.
        if (++job->extensions == 3) {
            printf("%s: still held after %d extensions\n", job->name, job->extensions);
            if (redbolt_driver_release(driver, event->lock) == REDBOLT_STATUS_LOST) {
                printf("%s: lost before the work was done\n", job->name);
            }
        }
        break;
    case REDBOLT_EVENT_KIND_RELEASED:
        printf("%s: released\n", job->name);
        job->is_done = true;
        break;
    case REDBOLT_EVENT_KIND_LOST:
        // A lost lock is released too.
        if (redbolt_driver_release(driver, event->lock) == REDBOLT_STATUS_LOST) {
            printf("%s\n", redbolt_error_message(error));
        }
        job->is_done = true;
        break;
    case REDBOLT_EVENT_KIND_REFUSED:
        printf("%s: %s\n", job->name, redbolt_error_message(error));
        job->is_done = true;
        break;
    default: // what nodes do, and what later versions may tell
        break;
    }
}

// Takes all events. After every command there may be some.
static void take_events(redbolt_driver *driver) {
    redbolt_event event;
    redbolt_error *error;
    while (redbolt_driver_next_event(driver, &event, &error)) {
        on_event(driver, &event, error);
        redbolt_error_free(error);
    }
}

static int run(redbolt_driver *driver) {
    struct job job = {"nightly", 0, false};
    redbolt_error *error = NULL;
    redbolt_request *request = redbolt_request_new("nightly");
    redbolt_request_set_ttl_ms(request, 3000);
    redbolt_request_set_wait_ms(request, 10000);
    redbolt_request_set_auto_extend(request, 50, 0); // seldom is enough: 0 is a third of the TTL
    uint64_t lock;
    redbolt_status status = redbolt_driver_acquire(driver, request, &job, &lock, &error);
    redbolt_request_free(request);
    if (status != REDBOLT_STATUS_OK) {
        return fail("not asked", error);
    }

    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event readable = {.events = EPOLLIN};
    epoll_ctl(epoll, EPOLL_CTL_ADD, redbolt_driver_fd(driver), &readable);
    take_events(driver);
    while (!job.is_done || redbolt_driver_has_pending_releases(driver)) {
        // Other file descriptors of the program are in the same epoll.
        epoll_wait(epoll, &readable, 1, redbolt_driver_timeout_ms(driver));
        redbolt_driver_process(driver);
        take_events(driver);
    }
    close(epoll);
    return 0;
}

int main(int argc, char **argv) {
    redbolt_error *error = NULL;
    redbolt_config *config = config_of(argc - 1, argv + 1);
    if (config == NULL) {
        return 1;
    }
    redbolt_driver *driver = NULL;
    redbolt_status status = redbolt_driver_new(config, &driver, &error);
    redbolt_config_free(config);
    if (status != REDBOLT_STATUS_OK) {
        return fail("no driver", error);
    }
    int outcome = run(driver);
    redbolt_driver_free(driver);
    return outcome;
}
