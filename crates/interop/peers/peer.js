// What all peers in Node.js have in common: they are told on standard input what to do, a line at a time.
//
// A library is an adapter with `attempt(name, ttl)`, which says whether it got the lock, `release(name)` and `extend(name, ttl)`.
// Times are in milliseconds. A reply is one line.

const readline = require("node:readline");
const { setTimeout: sleep } = require("node:timers/promises");
const Redis = require("ioredis");

// One client for each node.
const clients = process.argv.slice(2).map((address) => new Redis(`redis://${address}`));

async function acquire(adapter, name, wait, ttl) {
  const until = Date.now() + wait;
  for (;;) {
    if (await adapter.attempt(name, ttl)) return true;
    if (Date.now() >= until) return false;
    await sleep(10);
  }
}

// Reads, waits and writes under the lock, which nothing else protects.
async function count(adapter, name, counter, turns, ttl) {
  let contended = 0;
  for (let turn = 0; turn < turns; turn++) {
    if (!(await acquire(adapter, name, 0, ttl))) {
      contended++;
      if (!(await acquire(adapter, name, 60_000, ttl))) return "failed not within a minute";
    }
    const value = Number((await clients[0].get(counter)) ?? 0);
    await sleep(Math.random() * 3);
    await clients[0].set(counter, value + 1);
    await adapter.release(name);
    await sleep(Math.random() * 3);
  }
  return `counted ${contended}`;
}

async function obey(adapter, [order, name, ...rest]) {
  switch (order) {
    case "acquire":
      return (await acquire(adapter, name, Number(rest[0]), Number(rest[1]))) ? "held" : "busy";
    case "release":
      await adapter.release(name);
      return "released";
    case "extend":
      await adapter.extend(name, Number(rest[0]));
      return "extended";
    case "release-lost":
      try {
        await adapter.release(name);
        return "released";
      } catch (error) {
        return `refused ${error.name}`;
      }
    case "count":
      return count(adapter, name, rest[0], Number(rest[1]), Number(rest[2]));
    default:
      return "failed no such order";
  }
}

// Does what it is told until the input ends.
async function serve(adapter) {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const reply = await obey(adapter, line.split(" ")).catch((error) => `failed ${error}`);
    console.log(reply.replaceAll("\n", " "));
  }
  clients.forEach((client) => client.disconnect());
}

module.exports = { clients, serve };
