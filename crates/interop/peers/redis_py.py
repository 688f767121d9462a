"""redis-py's own lock, which polls."""

import sys

import peer


class Adapter:
    def __init__(self, client):
        self.client, self.held = client, {}

    def acquire(self, name, wait, ttl):
        lock = self.client.lock(name, timeout=ttl, sleep=0.01, blocking_timeout=wait)
        if lock.acquire(blocking=wait > 0):
            self.held[name] = lock
        return name in self.held

    def release(self, name):
        self.held.pop(name).release()

    def extend(self, name, ttl):
        self.held[name].extend(ttl, replace_ttl=True)


nodes = peer.clients(sys.argv[1:])
peer.serve(Adapter(nodes[0]), nodes[0])
