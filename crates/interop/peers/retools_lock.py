"""retools.lock.Lock of retools 0.1: SETNX, GET and GETSET with a time as the value, and no TTL."""

import sys
import time

import peer
from retools import lock as retools

PAUSE = 0.01


class Clock:
    """The time, with shorter pauses: it asks once in a second."""

    time = staticmethod(time.time)

    @staticmethod
    def sleep(_):
        time.sleep(PAUSE)


retools.time = Clock


class Adapter:
    def __init__(self, node):
        self.node, self.held = node, {}

    def lock(self, name, wait, ttl):
        # How long it waits is told in pauses.
        return retools.Lock(name, expires=ttl, timeout=int(wait / PAUSE), redis=self.node)

    def acquire(self, name, wait, ttl):
        lock = self.lock(name, wait, ttl)
        try:
            lock.__enter__()
        except retools.LockTimeout:
            return False
        self.held[name] = lock
        return True

    def release(self, name):
        self.held.pop(name).__exit__(None, None, None)

    def extend(self, name, ttl):
        raise NotImplementedError("it cannot extend")


nodes = peer.clients(sys.argv[1:])
peer.serve(Adapter(nodes[0]), nodes[0])
