// redbolt for C++17: redbolt.h with owners. Header-only; docs/use/c-library.md describes how to use
// it.
//
// - Each class owns one handle. All can be moved, none can be copied, and the destructor ends the
//   handle.
// - A call that fails throws redbolt::error, whose text names every node with its reason. Destructors
//   do not throw.
// - Without exceptions (-fno-exceptions) the same calls return redbolt::result<T>, which compilers
//   warn about if it is ignored. Constructors cannot return one: use client::create, engine::create
//   and driver::create, which exist in both forms. Setters of a configuration or a request keep the
//   first failure for the call that uses it. The mutexes are missing, because the standard's guards
//   cannot report a failure.
// - An owner that was moved from is empty: it holds no lock, and other calls on it fail.
// - Times are std::chrono::milliseconds unless stated otherwise.
// - The thread rules are those of redbolt.h: a client, its locks and a driver are for one thread at a
//   time, an engine and its locks for all threads. An exception that leaves a callback ends the
//   program.
#ifndef REDBOLT_HPP
#define REDBOLT_HPP

#include <redbolt.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#if defined(__cpp_exceptions)
#define REDBOLT_THROWS 1
#define REDBOLT_FORM throwing
#else
#define REDBOLT_THROWS 0
#define REDBOLT_FORM returning
#endif

namespace redbolt {
// The namespace keeps both forms apart, because a program may have files of both, whose functions
// differ.
inline namespace REDBOLT_FORM {

using milliseconds = std::chrono::milliseconds;

// The wait until the lock is granted.
inline constexpr milliseconds forever = milliseconds::max();

// The part of one node in an error.
struct node_error {
    std::uint32_t number;
    redbolt_node_answer answer;
    std::string address;
    std::string message;
};

// The reason why a call failed.
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

// A value or an error.
template <typename T> class [[nodiscard]] result {
public:
    result(T value) noexcept : state_(std::in_place_index<0>, std::move(value)) {}
    result(redbolt::error why) noexcept : state_(std::in_place_index<1>, std::move(why)) {}

    bool has_value() const noexcept { return state_.index() == 0; }
    explicit operator bool() const noexcept { return has_value(); }
    // Returns the value. If there is none, it throws the error, or ends the program without
    // exceptions.
    T &value() & {
        require();
        return *std::get_if<0>(&state_);
    }
    const T &value() const & {
        require();
        return *std::get_if<0>(&state_);
    }
    T value() && {
        require();
        return std::move(*std::get_if<0>(&state_));
    }
    T &operator*() & { return value(); }
    const T &operator*() const & { return value(); }
    T operator*() && { return std::move(*this).value(); }
    T *operator->() { return &value(); }
    const T *operator->() const { return &value(); }
    // Returns the error. The program ends if there is none.
    const redbolt::error &error() const noexcept {
        if (has_value()) {
            std::abort();
        }
        return *std::get_if<1>(&state_);
    }

private:
    void require() const {
        if (!has_value()) {
#if REDBOLT_THROWS
            throw error();
#else
            std::abort();
#endif
        }
    }

    std::variant<T, redbolt::error> state_;
};

// A success, or an error.
template <> class [[nodiscard]] result<void> {
public:
    result() noexcept = default;
    result(redbolt::error why) noexcept : why_(std::move(why)) {}

    bool has_value() const noexcept { return !why_; }
    explicit operator bool() const noexcept { return has_value(); }
    // Returns the error. The program ends if there is none.
    const redbolt::error &error() const noexcept {
        if (!why_) {
            std::abort();
        }
        return *why_;
    }

private:
    std::optional<redbolt::error> why_;
};

// The return type of calls that can fail: with exceptions a T, without them a result<T>.
#if REDBOLT_THROWS
template <typename T> using outcome = T;
#else
template <typename T> using outcome = result<T>;
#endif

namespace detail {

template <auto End> struct ender {
    template <typename T> void operator()(T *handle) const noexcept { End(handle); }
};

template <typename T, auto End> using owner = std::unique_ptr<T, ender<End>>;

using owned_error = owner<redbolt_error, redbolt_error_free>;

// Returns the outcome of a status, and of the error that came with it, which it ends.
inline result<void> judged(redbolt_status status, redbolt_error *raw = nullptr) {
    const owned_error why(raw);
    if (status == REDBOLT_STATUS_OK) {
        return {};
    }
    return why ? error(why.get()) : error(status, redbolt_status_message(status));
}

// Makes a call with a place for an error, unless a configuration or a request has failed before.
template <typename Call> result<void> tried(const std::optional<error> &before, Call &&call) {
    if (before) {
        return *before;
    }
    redbolt_error *why = nullptr;
    const redbolt_status status = call(&why);
    return judged(status, why);
}

// Returns the value of `make` if the call succeeds.
template <typename Call, typename Make>
auto tried(const std::optional<error> &before, Call &&call, Make &&make) -> result<decltype(make())> {
    const result<void> made = tried(before, call);
    if (!made) {
        return made.error();
    }
    return make();
}

// Returns `otherwise` if the call is contended.
template <typename T, typename Call, typename Make>
result<T> unless_contended(const std::optional<error> &before, Call &&call, Make &&make, T otherwise) {
    const result<void> made = tried(before, call);
    if (made) {
        return T(make());
    }
    if (made.error().status() == REDBOLT_STATUS_CONTENDED) {
        return otherwise;
    }
    return made.error();
}

// Throws the error, or returns the result itself.
inline outcome<void> told(result<void> from) {
#if REDBOLT_THROWS
    if (!from) {
        throw from.error();
    }
#else
    return from;
#endif
}

template <typename T> outcome<T> told(result<T> from) {
#if REDBOLT_THROWS
    return std::move(from).value();
#else
    return from;
#endif
}

inline const std::optional<error> fresh = std::nullopt;

template <typename Call> outcome<void> checked(Call &&call) { return told(tried(fresh, call)); }

template <typename Call, typename Make> auto got(Call &&call, Make &&make) -> outcome<decltype(make())> {
    return told(tried(fresh, call, make));
}

// Returns a text for C. A text with a zero byte, at which C would cut it short, is refused as null.
inline const char *text(const std::string &text) {
    if (text.find('\0') == std::string::npos) {
        return text.c_str();
    }
#if REDBOLT_THROWS
    throw error(REDBOLT_STATUS_INVALID_ARGUMENT, "a text has a zero byte in it");
#else
    return nullptr;
#endif
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

// The first failure of a configuration or a request.
class fallible {
public:
    // Returns the first failure of a setter; always nothing with exceptions, where setters throw.
    const std::optional<error> &failure() const noexcept { return failure_; }

protected:
    void note(result<void> made) {
#if REDBOLT_THROWS
        told(std::move(made));
#else
        if (!made && !failure_) {
            failure_ = made.error();
        }
#endif
    }

private:
    std::optional<error> failure_;
};

// Returns one result for each place of `acquire_all` in C.
template <typename Lock, typename Handle, typename Call>
std::vector<result<Lock>> all(const std::vector<Handle> &wanted, Call &&call) {
    std::vector<const redbolt_request *> requests;
    for (const Handle &one : wanted) {
        if (one.failure()) {
            // An empty list needs no call.
            std::vector<result<Lock>> none;
            for (std::size_t i = 0; i < wanted.size(); i++) {
                none.emplace_back(*one.failure());
            }
            return none;
        }
        requests.push_back(one.get());
    }
    const std::size_t count = wanted.size();
    std::vector<redbolt_lock *> locks(count, nullptr);
    std::vector<redbolt_status> statuses(count, REDBOLT_STATUS_CANCELLED);
    redbolt_error *raw = nullptr;
    const redbolt_status status = call(requests.data(), count, locks.data(), statuses.data(), &raw);
    const result<void> first = judged(status, raw);
    std::vector<result<Lock>> outcomes;
    for (std::size_t i = 0; i < count; i++) {
        if (locks[i] != nullptr) {
            outcomes.emplace_back(Lock(locks[i]));
        } else if (statuses[i] == REDBOLT_STATUS_CANCELLED || statuses[i] == status) {
            outcomes.emplace_back(first.error());
        } else {
            outcomes.emplace_back(error(statuses[i], redbolt_status_message(statuses[i])));
        }
    }
    return outcomes;
}

} // namespace detail

// A configuration: config().node("10.0.0.1").node("10.0.0.2").node("10.0.0.3").
class [[nodiscard]] config : public detail::fallible {
public:
    using log_function = std::function<void(redbolt_log_level, const char *)>;

    config() : handle_(redbolt_config_new()) {}

    config &node(const std::string &address) {
        note(detail::tried(failure(), [&](auto why) {
            return redbolt_config_add_node(get(), detail::text(address), why);
        }));
        return *this;
    }
    // Adds a node; `trust` is one of REDBOLT_RESTART_TRUST_....
    config &node(const std::string &address, std::int32_t trust) {
        note(detail::tried(failure(), [&](auto why) {
            return redbolt_config_add_node_with(get(), detail::text(address), trust, why);
        }));
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
    // Sets how many acquisitions of an engine may be pending at one time, 1 to 1048576.
    config &in_flight(std::size_t limit) { return set(redbolt_config_set_in_flight(get(), limit)); }
    // Sets for how long reads are tried before each sleep, from 0, which is off, to 200 us.
    config &busy_poll(std::chrono::microseconds span) {
        return set(redbolt_config_set_busy_poll_us(get(), static_cast<std::uint64_t>(span.count())));
    }
    config &label(std::string_view label) {
        return set(redbolt_config_set_label(get(), detail::bytes(label), label.size()));
    }
    config &label_host_and_pid() { return set(redbolt_config_set_label_host_and_pid(get())); }
    config &restart_guard(bool is_on) {
        return set(redbolt_config_set_restart_guard(get(), is_on));
    }
    // Sets a file with the default user's password, for nodes whose address has none.
    config &password_file(const std::string &file) {
        return set(redbolt_config_set_password_file(get(), detail::text(file)));
    }
    config &sentinel_credentials(std::string_view password) {
        return say_to_sentinels(nullptr, password);
    }
    config &sentinel_credentials(const std::string &user, std::string_view password) {
        const char *name = detail::text(user);
        // Null would select the default user.
        return name == nullptr ? set(REDBOLT_STATUS_INVALID_ARGUMENT) : say_to_sentinels(name, password);
    }
    config &tls_ca(const std::string &file) {
        return set(redbolt_config_set_tls_ca(get(), detail::text(file)));
    }
    // Sets the certificate and its key; both are needed.
    config &tls_identity(const std::string &certificate, const std::string &key) {
        set(redbolt_config_set_tls_cert(get(), detail::text(certificate)));
        return set(redbolt_config_set_tls_key(get(), detail::text(key)));
    }
    config &tls_server_name(const std::string &name) {
        return set(redbolt_config_set_tls_server_name(get(), detail::text(name)));
    }
    // Accepts every certificate, for tests only: see
    // redbolt_config_set_danger_accept_any_certificate.
    config &danger_accept_any_certificate() {
        return set(redbolt_config_set_danger_accept_any_certificate(get()));
    }
    // Declares new nodes, which is wrong for nodes that have been in use: see
    // redbolt_config_set_new_nodes, and init() below.
    config &new_nodes() { return set(redbolt_config_set_new_nodes(get())); }
    config &log(redbolt_log_level least, log_function function) {
        auto *data = new log_function(std::move(function));
        return set(redbolt_config_set_log(get(), least, call_log, data,
                                          detail::end_function<log_function>));
    }

    // Declares these nodes as new, once in the life of a set of nodes.
    outcome<void> init(milliseconds within) const {
        return detail::told(detail::tried(failure(), [&](auto why) {
            return redbolt_init(get(), detail::count(within), why);
        }));
    }

    // Returns the handle, for C functions without a method here.
    redbolt_config *get() const noexcept { return handle_.get(); }

private:
    config &set(redbolt_status status) {
        note(detail::judged(status));
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

// A request: request("invoices").wait(2s).fenced().
class [[nodiscard]] request : public detail::fallible {
public:
    explicit request(std::string_view resource) {
        redbolt_request *raw = nullptr;
        note(detail::judged(redbolt_request_new_bytes(detail::bytes(resource), resource.size(), &raw)));
        handle_.reset(raw);
    }

    // Adds a resource, all or nothing. (`and` alone is a keyword of C++.)
    request &and_resource(std::string_view resource) {
        return set(redbolt_request_and_bytes(get(), detail::bytes(resource), resource.size()));
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
    // Sets the format of another library, such as `redisson`, or `plain`.
    request &format(const char *name) { return set(redbolt_request_set_format(get(), name)); }
    request &prefix(std::string_view prefix) {
        return set(redbolt_request_set_prefix_bytes(get(), detail::bytes(prefix), prefix.size()));
    }
    // Extends the lock each `every`, or each third of the TTL; for at most `max_hold`, or for as
    // long as the configuration allows.
    request &auto_extend(milliseconds every = {}, milliseconds max_hold = {}) {
        return set(redbolt_request_set_auto_extend(get(), detail::count(every), detail::count(max_hold)));
    }

    redbolt_request *get() const noexcept { return handle_.get(); }

private:
    request &set(redbolt_status status) {
        note(detail::judged(status));
        return *this;
    }

    detail::owner<redbolt_request, redbolt_request_free> handle_;
};

class client;
class engine;

// A granted lock or lease of a client or of an engine. Its destructor releases it without waiting
// for the nodes.
class [[nodiscard]] lock {
public:
    using loss_function = std::function<void(redbolt_loss)>;

    // Creates an empty owner.
    lock() noexcept = default;
    // Owns a handle of the C functions.
    explicit lock(redbolt_lock *raw) noexcept : handle_(raw) {}
#if REDBOLT_THROWS
    // Waits until a lease is granted.
    lock(client &from, std::string_view resource, milliseconds ttl);
    // Waits until a lock is granted, which is extended until it is released.
    lock(engine &from, std::string_view resource);
#endif

    // Returns true if the lock is held now. Check it before each step that relies on it.
    [[nodiscard]] bool is_valid() const noexcept { return redbolt_lock_is_valid(get()); }
    explicit operator bool() const noexcept { return is_valid(); }
    [[nodiscard]] milliseconds remaining() const noexcept {
        return detail::span(redbolt_lock_remaining_ms(get()));
    }
    redbolt_mode mode() const noexcept { return redbolt_lock_mode(get()); }
    // Returns how often its owner has entered it and not left it.
    std::size_t hold_count() const noexcept { return redbolt_lock_hold_count(get()); }
    [[nodiscard]] std::optional<std::uint64_t> fencing_token() const noexcept {
        std::uint64_t token = 0;
        return redbolt_lock_fencing_token(get(), &token) ? std::optional(token) : std::nullopt;
    }
    std::optional<std::uint16_t> slot() const noexcept {
        std::uint16_t slot = 0;
        return redbolt_lock_slot(get(), &slot) ? std::optional(slot) : std::nullopt;
    }

    outcome<void> extend(milliseconds ttl) {
        return detail::checked([&](auto why) { return redbolt_lock_extend(get(), detail::count(ttl), why); });
    }
    // Tries once to upgrade. Returns false if others share the lock, which stays as it is.
    [[nodiscard]] outcome<bool> try_upgrade() {
        return detail::told(detail::unless_contended(
            detail::fresh, [&](auto why) { return redbolt_lock_try_upgrade(get(), why); }, [] { return true; },
            false));
    }
    outcome<void> downgrade() {
        return detail::checked([&](auto why) { return redbolt_lock_downgrade(get(), why); });
    }
    // Releases the lock, and waits for the nodes. The owner is empty afterwards. Fails with
    // REDBOLT_STATUS_LOST if the lock had ended before: the work was not covered.
    outcome<void> release() {
        return detail::checked([&](auto why) { return redbolt_lock_release(handle_.release(), why); });
    }
    // Detaches the lock. The text is for `attach` of a client or an engine on this machine. The
    // owner is empty afterwards.
    [[nodiscard]] outcome<std::string> detach() {
        char *text = nullptr;
        return detail::got([&](auto why) { return redbolt_lock_detach(handle_.release(), &text, why); },
                           [&] { return detail::taken(text); });
    }
    // Calls back if the lock is lost, on the engine's thread. For locks of an engine only.
    outcome<void> on_loss(loss_function function) {
        auto *data = new loss_function(std::move(function));
        return detail::checked([&](auto why) {
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

// Acquires locks on the calling thread. For one thread at a time, together with its locks.
class client {
public:
    // Creates a client without waiting for a node. Fails if the configuration is not valid, or
    // without system resources.
    static result<client> create(const config &from) {
        redbolt_client *raw = nullptr;
        return detail::tried(
            from.failure(), [&](auto why) { return redbolt_client_new(from.get(), &raw, why); }, [&] { return client(raw); });
    }
#if REDBOLT_THROWS
    explicit client(const config &from) : client(create(from).value()) {}
#endif

    outcome<void> warm_up(milliseconds within) {
        return detail::checked([&](auto why) { return redbolt_client_warm_up(get(), detail::count(within), why); });
    }
    [[nodiscard]] outcome<redbolt::lock> acquire(const request &wanted) {
        redbolt_lock *raw = nullptr;
        return detail::told(detail::tried(
            wanted.failure(), [&](auto why) { return redbolt_client_acquire(get(), wanted.get(), &raw, why); },
            [&] { return redbolt::lock(raw); }));
    }
    // Tries once, and ignores the wait of the request. Returns nothing exactly if another client
    // holds the lock.
    [[nodiscard]] outcome<std::optional<redbolt::lock>> try_acquire(const request &wanted) {
        redbolt_lock *raw = nullptr;
        return detail::told(detail::unless_contended<std::optional<redbolt::lock>>(
            wanted.failure(), [&](auto why) { return redbolt_client_try_acquire(get(), wanted.get(), &raw, why); },
            [&] { return redbolt::lock(raw); }, std::nullopt));
    }
    // Acquires independent locks, with one write to each node, and returns when each is granted or
    // refused: one result for each request, in order.
    [[nodiscard]] std::vector<result<redbolt::lock>> acquire_all(const std::vector<request> &wanted) {
        return detail::all<redbolt::lock>(wanted, [&](auto requests, auto count, auto locks, auto statuses, auto why) {
            return redbolt_client_acquire_all(get(), requests, count, locks, statuses, why);
        });
    }
    // Acquires a lease, which ends after `ttl` unless it is extended or released before, and waits
    // until it is granted.
    [[nodiscard]] outcome<redbolt::lock> lease(std::string_view resource, milliseconds ttl) {
        return acquire(request(resource).ttl(ttl).wait(forever));
    }
    // Tries once. Returns nothing exactly if another client holds the lock.
    [[nodiscard]] outcome<std::optional<redbolt::lock>> try_lease(std::string_view resource, milliseconds ttl) {
        return try_acquire(request(resource).ttl(ttl));
    }
    [[nodiscard]] outcome<redbolt::lock> attach(const std::string &detached) {
        redbolt_lock *raw = nullptr;
        return detail::got([&](auto why) { return redbolt_client_attach(get(), detail::text(detached), &raw, why); },
                           [&] { return redbolt::lock(raw); });
    }

    [[nodiscard]] outcome<std::string> metrics() {
        char *text = nullptr;
        return detail::got([&](auto why) { return redbolt_client_metrics(get(), &text, why); },
                           [&] { return detail::taken(text); });
    }

    // Returns the holder. Takes no lock and writes nothing.
    [[nodiscard]] outcome<redbolt_inspection> inspect(std::string_view resource) {
        redbolt_inspection seen = {};
        return detail::got(
            [&](auto why) {
                return redbolt_client_inspect_bytes(get(), detail::bytes(resource), resource.size(), &seen, nullptr,
                                                    why);
            },
            [&] { return seen; });
    }
    // Breaks the lock of any holder. The scope limits what is deleted; REDBOLT_UNLOCK_LOCKS_OF
    // needs the name of a format.
    outcome<void> force_unlock(std::string_view resource, redbolt_unlock scope, const char *format = nullptr) {
        return detail::checked([&](auto why) {
            return redbolt_client_force_unlock_bytes(get(), detail::bytes(resource), resource.size(), scope, format,
                                                     nullptr, why);
        });
    }

    redbolt_client *get() const noexcept { return handle_.get(); }

private:
    explicit client(redbolt_client *raw) noexcept : handle_(raw) {}

    detail::owner<redbolt_client, redbolt_client_free> handle_;
};

// Acquires locks for all threads, with a background thread that extends them.
class engine {
public:
    // The callback for an outcome. The lock is empty if there is an error.
    using acquired_function = std::function<void(redbolt::lock, const error *)>;

    // Creates an engine without waiting for a node. Fails if the configuration is not valid, or
    // without system resources.
    static result<engine> create(const config &from) {
        redbolt_engine *raw = nullptr;
        return detail::tried(
            from.failure(), [&](auto why) { return redbolt_engine_new(from.get(), &raw, why); }, [&] { return engine(raw); });
    }
#if REDBOLT_THROWS
    explicit engine(const config &from) : engine(create(from).value()) {}
#endif

    outcome<void> warm_up(milliseconds within) {
        return detail::checked([&](auto why) { return redbolt_engine_warm_up(get(), detail::count(within), why); });
    }
    [[nodiscard]] outcome<redbolt::lock> acquire(const request &wanted) {
        redbolt_lock *raw = nullptr;
        return detail::told(detail::tried(
            wanted.failure(), [&](auto why) { return redbolt_engine_acquire(get(), wanted.get(), &raw, why); },
            [&] { return redbolt::lock(raw); }));
    }
    // Tries once, and ignores the wait of the request. Returns nothing exactly if another client
    // holds the lock.
    [[nodiscard]] outcome<std::optional<redbolt::lock>> try_acquire(const request &wanted) {
        redbolt_lock *raw = nullptr;
        return detail::told(detail::unless_contended<std::optional<redbolt::lock>>(
            wanted.failure(), [&](auto why) { return redbolt_engine_try_acquire(get(), wanted.get(), &raw, why); },
            [&] { return redbolt::lock(raw); }, std::nullopt));
    }
    // Acquires independent locks, with one write to each node, and returns when each is granted or
    // refused: one result for each request, in order.
    [[nodiscard]] std::vector<result<redbolt::lock>> acquire_all(const std::vector<request> &wanted) {
        return detail::all<redbolt::lock>(wanted, [&](auto requests, auto count, auto locks, auto statuses, auto why) {
            return redbolt_engine_acquire_all(get(), requests, count, locks, statuses, why);
        });
    }
    // Acquires a lock, which is extended until it is released, and waits until it is granted.
    [[nodiscard]] outcome<redbolt::lock> lock(std::string_view resource) {
        return acquire(request(resource).wait(forever).auto_extend());
    }
    // Tries once. Returns nothing exactly if another client holds the lock.
    [[nodiscard]] outcome<std::optional<redbolt::lock>> try_lock(std::string_view resource) {
        return try_acquire(request(resource).auto_extend());
    }
    // Acquires a lease, which ends after `ttl` unless it is extended or released before, and waits
    // until it is granted.
    [[nodiscard]] outcome<redbolt::lock> lease(std::string_view resource, milliseconds ttl) {
        return acquire(request(resource).ttl(ttl).wait(forever));
    }
    // Tries once. Returns nothing exactly if another client holds the lock.
    [[nodiscard]] outcome<std::optional<redbolt::lock>> try_lease(std::string_view resource, milliseconds ttl) {
        return try_acquire(request(resource).ttl(ttl));
    }
    // Acquires a lock for an owner that may acquire it again while holding it; see
    // redbolt_engine_acquire_reentrant.
    [[nodiscard]] outcome<redbolt::lock> acquire_reentrant(const request &wanted, std::string_view owner) {
        redbolt_lock *raw = nullptr;
        return detail::told(detail::tried(
            wanted.failure(),
            [&](auto why) {
                return redbolt_engine_acquire_reentrant(get(), wanted.get(), detail::bytes(owner), owner.size(),
                                                        &raw, why);
            },
            [&] { return redbolt::lock(raw); }));
    }
    [[nodiscard]] outcome<std::string> metrics() {
        char *text = nullptr;
        return detail::got([&](auto why) { return redbolt_engine_metrics(get(), &text, why); },
                           [&] { return detail::taken(text); });
    }
    // Requests a lock, and calls back once, on the engine's thread or, if the outcome is known
    // already, on this one before it returns. If it fails, nothing was sent, and it does not call
    // back.
    outcome<void> acquire(const request &wanted, acquired_function function) {
        return detail::told(ask(wanted, std::move(function)));
    }
    // Requests a lock. The future throws the error, or has it as a result.
    [[nodiscard]] std::future<outcome<redbolt::lock>> acquire_future(const request &wanted) {
        auto promise = std::make_shared<std::promise<outcome<redbolt::lock>>>();
        auto future = promise->get_future();
        const result<void> asked = ask(wanted, [promise](redbolt::lock granted, const error *why) {
            settle(*promise, std::move(granted), why);
        });
        if (!asked) {
            settle(*promise, redbolt::lock(), &asked.error());
        }
        return future;
    }
    // Fails with REDBOLT_STATUS_NO_QUORUM if too few nodes are ready for a lock; the error names
    // each node.
    outcome<void> nodes() {
        return detail::checked([&](auto why) { return redbolt_engine_nodes(get(), why); });
    }
    [[nodiscard]] outcome<redbolt::lock> attach(const std::string &detached) {
        redbolt_lock *raw = nullptr;
        return detail::got([&](auto why) { return redbolt_engine_attach(get(), detail::text(detached), &raw, why); },
                           [&] { return redbolt::lock(raw); });
    }
    outcome<void> shutdown(milliseconds within) {
        return detail::checked([&](auto why) { return redbolt_engine_shutdown(get(), detail::count(within), why); });
    }

    // Returns the holder. Takes no lock and writes nothing.
    [[nodiscard]] outcome<redbolt_inspection> inspect(std::string_view resource) {
        redbolt_inspection seen = {};
        return detail::got(
            [&](auto why) {
                return redbolt_engine_inspect_bytes(get(), detail::bytes(resource), resource.size(), &seen, nullptr,
                                                    why);
            },
            [&] { return seen; });
    }
    // Breaks the lock of any holder. The scope limits what is deleted; REDBOLT_UNLOCK_LOCKS_OF
    // needs the name of a format.
    outcome<void> force_unlock(std::string_view resource, redbolt_unlock scope, const char *format = nullptr) {
        return detail::checked([&](auto why) {
            return redbolt_engine_force_unlock_bytes(get(), detail::bytes(resource), resource.size(), scope, format,
                                                     nullptr, why);
        });
    }

    redbolt_engine *get() const noexcept { return handle_.get(); }

private:
    result<void> ask(const request &wanted, acquired_function function) {
        if (wanted.failure()) {
            return *wanted.failure();
        }
        auto data = std::make_unique<acquired_function>(std::move(function));
        const result<void> asked =
            detail::judged(redbolt_engine_acquire_async(get(), wanted.get(), call_acquired, data.get(), nullptr));
        if (asked) {
            data.release(); // the callback ends it
        }
        return asked;
    }

    static void settle(std::promise<outcome<redbolt::lock>> &promise, redbolt::lock granted, const error *why) {
        if (why == nullptr) {
            promise.set_value(std::move(granted));
            return;
        }
#if REDBOLT_THROWS
        promise.set_exception(std::make_exception_ptr(*why));
#else
        promise.set_value(*why);
#endif
    }

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

    explicit engine(redbolt_engine *raw) noexcept : handle_(raw) {}

    detail::owner<redbolt_engine, redbolt_engine_free> handle_;
};

#if REDBOLT_THROWS
inline lock::lock(client &from, std::string_view resource, milliseconds ttl) : lock(from.lease(resource, ttl)) {}
inline lock::lock(engine &from, std::string_view resource) : lock(from.lock(resource)) {}

namespace detail {

// The held lock of a mutex.
class any_mutex {
public:
    // Releases the lock without waiting for the nodes, so it cannot fail.
    void unlock() noexcept { held_ = redbolt::lock(); }

    [[nodiscard]] bool is_valid() const noexcept { return held_.is_valid(); }
    // Returns the held lock, to inspect and to extend it.
    redbolt::lock &held() noexcept { return held_; }

protected:
    void hold(redbolt::lock held) noexcept { held_ = std::move(held); }
    bool try_hold(std::optional<redbolt::lock> held) noexcept {
        if (held) {
            held_ = std::move(*held);
        }
        return held.has_value();
    }

private:
    redbolt::lock held_;
};

} // namespace detail

// A mutex of one resource for std::lock_guard and std::unique_lock, with leases of a client. The
// standard's guards cannot report that a lock was lost: check `is_valid` before each step that
// relies on it.
class mutex : public detail::any_mutex {
public:
    mutex(client &from, std::string_view resource, milliseconds ttl) : from_(&from), resource_(resource), ttl_(ttl) {}

    void lock() { hold(from_->lease(resource_, ttl_)); }
    bool try_lock() { return try_hold(from_->try_lease(resource_, ttl_)); }

private:
    client *from_;
    std::string resource_;
    milliseconds ttl_;
};

// A mutex of one resource for the same guards, with locks of an engine, which are extended until
// they are released. One object is for one thread at a time, like any lock object: each thread has
// a separate one.
class engine_mutex : public detail::any_mutex {
public:
    engine_mutex(engine &from, std::string_view resource) : from_(&from), resource_(resource) {}

    void lock() { hold(from_->lock(resource_)); }
    bool try_lock() { return try_hold(from_->try_lock(resource_)); }

private:
    engine *from_;
    std::string resource_;
};
#endif // REDBOLT_THROWS

// Acquires locks in the program's own event loop. Locks are numbers; outcomes are events.
class driver {
public:
    // An event, with an error if it is a refusal or a loss.
    struct event : redbolt_event {
        std::optional<redbolt::error> why;
    };

    // Creates a driver without waiting for a node. Fails if the configuration is not valid, or
    // without system resources.
    static result<driver> create(const config &from) {
        redbolt_driver *raw = nullptr;
        return detail::tried(
            from.failure(), [&](auto why) { return redbolt_driver_new(from.get(), &raw, why); }, [&] { return driver(raw); });
    }
#if REDBOLT_THROWS
    explicit driver(const config &from) : driver(create(from).value()) {}
#endif

    [[nodiscard]] int fd() const noexcept { return redbolt_driver_fd(get()); }
    // Returns the deadline as epoll_wait and poll take it: -1 if only readability matters.
    [[nodiscard]] int timeout_ms() const noexcept { return redbolt_driver_timeout_ms(get()); }
    outcome<void> process() { return detail::told(detail::judged(redbolt_driver_process(get()))); }
    // Tries reads for at most the configured busy_poll first, without sleeping. Returns true if a
    // read returned data: do not sleep then.
    [[nodiscard]] bool process_busy() noexcept { return redbolt_driver_process_busy(get()); }
    [[nodiscard]] std::optional<event> next_event() {
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

    [[nodiscard]] outcome<std::uint64_t> acquire(const request &wanted, void *data = nullptr) {
        std::uint64_t lock = 0;
        return detail::told(detail::tried(
            wanted.failure(), [&](auto why) { return redbolt_driver_acquire(get(), wanted.get(), data, &lock, why); },
            [&] { return lock; }));
    }
    // Requests all of them with one write to each node, or none: if one cannot be requested, the
    // others are cancelled.
    [[nodiscard]] outcome<std::vector<std::uint64_t>> acquire_all(const std::vector<request> &wanted,
                                                                  void *data = nullptr) {
        std::vector<const redbolt_request *> requests;
        std::optional<error> failed;
        for (const request &one : wanted) {
            failed = failed ? failed : one.failure();
            requests.push_back(one.get());
        }
        std::vector<std::uint64_t> locks(wanted.size(), 0);
        auto asked = detail::tried(
            failed,
            [&](auto why) {
                return redbolt_driver_acquire_all(get(), requests.data(), requests.size(), data, locks.data(), why);
            },
            [&] { return locks; });
        for (std::size_t i = 0; !asked && i < locks.size() && locks[i] != 0; i++) {
            (void)detail::judged(redbolt_driver_release(get(), locks[i]));
        }
        return detail::told(std::move(asked));
    }
    // Fails with REDBOLT_STATUS_NO_QUORUM if too few nodes are ready for a lock; the error names
    // each node.
    outcome<void> nodes() {
        return detail::checked([&](auto why) { return redbolt_driver_nodes(get(), why); });
    }
    outcome<void> extend(std::uint64_t lock, milliseconds ttl) {
        return detail::checked([&](auto why) {
            return redbolt_driver_extend(get(), lock, detail::count(ttl), why);
        });
    }
    outcome<void> try_upgrade(std::uint64_t lock) {
        return detail::checked([&](auto why) { return redbolt_driver_try_upgrade(get(), lock, why); });
    }
    outcome<void> downgrade(std::uint64_t lock) {
        return detail::checked([&](auto why) { return redbolt_driver_downgrade(get(), lock, why); });
    }
    // Releases a lock. Returns false if it had been lost before: the work was not covered. The rest
    // of it is released.
    [[nodiscard]] outcome<bool> release(std::uint64_t lock) {
        const redbolt_status status = redbolt_driver_release(get(), lock);
        if (status == REDBOLT_STATUS_LOST) {
            return false;
        }
        return detail::told(detail::tried(
            detail::fresh, [&](auto) { return status; }, [] { return true; }));
    }
    [[nodiscard]] outcome<std::string> detach(std::uint64_t lock) {
        char *text = nullptr;
        return detail::got([&](auto why) { return redbolt_driver_detach(get(), lock, &text, why); },
                           [&] { return detail::taken(text); });
    }
    [[nodiscard]] outcome<std::uint64_t> attach(const std::string &detached, void *data = nullptr) {
        std::uint64_t lock = 0;
        return detail::got(
            [&](auto why) { return redbolt_driver_attach(get(), detail::text(detached), data, &lock, why); },
            [&] { return lock; });
    }

    // Begins to ask for the holder, and returns the number of the view. The outcome is an event of
    // REDBOLT_EVENT_KIND_VIEWED.
    [[nodiscard]] outcome<std::uint64_t> inspect(std::string_view resource, void *data = nullptr) {
        std::uint64_t view = 0;
        return detail::got(
            [&](auto why) {
                return redbolt_driver_inspect_bytes(get(), detail::bytes(resource), resource.size(), data, &view, why);
            },
            [&] { return view; });
    }
    // Takes the result after the event, once.
    [[nodiscard]] outcome<redbolt_inspection> take_inspection(std::uint64_t view) {
        redbolt_inspection seen = {};
        return detail::got([&](auto why) { return redbolt_driver_take_inspection(get(), view, &seen, nullptr, why); },
                           [&] { return seen; });
    }
    // Begins to break the lock of any holder, and returns the number of the view. The scope limits
    // what is deleted; REDBOLT_UNLOCK_LOCKS_OF needs the name of a format. The outcome is an event
    // of REDBOLT_EVENT_KIND_VIEWED.
    [[nodiscard]] outcome<std::uint64_t> force_unlock(std::string_view resource, redbolt_unlock scope,
                                                      const char *format = nullptr, void *data = nullptr) {
        std::uint64_t view = 0;
        return detail::got(
            [&](auto why) {
                return redbolt_driver_force_unlock_bytes(get(), detail::bytes(resource), resource.size(), scope,
                                                         format, data, &view, why);
            },
            [&] { return view; });
    }
    // Takes the result after the event, once. Fails with REDBOLT_STATUS_NO_QUORUM if no quorum has
    // confirmed it.
    outcome<void> take_force_unlock(std::uint64_t view) {
        return detail::checked([&](auto why) { return redbolt_driver_take_force_unlock(get(), view, nullptr, why); });
    }

    [[nodiscard]] bool is_valid(std::uint64_t lock) const noexcept { return redbolt_driver_is_valid(get(), lock); }
    [[nodiscard]] milliseconds remaining(std::uint64_t lock) const noexcept {
        return detail::span(redbolt_driver_remaining_ms(get(), lock));
    }
    redbolt_mode mode(std::uint64_t lock) const noexcept { return redbolt_driver_mode(get(), lock); }
    [[nodiscard]] std::optional<std::uint64_t> fencing_token(std::uint64_t lock) const noexcept {
        std::uint64_t token = 0;
        return redbolt_driver_fencing_token(get(), lock, &token) ? std::optional(token) : std::nullopt;
    }
    std::optional<std::uint16_t> slot(std::uint64_t lock) const noexcept {
        std::uint16_t slot = 0;
        return redbolt_driver_slot(get(), lock, &slot) ? std::optional(slot) : std::nullopt;
    }
    [[nodiscard]] bool has_pending_releases() const noexcept { return redbolt_driver_has_pending_releases(get()); }

    [[nodiscard]] outcome<std::string> metrics() {
        char *text = nullptr;
        return detail::got([&](auto why) { return redbolt_driver_metrics(get(), &text, why); },
                           [&] { return detail::taken(text); });
    }

    redbolt_driver *get() const noexcept { return handle_.get(); }

private:
    explicit driver(redbolt_driver *raw) noexcept : handle_(raw) {}

    detail::owner<redbolt_driver, redbolt_driver_free> handle_;
};

} // namespace REDBOLT_FORM
} // namespace redbolt

#endif // REDBOLT_HPP
