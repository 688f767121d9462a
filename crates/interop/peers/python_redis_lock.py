"""python-redis-lock. Its keys are behind `lock:`, and its waiters sleep on a list."""

import sys
import time

import peer
import redis_lock


class Adapter:
    def __init__(self, client):
        self.client, self.held = client, {}

    def lock(self, name, ttl=1):
        return redis_lock.Lock(self.client, name, expire=max(1, round(ttl)))

    def acquire(self, name, wait, ttl):
        until = time.monotonic() + wait
        lock = self.lock(name, ttl)
        got = lock.acquire(blocking=False)
        # It refuses to wait for longer than its own lock lasts.
        while not got and time.monotonic() < until:
            rest = min(until - time.monotonic(), ttl)
            got = lock.acquire(timeout=max(1, round(rest)))
        if got:
            self.held[name] = lock
        return got

    def release(self, name):
        self.held.pop(name).release()

    def extend(self, name, ttl):
        self.held[name].extend(expire=max(1, round(ttl)))


nodes = peer.clients(sys.argv[1:])
peer.serve(Adapter(nodes[0]), nodes[0])
