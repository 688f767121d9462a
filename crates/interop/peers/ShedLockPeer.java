import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ThreadLocalRandom;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.redis.spring.RedisLockProvider;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.data.redis.core.StringRedisTemplate;

/** ShedLock, as it is if nothing else is said. It is told on standard input what to do, a line at a time. */
public final class ShedLockPeer {
    private final LettuceConnectionFactory connections;
    private final RedisLockProvider provider;
    private final Map<String, SimpleLock> held = new HashMap<>();

    private ShedLockPeer(String address) {
        int colon = address.lastIndexOf(':');
        connections = new LettuceConnectionFactory(address.substring(0, colon), Integer.parseInt(address.substring(colon + 1)));
        connections.afterPropertiesSet();
        connections.start();
        provider = new RedisLockProvider(connections);
    }

    public static void main(String[] addresses) throws Exception {
        ShedLockPeer peer = new ShedLockPeer(addresses[0]);
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
        peer.connections.destroy();
        System.exit(0);
    }

    private static Duration ms(String text) {
        return Duration.ofMillis(Long.parseLong(text));
    }

    /** It never waits: a job that finds its lock held is not run. So this asks again. */
    private boolean acquire(String name, Duration wait, Duration atMost, Duration atLeast) throws Exception {
        for (Instant until = Instant.now().plus(wait);;) {
            Optional<SimpleLock> lock = provider.lock(new LockConfiguration(Instant.now(), name, atMost, atLeast));
            lock.ifPresent(it -> held.put(name, it));
            if (lock.isPresent() || !Instant.now().isBefore(until)) {
                return lock.isPresent();
            }
            Thread.sleep(10);
        }
    }

    private String release(String name) {
        held.remove(name).unlock();
        return "released";
    }

    private String obey(String[] words) throws Exception {
        switch (words[0]) {
            case "acquire":
                return acquire(words[1], ms(words[2]), ms(words[3]), Duration.ZERO) ? "held" : "busy";
            case "at-least":
                return acquire(words[1], Duration.ZERO, ms(words[2]), ms(words[3])) ? "held" : "busy";
            case "release":
                return release(words[1]);
            case "extend":
                held.put(words[1], held.get(words[1]).extend(ms(words[2]), Duration.ZERO).orElseThrow());
                return "extended";
            case "release-lost":
                try {
                    return release(words[1]);
                } catch (RuntimeException error) {
                    return "refused " + error.getClass().getSimpleName();
                }
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
            if (!acquire(words[1], Duration.ZERO, ms(words[4]), Duration.ZERO)) {
                contended++;
                if (!acquire(words[1], Duration.ofMinutes(1), ms(words[4]), Duration.ZERO)) {
                    return "failed not within a minute";
                }
            }
            String before = redis.opsForValue().get(words[2]);
            Thread.sleep(ThreadLocalRandom.current().nextInt(3));
            redis.opsForValue().set(words[2], String.valueOf((before == null ? 0 : Long.parseLong(before)) + 1));
            release(words[1]);
            Thread.sleep(ThreadLocalRandom.current().nextInt(3));
        }
        return "counted " + contended;
    }
}
