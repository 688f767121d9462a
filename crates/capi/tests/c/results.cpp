// redbolt.hpp without exceptions: c++ -std=c++17 -fno-exceptions. The test gives it three nodes.
#include <redbolt.hpp>

#include <iostream>
#include <poll.h>

using namespace std::chrono_literals;

#define CHECK(what)                                                                    \
    do {                                                                               \
        if (!(what)) {                                                                 \
            std::cerr << __FILE__ << ":" << __LINE__ << ": not so: " << #what << "\n"; \
            std::exit(1);                                                              \
        }                                                                              \
    } while (0)

static void clients(const redbolt::config &config) {
    redbolt::client client = redbolt::client::create(config).value();
    redbolt::client other = redbolt::client::create(config).value();
    redbolt::lock lock = client.lease("job", 10s).value();
    CHECK(lock && other.inspect("job").value().owner == REDBOLT_OWNER_OTHER);
    const auto refused = other.acquire(redbolt::request("job"));
    CHECK(!refused && refused.error().is_contended() && refused.error().nodes().size() == 3);
    const auto tried = other.try_lease("job", 10s);
    CHECK(tried && !*tried);
    CHECK(lock.extend(20s) && lock.release() && !lock.release());
    redbolt::lock broken = client.lease("job", 10s).value();
    CHECK(other.force_unlock("job", REDBOLT_UNLOCK_LOCKS));
    const auto lost = broken.extend(10s);
    CHECK(!lost && lost.error().status() == REDBOLT_STATUS_LOST);
    const auto ended = broken.release();
    CHECK(!ended && ended.error().status() == REDBOLT_STATUS_LOST);
    // The failure of a setter is reported by the call that uses the configuration or request.
    redbolt::request wrong("job");
    wrong.format("jedisson").fenced();
    const auto unknown = client.acquire(wrong);
    CHECK(!unknown && unknown.error().status() == REDBOLT_STATUS_INVALID_ARGUMENT);
    redbolt::config bad;
    bad.node("redis://:secret@").node("127.0.0.1");
    const auto none = redbolt::client::create(bad);
    CHECK(!none && none.error().status() == REDBOLT_STATUS_CONFIG && bad.failure());
    CHECK(!client.attach(std::string("a\0b", 3)));
}

static void engines(const redbolt::config &config) {
    redbolt::engine engine = redbolt::engine::create(config).value();
    CHECK(engine.warm_up(15s) && engine.nodes());
    redbolt::lock lock = engine.acquire_future(redbolt::request("job")).get().value();
    const auto refused = engine.acquire_future(redbolt::request("job")).get();
    CHECK(!refused && refused.error().status() == REDBOLT_STATUS_CONTENDED);
    CHECK(!engine.acquire_future(std::move(redbolt::request("job").format("jedisson"))).get());
    CHECK(engine.shutdown(15s));
    const auto lost = lock.release();
    CHECK(!lost && lost.error().status() == REDBOLT_STATUS_LOST);
}

static void drivers(const redbolt::config &config) {
    redbolt::driver driver = redbolt::driver::create(config).value();
    const std::uint64_t lock = driver.acquire(redbolt::request("loop")).value();
    while (!driver.is_valid(lock)) {
        pollfd readable{driver.fd(), POLLIN, 0};
        poll(&readable, 1, driver.timeout_ms());
        CHECK(driver.process());
        while (driver.next_event()) {
        }
    }
    CHECK(driver.nodes() && driver.release(lock).value() && !driver.extend(lock, 10s));
}

int main(int argc, char **argv) {
    redbolt::config config;
    for (int i = 1; i < argc; i++) {
        config.node(argv[i]);
    }
    config.new_nodes().response_timeout(15s).connect_timeout(15s);
    clients(config);
    engines(config);
    drivers(config);
    std::cout << "all of it\n";
    return 0;
}
