import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.concurrent.ThreadLocalRandom;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.integration.redis.util.RedisLockRegistry;
import org.springframework.integration.support.locks.DistributedLock;

/** Spring Integration's lock registry, which listens to its channel. It is told on standard input what to do, a line at a time. */
public final class SpringPeer {
    private final LettuceConnectionFactory connections;
    private final RedisLockRegistry registry;

    private SpringPeer(String address) {
        int colon = address.lastIndexOf(':');
        connections = new LettuceConnectionFactory(address.substring(0, colon), Integer.parseInt(address.substring(colon + 1)));
        connections.afterPropertiesSet();
        connections.start();
        registry = new RedisLockRegistry(connections, "shop");
        registry.setRedisLockType(RedisLockRegistry.RedisLockType.PUB_SUB_LOCK);
    }

    public static void main(String[] addresses) throws Exception {
        SpringPeer peer = new SpringPeer(addresses[0]);
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
        peer.registry.destroy();
        peer.connections.destroy();
        System.exit(0);
    }

    private boolean acquire(String name, String wait, String ttl) throws Exception {
        DistributedLock lock = registry.obtain(name);
        return lock.tryLock(Duration.ofMillis(Long.parseLong(wait)), Duration.ofMillis(Long.parseLong(ttl)));
    }

    private String obey(String[] words) throws Exception {
        switch (words[0]) {
            case "acquire":
                return acquire(words[1], words[2], words[3]) ? "held" : "busy";
            case "release":
                registry.obtain(words[1]).unlock();
                return "released";
            case "extend":
                registry.renewLock(words[1], Duration.ofMillis(Long.parseLong(words[2])));
                return "extended";
            case "release-lost":
                try {
                    registry.obtain(words[1]).unlock();
                    return "released";
                } catch (RuntimeException error) {
                    return "refused " + error.getClass().getSimpleName();
                }
            case "enter-twice":
                return acquire(words[1], "0", "20000") && acquire(words[1], "0", "20000") ? "held" : "busy";
            case "count":
                return count(words);
            default:
                return "failed no such order";
        }
    }

    private String count(String[] words) throws Exception {
        StringRedisTemplate redis = new StringRedisTemplate(connections);
        int contended = 0;
        for (int turn = Integer.parseInt(words[3]); turn > 0; turn--) {
            if (!acquire(words[1], "0", words[4])) {
                contended++;
                if (!acquire(words[1], "60000", words[4])) {
                    return "failed not within a minute";
                }
            }
            String before = redis.opsForValue().get(words[2]);
            Thread.sleep(ThreadLocalRandom.current().nextInt(3));
            redis.opsForValue().set(words[2], String.valueOf((before == null ? 0 : Long.parseLong(before)) + 1));
            registry.obtain(words[1]).unlock();
            Thread.sleep(ThreadLocalRandom.current().nextInt(3));
        }
        return "counted " + contended;
    }
}
