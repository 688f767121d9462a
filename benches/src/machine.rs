//! What the figures were measured on, and what else it had to do.

use redbolt_proving::{Reply, Server};
use rustix::system::uname;

/// The system, the nodes' version and the load, in a line.
#[must_use]
pub fn machine() -> String {
    let system = uname();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!(
        "{} {}, {}; {}; load {}",
        system.sysname().to_string_lossy(),
        system.release().to_string_lossy(),
        system.machine().to_string_lossy(),
        server_version(),
        load.split(' ').take(3).collect::<Vec<_>>().join(" ")
    )
}

fn server_version() -> String {
    let Reply::Bulk(info) = Server::start().cmd("INFO server") else { return String::new() };
    let info = String::from_utf8_lossy(&info);
    let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
    format!("redis {}", version.unwrap_or("of unknown version"))
}
