"""pottery's Redlock, on a majority of all nodes. Its keys are behind `redlock:`."""

import sys

import peer
from pottery import Redlock


class Adapter:
    def __init__(self, nodes):
        self.nodes, self.held = set(nodes), {}

    def acquire(self, name, wait, ttl):
        lock = Redlock(key=name, masters=self.nodes, auto_release_time=ttl)
        got = lock.acquire(blocking=wait > 0, timeout=wait if wait > 0 else -1)
        if got:
            self.held[name] = lock
        return got

    def release(self, name):
        self.held.pop(name).release()

    def extend(self, name, ttl):
        self.held[name].extend()


nodes = peer.clients(sys.argv[1:])
peer.serve(Adapter(nodes), nodes[0])
