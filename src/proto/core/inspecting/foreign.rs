//! Locks of other libraries, by what they look like under a key.
//!
//! Apart from `contents`, which knows what is of redbolt. A string tells its library by its form alone, and whose it is stays a
//! secret: whoever knows it can release the lock. Not here: asking the nodes.

use super::contents::{self, DataKind, Foreign, KeyState};

/// The libraries whose locks hold a string of this form.
pub(super) fn of_string(value: &[u8]) -> Option<&'static str> {
    let all = |of: fn(&u8) -> bool| value.iter().all(of);
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
    match value.len() {
        0 => Some("redis-objects"),
        _ if value.starts_with(b"ADDED:") => Some("ShedLock"),
        20 if std::str::from_utf8(value).is_err() => Some("rslock or redlock (Rust)"),
        22 if all(u8::is_ascii_alphanumeric) => Some("redlock-py"),
        24 if value.ends_with(b"==") && all(is_base64) => Some("redsync"),
        24 if all(is_base64) => Some("python-redis-lock"),
        32 if all(is_hex) => Some("redis-py, node-redlock or redlock-universal"),
        36 if is_uuid(value) => Some("pottery, RedLock.net, Spring or aioredlock"),
        10..=20 if is_time(value) => Some("SETNX and a time, or redis-objects before 1.4.2"),
        _ => None,
    }
}

/// What a hash is whose fields the script [`VIEW_PERMITS`](crate::proto::script::VIEW_PERMITS) tells, each behind its value.
pub(super) fn of_hash<'l>(lines: impl Iterator<Item = &'l str>) -> Option<KeyState> {
    let fields = lines.map(|line| line.split_once(' ')).collect::<Option<Vec<_>>>()?;
    if let Some(&(mode, _)) = fields.iter().find(|&&(_, field)| field == "mode") {
        let is_write = mode == "write";
        let known = is_write || mode == "read";
        let holders = fields.len() - 1;
        return known.then(|| foreign(DataKind::RedissonReadWrite { is_write, holders }));
    }
    let &[(holds, owner)] = &fields[..] else { return None };
    if let KeyState::Held(holder) = contents::of_string(owner.as_bytes()) {
        return Some(KeyState::Held(holder));
    }
    let (uuid, thread) = owner.split_once(':').filter(|(uuid, _)| is_uuid(uuid.as_bytes()))?;
    let owner = format!("{}…:{}", uuid.get(..4)?, thread.parse::<u64>().ok()?);
    Some(foreign(DataKind::Redisson { owner, holds: holds.parse().ok()? }))
}

fn foreign(kind: DataKind) -> KeyState {
    KeyState::Foreign(Foreign::new(kind, None))
}

fn is_hex(byte: &u8) -> bool {
    byte.is_ascii_digit() || (b'a'..=b'f').contains(byte)
}

fn is_uuid(value: &[u8]) -> bool {
    let is_in_place = |(at, byte): (usize, &u8)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    value.len() == 36 && value.iter().enumerate().all(is_in_place)
}

/// Seconds since 1970, of this century, with a fraction or without.
fn is_time(value: &[u8]) -> bool {
    let number = std::str::from_utf8(value).ok().and_then(|text| text.parse::<f64>().ok());
    let is_plain = value.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    is_plain && number.is_some_and(|seconds| (1e9..4.2e9).contains(&seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_tells_its_library_by_its_form() {
        for (value, library) in [
            ("", "redis-objects"),
            ("ADDED:2026-11-23T08:00:00Z@host:0b1c", "ShedLock"),
            ("0123456789abcdef0123456789abcdef", "redis-py, "),
            ("0b1c2d3e-0011-2233-4455-66778899aabb", "pottery, "),
            ("MDEyMzQ1Njc4OWFiY2RlZg==", "redsync"),
            ("MDEyMzQ1Njc4OWFiY2RlZmdo", "python-redis-lock"),
            ("0123456789abcdefghijkl", "redlock-py"),
            ("1795327176.77", "SETNX and a time"),
            ("1795327176", "SETNX and a time"),
        ] {
            let found = of_string(value.as_bytes());
            assert!(found.is_some_and(|it| it.starts_with(library)), "{value}: {found:?}");
        }
        assert_eq!(of_string(&[0xff; 20]), Some("rslock or redlock (Rust)"));
        for other in
            ["x", "4711", "{\"user\":1}", "0123456789ABCDEF0123456789ABCDEF", "a string of words"]
        {
            assert_eq!(of_string(other.as_bytes()), None, "{other}");
        }
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
        for other in ["1 a", "x 1f0c2d3e-0011-2233-4455-66778899aabb:42", "1 a\n2 b", "", "7"] {
            assert_eq!(told(other), "None", "{other}");
        }
        let ours = of_hash("1 a0112233445566778899aabbccddeeff00:web-1:77".lines());
        let Some(KeyState::Held(holder)) = ours else { panic!("{ours:?}") };
        assert_eq!(holder.label.as_deref(), Some("web-1:77"));
    }
}
