//! Locks of other libraries, by what they look like under a key.
//!
//! Apart from `contents`, which knows what is of redbolt. A string tells its library by its form alone, and whose it is stays a
//! secret: whoever knows it can release the lock. Not here: asking the nodes.

use std::time::Duration;

use super::contents::{self, DataKind, Foreign, Holder, KeyState, Sharers};
use crate::proto::format::symfony;

/// The libraries whose locks hold a string of this form.
pub(super) fn of_string(value: &[u8]) -> Option<(&'static str, Option<String>)> {
    let all = |of: fn(&u8) -> bool| value.iter().all(of);
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
    let library = match value.len() {
        0 => "redis-objects",
        16 if all(u8::is_ascii_alphanumeric) => "Laravel",
        20 if std::str::from_utf8(value).is_err() => "rslock or redlock (Rust)",
        22 if all(u8::is_ascii_alphanumeric) => "redlock-py or redislock (Go)",
        22 if all(is_base64_of_urls) => "redislock (Go)",
        24 if value.ends_with(b"==") && all(is_base64) => "redsync",
        24 if all(is_base64) => PYTHON_REDIS_LOCK,
        32 if all(is_hex) => "redis-py, node-redlock or redlock-universal",
        36 if is_uuid(value) => UUID,
        _ => return of_owner(value),
    };
    Some((library, None))
}

/// The library, and whose name it writes, before a secret or alone.
fn of_owner(value: &[u8]) -> Option<(&'static str, Option<String>)> {
    let text = std::str::from_utf8(value).ok()?;
    let (library, owner) = match text.strip_prefix("ADDED:") {
        Some(rest) => {
            let host = rest.split_once('@').map_or("", |(_, host)| host);
            ("ShedLock", host.rsplit_once(':').map_or(host, |(host, _)| host))
        }
        None => {
            let (owner, secret) = text.rsplit_once('_')?;
            let (_, process) = owner.rsplit_once('_')?;
            let is_guid = secret.len() == 32 && secret.bytes().all(|byte| is_hex(&byte));
            let is_process = !process.is_empty() && process.bytes().all(|it| it.is_ascii_digit());
            if !is_process || !is_guid && !is_uuid(secret.as_bytes()) {
                return None;
            }
            ("DistributedLock", owner)
        }
    };
    let is_shown = !owner.is_empty() && owner.bytes().all(|byte| byte.is_ascii_graphic());
    Some((library, is_shown.then(|| owner.to_owned())))
}

/// The library of this name.
pub(super) const PYTHON_REDIS_LOCK: &str = "python-redis-lock";

/// The libraries whose tokens are UUIDs.
pub(super) const UUID: &str =
    "Spring, pottery, RedLock.net, redis-semaphore, async-redis-lock, redlock-rb or aioredlock";

/// What a hash is whose fields the script [`VIEW_PERMITS`](crate::proto::script::VIEW_PERMITS) tells, each behind its value.
pub(super) fn of_hash<'l>(lines: impl Iterator<Item = &'l str>) -> Option<KeyState> {
    let fields = lines.map(|line| line.split_once(' ')).collect::<Option<Vec<_>>>()?;
    if let Some(&(mode, _)) = fields.iter().find(|&&(_, field)| field == "mode") {
        return of_readers_or_writer(mode, &fields);
    }
    let &[(holds, owner)] = &fields[..] else { return None };
    if let KeyState::Held(holder) = contents::of_string(owner.as_bytes()) {
        return Some(KeyState::Held(holder));
    }
    Some(foreign(DataKind::Redisson { owner: owner_of(owner)?, holds: holds.parse().ok()? }))
}

/// A field of Redisson's, which is its holder's name, without most of that.
fn owner_of(field: &str) -> Option<String> {
    let (uuid, thread) = field.split_once(':').filter(|(uuid, _)| is_uuid(uuid.as_bytes()))?;
    Some(format!("{}…:{}", uuid.get(..4)?, thread.parse::<u64>().ok()?))
}

/// A hash of Redisson's read/write locks: all holders are ours, or it is of others too.
fn of_readers_or_writer(mode: &str, fields: &[(&str, &str)]) -> Option<KeyState> {
    let names = || fields.iter().map(|&(_, field)| field).filter(|&field| field != "mode");
    let held = |name: &str| match contents::of_string(name.as_bytes()) {
        KeyState::Held(holder) => Some(holder),
        _ => None,
    };
    let (is_write, count) = (mode == "write", names().count());
    let writer = names().find_map(|name| held(name.strip_suffix(":write")?));
    let readers = names().map(held).collect::<Option<Vec<_>>>();
    match (mode, writer, readers) {
        ("write", Some(writer), _) => Some(KeyState::Held(writer)),
        ("read", _, Some(mut readers)) if count > 0 => {
            readers.truncate(contents::MOST_SHOWN);
            Some(KeyState::Shared(Sharers::new(readers, count, None)))
        }
        ("read" | "write", ..) => {
            let theirs = |&(holds, field): &(&str, &str)| {
                let name = field.strip_suffix(":write").unwrap_or(field);
                Some((owner_of(name)?, holds.parse().ok()?))
            };
            let (owner, holds) = fields.iter().find_map(theirs).unzip();
            let holds = holds.unwrap_or_default();
            Some(foreign(DataKind::RedissonReadWrite { is_write, holders: count, owner, holds }))
        }
        _ => None,
    }
}

/// What a sorted set of so many members is, if it is of Symfony's locks. The script [`VIEW_SHARED`](crate::proto::script::VIEW_SHARED)
/// tells some of them, each behind the ms that are left.
pub(super) fn of_set<'l>(count: usize, lines: impl Iterator<Item = &'l str>) -> Option<KeyState> {
    let members = lines.map(|line| line.split_once(' ')).collect::<Option<Vec<_>>>()?;
    let names = || members.iter().filter(|&&(_, name)| name != symfony::ALONE);
    let is_write = names().count() < members.len();
    let held = |&(left, name): &(&str, &str)| {
        let token = name.as_bytes().strip_prefix(symfony::MARK)?;
        let KeyState::Held(holder) = contents::of_string(token) else { return None };
        let remaining = Some(Duration::from_millis(left.parse().ok()?));
        Some(Holder { remaining, ..holder })
    };
    let mut ours = names().map(held).collect::<Option<Vec<_>>>();
    ours.iter_mut().for_each(|holders| holders.truncate(contents::MOST_SHOWN));
    match ours {
        Some(holders) if is_write => holders.into_iter().next().map(KeyState::Held),
        Some(holders) if !holders.is_empty() => {
            Some(KeyState::Shared(Sharers::new(holders, count, None)))
        }
        None if names().all(|member| symfony::is_member(member.1) || held(member).is_some()) => {
            let holders = count.checked_sub(usize::from(is_write))?;
            Some(foreign(DataKind::Symfony { is_write, holders }))
        }
        _ => None,
    }
}

fn foreign(kind: DataKind) -> KeyState {
    KeyState::Foreign(Foreign::new(kind, None))
}

fn is_hex(byte: &u8) -> bool {
    byte.is_ascii_digit() || (b'a'..=b'f').contains(byte)
}

fn is_base64_of_urls(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_".contains(byte)
}

fn is_uuid(value: &[u8]) -> bool {
    let is_in_place = |(at, byte): (usize, &u8)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    value.len() == 36 && value.iter().enumerate().all(is_in_place)
}

/// A time of this century, in seconds since 1970 with a fraction or without.
pub(super) fn time(value: &[u8]) -> Option<Duration> {
    let is_plain = value.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    let text = std::str::from_utf8(value).ok().filter(|_| is_plain && value.len() <= 20)?;
    let seconds = text.parse::<f64>().ok().filter(|seconds| (1e9..4.2e9).contains(seconds))?;
    Some(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::contents::Holder;
    use super::*;

    #[test]
    fn a_string_tells_its_library_by_its_form() {
        for (value, library) in [
            ("", "redis-objects"),
            ("ADDED:2026-11-23T08:00:00Z@host:0b1c", "ShedLock"),
            ("web-1_4711_0123456789abcdef0123456789abcdef", "DistributedLock"),
            ("0123456789abcDEF", "Laravel"),
            ("0123456789abcdefghij-_", "redislock (Go)"),
            ("0123456789abcdef0123456789abcdef", "redis-py, "),
            ("0b1c2d3e-0011-2233-4455-66778899aabb", "Spring, pottery, "),
            ("MDEyMzQ1Njc4OWFiY2RlZg==", "redsync"),
            ("MDEyMzQ1Njc4OWFiY2RlZmdo", "python-redis-lock"),
            ("0123456789abcdefghijkl", "redlock-py"),
        ] {
            let found = of_string(value.as_bytes());
            let found = found.map(|(library, _)| library);
            assert!(found.is_some_and(|it| it.starts_with(library)), "{value}: {found:?}");
        }
        assert_eq!(of_string(&[0xff; 20]), Some(("rslock or redlock (Rust)", None)));
        for other in
            ["x", "4711", "{\"user\":1}", "0123456789ABCDEF0123456789ABCDEF", "a string of words"]
        {
            assert_eq!(of_string(other.as_bytes()), None, "{other}");
        }
    }

    /// And not what stands behind it, by which others could release the lock.
    #[test]
    fn an_owner_is_told_that_stands_before_its_secret() {
        let owner = |value: &str| of_string(value.as_bytes()).and_then(|(_, owner)| owner);
        assert_eq!(owner("ADDED:2026-11-23T08:00:00Z@web-1:0b1c").as_deref(), Some("web-1"));
        assert_eq!(owner("ADDED:2026-11-23T08:00:00Z@web-1").as_deref(), Some("web-1"));
        assert_eq!(of_string(b"ADDED:2026-11-23T08:00:00Z"), Some(("ShedLock", None)));
        let guid = "0b1c2d3e-0011-2233-4455-66778899aabb";
        assert_eq!(owner(&format!("my_host_4711_{guid}")).as_deref(), Some("my_host_4711"));
        for other in [format!("my_host_{guid}"), "a_1_b".to_owned()] {
            assert_eq!(of_string(other.as_bytes()), None, "{other:?}");
        }
    }

    #[test]
    fn a_second_of_this_century_is_a_time() {
        let ms = |value: &str| time(value.as_bytes()).map(|ends| ends.as_millis());
        assert_eq!(
            (ms("1795327176"), ms("1795327176.75")),
            (Some(1_795_327_176_000), Some(1_795_327_176_750))
        );
        for value in ["", "1", "1795327176123", "1795327176-x", "1e9", "999999999", "1.7.9"] {
            assert_eq!(ms(value), None, "{value}");
        }
    }

    #[test]
    fn readers_and_writers_of_ours_are_known_in_redisson_s_format() {
        let digits = "00112233445566778899aabbccddeeff00";
        let of = |text: String| of_hash(text.lines());
        let label = |holder: &Holder| holder.label.clone().unwrap_or_default();
        match of(format!("write mode\n1 {digits}:web:write")) {
            Some(KeyState::Held(holder)) => assert_eq!(label(&holder), "web"),
            other => panic!("{other:?}"),
        }
        match of(format!("read mode\n1 {digits}:web\n1 {digits}")) {
            Some(KeyState::Shared(sharers)) => {
                assert_eq!(sharers.holders.iter().map(label).collect::<Vec<_>>(), ["web", ""]);
            }
            other => panic!("{other:?}"),
        }
        let mixed = of(format!("read mode\n1 {digits}\n1 a:1"));
        assert!(matches!(mixed, Some(KeyState::Foreign(_))), "{mixed:?}");
        assert_eq!(
            of("read mode".to_owned()),
            Some(foreign(DataKind::RedissonReadWrite {
                is_write: false,
                holders: 0,
                owner: None,
                holds: 0
            }))
        );
        assert_eq!(of("fast mode\n1 a:1".to_owned()), None);
    }

    #[test]
    fn a_set_of_symfony_s_tells_who_holds_it() {
        let name = "bm90IGEgc2VjcmV0IGF0IGFsbCwgb25seSAzMiBieXQ=";
        let ours = "s:00112233445566778899aabbccddeeff00:web";
        let of = |count, text: &str| of_set(count, text.lines());
        let told = |count, text: &str| match of(count, text) {
            Some(KeyState::Foreign(data)) => data.to_string(),
            other => format!("{other:?}"),
        };
        assert_eq!(told(2, &format!("7 {name}\n7 __write__")), "held by Symfony");
        assert_eq!(told(1, &format!("7 {name}")), "held by 1 reader of Symfony");
        assert_eq!(told(2, &format!("7 {name}\n9 {ours}")), "held by 2 readers of Symfony");
        match of(2, &format!("7 __write__\n7 {ours}")) {
            Some(KeyState::Held(holder)) => assert_eq!(holder.label.as_deref(), Some("web")),
            other => panic!("{other:?}"),
        }
        match of(20, &format!("7 {ours}\n8 {}", &ours[..36])) {
            Some(KeyState::Shared(sharers)) => {
                let left = |ms| Some(Duration::from_millis(ms));
                assert_eq!((sharers.count, sharers.holders.len()), (20, 2));
                assert_eq!(sharers.holders.iter().map(|it| it.remaining).max(), Some(left(8)));
            }
            other => panic!("{other:?}"),
        }
        for other in ["", "7", "7 player-1", "7 s:player", "7 00112233445566778899aabbccddeeff00"] {
            assert_eq!(told(1, other), "None", "{other}");
        }
        // One of ours whose label makes it as long, and a node that miscounts.
        assert_eq!(told(1, "7 00112233445566778899aabbccddeeff00:abcdefgh="), "None");
        assert_eq!(told(0, &format!("7 {name}\n7 __write__")), "None");
    }

    #[test]
    fn a_hash_of_redisson_s_tells_who_holds_it() {
        let told = |text: &'static str| match of_hash(text.lines()) {
            Some(KeyState::Foreign(data)) => data.to_string(),
            other => format!("{other:?}"),
        };
        const OWNER: &str = "1f0c2d3e-0011-2233-4455-66778899aabb:42";
        assert_eq!(
            told("2 1f0c2d3e-0011-2233-4455-66778899aabb:42"),
            "held by Redisson 1f0c…:42, 2 holds"
        );
        assert!(!told("2 1f0c2d3e-0011-2233-4455-66778899aabb:42").contains(&OWNER[..8]));
        assert_eq!(told("read mode\n1 a:1\n1 b:2"), "held by 2 readers of Redisson");
        assert_eq!(told("write mode\n1 a:1:write"), "held by a writer of Redisson");
        assert_eq!(
            told("write mode\n2 1f0c2d3e-0011-2233-4455-66778899aabb:42:write"),
            "held by a writer of Redisson 1f0c…:42, 2 holds"
        );
        assert_eq!(
            told("read mode\n1 1f0c2d3e-0011-2233-4455-66778899aabb:42\n1 b:2"),
            "held by 2 readers of Redisson, among them 1f0c…:42"
        );
        for other in ["1 a", "x 1f0c2d3e-0011-2233-4455-66778899aabb:42", "1 a\n2 b", "", "7"] {
            assert_eq!(told(other), "None", "{other}");
        }
        let ours = of_hash("1 a0112233445566778899aabbccddeeff00:web-1:77".lines());
        let Some(KeyState::Held(holder)) = ours else { panic!("{ours:?}") };
        assert_eq!(holder.label.as_deref(), Some("web-1:77"));
    }
}
