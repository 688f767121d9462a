// Locks held by guards of the standard library:
//
//     c++ -std=c++17 lock_guard.cpp $(pkg-config --cflags --libs redbolt)
#include <redbolt.hpp>

#include <chrono>
#include <iostream>
#include <mutex>

using namespace std::chrono_literals;

static redbolt::config nodes(int count, char **addresses) {
    redbolt::config config;
    for (int i = 0; i < count; i++) {
        config.node(addresses[i]);
    }
    config.new_nodes(); // wrong where nodes have been in use: see redbolt::config::init
    return config;
}

static void work(redbolt::client &client, redbolt::client &other) {
    {
        redbolt::mutex invoices(client, "invoices", 10s);
        const std::lock_guard held(invoices); // waits until it is granted
        std::cout << "held: " << std::boolalpha << invoices.is_valid() << "\n";
        std::cout << "by another as well: " << other.try_lease("invoices", 10s).has_value() << "\n";
    } // released

    // An owner reports more, and can be moved.
    redbolt::request request("invoices");
    request.ttl(5s).wait(5s).fenced();
    redbolt::lock lock = other.acquire(request);
    redbolt::lock moved = std::move(lock);
    std::cout << "with a token: " << moved.fencing_token().has_value() << "\n";
    moved.release(); // throws if it was lost before the work was done
}

int main(int argc, char **argv) {
    try {
        const redbolt::config config = nodes(argc - 1, argv + 1);
        redbolt::client client(config), other(config);
        work(client, other);
        return 0;
    } catch (const redbolt::error &error) {
        std::cerr << error.what() << "\n";
        return 1;
    }
}
