"""What all peers in Python have in common: they are told on standard input what to do, a line at a time.

A library is an adapter with `acquire(name, wait, ttl)`, `release(name)` and `extend(name, ttl)`. Times are in seconds. A reply is one line.
"""

import random
import sys
import time

import redis


def clients(addresses):
    """One client for each node."""
    places = (address.rsplit(":", 1) for address in addresses)
    # A library may read for longer than the timeout that is set otherwise.
    return [redis.Redis(host=host, port=int(port), socket_timeout=None) for host, port in places]


def serve(adapter, counters):
    """Does what it is told until the input ends. Counters are on the first node."""
    for line in sys.stdin:
        words = line.split()
        try:
            reply = obey(adapter, counters, words)
        except Exception as error:  # It is for the report, whatever it is.
            reply = f"failed {type(error).__name__}: {error}".replace("\n", " ")
        print(reply, flush=True)


def obey(adapter, counters, words):
    if words[0] == "acquire":
        held = adapter.acquire(words[1], int(words[2]) / 1000, int(words[3]) / 1000)
        return "held" if held else "busy"
    if words[0] == "release":
        adapter.release(words[1])
        return "released"
    if words[0] == "extend":
        adapter.extend(words[1], int(words[2]) / 1000)
        return "extended"
    if words[0] == "release-lost":
        try:
            adapter.release(words[1])
        except Exception as error:
            return f"refused {type(error).__name__}"
        return "released"
    if words[0] == "count":
        return count(adapter, counters, *words[1:3], *map(int, words[3:5]))
    return "failed no such order"


def count(adapter, counters, name, counter, turns, ttl):
    """Reads, waits and writes under the lock, which nothing else protects."""
    contended = 0
    for _ in range(turns):
        if not adapter.acquire(name, 0, ttl / 1000):
            contended += 1
            if not adapter.acquire(name, 60, ttl / 1000):
                return "failed not within a minute"
        value = int(counters.get(counter) or 0)
        time.sleep(random.uniform(0, 0.003))
        counters.set(counter, value + 1)
        adapter.release(name)
        time.sleep(random.uniform(0, 0.002))
    return f"counted {contended}"
