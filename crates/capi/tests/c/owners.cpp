// The owners of redbolt.hpp: every class, and the errors that they throw. The test gives it three
// nodes.
#include <redbolt.hpp>

#include <atomic>
#include <iostream>
#include <mutex>
#include <poll.h>
#include <thread>
#include <type_traits>

using namespace std::chrono_literals;

#define CHECK(what)                                                                    \
    do {                                                                               \
        if (!(what)) {                                                                 \
            std::cerr << __FILE__ << ":" << __LINE__ << ": not so: " << #what << "\n"; \
            std::exit(1);                                                              \
        }                                                                              \
    } while (0)

template <typename T>
inline constexpr bool is_owner = std::is_nothrow_move_constructible_v<T> && std::is_nothrow_move_assignable_v<T> &&
                                 !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T>;

static_assert(is_owner<redbolt::config> && is_owner<redbolt::request> && is_owner<redbolt::lock>);
static_assert(is_owner<redbolt::client> && is_owner<redbolt::engine> && is_owner<redbolt::driver>);

template <typename Call> redbolt::error thrown(redbolt_status status, Call &&call) {
    try {
        call();
    } catch (const redbolt::error &error) {
        CHECK(error.status() == status && error.what()[0] != '\0');
        return error;
    }
    CHECK(!"nothing was thrown");
    std::abort();
}

static redbolt::config nodes(int count, char **addresses) {
    redbolt::config config;
    for (int i = 0; i < count; i++) {
        config.node(addresses[i]);
    }
    config.new_nodes().response_timeout(15s).connect_timeout(15s);
    return config;
}

static void clients(const redbolt::config &config) {
    redbolt::client client(config), other(config);
    client.warm_up(15s);
    {
        redbolt::lock lock(client, "job", 10s);
        CHECK(lock && lock.remaining() > 0ms && lock.mode() == REDBOLT_MODE_EXCLUSIVE);
        CHECK(!lock.fencing_token() && !lock.slot() && !other.try_lease("job", 10s));
        const auto error = thrown(REDBOLT_STATUS_CONTENDED, [&] { (void)other.acquire(redbolt::request("job")); });
        CHECK(error.is_contended() && error.nodes().size() == 3);
        CHECK(error.nodes()[2].message.find(error.nodes()[2].address) != std::string::npos);
        lock.extend(20s);
        const redbolt::lock moved = std::move(lock);
        CHECK(moved && !lock);
        thrown(REDBOLT_STATUS_INVALID_ARGUMENT, [&] { lock.release(); });
    }
    redbolt::lock reader = other.acquire(redbolt::request("job").wait(redbolt::forever).shared());
    redbolt::lock second = client.acquire(redbolt::request("job").shared());
    CHECK(!reader.try_upgrade());
    second.release();
    CHECK(!second && reader.try_upgrade() && reader.mode() == REDBOLT_MODE_EXCLUSIVE);
    reader.downgrade();
    reader.release();
    const std::string text = client.lease(std::string_view("a\0b", 3), 10s).detach();
    client.attach(text).release();
    const redbolt::lock broken = client.lease("broken", 10s);
    CHECK(other.inspect("broken").owner == REDBOLT_OWNER_OTHER);
    other.force_unlock("broken", REDBOLT_UNLOCK_LOCKS);
    CHECK(client.inspect("broken").owner == REDBOLT_OWNER_NOBODY);
    // A name that continues after a zero byte is different from its first part.
    const std::string before = "a", bytes("a\0b", 3);
    redbolt::lock kept = client.lease(before, 10s), of_bytes = client.lease(bytes, 10s);
    CHECK(other.inspect(bytes).owner == REDBOLT_OWNER_OTHER);
    other.force_unlock(bytes, REDBOLT_UNLOCK_LOCKS);
    CHECK(other.inspect(bytes).owner == REDBOLT_OWNER_NOBODY);
    thrown(REDBOLT_STATUS_LOST, [&] { of_bytes.extend(10s); });
    kept.release();
    client.acquire(redbolt::request("b").prefix(bytes)).release();
    // A text that C would cut short is refused.
    thrown(REDBOLT_STATUS_INVALID_ARGUMENT, [&] { redbolt::config().tls_server_name(bytes); });
    thrown(REDBOLT_STATUS_INVALID_ARGUMENT, [&] { redbolt::config().node(bytes); });
    thrown(REDBOLT_STATUS_CONFIG, [&] { redbolt::engine none(redbolt::config().node("127.0.0.1").in_flight(0)); });
    thrown(REDBOLT_STATUS_INVALID_ARGUMENT, [&] { (void)client.attach(text + bytes); });
    const redbolt::lock lease = client.lease("tried", 10s);
    CHECK(!other.try_acquire(redbolt::request("tried").wait(redbolt::forever)));
    // The test has set it to a lock of that format.
    thrown(REDBOLT_STATUS_NO_QUORUM, [&] { other.force_unlock("setnx", REDBOLT_UNLOCK_LOCKS); });
    other.force_unlock("setnx", REDBOLT_UNLOCK_LOCKS_OF, "setnx");
    CHECK(other.inspect("setnx").owner == REDBOLT_OWNER_NOBODY);
    thrown(REDBOLT_STATUS_INVALID_ARGUMENT, [&] { other.force_unlock("setnx", REDBOLT_UNLOCK_LOCKS_OF); });
    redbolt::mutex mutex(client, "mutex", 10s);
    std::unique_lock owner(mutex, std::try_to_lock);
    CHECK(owner.owns_lock() && mutex.is_valid());
    mutex.held().extend(15s);
    owner.unlock();
    CHECK(!mutex.is_valid());
    thrown(REDBOLT_STATUS_REQUEST, [&] { (void)client.lease("", 10s); });
    thrown(REDBOLT_STATUS_CONFIG, [] { redbolt::client none{redbolt::config()}; });
    thrown(REDBOLT_STATUS_CONFIG, [] { redbolt::config().node("redis://:secret@"); });
}

static void engines(redbolt::config &config) {
    std::atomic<int> lines = 0;
    config.log(REDBOLT_LOG_LEVEL_DEBUG, [&lines](redbolt_log_level, const char *) { lines++; });
    redbolt::engine engine(config);
    engine.warm_up(15s);
    int inside = 0;
    const auto turns = [&] {
        redbolt::engine_mutex mutex(engine, "counter");
        for (int i = 0; i < 5; i++) {
            const std::lock_guard held(mutex);
            CHECK(++inside == 1);
            std::this_thread::sleep_for(1ms);
            CHECK(--inside == 0);
        }
    };
    std::thread one(turns), two(turns);
    one.join();
    two.join();

    redbolt::lock lock = engine.acquire_future(redbolt::request("job").permits(2)).get();
    CHECK(lock.slot() && *lock.slot() < 2);
    const std::string bytes("job\0b", 5);
    redbolt::lock of_bytes = engine.lock(bytes);
    CHECK(!engine.try_lock(bytes) && !engine.try_lease(bytes, 10s) && engine.lease("lease", 5s).remaining() <= 5s);
    engine.force_unlock(bytes, REDBOLT_UNLOCK_LOCKS);
    CHECK(lock && engine.inspect(bytes).owner == REDBOLT_OWNER_NOBODY);
    thrown(REDBOLT_STATUS_LOST, [&] { of_bytes.extend(10s); });
    redbolt::lock outer = engine.acquire_reentrant(redbolt::request("invoice"), "request:42");
    CHECK(engine.acquire_reentrant(redbolt::request("invoice"), "request:42").hold_count() == 2);
    CHECK(outer.hold_count() == 1 && engine.metrics().find("redbolt_") != std::string::npos);
    auto shared = std::make_shared<int>(0);
    lock.on_loss([shared](redbolt_loss) { std::abort(); });
    lock.release();
    lock = engine.lock("job");
    thrown(REDBOLT_STATUS_CONTENDED, [&] { (void)engine.acquire_future(redbolt::request("job")).get(); });
    std::promise<redbolt_loss> lost;
    lock.on_loss([&lost](redbolt_loss loss) { lost.set_value(loss); });
    engine.shutdown(15s);
    CHECK(lost.get_future().get() == REDBOLT_LOSS_SHUT_DOWN);
    thrown(REDBOLT_STATUS_LOST, [&] { lock.release(); });
    // The data of a callback is freed with its lock.
    CHECK(lines > 0 && shared.use_count() == 1);
    config.log(REDBOLT_LOG_LEVEL_ERROR, [](redbolt_log_level, const char *) {});
}

static redbolt::driver::event next(redbolt::driver &driver) {
    for (;;) {
        while (auto event = driver.next_event()) {
            if (event->kind != REDBOLT_EVENT_KIND_NODE) {
                return *event;
            }
        }
        pollfd readable{driver.fd(), POLLIN, 0};
        poll(&readable, 1, driver.timeout_ms());
        driver.process();
    }
}

static void drivers(const redbolt::config &config) {
    redbolt::driver driver(config);
    const std::uint64_t lock = driver.acquire(redbolt::request("loop").fenced(), &driver);
    const auto granted = next(driver);
    CHECK(granted.kind == REDBOLT_EVENT_KIND_GRANTED && granted.data == &driver && !granted.why);
    CHECK(driver.is_valid(lock) && driver.fencing_token(lock) && !driver.slot(lock));
    CHECK(driver.acquire(redbolt::request("loop")) != lock);
    const auto refused = next(driver);
    CHECK(refused.kind == REDBOLT_EVENT_KIND_REFUSED && refused.why->nodes().size() == 3);
    const std::uint64_t view = driver.inspect("loop", &driver);
    const auto viewed = next(driver);
    CHECK(viewed.kind == REDBOLT_EVENT_KIND_VIEWED && viewed.view == view && viewed.data == &driver);
    CHECK(driver.take_inspection(view).owner == REDBOLT_OWNER_MINE);
    thrown(REDBOLT_STATUS_REQUEST, [&] { (void)driver.take_inspection(view); });
    const std::uint64_t broken = driver.force_unlock("nobody's", REDBOLT_UNLOCK_LOCKS_OF, "redisson");
    CHECK(next(driver).view == broken);
    driver.take_force_unlock(broken);
    CHECK(driver.release(driver.attach(driver.detach(lock))));
    CHECK(next(driver).kind == REDBOLT_EVENT_KIND_RELEASED);
    thrown(REDBOLT_STATUS_REQUEST, [&] { driver.extend(lock, 10s); });
    // If a C function has no error, the status has a text.
    const auto released = thrown(REDBOLT_STATUS_REQUEST, [&] { (void)driver.release(lock); });
    CHECK(released.what() == std::string("the request cannot be carried out"));
    const auto unknown = thrown(REDBOLT_STATUS_INVALID_ARGUMENT, [] { redbolt::request("x").format("jedisson"); });
    CHECK(unknown.what() == std::string(redbolt_status_message(REDBOLT_STATUS_INVALID_ARGUMENT)));
}

// One write to each node for several locks, reads without sleep, and the state of the nodes.
static void crowds(redbolt::config &config) {
    config.busy_poll(50us);
    redbolt::client client(config);
    redbolt::engine engine(config);
    redbolt::client other(config);
    const redbolt::lock held = other.lease("held", 10s);
    std::vector<redbolt::request> wanted;
    for (const char *name : {"one", "two", "held"}) {
        wanted.emplace_back(name);
        wanted.back().ttl(25s);
    }
    const auto is_right = [](std::vector<redbolt::result<redbolt::lock>> granted) {
        CHECK(granted.size() == 3 && granted[0] && granted[1]->is_valid() && !granted[2]);
        CHECK(granted[2].error().is_contended() && granted[2].error().nodes().size() == 3);
        thrown(REDBOLT_STATUS_CONTENDED, [&] { (void)granted[2].value(); });
        granted[0]->release();
        granted[1]->release();
    };
    is_right(client.acquire_all(wanted));
    is_right(engine.acquire_all(wanted));
    engine.nodes();

    redbolt::driver driver(config);
    wanted.pop_back();
    const std::vector<std::uint64_t> locks = driver.acquire_all(wanted, &driver);
    CHECK(locks.size() == 2);
    for (int events = 0; events < 2;) {
        while (const auto event = driver.next_event()) {
            events += event->kind == REDBOLT_EVENT_KIND_GRANTED;
        }
        if (!driver.process_busy()) {
            pollfd readable{driver.fd(), POLLIN, 0};
            poll(&readable, 1, driver.timeout_ms());
        }
    }
    driver.nodes();
    for (const std::uint64_t lock : locks) {
        CHECK(driver.release(lock) && next(driver).kind == REDBOLT_EVENT_KIND_RELEASED);
    }
    redbolt::request brief("brief");
    brief.ttl(1500ms);
    const std::uint64_t lost = driver.acquire(brief);
    CHECK(next(driver).kind == REDBOLT_EVENT_KIND_GRANTED && next(driver).kind == REDBOLT_EVENT_KIND_LOST);
    CHECK(!driver.release(lost));
    wanted.emplace_back("");
    thrown(REDBOLT_STATUS_REQUEST, [&] { (void)driver.acquire_all(wanted); });
}

int main(int argc, char **argv) {
    redbolt::config config = nodes(argc - 1, argv + 1);
    try {
        clients(config);
        engines(config);
        drivers(config);
        crowds(config);
    } catch (const redbolt::error &error) {
        std::cerr << "not caught: " << error.what() << "\n";
        return 1;
    }
    std::cout << "all of it\n";
    return 0;
}
