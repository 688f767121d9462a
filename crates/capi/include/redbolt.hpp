// redbolt for C++17: redbolt.h with owners. Header-only; docs/c-library.md says how to use it.
//
// - Each class owns one handle. All can be moved, none can be copied, and the destructor ends the handle.
// - What fails throws redbolt::error, whose text names every node with its reason. Destructors do not throw.
// - What is moved from is empty: it holds no lock, and other calls on it throw.
// - The thread rules are those of redbolt.h. An exception that leaves a callback ends the program.
#ifndef REDBOLT_HPP
#define REDBOLT_HPP

#include <redbolt.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace redbolt {

using milliseconds = std::chrono::milliseconds;

// To wait for until it is granted.
inline constexpr milliseconds forever = milliseconds::max();

// One node's part in an error.
struct node_error {
    std::uint32_t number;
    redbolt_node_answer answer;
    std::string address;
    std::string message;
};

// Why something was not done.
class error : public std::runtime_error {
public:
    explicit error(const redbolt_error *from)
        : std::runtime_error(redbolt_error_message(from)), status_(redbolt_error_status(from)),
          is_contended_(redbolt_error_is_contended(from)) {
        redbolt_node_error node;
        for (std::size_t i = 0; redbolt_error_node(from, i, &node) == REDBOLT_STATUS_OK; i++) {
            nodes_.push_back({node.number, node.answer, node.address, node.message});
        }
    }

    error(redbolt_status status, const char *message)
        : std::runtime_error(message), status_(status), is_contended_(false) {}

    redbolt_status status() const noexcept { return status_; }
    bool is_contended() const noexcept { return is_contended_; }
    const std::vector<node_error> &nodes() const noexcept { return nodes_; }

private:
    redbolt_status status_;
    bool is_contended_;
    std::vector<node_error> nodes_;
};

namespace detail {

template <auto End> struct ender {
    template <typename T> void operator()(T *handle) const noexcept { End(handle); }
};

template <typename T, auto End> using owner = std::unique_ptr<T, ender<End>>;

using owned_error = owner<redbolt_error, redbolt_error_free>;

// Throws unless it was done.
inline void check(redbolt_status status, redbolt_error *raw = nullptr) {
    owned_error why(raw);
    if (status == REDBOLT_STATUS_OK) {
        return;
    }
    if (why) {
        throw error(why.get());
    }
    throw error(status, redbolt_status_message(status));
}

// Calls with a place for an error, and throws what was put there.
template <typename Call> void checked(Call &&call) {
    redbolt_error *why = nullptr;
    const redbolt_status status = call(&why);
    check(status, why);
}

// The same; false if somebody else holds the resource.
template <typename Call> bool unless_contended(Call &&call) {
    redbolt_error *raw = nullptr;
    const redbolt_status status = call(&raw);
    if (status == REDBOLT_STATUS_CONTENDED) {
        redbolt_error_free(raw);
        return false;
    }
    check(status, raw);
    return true;
}

// A text as C has it. One that C would cut short, at a zero byte, is another text.
inline const char *text(const std::string &text) {
    if (text.find('\0') != std::string::npos) {
        throw error(REDBOLT_STATUS_INVALID_ARGUMENT, "a text has a zero byte in it");
    }
    return text.c_str();
}

inline const std::uint8_t *bytes(std::string_view text) noexcept {
    return reinterpret_cast<const std::uint8_t *>(text.data());
}

inline std::uint64_t count(milliseconds span) noexcept {
    if (span == forever) {
        return UINT64_MAX;
    }
    return span.count() < 0 ? 0 : static_cast<std::uint64_t>(span.count());
}

inline milliseconds span(std::uint64_t count) noexcept {
    return milliseconds(static_cast<milliseconds::rep>(count));
}

template <typename Function> void end_function(void *function) noexcept {
    delete static_cast<Function *>(function);
}

inline std::string taken(char *text) {
    const owner<char, redbolt_text_free> owned(text);
    return std::string(owned.get());
}

} // namespace detail

// Which nodes, and how: config().node("10.0.0.1").node("10.0.0.2").node("10.0.0.3").
class config {
public:
    using log_function = std::function<void(redbolt_log_level, const char *)>;

    config() : handle_(redbolt_config_new()) {}

    config &node(const std::string &address) {
        detail::checked([&](auto why) { return redbolt_config_add_node(get(), detail::text(address), why); });
        return *this;
    }
    // `trust` is one of REDBOLT_RESTART_TRUST_....
    config &node(const std::string &address, std::int32_t trust) {
        detail::checked([&](auto why) {
            return redbolt_config_add_node_with(get(), detail::text(address), trust, why);
        });
        return *this;
    }
    config &quorum(std::size_t quorum) { return set(redbolt_config_set_quorum(get(), quorum)); }
    config &max_ttl(milliseconds ttl) {
        return set(redbolt_config_set_max_ttl_ms(get(), detail::count(ttl)));
    }
    config &max_hold(milliseconds hold) {
        return set(redbolt_config_set_max_hold_ms(get(), detail::count(hold)));
    }
    config &response_timeout(milliseconds timeout) {
        return set(redbolt_config_set_response_timeout_ms(get(), detail::count(timeout)));
    }
    config &connect_timeout(milliseconds timeout) {
        return set(redbolt_config_set_connect_timeout_ms(get(), detail::count(timeout)));
    }
    config &label(std::string_view label) {
        return set(redbolt_config_set_label(get(), detail::bytes(label), label.size()));
    }
    config &label_host_and_pid() { return set(redbolt_config_set_label_host_and_pid(get())); }
    config &restart_guard(bool is_on) {
        return set(redbolt_config_set_restart_guard(get(), is_on));
    }
    // The default user's, for nodes whose address has none.
    config &password_file(const std::string &file) {
        return set(redbolt_config_set_password_file(get(), detail::text(file)));
    }
    config &sentinel_credentials(std::string_view password) {
        return say_to_sentinels(nullptr, password);
    }
    config &sentinel_credentials(const std::string &user, std::string_view password) {
        return say_to_sentinels(detail::text(user), password);
    }
    config &tls_ca(const std::string &file) {
        return set(redbolt_config_set_tls_ca(get(), detail::text(file)));
    }
    // Both files, or none.
    config &tls_identity(const std::string &certificate, const std::string &key) {
        detail::check(redbolt_config_set_tls_cert(get(), detail::text(certificate)));
        return set(redbolt_config_set_tls_key(get(), detail::text(key)));
    }
    config &tls_server_name(const std::string &name) {
        return set(redbolt_config_set_tls_server_name(get(), detail::text(name)));
    }
    // For tests only: see redbolt_config_set_danger_accept_any_certificate.
    config &danger_accept_any_certificate() {
        return set(redbolt_config_set_danger_accept_any_certificate(get()));
    }
    // Wrong where nodes have been in use: see redbolt_config_set_new_nodes, and init() below.
    config &new_nodes() { return set(redbolt_config_set_new_nodes(get())); }
    config &log(redbolt_log_level least, log_function function) {
        auto *data = new log_function(std::move(function));
        return set(redbolt_config_set_log(get(), least, call_log, data,
                                          detail::end_function<log_function>));
    }

    // Says that these nodes are new: once in the life of a set of nodes.
    void init(milliseconds within) const {
        detail::checked([&](auto why) { return redbolt_init(get(), detail::count(within), why); });
    }

    // For what has no method here.
    redbolt_config *get() const noexcept { return handle_.get(); }

private:
    config &set(redbolt_status status) {
        detail::check(status);
        return *this;
    }

    config &say_to_sentinels(const char *user, std::string_view password) {
        return set(redbolt_config_set_sentinel_credentials(get(), user, detail::bytes(password), password.size()));
    }

    static void call_log(void *data, redbolt_log_level level, const char *line) noexcept {
        (*static_cast<log_function *>(data))(level, line);
    }

    detail::owner<redbolt_config, redbolt_config_free> handle_;
};

// Which lock, and how: request("invoices").wait(2s).fenced().
class request {
public:
    explicit request(std::string_view resource) {
        redbolt_request *raw = nullptr;
        detail::check(redbolt_request_new_bytes(detail::bytes(resource), resource.size(), &raw));
        handle_.reset(raw);
    }

    request &and_resource(std::string_view resource) {
        return set(redbolt_request_add_resource_bytes(get(), detail::bytes(resource), resource.size()));
    }
    request &ttl(milliseconds ttl) {
        return set(redbolt_request_set_ttl_ms(get(), detail::count(ttl)));
    }
    request &wait(milliseconds wait) {
        return set(redbolt_request_set_wait_ms(get(), detail::count(wait)));
    }
    request &shared() { return set(redbolt_request_set_shared(get())); }
    request &permits(std::uint16_t permits) {
        return set(redbolt_request_set_permits(get(), permits));
    }
    request &fenced() { return set(redbolt_request_set_fenced(get())); }
    // Of another library: such as `redisson`, or `plain`.
    request &profile(const char *name) { return set(redbolt_request_set_profile(get(), name)); }
    request &prefix(std::string_view prefix) {
        return set(redbolt_request_set_prefix_bytes(get(), detail::bytes(prefix), prefix.size()));
    }
    // Each `every`, or a third of the TTL; for at most `max_hold`, or for what the configuration allows.
    request &auto_extend(milliseconds every = {}, milliseconds max_hold = {}) {
        return set(redbolt_request_set_auto_extend(get(), detail::count(every), detail::count(max_hold)));
    }

    redbolt_request *get() const noexcept { return handle_.get(); }

private:
    request &set(redbolt_status status) {
        detail::check(status);
        return *this;
    }

    detail::owner<redbolt_request, redbolt_request_free> handle_;
};

class client;
class engine;

// A lock that was granted, of a client or of an engine. Its destructor lets go of it without waiting.
class lock {
public:
    using loss_function = std::function<void(redbolt_loss)>;

    // Holds nothing.
    lock() noexcept = default;
    // Owns what the C functions gave.
    explicit lock(redbolt_lock *raw) noexcept : handle_(raw) {}
    // Wait until it is granted.
    lock(client &from, std::string_view resource);
    lock(engine &from, std::string_view resource);

    // Whether it is held, by the clock as it is now. Check it before each step that relies on it.
    bool is_valid() const noexcept { return redbolt_lock_is_valid(get()); }
    explicit operator bool() const noexcept { return is_valid(); }
    milliseconds remaining() const noexcept {
        return detail::span(redbolt_lock_remaining_ms(get()));
    }
    redbolt_mode mode() const noexcept { return redbolt_lock_mode(get()); }
    // How often its owner has entered it and not left it.
    std::size_t hold_count() const noexcept { return redbolt_lock_hold_count(get()); }
    std::optional<std::uint64_t> fencing_token() const noexcept {
        std::uint64_t token = 0;
        return redbolt_lock_fencing_token(get(), &token) ? std::optional(token) : std::nullopt;
    }
    std::optional<std::uint16_t> slot() const noexcept {
        std::uint16_t slot = 0;
        return redbolt_lock_slot(get(), &slot) ? std::optional(slot) : std::nullopt;
    }

    void extend(milliseconds ttl) {
        detail::checked([&](auto why) { return redbolt_lock_extend(get(), detail::count(ttl), why); });
    }
    // False if others share it: nothing is different then.
    bool try_upgrade() {
        return detail::unless_contended([&](auto why) { return redbolt_lock_try_upgrade(get(), why); });
    }
    void downgrade() {
        detail::checked([&](auto why) { return redbolt_lock_downgrade(get(), why); });
    }
    // Waits for the nodes. It holds nothing after that. Throws with REDBOLT_STATUS_LOST if it had ended before.
    void release() {
        detail::checked([&](auto why) { return redbolt_lock_release(handle_.release(), why); });
    }
    // The text is for `attach` of a client or an engine on this machine. It holds nothing after that.
    std::string detach() {
        char *text = nullptr;
        detail::checked([&](auto why) { return redbolt_lock_detach(handle_.release(), &text, why); });
        return detail::taken(text);
    }
    // Of an engine only. It runs on the engine's thread.
    void on_loss(loss_function function) {
        auto *data = new loss_function(std::move(function));
        detail::checked([&](auto why) {
            return redbolt_lock_on_loss(get(), call_loss, data, detail::end_function<loss_function>, why);
        });
    }

    redbolt_lock *get() const noexcept { return handle_.get(); }

private:
    static void call_loss(void *data, redbolt_loss loss) noexcept {
        (*static_cast<loss_function *>(data))(loss);
    }

    detail::owner<redbolt_lock, redbolt_lock_free> handle_;
};

// Takes locks on the calling thread. For one thread at a time, together with its locks.
class client {
public:
    explicit client(const config &from) {
        redbolt_client *raw = nullptr;
        detail::checked([&](auto why) { return redbolt_client_new(from.get(), &raw, why); });
        handle_.reset(raw);
    }

    void warm_up(milliseconds within) {
        detail::checked([&](auto why) { return redbolt_client_warm_up(get(), detail::count(within), why); });
    }
    redbolt::lock acquire(const request &wanted) {
        redbolt_lock *raw = nullptr;
        detail::checked([&](auto why) { return redbolt_client_acquire(get(), wanted.get(), &raw, why); });
        return redbolt::lock(raw);
    }
    // Nothing if somebody else has it.
    std::optional<redbolt::lock> try_acquire(const request &wanted) {
        redbolt_lock *raw = nullptr;
        const bool is_held = detail::unless_contended(
            [&](auto why) { return redbolt_client_acquire(get(), wanted.get(), &raw, why); });
        return is_held ? std::optional<redbolt::lock>(redbolt::lock(raw)) : std::nullopt;
    }
    // Waits until it is granted, for a lease of 10 s.
    redbolt::lock lock(std::string_view resource) { return acquire(request(resource).wait(forever)); }
    std::optional<redbolt::lock> try_lock(std::string_view resource) {
        return try_acquire(request(resource));
    }
    redbolt::lock attach(const std::string &detached) {
        redbolt_lock *raw = nullptr;
        detail::checked([&](auto why) { return redbolt_client_attach(get(), detail::text(detached), &raw, why); });
        return redbolt::lock(raw);
    }

    std::string metrics() {
        char *text = nullptr;
        detail::checked([&](auto why) { return redbolt_client_metrics(get(), &text, why); });
        return detail::taken(text);
    }

    // Who holds it. Takes no lock and writes nothing.
    redbolt_inspection inspect(std::string_view resource) {
        redbolt_inspection seen;
        detail::checked([&](auto why) {
            return redbolt_client_inspect_bytes(get(), detail::bytes(resource), resource.size(), &seen, nullptr,
                                                why);
        });
        return seen;
    }
    // Breaks the lock, whoever holds it, and other data as well if `foreign`.
    void force_unlock(std::string_view resource, bool foreign = false) {
        detail::checked([&](auto why) {
            return redbolt_client_force_unlock_bytes(get(), detail::bytes(resource), resource.size(), foreign,
                                                     nullptr, why);
        });
    }

    redbolt_client *get() const noexcept { return handle_.get(); }

private:
    detail::owner<redbolt_client, redbolt_client_free> handle_;
};

// Takes locks for all threads, with a thread of its own that extends them.
class engine {
public:
    // The lock is empty if there is an error.
    using acquired_function = std::function<void(redbolt::lock, const error *)>;

    explicit engine(const config &from, std::size_t in_flight = 0) {
        redbolt_engine *raw = nullptr;
        detail::checked([&](auto why) { return redbolt_engine_start(from.get(), in_flight, &raw, why); });
        handle_.reset(raw);
    }

    void warm_up(milliseconds within) {
        detail::checked([&](auto why) { return redbolt_engine_warm_up(get(), detail::count(within), why); });
    }
    redbolt::lock acquire(const request &wanted) {
        redbolt_lock *raw = nullptr;
        detail::checked([&](auto why) { return redbolt_engine_acquire(get(), wanted.get(), &raw, why); });
        return redbolt::lock(raw);
    }
    // Nothing if somebody else has it.
    std::optional<redbolt::lock> try_acquire(const request &wanted) {
        redbolt_lock *raw = nullptr;
        const bool is_held = detail::unless_contended(
            [&](auto why) { return redbolt_engine_acquire(get(), wanted.get(), &raw, why); });
        return is_held ? std::optional<redbolt::lock>(redbolt::lock(raw)) : std::nullopt;
    }
    // Waits until it is granted, and extends it until it is released.
    redbolt::lock lock(std::string_view resource) {
        return acquire(request(resource).wait(forever).auto_extend());
    }
    std::optional<redbolt::lock> try_lock(std::string_view resource) {
        return try_acquire(request(resource).auto_extend());
    }
    // For an owner who may take it again while holding it; see redbolt_engine_acquire_reentrant.
    redbolt::lock acquire_reentrant(const request &wanted, std::string_view owner) {
        redbolt_lock *raw = nullptr;
        detail::checked([&](auto why) {
            return redbolt_engine_acquire_reentrant(get(), wanted.get(), detail::bytes(owner), owner.size(),
                                                    &raw, why);
        });
        return redbolt::lock(raw);
    }
    std::string metrics() {
        char *text = nullptr;
        detail::checked([&](auto why) { return redbolt_engine_metrics(get(), &text, why); });
        return detail::taken(text);
    }
    // Calls back once, on the engine's thread or, if the outcome is there already, on this one before it returns.
    void acquire(const request &wanted, acquired_function function) {
        auto data = std::make_unique<acquired_function>(std::move(function));
        detail::check(redbolt_engine_acquire_async(get(), wanted.get(), call_acquired, data.get(), nullptr));
        data.release(); // the callback ends it
    }
    std::future<redbolt::lock> acquire_future(const request &wanted) {
        auto promise = std::make_shared<std::promise<redbolt::lock>>();
        auto future = promise->get_future();
        acquire(wanted, [promise](redbolt::lock granted, const error *why) {
            if (why != nullptr) {
                promise->set_exception(std::make_exception_ptr(*why));
            } else {
                promise->set_value(std::move(granted));
            }
        });
        return future;
    }
    redbolt::lock attach(const std::string &detached) {
        redbolt_lock *raw = nullptr;
        detail::checked([&](auto why) { return redbolt_engine_attach(get(), detail::text(detached), &raw, why); });
        return redbolt::lock(raw);
    }
    void shutdown(milliseconds within) {
        detail::checked([&](auto why) { return redbolt_engine_shutdown(get(), detail::count(within), why); });
    }

    // Who holds it. Takes no lock and writes nothing.
    redbolt_inspection inspect(std::string_view resource) {
        redbolt_inspection seen;
        detail::checked([&](auto why) {
            return redbolt_engine_inspect_bytes(get(), detail::bytes(resource), resource.size(), &seen, nullptr,
                                                why);
        });
        return seen;
    }
    // Breaks the lock, whoever holds it, and other data as well if `foreign`.
    void force_unlock(std::string_view resource, bool foreign = false) {
        detail::checked([&](auto why) {
            return redbolt_engine_force_unlock_bytes(get(), detail::bytes(resource), resource.size(), foreign,
                                                     nullptr, why);
        });
    }

    redbolt_engine *get() const noexcept { return handle_.get(); }

private:
    static void call_acquired(void *data, redbolt_status, redbolt_lock *raw,
                              const redbolt_error *why) noexcept {
        const std::unique_ptr<acquired_function> function(static_cast<acquired_function *>(data));
        if (why != nullptr) {
            const error reason(why);
            (*function)(redbolt::lock(), &reason);
        } else {
            (*function)(redbolt::lock(raw), nullptr);
        }
    }

    detail::owner<redbolt_engine, redbolt_engine_free> handle_;
};

inline lock::lock(client &from, std::string_view resource) : lock(from.lock(resource)) {}
inline lock::lock(engine &from, std::string_view resource) : lock(from.lock(resource)) {}

// One resource as a mutex of the standard library sees it: for std::lock_guard and std::unique_lock. An engine's is for one
// thread at a time, as any lock object; each thread has its own. The standard's guards cannot say that a lock was lost:
// check `is_valid` before each step that relies on it.
template <typename From> class basic_mutex {
public:
    basic_mutex(From &from, std::string_view resource) : from_(&from), resource_(resource) {}

    void lock() { held_ = from_->lock(resource_); }
    bool try_lock() {
        auto held = from_->try_lock(resource_);
        if (held) {
            held_ = std::move(*held);
        }
        return held.has_value();
    }
    // Without waiting for the nodes: it cannot fail.
    void unlock() noexcept { held_ = redbolt::lock(); }

    bool is_valid() const noexcept { return held_.is_valid(); }
    // The lock that is held, to look at and to extend.
    redbolt::lock &held() noexcept { return held_; }

private:
    From *from_;
    std::string resource_;
    redbolt::lock held_;
};

using mutex = basic_mutex<client>;
using engine_mutex = basic_mutex<engine>;

// Locks in an event loop of one's own. They are numbers; outcomes are events.
class driver {
public:
    // An event, with words if it is a refusal or a loss.
    struct event : redbolt_event {
        std::optional<redbolt::error> why;
    };

    explicit driver(const config &from) {
        redbolt_driver *raw = nullptr;
        detail::checked([&](auto why) { return redbolt_driver_new(from.get(), &raw, why); });
        handle_.reset(raw);
    }

    int fd() const noexcept { return redbolt_driver_fd(get()); }
    // As epoll_wait and poll take it: -1 if only readability matters.
    int deadline_ms() const noexcept { return redbolt_driver_deadline_ms(get()); }
    void process() { detail::check(redbolt_driver_process(get())); }
    std::optional<event> next_event() {
        redbolt_event raw;
        redbolt_error *why = nullptr;
        if (!redbolt_driver_next_event(get(), &raw, &why)) {
            return std::nullopt;
        }
        const detail::owned_error owned(why);
        event told{raw, std::nullopt};
        if (owned) {
            told.why.emplace(owned.get());
        }
        return told;
    }

    std::uint64_t acquire(const request &wanted, void *data = nullptr) {
        std::uint64_t lock = 0;
        detail::checked([&](auto why) {
            return redbolt_driver_acquire(get(), wanted.get(), data, &lock, why);
        });
        return lock;
    }
    void extend(std::uint64_t lock, milliseconds ttl) {
        detail::checked([&](auto why) {
            return redbolt_driver_extend(get(), lock, detail::count(ttl), why);
        });
    }
    void try_upgrade(std::uint64_t lock) {
        detail::checked([&](auto why) { return redbolt_driver_try_upgrade(get(), lock, why); });
    }
    void downgrade(std::uint64_t lock) {
        detail::checked([&](auto why) { return redbolt_driver_downgrade(get(), lock, why); });
    }
    void release(std::uint64_t lock) { detail::check(redbolt_driver_release(get(), lock)); }
    std::string detach(std::uint64_t lock) {
        char *text = nullptr;
        detail::checked([&](auto why) { return redbolt_driver_detach(get(), lock, &text, why); });
        return detail::taken(text);
    }
    std::uint64_t attach(const std::string &detached, void *data = nullptr) {
        std::uint64_t lock = 0;
        detail::checked([&](auto why) {
            return redbolt_driver_attach(get(), detail::text(detached), data, &lock, why);
        });
        return lock;
    }

    bool is_valid(std::uint64_t lock) const noexcept { return redbolt_driver_is_valid(get(), lock); }
    milliseconds remaining(std::uint64_t lock) const noexcept {
        return detail::span(redbolt_driver_remaining_ms(get(), lock));
    }
    redbolt_mode mode(std::uint64_t lock) const noexcept { return redbolt_driver_mode(get(), lock); }
    std::optional<std::uint64_t> fencing_token(std::uint64_t lock) const noexcept {
        std::uint64_t token = 0;
        return redbolt_driver_fencing_token(get(), lock, &token) ? std::optional(token) : std::nullopt;
    }
    std::optional<std::uint16_t> slot(std::uint64_t lock) const noexcept {
        std::uint16_t slot = 0;
        return redbolt_driver_slot(get(), lock, &slot) ? std::optional(slot) : std::nullopt;
    }
    bool has_pending_releases() const noexcept { return redbolt_driver_has_pending_releases(get()); }

    std::string metrics() {
        char *text = nullptr;
        detail::checked([&](auto why) { return redbolt_driver_metrics(get(), &text, why); });
        return detail::taken(text);
    }

    redbolt_driver *get() const noexcept { return handle_.get(); }

private:
    detail::owner<redbolt_driver, redbolt_driver_free> handle_;
};

} // namespace redbolt

#endif // REDBOLT_HPP
