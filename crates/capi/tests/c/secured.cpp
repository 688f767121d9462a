// A copy of secured.c with the owners of redbolt.hpp: secured CA CERTIFICATE KEY PASSWORD-FILE
// SENTINEL-PASSWORD ADDRESS
#include <redbolt.hpp>

#include <iostream>

using namespace std::chrono_literals;

static redbolt::config nodes(char **argv) {
    redbolt::config config;
    config.node(argv[6]).new_nodes().response_timeout(60s).connect_timeout(60s);
    config.tls_ca(argv[1]).tls_identity(argv[2], argv[3]).tls_server_name("localhost");
    config.password_file(argv[4]).sentinel_credentials("default", argv[5]);
    return config;
}

int main(int argc, char **argv) {
    if (argc != 7) return 2;
    redbolt::client client(nodes(argv));
    client.acquire(redbolt::request("job").wait(60s)).release();
    // The server is trusted without its name only because any certificate is accepted.
    redbolt::config any;
    any.node(argv[6]).new_nodes().response_timeout(60s).connect_timeout(60s);
    any.tls_identity(argv[2], argv[3]).tls_server_name("nobody.example").danger_accept_any_certificate();
    any.password_file(argv[4]).sentinel_credentials(argv[5]);
    redbolt::client(any).acquire(redbolt::request("job").wait(60s)).release();
    std::cout << "locked and released\n";
    return 0;
}
