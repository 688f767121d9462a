"""redlock-py, on a majority of all nodes."""

import sys
import time

import peer
from redlock import Redlock


class Adapter:
    def __init__(self, nodes):
        self.redlock, self.held = Redlock(nodes, retry_count=1), {}

    def acquire(self, name, wait, ttl):
        until = time.monotonic() + wait
        while True:
            lock = self.redlock.lock(name, int(ttl * 1000))
            if lock:
                self.held[name] = lock
                return True
            if time.monotonic() > until:
                return False
            time.sleep(0.01)

    def release(self, name):
        self.redlock.unlock(self.held.pop(name))

    def extend(self, name, ttl):
        raise NotImplementedError("it cannot extend")


nodes = peer.clients(sys.argv[1:])
peer.serve(Adapter(nodes), nodes[0])
