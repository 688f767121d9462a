//! The label of this process, which shows operators the holder of a lock.

use std::fs;

/// Returns `host:pid` of a process on this host.
pub(super) fn of_process(pid: u32) -> String {
    let host = HOST_FILES.iter().find_map(|path| {
        let name = fs::read_to_string(path).ok()?;
        Some(printable(name.trim())).filter(|name| !name.is_empty())
    });
    format!("{}:{pid}", host.as_deref().unwrap_or("unknown-host"))
}

/// Returns the characters that a label may have, short enough to leave room for the process id.
fn printable(name: &str) -> String {
    name.chars().filter(char::is_ascii_graphic).take(HOST_LENGTH).collect()
}

const HOST_FILES: [&str; 2] = ["/proc/sys/kernel/hostname", "/etc/hostname"];

/// The longest host name of Linux.
const HOST_LENGTH: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Config;

    #[test]
    fn the_label_is_host_and_process_if_it_is_asked_for() {
        let builder = || Config::builder().nodes(["127.0.0.1"]);
        assert!(builder().build().unwrap().settings().label.is_empty());
        let config = builder().label_host_and_pid().build().unwrap();
        let label = str::from_utf8(&config.settings().label).unwrap();
        let (host, pid) = label.rsplit_once(':').unwrap();
        assert_eq!(pid, std::process::id().to_string());
        assert!(!host.is_empty());
    }

    #[test]
    fn a_strange_host_name_is_made_printable() {
        assert_eq!(printable("web-1.example\x1b[2J\u{fc}"), "web-1.example[2J");
        assert_eq!(printable(&"x".repeat(300)).len(), HOST_LENGTH);
    }
}
