// redbolt: distributed locks on independent Redis or Valkey nodes, for C and C++.
//
// Made by cbindgen from crates/capi; `cargo xtask capi --header` makes it anew. How to use it is in docs/use/c-library.md.
//
// Rules for all functions:
//
// - A pointer is null or valid until the call returns. A null handle is never dereferenced: the status is
//   REDBOLT_STATUS_INVALID_ARGUMENT, or the answer is that of a lock that is over.
// - A handle is ended once, by the function that its type names. Nothing is to be called with it after that.
// - `error` may be null. Otherwise it becomes null on success, and an error that redbolt_error_free ends on failure.
// - A function without `error` has a status that says all; redbolt_status_message has words for it.
// - Errors are returned. errno is neither read nor meant: a call may leave anything in it.
// - A client or a driver is for one thread at a time, together with its locks; a second thread is refused with
//   REDBOLT_STATUS_IN_USE. An engine and its locks are for all threads at once. Configurations and requests may be read
//   by many threads and changed by one alone. Nobody may end a handle while another thread uses it.
// - No panic of redbolt leaves it, and no exception of yours may leave a callback.
// - Times are in milliseconds unless a name ends in _us. They are rounded down, but for the deadline of a driver.
// - A status whose loss must not be overlooked is marked REDBOLT_MUST_USE: compilers warn where it is ignored.
// - A child after fork() can use no client, driver, engine or lock that was made before: REDBOLT_STATUS_FORKED, locks that are
//   over, and no events. It may end the handles.


#ifndef REDBOLT_H
#define REDBOLT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Makes gcc and clang warn if the result of the function is not used.
#if defined(__GNUC__)
#define REDBOLT_MUST_USE __attribute__((warn_unused_result))
#else
#define REDBOLT_MUST_USE
#endif


// The version of the binary interface that the header describes. It changes when a program that was compiled with
// an older header would go wrong: compare it with `redbolt_abi_version()` where the library is loaded at run time.
#define REDBOLT_ABI_VERSION 1

// What a call came to. The numbers never change; later versions may add some.
enum redbolt_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // It was done.
  REDBOLT_STATUS_OK = 0,
  // A pointer is null that must not be, a text is not UTF-8, or a number is none of those that are defined.
  REDBOLT_STATUS_INVALID_ARGUMENT = 1,
  // The configuration does not hold: an address that cannot be read, a value out of its range.
  REDBOLT_STATUS_CONFIG = 2,
  // The system has no file descriptors, threads or randomness left.
  REDBOLT_STATUS_START = 3,
  // The request cannot be carried out, whatever the nodes say. Nothing was sent.
  REDBOLT_STATUS_REQUEST = 4,
  // A quorum of the nodes voted, and somebody holds the resource.
  REDBOLT_STATUS_CONTENDED = 5,
  // Too many nodes do not vote. The error says of each why.
  REDBOLT_STATUS_NO_QUORUM = 6,
  // The time that the caller gave is over. `redbolt_error_is_contended` says whether somebody held the resource.
  REDBOLT_STATUS_OUT_OF_TIME = 7,
  // No validity was left before a quorum had granted: the TTL is too short for these nodes.
  REDBOLT_STATUS_EXPIRED = 8,
  // The caller cancelled it.
  REDBOLT_STATUS_CANCELLED = 9,
  // The lock is over. Stop what it protects.
  REDBOLT_STATUS_LOST = 10,
  // As much is in flight as the engine's limit allows.
  REDBOLT_STATUS_BUSY = 11,
  // The engine was shut down.
  REDBOLT_STATUS_SHUT_DOWN = 12,
  // The handle belongs to the process that this one was forked from.
  REDBOLT_STATUS_FORKED = 13,
  // A call on the same client or driver is under way: it is for one thread at a time, and its log callback must
  // not use it.
  REDBOLT_STATUS_IN_USE = 14,
  // The call waits, whoever it asks, and a callback of redbolt is running on this thread: other locks would wait as well.
  REDBOLT_STATUS_IN_CALLBACK = 15,
  // The nodes were not set up: one is not new, or was not reached.
  REDBOLT_STATUS_SETUP = 16,
  // The engine was shut down, and not every node has confirmed every release.
  REDBOLT_STATUS_UNRELEASED = 17,
  // redbolt has a bug, and the call was stopped. The handle is not to be relied on any longer.
  REDBOLT_STATUS_PANICKED = 18,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum redbolt_status redbolt_status;
#else
typedef int32_t redbolt_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// How much a line of the log matters.
enum redbolt_log_level
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Every lock makes some of these.
  REDBOLT_LOG_LEVEL_DEBUG = 0,
  // As it should be, and seldom.
  REDBOLT_LOG_LEVEL_INFO = 1,
  // It may mend itself.
  REDBOLT_LOG_LEVEL_WARNING = 2,
  // What a lock protected was in danger, or an operator has to do something.
  REDBOLT_LOG_LEVEL_ERROR = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum redbolt_log_level redbolt_log_level;
#else
typedef int32_t redbolt_log_level;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What happened.
enum redbolt_event_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // The lock is held. Look at what is left of it before acting on it.
  REDBOLT_EVENT_KIND_GRANTED = 1,
  // The acquisition ended without a lock: `status` says why. It is the lock's last event.
  REDBOLT_EVENT_KIND_REFUSED = 2,
  // An extension succeeded.
  REDBOLT_EVENT_KIND_EXTENDED = 3,
  // An extension found no quorum. The lock is held until its validity ends.
  REDBOLT_EVENT_KIND_NOT_EXTENDED = 4,
  // An automatic extension succeeded.
  REDBOLT_EVENT_KIND_AUTO_EXTENDED = 5,
  // Automatic extensions fail. They are tried again, and a series of failures is told once.
  REDBOLT_EVENT_KIND_AUTO_EXTEND_FAILED = 6,
  // The lock is held, but its validity got shorter.
  REDBOLT_EVENT_KIND_SHORTENED = 7,
  // The lock is over although nobody released it: `loss` says how. Stop what it protects, and release it.
  REDBOLT_EVENT_KIND_LOST = 8,
  // The lock was released, as `confirmed` nodes have said. It is the lock's last event.
  REDBOLT_EVENT_KIND_RELEASED = 9,
  // A shared lock is exclusive now. Its validity and its fencing token are new.
  REDBOLT_EVENT_KIND_UPGRADED = 10,
  // A shared lock did not become exclusive. It is held as before.
  REDBOLT_EVENT_KIND_NOT_UPGRADED = 11,
  // Others may share the resource of a lock that was exclusive.
  REDBOLT_EVENT_KIND_DOWNGRADED = 12,
  // The nodes do not let others share the resource yet.
  REDBOLT_EVENT_KIND_DOWNGRADE_DELAYED = 13,
  // Node number `node` votes (`status` is OK), or does not any longer.
  REDBOLT_EVENT_KIND_NODE = 14,
  // The inspection or the forced unlock `view` is complete: take its result.
  REDBOLT_EVENT_KIND_VIEWED = 15,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum redbolt_event_kind redbolt_event_kind;
#else
typedef int32_t redbolt_event_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// How a lock was lost.
enum redbolt_loss
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // It was not.
  REDBOLT_LOSS_NONE = 0,
  // Its validity ended.
  REDBOLT_LOSS_EXPIRED = 1,
  // It belongs to the process that this one was forked from.
  REDBOLT_LOSS_FORKED = 2,
  // So many nodes no longer had its key that no quorum was left.
  REDBOLT_LOSS_GONE = 3,
  // It was extended for as long as it may be held.
  REDBOLT_LOSS_HELD_TOO_LONG = 4,
  // Its engine was shut down, or has failed.
  REDBOLT_LOSS_SHUT_DOWN = 5,
  // No quorum extended it in time.
  REDBOLT_LOSS_UNEXTENDED = 6,
  // In a way that this version of the header has no name for.
  REDBOLT_LOSS_OTHER = 7,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum redbolt_loss redbolt_loss;
#else
typedef int32_t redbolt_loss;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Beside whom a lock is held.
enum redbolt_mode
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // It is not known: the lock is over.
  REDBOLT_MODE_UNKNOWN = 0,
  // Nobody.
  REDBOLT_MODE_EXCLUSIVE = 1,
  // Others who share it.
  REDBOLT_MODE_SHARED = 2,
  // Others who have permits of the same resource.
  REDBOLT_MODE_PERMIT = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum redbolt_mode redbolt_mode;
#else
typedef int32_t redbolt_mode;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What a node answered.
enum redbolt_node_answer
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // It was not asked, or not waited for.
  REDBOLT_NODE_ANSWER_NONE = 0,
  // It granted.
  REDBOLT_NODE_ANSWER_GRANTED = 1,
  // Somebody else holds the resource there.
  REDBOLT_NODE_ANSWER_DENIED = 2,
  // It does not vote: its message says why.
  REDBOLT_NODE_ANSWER_FAILED = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum redbolt_node_answer redbolt_node_answer;
#else
typedef int32_t redbolt_node_answer;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Whose a resource is.
enum redbolt_owner
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // So many nodes are free that nobody holds it.
  REDBOLT_OWNER_NOBODY = 0,
  // The client or engine that was asked holds it.
  REDBOLT_OWNER_MINE = 1,
  // Somebody else holds it, or there is something that is no lock of redbolt.
  REDBOLT_OWNER_OTHER = 2,
  // Too few nodes answered to tell.
  REDBOLT_OWNER_UNKNOWN = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum redbolt_owner redbolt_owner;
#else
typedef int32_t redbolt_owner;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// How a node's restart guard is believed.
enum redbolt_restart_trust
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // It must be of the server's present run. Until said otherwise.
  REDBOLT_RESTART_TRUST_STRICT = 0,
  // The operator's word that the server syncs every write to its disk (`appendfsync always`).
  REDBOLT_RESTART_TRUST_DURABLE = 1,
  // The user may not run `INFO`, so that any run will do.
  REDBOLT_RESTART_TRUST_MARKER_ONLY = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum redbolt_restart_trust redbolt_restart_trust;
#else
typedef int32_t redbolt_restart_trust;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What a forced unlock may delete.
enum redbolt_unlock
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Locks of redbolt.
  REDBOLT_UNLOCK_LOCKS = 0,
  // Locks of redbolt, and those of one format, which is named as in `redbolt_request_set_format`.
  REDBOLT_UNLOCK_LOCKS_OF = 1,
  // Whatever is there: the lock of another library too, or data that an application keeps under that key. Inspect first.
  REDBOLT_UNLOCK_ANYTHING = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum redbolt_unlock redbolt_unlock;
#else
typedef int32_t redbolt_unlock;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// How those who wait for one resource get it one after the other.
enum redbolt_wake
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // They wait in the queue on the nodes, and each asks when it is its turn. Until said otherwise.
  REDBOLT_WAKE_QUEUE = 0,
  // Each asks the node that reported a change, and the others when that one has granted.
  REDBOLT_WAKE_LEAD = 1,
  // No node reports changes: pauses alone.
  REDBOLT_WAKE_TIMER = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum redbolt_wake redbolt_wake;
#else
typedef int32_t redbolt_wake;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Takes locks on the calling thread. No thread stands behind it, so nothing happens between calls. For one thread at a
// time, together with its locks: a call that comes too early has `REDBOLT_STATUS_IN_USE`.
typedef struct redbolt_client redbolt_client;

// Which nodes, and how: to be filled, and used for as many clients, drivers and engines as wanted, which it may end before. For
// one thread at a time while it is changed; many threads may start something with it at once.
typedef struct redbolt_config redbolt_config;

// Locks for a program with an event loop of its own: one file descriptor, one deadline, and no waiting. For one thread at a
// time: a call that comes too early has `REDBOLT_STATUS_IN_USE`.
typedef struct redbolt_driver redbolt_driver;

// Takes locks for all threads of a program, with one background thread of its own. For many threads at once.
typedef struct redbolt_engine redbolt_engine;

// Why a call was not done: a status, a line of words that names the nodes, and each node by itself.
// `redbolt_error_free` ends it.
typedef struct redbolt_error redbolt_error;

// A lock that was granted. It protects nothing by itself: check `redbolt_lock_is_valid` before each step that relies on
// it. It must be ended, by `redbolt_lock_release`, `redbolt_lock_free` or `redbolt_lock_detach`.
//
// One of a client is for the client's thread. One of an engine is for many threads at once.
typedef struct redbolt_lock redbolt_lock;

// An acquisition under way. `redbolt_pending_free` ends the handle, and not the acquisition.
typedef struct redbolt_pending redbolt_pending;

// Which lock, and how: to be filled, and used for as many acquisitions as wanted. For one thread at a time while it is
// changed; many threads may ask with it at once.
typedef struct redbolt_request redbolt_request;

// Hears of what happens. The line is UTF-8, without an end of line, and lives until the callback returns. It runs on the
// thread that drives the locks: inside the calls of a client or a driver, and on the thread of an engine. It must be
// quick, must not use the client or driver that called it, and must not wait: calls that do are refused with
// `REDBOLT_STATUS_IN_CALLBACK`. No exception may leave it.
typedef void (*redbolt_log_callback)(void *data, redbolt_log_level level, const char *line);

// Ends what a host's callback was given as `data`: called once, when the callback is never called again, on whichever thread
// that is.
typedef void (*redbolt_end_callback)(void *data);

// One event. What does not belong to its kind is zero.
typedef struct {
  // What happened.
  redbolt_event_kind kind;
  // Why not, if it is a refusal.
  redbolt_status status;
  // How, if it is a loss.
  redbolt_loss loss;
  // Which node, from one.
  uint32_t node;
  // How many nodes have confirmed a release.
  uint32_t confirmed;
  // Which lock.
  uint64_t lock;
  // Which view.
  uint64_t view;
  // What the host gave with the acquisition of that lock, or with that view.
  void *data;
} redbolt_event;

// Hears of the outcome of an acquisition, once: a lock, which is the callee's to end, or null and an error, which lives until
// the callback returns. It runs on the engine's thread, or on the thread that made or cancelled the call, before that call
// returns. It must be quick and must not wait: calls that do are refused with `REDBOLT_STATUS_IN_CALLBACK`.
typedef void (*redbolt_acquired_callback)(void *data,
                                          redbolt_status status,
                                          redbolt_lock *lock,
                                          const redbolt_error *error);

// One node's part in an error. The texts live as long as the error.
typedef struct {
  // Its number, from one, in the order in which nodes were added.
  uint32_t number;
  // What it answered.
  redbolt_node_answer answer;
  // Where it listens.
  const char *address;
  // Number, address and reason in one line.
  const char *message;
} redbolt_node_error;

// What was seen of a resource.
typedef struct {
  // Whose it is.
  redbolt_owner owner;
  // Whether a quorum of the nodes keeps it from whoever wants it alone.
  bool is_locked;
  // How long that lasts if nobody extends it, by the nodes' word; -1 if it is not known, or without end.
  int64_t remaining_ms;
} redbolt_inspection;

// Hears of the loss of a lock, once. It runs on the engine's thread, and all locks of the engine wait while it does: it must
// be quick and must not wait. If the lock is lost already, it runs on the thread that set it.
typedef void (*redbolt_loss_callback)(void *data, redbolt_loss loss);

// Hears of the outcome of a call, once. The error lives until the callback returns. It runs on the engine's thread, or on the
// thread that made the call, before that returns. It must be quick and must not wait.
typedef void (*redbolt_done_callback)(void *data, redbolt_status status, const redbolt_error *error);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the binary interface of the library that is loaded: `REDBOLT_ABI_VERSION` of its own header.
uint32_t redbolt_abi_version(void);

// The version of redbolt, such as "0.1.0". It lives as long as the library.
const char *redbolt_version(void);

// Begins to connect to all nodes. A node that cannot be reached is no error here. `redbolt_client_free` ends the client.
redbolt_status redbolt_client_new(const redbolt_config *config,
                                  redbolt_client **client,
                                  redbolt_error **error);

// Ends a client: gives releases up to 50 ms to be confirmed. Locks that are still held keep its connections until they
// are let go of. It has no status to refuse with: not for a callback. Null is ignored.
void redbolt_client_free(redbolt_client *client);

// Waits until every node is ready or known not to be, for at most `within_ms`. `REDBOLT_STATUS_NO_QUORUM` if too few
// are ready; the error says of each why.
redbolt_status redbolt_client_warm_up(const redbolt_client *client,
                                      uint64_t within_ms,
                                      redbolt_error **error);

// Takes a lock, waiting for as long as the request says. On success `lock` is not null, and must be ended by
// `redbolt_lock_release`, `redbolt_lock_free` or `redbolt_lock_detach`.
redbolt_status redbolt_client_acquire(const redbolt_client *client,
                                      const redbolt_request *request,
                                      redbolt_lock **lock,
                                      redbolt_error **error);

// Tries once to take a lock, whatever wait the request has. `REDBOLT_STATUS_CONTENDED` means that another client holds it. Any
// other failure means that its holder is not known.
redbolt_status redbolt_client_try_acquire(const redbolt_client *client,
                                          const redbolt_request *request,
                                          redbolt_lock **lock,
                                          redbolt_error **error);

// Takes several locks that have nothing to do with each other, with one write to each node, and returns when each of them is
// granted or refused: for all or nothing see `redbolt_request_and`. `requests`, `locks` and, if it is not null,
// `statuses` have `count` places. A lock that was not granted is null. The status and the error are those of the first
// refusal, if there is one; the others may be held all the same, and are to be ended.
redbolt_status redbolt_client_acquire_all(const redbolt_client *client,
                                          const redbolt_request *const *requests,
                                          size_t count,
                                          redbolt_lock **locks,
                                          redbolt_status *statuses,
                                          redbolt_error **error);

// Takes a lease on `resource`, a name that ends with a zero byte, and waits until it is granted. The lease ends after `ttl_ms`
// unless it is extended or released before.
redbolt_status redbolt_client_lease(const redbolt_client *client,
                                    const char *resource,
                                    uint64_t ttl_ms,
                                    redbolt_lock **lock,
                                    redbolt_error **error);

// Tries once to take a lease on `resource`, which ends after `ttl_ms`. `REDBOLT_STATUS_CONTENDED` means that another client holds
// it. Any other failure means that its holder is not known.
redbolt_status redbolt_client_try_lease(const redbolt_client *client,
                                        const char *resource,
                                        uint64_t ttl_ms,
                                        redbolt_lock **lock,
                                        redbolt_error **error);

// Attaches a lock that was detached, by this process or another one on the same machine, from its text. Attach it once.
redbolt_status redbolt_client_attach(const redbolt_client *client,
                                     const char *detached,
                                     redbolt_lock **lock,
                                     redbolt_error **error);

// What was counted since the start, in the form of Prometheus. The text is ended by `redbolt_text_free`.
redbolt_status redbolt_client_metrics(const redbolt_client *client,
                                      char **metrics,
                                      redbolt_error **error);

// A configuration without nodes and with the defaults. `redbolt_config_free` ends it.
redbolt_config *redbolt_config_new(void);

// Ends a configuration. Null is ignored.
void redbolt_config_free(redbolt_config *config);

// Adds a node: `host`, `host:port`, `redis://[user[:password]@]host[:port][/db]`, `valkey://...`, the same over TLS with
// `rediss://...` or `valkeys://...`, `unix:///path[?db=n]`, or the master that sentinels name,
// `redis+sentinel://[user:password@]host[:port]+host.../master[/db]`, over TLS with `rediss+sentinel://...`. Nothing is looked
// up or connected yet. An error shows no user and no password.
redbolt_status redbolt_config_add_node(redbolt_config *config,
                                       const char *address,
                                       redbolt_error **error);

// Adds a node whose restart guard is believed in another way: `trust` is one of `REDBOLT_RESTART_TRUST_...`.
redbolt_status redbolt_config_add_node_with(redbolt_config *config,
                                            const char *address,
                                            int32_t trust,
                                            redbolt_error **error);

// How many grants make a lock: more than half of the nodes, which is the default.
redbolt_status redbolt_config_set_quorum(redbolt_config *config, size_t quorum);

// The longest TTL that is accepted. All clients of a set of nodes must have the same. Default 30 s.
redbolt_status redbolt_config_set_max_ttl_ms(redbolt_config *config, uint64_t max_ttl_ms);

// How long a lock may be held by extending it; 0 is without a limit, which is the default.
redbolt_status redbolt_config_set_max_hold_ms(redbolt_config *config, uint64_t max_hold_ms);

// The rate at which clocks may drift apart, in parts per million.
redbolt_status redbolt_config_set_drift_ppm(redbolt_config *config, uint32_t drift_ppm);

// How long a node may take to answer.
redbolt_status redbolt_config_set_response_timeout_ms(redbolt_config *config, uint64_t timeout_ms);

// How long opening a connection may take.
redbolt_status redbolt_config_set_connect_timeout_ms(redbolt_config *config, uint64_t timeout_ms);

// The silence after which a connection is given up.
redbolt_status redbolt_config_set_dead_peer_timeout_ms(redbolt_config *config, uint64_t timeout_ms);

// The first and the longest pause between attempts.
redbolt_status redbolt_config_set_retry_backoff_ms(redbolt_config *config,
                                                   uint64_t first_ms,
                                                   uint64_t longest_ms);

// The first and the longest pause between connections.
redbolt_status redbolt_config_set_reconnect_backoff_ms(redbolt_config *config,
                                                       uint64_t first_ms,
                                                       uint64_t longest_ms);

// Who we are, for the operator who looks at a lock: any bytes.
redbolt_status redbolt_config_set_label(redbolt_config *config,
                                        const uint8_t *label,
                                        size_t length);

// Labels locks with this host's name and this process's id.
redbolt_status redbolt_config_set_label_host_and_pid(redbolt_config *config);

// The name of our connections, as `CLIENT LIST` shows it.
redbolt_status redbolt_config_set_client_name(redbolt_config *config, const char *name);

// Whether a node that may evict locks may vote. Default no.
redbolt_status redbolt_config_set_accept_evicting(redbolt_config *config, bool accept);

// Whether nodes have to prove that they remember every lock. Default yes. Without it a node that was restarted without
// its memory votes at once, so that a lock which it forgot can be granted twice.
redbolt_status redbolt_config_set_restart_guard(redbolt_config *config,
                                                bool is_on);

// The key of the restart guard, the same for all clients: any bytes.
redbolt_status redbolt_config_set_restart_guard_key(redbolt_config *config,
                                                    const uint8_t *key,
                                                    size_t length);

// Says that the nodes are new if none of them has a restart guard, so that the first lock need not wait for the
// longest TTL. For nodes that were just made, such as those of a test; wrong where all nodes can lose their
// memory at once. For others see `redbolt_init`.
redbolt_status redbolt_config_set_new_nodes(redbolt_config *config);

// How long a fencing counter lives.
redbolt_status redbolt_config_set_fencing_counter_ttl_ms(redbolt_config *config, uint64_t ttl_ms);

// How those who wait for one resource get it one after the other: one of `REDBOLT_WAKE_...`.
redbolt_status redbolt_config_set_wake(redbolt_config *config, int32_t wake);

// How many acquisitions of an engine may be without an outcome at one time, 1 to 1048576. Default 8192.
redbolt_status redbolt_config_set_in_flight(redbolt_config *config,
                                            size_t in_flight);

// For how long reads are tried before each sleep, from 0, which is off and the default, to 200 microseconds.
redbolt_status redbolt_config_set_busy_poll_us(redbolt_config *config,
                                               uint64_t span_us);

// Who hears of what happens, from `least` on, one of `REDBOLT_LOG_LEVEL_...`. `data` is passed to it. `end`, if it is not
// null, is called once when this configuration and all that was made of it are over. Default nobody.
redbolt_status redbolt_config_set_log(redbolt_config *config,
                                      int32_t least,
                                      redbolt_log_callback callback,
                                      void *data,
                                      redbolt_end_callback end);

// Says that these nodes are new: none of them ever granted a lock, so that they can vote at once. Once in the life of a
// set of nodes, and never in a start script. Waits for at most `within_ms`.
redbolt_status redbolt_init(const redbolt_config *config,
                            uint64_t within_ms,
                            redbolt_error **error);

// Moves a set of nodes to another longest TTL or to another number of nodes. Read the manual's page on the restart guard
// first. Waits for at most `within_ms`.
redbolt_status redbolt_init_change(const redbolt_config *config,
                                   uint64_t within_ms,
                                   redbolt_error **error);

// A driver that begins to connect. A node that cannot be reached is no error here. `redbolt_driver_free` ends it.
//
// In the host's loop: watch `redbolt_driver_fd` for readability, sleep no longer than `redbolt_driver_deadline_ms`, then call
// `redbolt_driver_process`, and take events until there are none. After every command take events too, and ask for the
// deadline anew.
redbolt_status redbolt_driver_new(const redbolt_config *config,
                                  redbolt_driver **driver,
                                  redbolt_error **error);

// Ends a driver: writes what the sockets take, and does not wait. Before, release what is held and process until
// `redbolt_driver_has_pending_releases` is false. Null is ignored.
void redbolt_driver_free(redbolt_driver *driver);

// The file descriptor to watch for readability; it is the driver's, and stays the same. -1 for null.
int redbolt_driver_fd(const redbolt_driver *driver);

// When `redbolt_driver_process` is due at the latest, in milliseconds from now, as epoll_wait takes them: rounded up, and
// -1 if only readability matters.
int redbolt_driver_deadline_ms(const redbolt_driver *driver);

// Does everything that can be done now, without waiting. Calling it too often is harmless.
redbolt_status redbolt_driver_process(const redbolt_driver *driver);

// As `redbolt_driver_process`, but tries reads for at most the configured `busy_poll` first, without sleeping. True if one
// brought something: do not sleep then.
bool redbolt_driver_process_busy(const redbolt_driver *driver);

// Takes the next event. False if there is none, as in a forked child. An event that is a refusal comes with an error, if the
// caller wants one.
bool redbolt_driver_next_event(const redbolt_driver *driver,
                               redbolt_event *event,
                               redbolt_error **error);

// Asks all nodes for a lock, whose number is written to `lock`. The outcome is `REDBOLT_EVENT_KIND_GRANTED` or
// `REDBOLT_EVENT_KIND_REFUSED`. `data` comes back with every event of the lock.
redbolt_status redbolt_driver_acquire(const redbolt_driver *driver,
                                      const redbolt_request *request,
                                      void *data,
                                      uint64_t *lock,
                                      redbolt_error **error);

// Asks for several locks with one write to each node. `requests` and `locks` have `count` places. If a request cannot be carried
// out, the status and the error are its own, its number and all behind it are 0, and those before it are asked for.
redbolt_status redbolt_driver_acquire_all(const redbolt_driver *driver,
                                          const redbolt_request *const *requests,
                                          size_t count,
                                          void *data,
                                          uint64_t *locks,
                                          redbolt_error **error);

// Asks all nodes to keep a held lock for `ttl_ms` more. The outcome is `REDBOLT_EVENT_KIND_EXTENDED`, `..._NOT_EXTENDED` or
// `..._LOST`.
redbolt_status redbolt_driver_extend(const redbolt_driver *driver,
                                     uint64_t lock,
                                     uint64_t ttl_ms,
                                     redbolt_error **error);

// Asks all nodes once for the resource of a shared lock alone. The outcome is `REDBOLT_EVENT_KIND_UPGRADED` or
// `..._NOT_UPGRADED`, which leaves it shared.
redbolt_status redbolt_driver_try_upgrade(const redbolt_driver *driver,
                                          uint64_t lock,
                                          redbolt_error **error);

// Makes a shared lock of an exclusive one, from this call on. `REDBOLT_EVENT_KIND_DOWNGRADED` says that others may share it.
redbolt_status redbolt_driver_downgrade(const redbolt_driver *driver,
                                        uint64_t lock,
                                        redbolt_error **error);

// Releases a lock, or cancels its acquisition. The outcome is `REDBOLT_EVENT_KIND_RELEASED`, `..._REFUSED` or `..._LOST`.
// `REDBOLT_STATUS_LOST`: the lock had ended before, and what it protected may have been in other hands; it is released all the
// same. If its `..._LOST` event was taken, no event follows. A number means nothing after the last event of a released lock.
REDBOLT_MUST_USE
redbolt_status redbolt_driver_release(const redbolt_driver *driver,
                                      uint64_t lock);

// Detaches a held lock, for another process on this machine to attach. The driver forgets it. The text is ended by
// `redbolt_text_free`. Nodes that have not answered yet will not count for the lock.
redbolt_status redbolt_driver_detach(const redbolt_driver *driver,
                                     uint64_t lock,
                                     char **detached,
                                     redbolt_error **error);

// Attaches a lock that was detached, from its text. It is held from here on, or `REDBOLT_EVENT_KIND_LOST` follows.
redbolt_status redbolt_driver_attach(const redbolt_driver *driver,
                                     const char *detached,
                                     void *data,
                                     uint64_t *lock,
                                     redbolt_error **error);

// The validity that is left of a lock, by the clock as it is now, in whole milliseconds; 0 if it is not held.
uint64_t redbolt_driver_remaining_ms(const redbolt_driver *driver,
                                     uint64_t lock);

// Whether a lock is held, by the clock as it is now.
bool redbolt_driver_is_valid(const redbolt_driver *driver, uint64_t lock);

// Beside whom a lock is wanted or held.
redbolt_mode redbolt_driver_mode(const redbolt_driver *driver, uint64_t lock);

// The number of the permit of a held lock, from 0 on. False unless it was asked for.
bool redbolt_driver_slot(const redbolt_driver *driver, uint64_t lock, uint16_t *slot);

// The fencing token of a held lock. False unless it was asked for.
bool redbolt_driver_fencing_token(const redbolt_driver *driver, uint64_t lock, uint64_t *token);

// Whether a release or an undo is not confirmed yet on a node that can be reached.
bool redbolt_driver_has_pending_releases(const redbolt_driver *driver);

// Whether enough nodes are ready for a lock. Otherwise `REDBOLT_STATUS_NO_QUORUM`, and the error says of each why.
redbolt_status redbolt_driver_nodes(const redbolt_driver *driver,
                                    redbolt_error **error);

// What was counted since the start, in the form of Prometheus. The text is ended by `redbolt_text_free`.
redbolt_status redbolt_driver_metrics(const redbolt_driver *driver,
                                      char **metrics,
                                      redbolt_error **error);

// Starts the thread and begins to connect to all nodes. A node that cannot be reached is not an error here. `redbolt_engine_free`
// ends the engine.
redbolt_status redbolt_engine_new(const redbolt_config *config,
                                  redbolt_engine **engine,
                                  redbolt_error **error);

// Ends an engine: releases all that it holds, and waits for the nodes for no longer than 150 ms. Its locks are lost, and
// their handles are still to be ended. It has no status to refuse with: not for a callback. Null is ignored.
void redbolt_engine_free(redbolt_engine *engine);

// Ends the engine's work, and waits for at most `within_ms` until the nodes have confirmed every release, and two seconds
// more if its thread is late.
// `REDBOLT_STATUS_UNRELEASED` if not all have. `redbolt_engine_free` is still to be called.
redbolt_status redbolt_engine_shutdown(const redbolt_engine *engine,
                                       uint64_t within_ms,
                                       redbolt_error **error);

// Asks the engine's thread whether enough nodes are ready for a lock, and waits for its answer, not for the nodes. Otherwise
// `REDBOLT_STATUS_NO_QUORUM`, and the error says of each why.
redbolt_status redbolt_engine_nodes(const redbolt_engine *engine,
                                    redbolt_error **error);

// Waits until every node is ready or known not to be, for at most `within_ms`. `REDBOLT_STATUS_NO_QUORUM` if too few
// are ready; the error says of each why.
redbolt_status redbolt_engine_warm_up(const redbolt_engine *engine,
                                      uint64_t within_ms,
                                      redbolt_error **error);

// Takes a lock, waiting for as long as the request says. On success `lock` is not null, and must be ended by
// `redbolt_lock_release`, `redbolt_lock_free` or `redbolt_lock_detach`.
redbolt_status redbolt_engine_acquire(const redbolt_engine *engine,
                                      const redbolt_request *request,
                                      redbolt_lock **lock,
                                      redbolt_error **error);

// Tries once to take a lock, whatever wait the request has. `REDBOLT_STATUS_CONTENDED` means that another client holds it. Any
// other failure means that its holder is not known.
redbolt_status redbolt_engine_try_acquire(const redbolt_engine *engine,
                                          const redbolt_request *request,
                                          redbolt_lock **lock,
                                          redbolt_error **error);

// Takes several locks that have nothing to do with each other: as `redbolt_client_acquire_all`.
redbolt_status redbolt_engine_acquire_all(const redbolt_engine *engine,
                                          const redbolt_request *const *requests,
                                          size_t count,
                                          redbolt_lock **locks,
                                          redbolt_status *statuses,
                                          redbolt_error **error);

// Takes the lock on `resource`, a name that ends with a zero byte, waits until it is granted, and extends it until it is
// released.
redbolt_status redbolt_engine_lock(const redbolt_engine *engine,
                                   const char *resource,
                                   redbolt_lock **lock,
                                   redbolt_error **error);

// Tries once to take the lock on `resource`, and extends it until it is released. `REDBOLT_STATUS_CONTENDED` means that another
// client holds it. Any other failure means that its holder is not known.
redbolt_status redbolt_engine_try_lock(const redbolt_engine *engine,
                                       const char *resource,
                                       redbolt_lock **lock,
                                       redbolt_error **error);

// Takes a lease on `resource`, a name that ends with a zero byte, and waits until it is granted. The lease ends after `ttl_ms`
// unless it is extended or released before.
redbolt_status redbolt_engine_lease(const redbolt_engine *engine,
                                    const char *resource,
                                    uint64_t ttl_ms,
                                    redbolt_lock **lock,
                                    redbolt_error **error);

// Tries once to take a lease on `resource`, which ends after `ttl_ms`. `REDBOLT_STATUS_CONTENDED` means that another client holds
// it. Any other failure means that its holder is not known.
redbolt_status redbolt_engine_try_lease(const redbolt_engine *engine,
                                        const char *resource,
                                        uint64_t ttl_ms,
                                        redbolt_lock **lock,
                                        redbolt_error **error);

// Takes a lock for an owner, a task or a request by a name of any bytes, who may take it again while holding it. Each handle is
// to be ended, and the lock is released with the last of them: releasing an earlier one is `REDBOLT_STATUS_OK`, and sends
// nothing. `redbolt_lock_hold_count` counts them. It cannot be detached, and changes its mode only by entering it.
redbolt_status redbolt_engine_acquire_reentrant(const redbolt_engine *engine,
                                                const redbolt_request *request,
                                                const uint8_t *owner,
                                                size_t length,
                                                redbolt_lock **lock,
                                                redbolt_error **error);

// What was counted since the start, in the form of Prometheus. The text is ended by `redbolt_text_free`.
redbolt_status redbolt_engine_metrics(const redbolt_engine *engine,
                                      char **metrics,
                                      redbolt_error **error);

// Asks for a lock, and returns at once. `callback` hears of the outcome, once, whatever happens; see there on which thread.
// If `pending` is not null, it becomes a handle by which the acquisition can be cancelled. If the status is not OK, nothing
// was asked, and nobody is called.
redbolt_status redbolt_engine_acquire_async(const redbolt_engine *engine,
                                            const redbolt_request *request,
                                            redbolt_acquired_callback callback,
                                            void *data,
                                            redbolt_pending **pending);

// Cancels an acquisition, unless its callback has been called: it is called from here with `REDBOLT_STATUS_CANCELLED`.
// Whatever the nodes have granted, or grant later, is undone. Null is ignored.
void redbolt_pending_cancel(const redbolt_pending *pending);

// Ends the handle of an acquisition, which goes on. Null is ignored.
void redbolt_pending_free(redbolt_pending *pending);

// Attaches a lock that was detached, by this process or another one on the same machine, from its text. Attach it once.
redbolt_status redbolt_engine_attach(const redbolt_engine *engine,
                                     const char *detached,
                                     redbolt_lock **lock,
                                     redbolt_error **error);

// The status that came with the error; `REDBOLT_STATUS_OK` for null.
redbolt_status redbolt_error_status(const redbolt_error *error);

// One line of UTF-8, without an end of line. It lives as long as the error. Empty for null.
const char *redbolt_error_message(const redbolt_error *error);

// Whether a quorum of the nodes voted and somebody held the resource, as opposed to nodes that do not vote. It tells
// the two apart also when the time was over.
bool redbolt_error_is_contended(const redbolt_error *error);

// How many nodes the error speaks of: all of the configuration, or none where it is not about nodes.
size_t redbolt_error_node_count(const redbolt_error *error);

// Tells of one node, from index 0 on. `REDBOLT_STATUS_INVALID_ARGUMENT` if there is none at that index.
redbolt_status redbolt_error_node(const redbolt_error *error,
                                  size_t index,
                                  redbolt_node_error *node);

// Ends an error. Null is ignored.
void redbolt_error_free(redbolt_error *error);

// Frees a text that redbolt gave away. Null is ignored.
void redbolt_text_free(char *text);

// Asks all nodes who holds `resource`, a name that ends with a zero byte. Takes no lock and writes nothing. If `words` is not
// null, it gets what each node has, in one line that `redbolt_text_free` ends.
redbolt_status redbolt_client_inspect(const redbolt_client *client,
                                      const char *resource,
                                      redbolt_inspection *seen,
                                      char **words,
                                      redbolt_error **error);

// The same for a name of any bytes.
redbolt_status redbolt_client_inspect_bytes(const redbolt_client *client,
                                            const uint8_t *resource,
                                            size_t length,
                                            redbolt_inspection *seen,
                                            char **words,
                                            redbolt_error **error);

// As `redbolt_client_inspect`, by an engine.
redbolt_status redbolt_engine_inspect(const redbolt_engine *engine,
                                      const char *resource,
                                      redbolt_inspection *seen,
                                      char **words,
                                      redbolt_error **error);

// The same for a name of any bytes.
redbolt_status redbolt_engine_inspect_bytes(const redbolt_engine *engine,
                                            const uint8_t *resource,
                                            size_t length,
                                            redbolt_inspection *seen,
                                            char **words,
                                            redbolt_error **error);

// Breaks the lock on `resource`, a name that ends with a zero byte, on every node that can be reached, whoever holds it. `scope`
// is one of `REDBOLT_UNLOCK_...` and limits what is deleted. `format` is the name of a format for `REDBOLT_UNLOCK_LOCKS_OF`, and
// null otherwise. The holder is not asked, and continues until it checks its lock. `REDBOLT_STATUS_NO_QUORUM` if no quorum has
// confirmed it. If `words` is not null, it is set to one line with the outcome on each node, which `redbolt_text_free` ends.
redbolt_status redbolt_client_force_unlock(const redbolt_client *client,
                                           const char *resource,
                                           int32_t scope,
                                           const char *format,
                                           char **words,
                                           redbolt_error **error);

// The same for a name of any bytes.
redbolt_status redbolt_client_force_unlock_bytes(const redbolt_client *client,
                                                 const uint8_t *resource,
                                                 size_t length,
                                                 int32_t scope,
                                                 const char *format,
                                                 char **words,
                                                 redbolt_error **error);

// As `redbolt_client_force_unlock`, by an engine.
redbolt_status redbolt_engine_force_unlock(const redbolt_engine *engine,
                                           const char *resource,
                                           int32_t scope,
                                           const char *format,
                                           char **words,
                                           redbolt_error **error);

// The same for a name of any bytes.
redbolt_status redbolt_engine_force_unlock_bytes(const redbolt_engine *engine,
                                                 const uint8_t *resource,
                                                 size_t length,
                                                 int32_t scope,
                                                 const char *format,
                                                 char **words,
                                                 redbolt_error **error);

// Whether the lock is held, by the clock as it is now. False for null.
bool redbolt_lock_is_valid(const redbolt_lock *lock);

// The validity that is left, by the clock as it is now, in whole milliseconds; 0 once the lock is lost.
uint64_t redbolt_lock_remaining_ms(const redbolt_lock *lock);

// Beside whom it is held.
redbolt_mode redbolt_lock_mode(const redbolt_lock *lock);

// The number of its permit, from 0 on. False unless it was asked for, and after the lock was lost.
bool redbolt_lock_slot(const redbolt_lock *lock, uint16_t *slot);

// How often its owner has entered it and not left it, with this handle: 1 unless it is of `redbolt_engine_acquire_reentrant`.
size_t redbolt_lock_hold_count(const redbolt_lock *lock);

// The fencing token, for whatever the lock protects. False unless it was asked for, and after the lock was lost.
bool redbolt_lock_fencing_token(const redbolt_lock *lock,
                                uint64_t *token);

// Asks the nodes to keep the lock for `ttl_ms` from now, and waits for a quorum. `REDBOLT_STATUS_LOST`: stop. Otherwise
// the lock is held until `redbolt_lock_remaining_ms` is 0.
redbolt_status redbolt_lock_extend(const redbolt_lock *lock,
                                   uint64_t ttl_ms,
                                   redbolt_error **error);

// Tries once to become the only holder of a resource that is shared. `REDBOLT_STATUS_CONTENDED`: others share it, and
// nothing is different.
redbolt_status redbolt_lock_try_upgrade(const redbolt_lock *lock,
                                        redbolt_error **error);

// Shares a resource from now on that it held alone. It is shared from the call on, whatever the nodes say.
redbolt_status redbolt_lock_downgrade(const redbolt_lock *lock,
                                      redbolt_error **error);

// Releases a lock, waits until a quorum has confirmed it or whoever answers has, and ends the handle, whatever the status
// says. `REDBOLT_STATUS_LOST`: it had ended before, and what it protected may have been in other hands.
REDBOLT_MUST_USE
redbolt_status redbolt_lock_release(redbolt_lock *lock,
                                    redbolt_error **error);

// Lets go of a lock without waiting, and ends the handle. Null is ignored.
void redbolt_lock_free(redbolt_lock *lock);

// Detaches a lock, for another process on this machine to attach, and ends the handle, whatever the status says. Until
// then it stays taken, and its lease runs. The text is for `redbolt_client_attach` and the like, says nothing that is
// secret but the right to release the lock, and is ended by `redbolt_text_free`.
redbolt_status redbolt_lock_detach(redbolt_lock *lock,
                                   char **detached,
                                   redbolt_error **error);

// Has `callback` called once if a lock of an engine is lost; never if it is released or freed before that. Several may be
// set. `end`, if it is not null, is called once when it is clear that `callback` is not called again, also if the status is not
// OK. A client's lock is refused: nobody would look while the client is not used.
redbolt_status redbolt_lock_on_loss(const redbolt_lock *lock,
                                    redbolt_loss_callback callback,
                                    void *data,
                                    redbolt_end_callback end,
                                    redbolt_error **error);

// Asks the nodes to keep a lock of an engine for `ttl_ms` from now, and returns at once. One at a time. If the status is not
// OK, nothing was asked, and nobody is called.
redbolt_status redbolt_lock_extend_async(const redbolt_lock *lock,
                                         uint64_t ttl_ms,
                                         redbolt_done_callback callback,
                                         void *data,
                                         redbolt_error **error);

// Releases a lock of an engine, ends the handle, and returns at once. If the status is not OK, the handle is ended as well,
// without waiting, and nobody is called. A null callback wants to hear nothing.
redbolt_status redbolt_lock_release_async(redbolt_lock *lock,
                                          redbolt_done_callback callback,
                                          void *data,
                                          redbolt_error **error);

// A request for a lock on `resource`, a name that ends with a zero byte: one attempt, a TTL of 10 s, exclusive, not
// extended, without a fencing token. Null if `resource` is null. `redbolt_request_free` ends it.
redbolt_request *redbolt_request_new(const char *resource);

// The same for a name of any bytes, at most 64 KiB.
redbolt_status redbolt_request_new_bytes(const uint8_t *resource,
                                         size_t length,
                                         redbolt_request **request);

// Ends a request. Null is ignored.
void redbolt_request_free(redbolt_request *request);

// Adds a resource to the same lock: all are granted together, or none is. At most 64.
redbolt_status redbolt_request_and(redbolt_request *request, const char *resource);

// The same for a name of any bytes.
redbolt_status redbolt_request_and_bytes(redbolt_request *request,
                                         const uint8_t *resource,
                                         size_t length);

// How long the nodes keep the lock unless it is extended.
redbolt_status redbolt_request_set_ttl_ms(redbolt_request *request, uint64_t ttl_ms);

// How long to wait for it; 0 is one attempt, `UINT64_MAX` is until it is granted.
redbolt_status redbolt_request_set_wait_ms(redbolt_request *request, uint64_t wait_ms);

// Asks for the lock beside others who share it, as a reader does beside readers.
redbolt_status redbolt_request_set_shared(redbolt_request *request);

// Asks for one of the resource's `permits`, 1 to 1024, as of a semaphore. `redbolt_lock_slot` tells which.
redbolt_status redbolt_request_set_permits(redbolt_request *request,
                                           uint16_t permits);

// Asks for a fencing token with the lock: `redbolt_lock_fencing_token` tells it.
redbolt_status redbolt_request_set_fenced(redbolt_request *request);

// Takes part in the locks of another library: `name` is `redisson`, `redisson-rw`, `spring`, `python-redis-lock`,
// `redis-objects`, `setnx`, `symfony`, or `plain` as if nothing was said. A lock that its format has no room for is refused when
// it is asked for. The manual's page on formats says what each is for.
redbolt_status redbolt_request_set_format(redbolt_request *request,
                                          const char *name);

// Puts `prefix` before the names of all resources, as libraries do that keep their locks under `redlock:` or `lock:`.
redbolt_status redbolt_request_set_prefix(redbolt_request *request,
                                          const char *prefix);

// The same for a prefix of any bytes.
redbolt_status redbolt_request_set_prefix_bytes(redbolt_request *request,
                                                const uint8_t *prefix,
                                                size_t length);

// Asks for the lock to be extended until it is released: each `every_ms`, more than zero and at most half of the TTL, or 0
// for a third of it; for at most `max_hold_ms`, or 0 for what the configuration allows. A driver extends it when it is
// processed, an engine on its thread. A client refuses: it does nothing between two calls.
redbolt_status redbolt_request_set_auto_extend(redbolt_request *request,
                                               uint64_t every_ms,
                                               uint64_t max_hold_ms);

// A file with the password for each node whose address has none, of the user in the address or of the default user. One end of a
// line behind it is no part of it. Read where the configuration is used.
redbolt_status redbolt_config_set_password_file(redbolt_config *config,
                                                const char *file);

// What is said to sentinels first: a password of `length` bytes, of `user` or, if that is null, of their default user. Those
// of a node are in its address, or in `redbolt_config_set_password_file`.
redbolt_status redbolt_config_set_sentinel_credentials(redbolt_config *config,
                                                       const char *user,
                                                       const uint8_t *password,
                                                       size_t length);

// A file of certificates in PEM. Over TLS a server is believed if one of them has issued its certificate. Until said
// otherwise those that the system trusts. Read again before each connection, as the other files of TLS are.
redbolt_status redbolt_config_set_tls_ca(redbolt_config *config,
                                         const char *file);

// A file with our own certificate in PEM, and those of its issuers behind it, for servers that want to know who we are. It
// needs `redbolt_config_set_tls_key`.
redbolt_status redbolt_config_set_tls_cert(redbolt_config *config,
                                           const char *file);

// A file with the key of our certificate in PEM: PKCS #8, PKCS #1 or SEC1, without a password.
redbolt_status redbolt_config_set_tls_key(redbolt_config *config, const char *file);

// The name that the certificate of each node must have, and that is sent as SNI. Until said otherwise the host of its
// address.
redbolt_status redbolt_config_set_tls_server_name(redbolt_config *config,
                                                  const char *name);

// Believes every server, whatever certificate it shows. The connections are encrypted, and whoever is in between reads and
// changes what he likes: passwords, tokens, answers. For tests only.
redbolt_status redbolt_config_set_danger_accept_any_certificate(redbolt_config *config);

// What a status means, in a line of UTF-8 that lives as long as the library: for calls that have no `error`. Where there is one,
// `redbolt_error_message` says more.
const char *redbolt_status_message(int32_t status);

// Begins to ask all nodes who holds `resource`, a name that ends with a zero byte, and writes the number of the view to `view`.
// Takes no lock and writes nothing. The outcome is `REDBOLT_EVENT_KIND_VIEWED`, which returns `data`;
// `redbolt_driver_take_inspection` has the result then.
redbolt_status redbolt_driver_inspect(const redbolt_driver *driver,
                                      const char *resource,
                                      void *data,
                                      uint64_t *view,
                                      redbolt_error **error);

// The same for a name of any bytes.
redbolt_status redbolt_driver_inspect_bytes(const redbolt_driver *driver,
                                            const uint8_t *resource,
                                            size_t length,
                                            void *data,
                                            uint64_t *view,
                                            redbolt_error **error);

// Takes the result of an inspection after its event, once. `REDBOLT_STATUS_REQUEST` if there is none. If `words` is not null, it
// is set to one line with what each node has, which `redbolt_text_free` ends.
redbolt_status redbolt_driver_take_inspection(const redbolt_driver *driver,
                                              uint64_t view,
                                              redbolt_inspection *seen,
                                              char **words,
                                              redbolt_error **error);

// Begins to break the lock on `resource`, a name that ends with a zero byte, and writes the number of the view to `view`. `scope`
// and `format` are those of `redbolt_client_force_unlock`. The outcome is `REDBOLT_EVENT_KIND_VIEWED`, which returns `data`;
// `redbolt_driver_take_force_unlock` has the result then.
redbolt_status redbolt_driver_force_unlock(const redbolt_driver *driver,
                                           const char *resource,
                                           int32_t scope,
                                           const char *format,
                                           void *data,
                                           uint64_t *view,
                                           redbolt_error **error);

// The same for a name of any bytes.
redbolt_status redbolt_driver_force_unlock_bytes(const redbolt_driver *driver,
                                                 const uint8_t *resource,
                                                 size_t length,
                                                 int32_t scope,
                                                 const char *format,
                                                 void *data,
                                                 uint64_t *view,
                                                 redbolt_error **error);

// Takes the result of a forced unlock after its event, once. `REDBOLT_STATUS_REQUEST` if there is none,
// `REDBOLT_STATUS_NO_QUORUM` if no quorum has confirmed it. If `words` is not null, it is set to one line with the outcome on each
// node, which `redbolt_text_free` ends.
redbolt_status redbolt_driver_take_force_unlock(const redbolt_driver *driver,
                                                uint64_t view,
                                                char **words,
                                                redbolt_error **error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* REDBOLT_H */
