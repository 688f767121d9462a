//! The list of libraries that redbolt is checked with, and the properties of each. `library`
//! installs and starts them.

use redbolt::Profile;

use crate::library::{Extends, Kept, Library, Runtime};

/// A library with a usual lock on one node. Each entry replaces the runtime.
const IN_PYTHON: Library = Library {
    name: "",
    version: "",
    runtime: Runtime::Python { packages: &[], program: "" },
    profile: Profile::PLAIN,
    prefix: "",
    takes_majorities: false,
    extends: Extends::WhenTold,
    is_reentrant: false,
    is_fenced: false,
    deletes_without_a_look: false,
    keeps: &[],
    says: &[],
    is_one_of_many: false,
};

/// A library that locks as the others do, also on several nodes.
const ONE_OF_MANY: Library = Library { takes_majorities: true, is_one_of_many: true, ..IN_PYTHON };

const REDISSON: Library = Library {
    name: "redisson",
    version: "4.7.0",
    runtime: Runtime::Java {
        artifacts: &["org.redisson:redisson:4.7.0"],
        program: "RedissonPeer.java",
        kind: "lock",
    },
    profile: Profile::REDISSON,
    prefix: "",
    takes_majorities: true,
    extends: Extends::ByItself,
    is_reentrant: true,
    is_fenced: false,
    deletes_without_a_look: false,
    keeps: &[],
    says: &[],
    is_one_of_many: false,
};

/// The last version of redis-objects whose value is a time.
const REDIS_OBJECTS: Library = Library {
    name: "redis-objects-1.4",
    version: "1.4.0",
    runtime: Runtime::Ruby {
        gems: &["redis-objects:1.4.0", "redis:4.8.0"],
        program: "redis_objects.rb",
    },
    profile: Profile::REDIS_OBJECTS,
    extends: Extends::Never,
    deletes_without_a_look: true,
    ..IN_PYTHON
};

pub(crate) const ALL: [Library; 22] = [
    REDISSON,
    Library {
        name: "redisson-3",
        version: "3.52.0",
        runtime: Runtime::Java {
            artifacts: &["org.redisson:redisson:3.52.0"],
            program: "RedissonPeer.java",
            kind: "lock",
        },
        keeps: &[Kept {
            what: "key redisson_unlock_latch:",
            why: "each unlock leaves one, which goes by its TTL",
        }],
        ..REDISSON
    },
    Library {
        name: "redisson-rw",
        runtime: Runtime::Java {
            artifacts: &["org.redisson:redisson:4.7.0"],
            program: "RedissonPeer.java",
            kind: "read-write",
        },
        profile: Profile::REDISSON_RW,
        takes_majorities: false,
        ..REDISSON
    },
    Library {
        name: "redisson-fenced",
        runtime: Runtime::Java {
            artifacts: &["org.redisson:redisson:4.7.0"],
            program: "RedissonPeer.java",
            kind: "fenced",
        },
        takes_majorities: false,
        is_fenced: true,
        keeps: &[Kept { what: "key redisson_lock_token:", why: "its counters are never deleted" }],
        ..REDISSON
    },
    Library {
        name: "spring-integration",
        version: "7.1.0",
        runtime: Runtime::Java {
            artifacts: &[
                "org.springframework.integration:spring-integration-redis:7.1.0",
                "io.lettuce:lettuce-core:7.5.2.RELEASE",
            ],
            program: "SpringPeer.java",
            kind: "lock",
        },
        profile: Profile::SPRING,
        prefix: "shop:",
        says: &[
            ("CAS/CAD for value operations not supported", "its first extension before Redis 8.4"),
            ("RedisSystemException: Error in execution", "the exception of the line before"),
        ],
        keeps: &[Kept { what: "1 pattern", why: "each registry listens to all of its channels" }],
        takes_majorities: false,
        extends: Extends::WhenTold,
        ..REDISSON
    },
    Library {
        name: "shedlock",
        version: "7.10.1",
        runtime: Runtime::Java {
            artifacts: &[
                "net.javacrumbs.shedlock:shedlock-provider-redis-spring:7.10.1",
                "io.lettuce:lettuce-core:7.5.2.RELEASE",
            ],
            program: "ShedLockPeer.java",
            kind: "lock",
        },
        prefix: "job-lock:default:",
        deletes_without_a_look: true,
        is_one_of_many: true,
        ..IN_PYTHON
    },
    Library {
        name: "symfony",
        version: "5.4.53",
        runtime: Runtime::Php {
            packages: &[
                "php-symfony-lock=5.4.53*",
                "php-symfony-deprecation-contracts",
                "php-psr-log",
                "php8.2-redis",
                "php8.2-igbinary",
            ],
            program: "symfony.php",
        },
        profile: Profile::SYMFONY,
        takes_majorities: true,
        ..IN_PYTHON
    },
    REDIS_OBJECTS,
    Library {
        name: "redis-objects",
        version: "1.7.0",
        runtime: Runtime::Ruby {
            gems: &["redis-objects:1.7.0", "redis:4.8.0"],
            program: "redis_objects.rb",
        },
        ..REDIS_OBJECTS
    },
    Library {
        name: "retools",
        version: "0.1",
        runtime: Runtime::Python {
            packages: &["retools==0.1", "redis==5.3.1"],
            program: "retools_lock.py",
        },
        profile: Profile::SETNX,
        extends: Extends::Never,
        deletes_without_a_look: true,
        ..IN_PYTHON
    },
    Library {
        name: "redis-py",
        version: "8.1.0",
        runtime: Runtime::Python { packages: &["redis==8.1.0"], program: "redis_py.py" },
        ..IN_PYTHON
    },
    Library {
        name: "redlock-py",
        version: "1.0.8",
        runtime: Runtime::Python {
            packages: &["redlock-py==1.0.8", "redis==8.1.0"],
            program: "redlock_py.py",
        },
        takes_majorities: true,
        extends: Extends::Never,
        ..IN_PYTHON
    },
    Library {
        name: "pottery",
        version: "3.0.1",
        runtime: Runtime::Python { packages: &["pottery==3.0.1"], program: "pottery_lock.py" },
        prefix: "redlock:",
        takes_majorities: true,
        ..IN_PYTHON
    },
    Library {
        name: "python-redis-lock",
        version: "4.0.1",
        runtime: Runtime::Python {
            packages: &["python-redis-lock==4.0.1"],
            program: "python_redis_lock.py",
        },
        profile: Profile::PYTHON_REDIS_LOCK,
        prefix: "lock:",
        keeps: &[Kept {
            what: "key lock-signal:",
            why: "it wakes who waits, and goes after a second",
        }],
        says: &[("Failed to acquire Lock", "it warns of each lock that it does not get")],
        ..IN_PYTHON
    },
    Library {
        name: "node-redlock",
        version: "5.0.0-beta.2",
        runtime: Runtime::Node {
            packages: &["redlock@5.0.0-beta.2", "ioredis@5"],
            program: "redlock.js",
        },
        says: &[("ResourceLockedError", "it reports each attempt that is refused")],
        takes_majorities: true,
        ..IN_PYTHON
    },
    Library {
        name: "node-redlock-4",
        version: "4.2.0",
        runtime: Runtime::Node {
            packages: &["redlock@4.2.0", "ioredis@5"],
            program: "redlock_4.js",
        },
        ..ONE_OF_MANY
    },
    Library {
        name: "redis-semaphore",
        version: "5.8.0",
        runtime: Runtime::Node {
            packages: &["redis-semaphore@5.8.0", "ioredis@5"],
            program: "redis_semaphore.js",
        },
        prefix: "mutex:",
        extends: Extends::ByItself,
        ..ONE_OF_MANY
    },
    Library {
        name: "redlock-universal",
        version: "0.8.5",
        runtime: Runtime::Node {
            packages: &["redlock-universal@0.8.5", "ioredis@5"],
            program: "redlock_universal.js",
        },
        ..ONE_OF_MANY
    },
    Library {
        name: "rslock",
        version: "0.7.4",
        runtime: Runtime::Rust {
            crates: "rslock = { version = \"=0.7.4\", default-features = false, features = [\"tokio-comp\"] }\n\
                     redis = \"0.32\"\ntokio = { version = \"1\", features = [\"rt-multi-thread\"] }",
            program: "rust/rslock.rs",
        },
        ..ONE_OF_MANY
    },
    Library {
        name: "redlock-rs",
        version: "2.0.0",
        runtime: Runtime::Rust {
            crates: "redlock = \"=2.0.0\"\nredis = \"0.23\"",
            program: "rust/redlock.rs",
        },
        extends: Extends::Never,
        ..ONE_OF_MANY
    },
    Library {
        name: "redislock",
        version: "0.9.4",
        runtime: Runtime::Go {
            modules: &["github.com/bsm/redislock@v0.9.4", "github.com/redis/go-redis/v9@v9.7.0"],
            program: "go/redislock.go",
        },
        takes_majorities: false,
        ..ONE_OF_MANY
    },
    Library {
        name: "redsync",
        version: "4.13.0",
        runtime: Runtime::Go {
            modules: &[
                "github.com/go-redsync/redsync/v4@v4.13.0",
                "github.com/redis/go-redis/v9@v9.7.0",
            ],
            program: "go/redsync.go",
        },
        takes_majorities: true,
        ..IN_PYTHON
    },
];
