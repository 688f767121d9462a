import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.RedissonRedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/** Redisson: RLock on one node or one of its kin, RedissonRedLock on several. It is told on standard input what to do, a line at a time. */
public final class RedissonPeer {
    private final List<RedissonClient> clients = new ArrayList<>();
    private final Map<String, RLock> locks = new HashMap<>();
    /** Whether it has a read/write lock, and where nothing else is said writes. */
    private static final boolean READ_WRITE = System.getProperty("kind").equals("read-write");
    /** Whether each lock has a token. */
    private static final boolean FENCED = System.getProperty("kind").equals("fenced");

    public static void main(String[] addresses) throws Exception {
        RedissonPeer peer = new RedissonPeer();
        for (String address : addresses) {
            Config config = new Config();
            // So that three of its TTLs are not a minute and a half.
            config.setLockWatchdogTimeout(1500);
            config.useSingleServer().setAddress("redis://" + address)
                .setConnectionMinimumIdleSize(2).setConnectionPoolSize(4)
                .setSubscriptionConnectionMinimumIdleSize(1).setSubscriptionConnectionPoolSize(2);
            peer.clients.add(Redisson.create(config));
        }
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String order; (order = orders.readLine()) != null;) {
            String reply;
            try {
                reply = peer.obey(order.split(" "));
            } catch (Exception error) {
                reply = "failed " + error;
            }
            System.out.println(reply.replace('\n', ' '));
            System.out.flush();
        }
        peer.clients.forEach(RedissonClient::shutdown);
    }

    @SuppressWarnings("deprecation")
    private RLock lock(String name) {
        return locks.computeIfAbsent(name, it -> {
            if (READ_WRITE) {
                return clients.get(0).getReadWriteLock(it).writeLock();
            }
            if (FENCED) {
                return clients.get(0).getFencedLock(it);
            }
            RLock[] all = clients.stream().map(client -> client.getLock(it)).toArray(RLock[]::new);
            return all.length == 1 ? all[0] : new RedissonRedLock(all);
        });
    }

    private String obey(String[] words) throws Exception {
        switch (words[0]) {
            case "acquire":
                // Without a lease its watchdog extends it.
                long ttl = words[3].equals("0") ? -1 : Long.parseLong(words[3]);
                return lock(words[1]).tryLock(Long.parseLong(words[2]), ttl, TimeUnit.MILLISECONDS) ? "held" : "busy";
            case "token":
                return "token " + clients.get(0).getFencedLock(words[1]).lockAndGetToken(20, TimeUnit.SECONDS);
            case "release":
                lock(words[1]).unlock();
                return "released";
            case "read":
                RLock reader = clients.get(0).getReadWriteLock(words[1]).readLock();
                long lease = Long.parseLong(words[3]);
                return reader.tryLock(Long.parseLong(words[2]), lease, TimeUnit.MILLISECONDS) ? "held" : "busy";
            case "release-read":
                clients.get(0).getReadWriteLock(words[1]).readLock().unlock();
                return "released";
            case "release-lost":
                try {
                    lock(words[1]).unlock();
                    return "released";
                } catch (RuntimeException error) {
                    return "refused " + error.getClass().getSimpleName();
                }
            case "enter-twice":
                RLock lock = lock(words[1]);
                lock.lock(20, TimeUnit.SECONDS);
                lock.lock(20, TimeUnit.SECONDS);
                return "held";
            case "pairs":
                return pairs(lock(words[1]), Integer.parseInt(words[2]), Long.parseLong(words[3]));
            case "wait":
                boolean came = lock(words[1]).tryLock(60, 20, TimeUnit.SECONDS);
                return (came ? "held " : "failed ") + now();
            case "leave":
                String began = now();
                lock(words[1]).unlock();
                return "left " + began;
            case "count":
                return count(words);
            default:
                return "failed no such order";
        }
    }

    /** How many nanoseconds each pair of lock and unlock takes. */
    private static String pairs(RLock lock, int count, long lease) throws Exception {
        StringBuilder reply = new StringBuilder("pairs");
        for (; count > 0; count--) {
            long since = System.nanoTime();
            // Without a lease its watchdog extends it.
            if (lease == 0 ? !lock.tryLock() : !lock.tryLock(0, lease, TimeUnit.MILLISECONDS)) {
                return "failed busy";
            }
            lock.unlock();
            reply.append(' ').append(System.nanoTime() - since);
        }
        return reply.toString();
    }

    /** Nanoseconds since 1970: two processes of one machine compare them. */
    private static String now() {
        Instant now = Instant.now();
        return String.valueOf(now.getEpochSecond() * 1_000_000_000 + now.getNano());
    }

    private String count(String[] words) throws Exception {
        RLock lock = lock(words[1]);
        var counter = clients.get(0).<String>getBucket(words[2], StringCodec.INSTANCE);
        int contended = 0;
        long ttl = Long.parseLong(words[4]);
        for (int turn = Integer.parseInt(words[3]); turn > 0; turn--) {
            if (!lock.tryLock(0, ttl, TimeUnit.MILLISECONDS)) {
                contended++;
                if (!lock.tryLock(60_000, ttl, TimeUnit.MILLISECONDS)) {
                    return "failed not within a minute";
                }
            }
            String before = counter.get();
            Thread.sleep(ThreadLocalRandom.current().nextInt(3));
            counter.set(String.valueOf((before == null ? 0 : Long.parseLong(before)) + 1));
            lock.unlock();
            Thread.sleep(ThreadLocalRandom.current().nextInt(3));
        }
        return "counted " + contended;
    }
}
