//! Processes, read from `/proc`.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

/// Returns the inner process of a `redbolt lock`, if it exists.
pub(super) fn inner_of(outer: i32) -> Option<i32> {
    all().find(|&pid| parent_of(pid) == Some(outer) && is_inner(pid))
}

/// Returns the processes with this working directory.
pub(super) fn in_folder(folder: &Path) -> Vec<i32> {
    let is_there =
        |pid: &i32| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|at| at == folder);
    all().filter(|pid| is_there(pid) && lives(*pid)).collect()
}

/// Returns true if the process exists and is not a zombie.
pub(super) fn lives(pid: i32) -> bool {
    fields(pid).is_some_and(|fields| !fields.starts_with(['Z', 'X']))
}

/// Sends a signal. The process may have ended already.
pub(super) fn send(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, signal);
    }
}

fn all() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn parent_of(pid: i32) -> Option<i32> {
    fields(pid)?.split(' ').nth(1)?.parse().ok()
}

fn is_inner(pid: i32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|&byte| byte == 0).nth(1) == Some(b"__inner")
}

/// Returns the fields after the name: the state, the parent, and more.
fn fields(pid: i32) -> Option<String> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    Some(stat.rsplit_once(") ")?.1.to_owned())
}
