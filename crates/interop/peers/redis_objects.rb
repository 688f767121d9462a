# Redis::Lock of redis-objects. It is told on standard input what to do, a line at a time.
#
# Its locks are blocks, so each has a thread that stays in the block until it is told to leave.

require "redis"
require "redis-objects"

class Peer
  def initialize(address)
    host, port = address.split(":")
    @redis = Redis.new(host: host, port: port.to_i)
    @held = {}
  end

  def acquire(name, wait, ttl)
    outcome = Queue.new
    leave = Queue.new
    lock = Redis::Lock.new(name, @redis, timeout: wait / 1000.0, expiration: ttl / 1000.0)
    thread = Thread.new do
      lock.lock { outcome << "held"; leave.pop }
    rescue Redis::Lock::LockTimeout
      outcome << "busy"
    rescue StandardError => error
      outcome << "failed #{error.class}: #{error.message}"
    end
    said = outcome.pop
    @held[name] = [leave, thread] if said == "held"
    said
  end

  def release(name)
    leave, thread = @held.delete(name)
    leave << true
    thread.join
    "released"
  end

  def release_lost(name)
    release(name)
  rescue StandardError => error
    "refused #{error.class}"
  end

  def obey(words)
    case words[0]
    when "acquire" then acquire(words[1], words[2].to_i, words[3].to_i)
    when "release" then release(words[1])
    when "release-lost" then release_lost(words[1])
    when "count" then count(words[1], words[2], words[3].to_i, words[4].to_i)
    else "failed no such order"
    end
  end

  def count(name, counter, turns, ttl)
    contended = 0
    turns.times do
      if acquire(name, 0, ttl) != "held"
        contended += 1
        return "failed not within a minute" if acquire(name, 60_000, ttl) != "held"
      end
      value = @redis.get(counter).to_i
      sleep(rand * 0.003)
      @redis.set(counter, value + 1)
      release(name)
      sleep(rand * 0.002)
    end
    "counted #{contended}"
  end
end

$stdout.sync = true
peer = Peer.new(ARGV[0])
while (line = $stdin.gets)
  puts(begin
    peer.obey(line.split)
  rescue StandardError => error
    "failed #{error.class}: #{error.message}".tr("\n", " ")
  end)
end
