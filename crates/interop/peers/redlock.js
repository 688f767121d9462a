// node-redlock 5, on a majority of all nodes. It is told on standard input what to do, a line at a time.

const readline = require("node:readline");
const { setTimeout: sleep } = require("node:timers/promises");
const Redis = require("ioredis");
const { default: Redlock, Lock } = require("redlock");

const clients = process.argv.slice(2).map((address) => new Redis(`redis://${address}`));
const redlock = new Redlock(clients, { retryCount: 0 });
// A refused attempt is reported here as well as thrown.
redlock.on("error", () => {});
const held = new Map();

async function acquire(name, wait, ttl) {
  const until = Date.now() + wait;
  for (;;) {
    try {
      held.set(name, await redlock.acquire([name], ttl));
      return true;
    } catch (error) {
      if (error.name !== "ExecutionError") throw error;
    }
    if (Date.now() >= until) return false;
    await sleep(10);
  }
}

async function release(name) {
  const lock = held.get(name);
  held.delete(name);
  await lock.release();
}

async function count(name, counter, turns, ttl) {
  let contended = 0;
  for (let turn = 0; turn < turns; turn++) {
    if (!(await acquire(name, 0, ttl))) {
      contended++;
      if (!(await acquire(name, 60_000, ttl))) return "failed not within a minute";
    }
    const value = Number((await clients[0].get(counter)) ?? 0);
    await sleep(Math.random() * 3);
    await clients[0].set(counter, value + 1);
    await release(name);
    await sleep(Math.random() * 3);
  }
  return `counted ${contended}`;
}

async function obey([order, name, ...rest]) {
  switch (order) {
    case "acquire":
      return (await acquire(name, Number(rest[0]), Number(rest[1]))) ? "held" : "busy";
    case "release":
      await release(name);
      return "released";
    case "extend":
      held.set(name, await held.get(name).extend(Number(rest[0])));
      return "extended";
    case "release-unheld":
      try {
        await new Lock(redlock, [name], "never-held", [], Date.now() + 60_000).release();
        return "released";
      } catch (error) {
        return `refused ${error.name}`;
      }
    case "count":
      return count(name, rest[0], Number(rest[1]), Number(rest[2]));
    default:
      return "failed no such order";
  }
}

async function serve() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const reply = await obey(line.split(" ")).catch((error) => `failed ${error}`);
    console.log(reply.replaceAll("\n", " "));
  }
  clients.forEach((client) => client.disconnect());
}

serve();
