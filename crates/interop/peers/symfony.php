<?php

// Symfony's lock in Redis, told on standard input what to do, a line at a time. A reply is one line.

require $argv[1] . '/Symfony/Component/Lock/autoload.php';

use Symfony\Component\Lock\Key;
use Symfony\Component\Lock\Lock;
use Symfony\Component\Lock\PersistingStoreInterface;
use Symfony\Component\Lock\Store\CombinedStore;
use Symfony\Component\Lock\Store\RedisStore;
use Symfony\Component\Lock\Strategy\ConsensusStrategy;

/** Takes and releases locks on a majority of all nodes. Counters are on the first. */
final class Adapter
{
    public Redis $node;
    private array $nodes = [];
    private array $held = [];

    public function __construct(array $addresses)
    {
        foreach ($addresses as $address) {
            [$host, $port] = explode(':', $address);
            $node = new Redis();
            $node->connect($host, (int) $port);
            $this->nodes[] = $node;
        }
        $this->node = $this->nodes[0];
    }

    private function store(float $ttl): PersistingStoreInterface
    {
        $stores = array_map(fn ($node) => new RedisStore($node, $ttl), $this->nodes);

        return 1 === count($stores) ? $stores[0] : new CombinedStore($stores, new ConsensusStrategy());
    }

    /** It waits in the library's own way, which has no end. */
    public function acquire(string $name, float $wait, float $ttl, bool $reads = false): bool
    {
        $lock = new Lock(new Key($name), $this->store($ttl), $ttl, false);
        $got = $reads ? $lock->acquireRead($wait > 0) : $lock->acquire($wait > 0);
        if ($got) {
            $this->held[$name] = $lock;
        }

        return $got;
    }

    public function release(string $name): void
    {
        $this->held[$name]->release();
        unset($this->held[$name]);
    }

    public function extend(string $name, float $ttl): void
    {
        $this->held[$name]->refresh($ttl);
    }
}

/** Reads, waits and writes under the lock, which nothing else protects. */
function count_under(Adapter $adapter, string $name, string $counter, int $turns, float $ttl): string
{
    $contended = 0;
    for ($turn = 0; $turn < $turns; ++$turn) {
        if (!$adapter->acquire($name, 0, $ttl)) {
            ++$contended;
            $adapter->acquire($name, 60, $ttl);
        }
        $value = (int) $adapter->node->get($counter);
        usleep(random_int(0, 3000));
        $adapter->node->set($counter, (string) ($value + 1));
        $adapter->release($name);
        usleep(random_int(0, 2000));
    }

    return "counted $contended";
}

function obey(Adapter $adapter, array $words): string
{
    switch ($words[0]) {
        case 'acquire':
        case 'read':
            $reads = 'read' === $words[0];
            $got = $adapter->acquire($words[1], $words[2] / 1000, $words[3] / 1000, $reads);

            return $got ? 'held' : 'busy';
        case 'release':
        case 'release-read':
            $adapter->release($words[1]);

            return 'released';
        case 'extend':
            $adapter->extend($words[1], $words[2] / 1000);

            return 'extended';
        case 'release-lost':
            try {
                $adapter->release($words[1]);
            } catch (Exception $error) {
                return 'refused ' . get_class($error);
            }

            return 'released';
        case 'count':
            return count_under($adapter, $words[1], $words[2], (int) $words[3], $words[4] / 1000);
        default:
            return 'failed no such order';
    }
}

$adapter = new Adapter(array_slice($argv, 2));
while (false !== $line = fgets(STDIN)) {
    try {
        $reply = obey($adapter, explode(' ', trim($line)));
    } catch (Throwable $error) {
        $reply = 'failed ' . get_class($error) . ': ' . str_replace("\n", ' ', $error->getMessage());
    }
    echo $reply, "\n";
}
