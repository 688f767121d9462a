// redlock-universal: its simple lock on one node, its Redlock on a majority of all.

const { createLock, createRedlock, IoredisAdapter } = require("redlock-universal");
const { clients, serve } = require("./peer");

const adapters = clients.map((client) => new IoredisAdapter(client));
const held = new Map();
// A breaker that opens where an attempt is refused would keep this peer from asking.
const once = { retryAttempts: 0, retryDelay: 10, circuitBreaker: false };

function lock(key, ttl) {
  const [adapter, ...others] = adapters;
  const redlock = { adapters, key, ttl, retryAttempts: 0, retryDelay: 10 };
  return others.length ? createRedlock(redlock) : createLock({ adapter, key, ttl, ...once });
}

serve({
  async attempt(name, ttl) {
    const of = lock(name, ttl);
    try {
      held.set(name, [of, await of.acquire()]);
      return true;
    } catch (error) {
      if (error.name !== "LockAcquisitionError") throw error;
      return false;
    }
  },

  async release(name) {
    const [of, handle] = held.get(name);
    held.delete(name);
    if (!(await of.release(handle))) throw new Error("it was not held");
  },

  async extend(name, ttl) {
    const [of, handle] = held.get(name);
    if (!(await of.extend(handle, ttl))) throw new Error("it was not extended");
  },
});
