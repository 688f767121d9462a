// The mutexes of redis-semaphore: Mutex on one node, RedlockMutex on a majority of all. Their keys are behind `mutex:`.

const { Mutex, RedlockMutex } = require("redis-semaphore");
const { clients, serve } = require("./peer");

const held = new Map();

// It extends by itself, before its TTL is over.
function mutex(name, lockTimeout) {
  const options = { lockTimeout, acquireTimeout: 5_000, acquireAttemptsLimit: 1 };
  const [first, ...others] = clients;
  return others.length ? new RedlockMutex(clients, name, options) : new Mutex(first, name, options);
}

serve({
  async attempt(name, ttl) {
    // No TTL: it extends one of 1.5 s for as long as it holds.
    const lock = mutex(name, ttl || 1_500);
    if (!(await lock.tryAcquire())) return false;
    if (ttl) lock.stopRefresh();
    held.set(name, lock);
    return true;
  },

  async release(name) {
    const lock = held.get(name);
    held.delete(name);
    await lock.release();
  },
});
