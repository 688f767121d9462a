//! Locks of other libraries, in words: who has one, and for how long it keeps others out.
//!
//! Not here: what they look like on a node, which the library knows.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redbolt::Profile;
use redbolt::inspect::{DataKind, Foreign};

/// Who holds it, or what is there.
pub(crate) fn holder(data: &Foreign) -> String {
    let told = data.to_string();
    told.strip_prefix("held by ").map_or_else(|| told.clone(), str::to_owned)
}

/// As long as its key lives, or without a TTL until the time that it tells.
pub(crate) fn remaining(data: &Foreign) -> Option<Duration> {
    let DataKind::Time { ends } = data.kind else { return data.remaining };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    data.remaining.or_else(|| Some(ends.saturating_sub(now)))
}

/// What follows from its form: that it is none of the locks which are expected, and which profile it is of.
pub(crate) fn whose(data: &Foreign, expected: Option<Profile>) -> String {
    let profiles = names(&profiles(data));
    match expected {
        Some(expected) if data.kind.is_of(expected) => String::new(),
        Some(expected) if profiles.is_empty() => format!("; no lock of the profile {expected}"),
        Some(expected) => format!("; no lock of the profile {expected}, use --profile {profiles}"),
        None if profiles.is_empty() => "; no lock of redbolt".to_owned(),
        None => format!("; use --profile {profiles}"),
    }
}

/// The profiles whose members write data of this form.
pub(crate) fn profiles(data: &Foreign) -> Vec<Profile> {
    Profile::ALL.into_iter().filter(|&profile| data.kind.is_of(profile)).collect()
}

/// Profiles in words.
pub(crate) fn names(profiles: &[Profile]) -> String {
    profiles.iter().map(|profile| profile.name()).collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_said_to_be_of_whoever_may_have_written_it() {
        let told = |kind: DataKind, expected| whose(&Foreign::new(kind, None), expected);
        let redisson = || DataKind::Redisson { owner: "1f0c\u{2026}:42".to_owned(), holds: 1 };
        assert_eq!(told(redisson(), None), "; use --profile redisson");
        assert_eq!(told(redisson(), Some(Profile::Redisson)), "");
        let other = "; no lock of the profile spring, use --profile redisson";
        assert_eq!(told(redisson(), Some(Profile::Spring)), other);
        assert_eq!(told(DataKind::Hash, None), "; no lock of redbolt");
        assert_eq!(told(DataKind::Hash, Some(Profile::Plain)), "; no lock of the profile plain");
        let time = DataKind::Time { ends: Duration::from_secs(1) };
        assert_eq!(told(time, None), "; use --profile redis-objects or setnx");
    }
}
