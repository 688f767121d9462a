//! Describes locks of other libraries: their holder, and how long they keep others out.
//!
//! The library parses their data on a node.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redbolt::Profile;
use redbolt::inspect::{DataKind, Foreign, ForeignLock};

/// Describes the holder, or the data that is there.
pub(crate) fn holder(data: &Foreign) -> String {
    let told = data.to_string();
    told.strip_prefix("held by ").map_or_else(|| told.clone(), str::to_owned)
}

/// Returns the TTL of the key. Without one, returns the time until the end that the data names.
pub(crate) fn remaining(data: &Foreign) -> Option<Duration> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    data.remaining.or_else(|| Some(lock(data)?.ends?.saturating_sub(now)))
}

/// Returns the lock of another library, if the data is one.
pub(crate) fn lock(data: &Foreign) -> Option<&ForeignLock> {
    match &data.kind {
        DataKind::Lock(lock) => Some(lock),
        _ => None,
    }
}

/// Describes the form of the data: it is not a lock that is expected, and belongs to certain
/// profiles.
pub(crate) fn whose(data: &Foreign, expected: Option<Profile>) -> String {
    let profiles = names(&profiles(data));
    match expected {
        Some(expected) if data.is_of(expected) => String::new(),
        Some(expected) if profiles.is_empty() => format!("; no lock of the profile {expected}"),
        Some(expected) => format!("; no lock of the profile {expected}, use --profile {profiles}"),
        None if profiles.is_empty() => "; no lock of redbolt".to_owned(),
        None => format!("; use --profile {profiles}"),
    }
}

/// Returns the profiles whose members write data of this form.
pub(crate) fn profiles(data: &Foreign) -> Vec<Profile> {
    Profile::ALL.into_iter().filter(|&profile| data.is_of(profile)).collect()
}

/// Formats profiles as words.
pub(crate) fn names(profiles: &[Profile]) -> String {
    profiles.iter().map(|profile| profile.name()).collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_said_to_be_of_whoever_may_have_written_it() {
        let told = |of: &[Profile], expected| {
            whose(&Foreign::new(DataKind::Hash, None).of_profiles(of), expected)
        };
        let redisson = [Profile::REDISSON];
        assert_eq!(told(&redisson, None), "; use --profile redisson");
        assert_eq!(told(&redisson, Some(Profile::REDISSON)), "");
        let other = "; no lock of the profile spring, use --profile redisson";
        assert_eq!(told(&redisson, Some(Profile::SPRING)), other);
        assert_eq!(told(&[], None), "; no lock of redbolt");
        assert_eq!(told(&[], Some(Profile::PLAIN)), "; no lock of the profile plain");
        let timed = [Profile::SETNX, Profile::REDIS_OBJECTS];
        assert_eq!(told(&timed, None), "; use --profile redis-objects or setnx");
    }
}
