//! Parses the answer to `INFO` for the checks.

use std::collections::BTreeMap;

/// The fields by name.
#[derive(Debug, Default)]
pub(super) struct Info(BTreeMap<String, String>);

impl Info {
    pub(super) fn parse(text: &str) -> Self {
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.trim().to_owned());
        Self(fields.map(owned).collect())
    }

    /// Returns the value of a field that exists and is not empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }

    /// Returns the kind of server, by a field that only this kind has.
    pub(super) fn kind(&self) -> &'static str {
        let is = |name| self.get(name).is_some();
        match () {
            () if is("valkey_version") => "Valkey",
            () if is("dragonfly_version") => "Dragonfly",
            () if is("garnet_version") => "Garnet",
            () if self.get("os").is_none() => "an embedded or unknown server",
            () => "Redis",
        }
    }

    /// Returns the server's own version, if it has one, or else the version of Redis that it is
    /// compatible with.
    pub(super) fn version(&self) -> Option<&str> {
        let own = ["valkey_version", "dragonfly_version", "garnet_version", "redis_version"];
        own.into_iter().find_map(|name| self.get(name))
    }

    /// Returns the first number of the version of Redis that the server is compatible with.
    pub(super) fn major(&self) -> Option<u32> {
        self.get("redis_version")?.split('.').next()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read() {
        let info = Info::parse(
            "# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1\r\n\
             os:Linux 6.1\r\nmaster_host:\r\nhz:10\r\n",
        );
        assert_eq!((info.kind(), info.version(), info.major()), ("Valkey", Some("8.0.1"), Some(7)));
        assert_eq!((info.number("hz"), info.get("master_host")), (Some(10), None));
        assert_eq!(Info::parse("redis_version:7.0.15\nos:Linux").kind(), "Redis");
    }
}
