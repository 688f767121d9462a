// node-redlock 5, on a majority of all nodes.

const { default: Redlock } = require("redlock");
const { clients, serve } = require("./peer");

const redlock = new Redlock(clients, { retryCount: 0 });
redlock.on("error", (error) => console.error(`${error}`));
const held = new Map();

serve({
  async attempt(name, ttl) {
    try {
      held.set(name, await redlock.acquire([name], ttl));
      return true;
    } catch (error) {
      if (error.name !== "ExecutionError") throw error;
      return false;
    }
  },

  async release(name) {
    const lock = held.get(name);
    held.delete(name);
    await lock.release();
  },

  async extend(name, ttl) {
    held.set(name, await held.get(name).extend(ttl));
  },
});
