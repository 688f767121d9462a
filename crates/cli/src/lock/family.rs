//! Finds and stops the command together with everything that it started.
//!
//! The command stays in redbolt's process group. In another group it would be a background job,
//! which cannot read from the terminal. If redbolt gave it the terminal, `redbolt lock … | less`
//! would hang, Ctrl-C would not reach the calling script, and redbolt would have to imitate Ctrl-Z,
//! `fg` and `bg`. In one group the terminal behaves as without redbolt: Ctrl-C, Ctrl-\ and Ctrl-Z
//! reach both processes once, because redbolt passes on only signals that have not reached the
//! command ([`requests`](super::requests)). A shell sees the outer process stop. The inner process
//! continues, and ends a stopped command before its lease ends.
//!
//! A signal to the whole group would also reach the calling script, the other end of a pipe, and
//! redbolt itself before it could release the lock or report why. So the family is found by
//! descent. redbolt is the *subreaper*: a process whose parent has ended becomes a child of redbolt
//! instead of init. So shells with job control and daemons stay in the family when they change
//! their group or session.
//!
//! `redbolt lock` is two processes ([`pair`](super::pair)) in the same group, both subreapers.
//! While the inner process lives, orphans become its children. When it dies, its descendants become
//! the outer process's.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::prctl::set_child_subreaper;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, getpid};
use rustix::process::kill_process;

use super::child::Child;
use crate::signals::Signal;
use crate::speak::say;

/// The descendants of this process, except those from before the command.
#[derive(Debug)]
pub(super) struct Family {
    strangers: Vec<i32>,
}

impl Family {
    /// Makes this process the parent of all orphans among its descendants. Children from before an
    /// `exec redbolt` do not belong to the family.
    pub(super) fn found() -> io::Result<Self> {
        set_child_subreaper(true)?;
        // The lease is running, so the process table is read only if there are children already.
        let childless = waitpid(None, Some(WaitPidFlag::WNOHANG)) == Err(Errno::ECHILD);
        let strangers = if childless { Vec::new() } else { children() };
        Ok(Self { strangers })
    }

    /// Returns all known processes of the family: `child`, then the children of this process, then
    /// all descendants in the process table. The table may hide those with other rights
    /// (`hidepid`).
    fn members(&self, child: &Child) -> Vec<i32> {
        let mut processes = processes();
        processes.retain(|process| !self.strangers.contains(&process.pid));
        let mut found: Vec<_> = child.unreaped().map(Pid::as_raw).into_iter().collect();
        for pid in listed_children().into_iter().chain(descendants(getpid().as_raw(), &processes)) {
            if !found.contains(&pid) && !self.strangers.contains(&pid) {
                found.push(pid);
            }
        }
        found
    }

    /// Returns whether `child` is stopped, as by Ctrl-Z.
    pub(super) fn is_stopped(&self, child: &Child) -> bool {
        let pid = || child.unreaped().map(Pid::as_raw);
        child.is_stopped() || pid().is_some_and(|pid| is_in_stopped_vfork(pid, read_process))
    }

    /// Returns whether no process is left, given whether this process has children. Orphans become
    /// its children, so without children no process is left. `/proc` alone is not enough: while it
    /// is read, a parent can end and its child be missed.
    pub(super) fn is_gone(&self, child: &Child, has_children: bool) -> bool {
        !has_children || (!self.strangers.is_empty() && finds_nobody(|| self.members(child)))
    }

    /// Sends `signal` to `child` and the rest of the family.
    pub(super) fn signal(&self, child: &Child, signal: Signal) {
        send(&self.members(child), signal);
    }

    /// Kills `child` and the rest of the family, and reports processes that continue.
    ///
    /// Orphans become children of this process as their parents die. A process that forks meanwhile
    /// is found in the next round.
    pub(super) fn kill(&self, child: &mut Child) -> Kill {
        let mut kill = Kill::Needless;
        for _ in 0..KILL_ROUNDS {
            let has_children = child.reap();
            if self.is_gone(child, has_children) {
                return kill;
            }
            let members = self.members(child);
            let out_of_reach = send(&members, Signal::KILL);
            if out_of_reach > 0 && out_of_reach == members.len() {
                say(format_args!("{out_of_reach} processes belong to another user; they go on"));
                return Kill::Failed;
            }
            kill = Kill::Done;
            thread::sleep(KILL_PAUSE);
        }
        say("the command does not die of SIGKILL; giving up on it");
        Kill::Failed
    }
}

fn finds_nobody(mut look: impl FnMut() -> Vec<i32>) -> bool {
    (0..LOOKS).all(|_| look().is_empty())
}

/// Sends `signal` to these processes. Returns how many it could not reach, because they run as
/// another user.
fn send(pids: &[i32], signal: Signal) -> usize {
    let pids = pids.iter().copied().filter_map(rustix::process::Pid::from_raw);
    pids.filter(|&pid| kill_process(pid, signal) == Err(rustix::io::Errno::PERM)).count()
}

/// The outcome of killing a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kill {
    /// No process was left to kill.
    Needless,
    /// All processes have ended.
    Done,
    /// At least one process continues.
    Failed,
}

const LOOKS: usize = 2;

/// The number of rounds. With a pause in each, they take far longer than the kernel needs, unless a
/// process hangs in a device.
const KILL_ROUNDS: usize = 2500;
const KILL_PAUSE: Duration = Duration::from_millis(2);

/// Returns the processes whose parent is this one.
fn children() -> Vec<i32> {
    let us = getpid().as_raw();
    let in_table = processes().into_iter().filter(|process| process.parent == us);
    in_table.map(|process| process.pid).chain(listed_children()).collect()
}

/// Returns the children of this process. The kernel's list includes those that the process table
/// hides, unless the kernel was built without such lists.
fn listed_children() -> Vec<i32> {
    children_of("self")
}

fn children_of(process: impl fmt::Display) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let lists =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| parse_pids(&list)).collect()
}

fn parse_pids(list: &str) -> Vec<i32> {
    list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Returns the descendants of these processes, without the processes themselves.
pub(super) fn descendants_of(ancestors: &[i32]) -> Vec<i32> {
    let processes = processes();
    let mut found: Vec<i32> = Vec::new();
    for &ancestor in ancestors {
        for pid in descendants(ancestor, &processes) {
            if !found.contains(&pid) && !ancestors.contains(&pid) {
                found.push(pid);
            }
        }
    }
    found
}

/// Returns all descendants of `ancestor`, parents before their children.
fn descendants(ancestor: i32, processes: &[Process]) -> Vec<i32> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for process in processes {
        children.entry(process.parent).or_default().push(process.pid);
    }
    let mut found = children.remove(&ancestor).unwrap_or_default();
    let mut next = 0;
    while let Some(&pid) = found.get(next) {
        found.extend(children.remove(&pid).unwrap_or_default());
        next += 1;
    }
    found.retain(|&pid| pid != ancestor);
    found
}

/// Returns whether this process waits in `vfork` for a child that is stopped.
///
/// A shell in `vfork` cannot stop before its child has executed a program, which a stopped child
/// does not do. The kernel then reports no stop of the shell, although the whole job is stopped.
fn is_in_stopped_vfork(pid: i32, read: impl Fn(i32) -> Option<Process>) -> bool {
    // The state is read first: the lease is running, and few commands are in `vfork`.
    read(pid).is_some_and(|it| it.state == UNINTERRUPTIBLE)
        && children_of(pid)
            .into_iter()
            .any(|child| read(child).is_some_and(|it| it.state == STOPPED))
}

/// The letters of states in `/proc/PID/stat`.
const STOPPED: u8 = b'T';
const UNINTERRUPTIBLE: u8 = b'D';

#[derive(Debug, PartialEq, Eq)]
struct Process {
    pid: i32,
    parent: i32,
    state: u8,
}

fn processes() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(read_process).collect()
}

fn read_process(pid: i32) -> Option<Process> {
    parse(pid, &fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// Parses `pid (name) state parent …`. The name may contain any byte, including blanks and
/// parentheses.
fn parse(pid: i32, stat: &[u8]) -> Option<Process> {
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(&stat[name_end + 1..]).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    Some(Process { pid, parent: fields.next()?.parse().ok()?, state })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32, state: u8) -> Process {
        Process { pid, parent, state }
    }

    /// A child of this process stands in for the one that the shell has made.
    #[test]
    fn a_shell_in_a_vfork_whose_child_is_stopped_is_stopped() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let (shell, sleep) = (getpid().as_raw(), i32::try_from(child.id()).unwrap());
        let stopped = |of_shell, of_sleep| {
            is_in_stopped_vfork(shell, |pid| match pid {
                _ if pid == shell => Some(process(pid, 1, of_shell)),
                _ if pid == sleep => Some(process(pid, shell, of_sleep)),
                _ => None,
            })
        };
        assert!(stopped(b'D', b'T'));
        assert!(!stopped(b'D', b'R'), "it reads from a disk, or its child is about to run");
        assert!(!stopped(b'S', b'T'), "a shell with job control, which waits for its user");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!stopped(b'D', b'T'), "it has no child");
    }

    #[test]
    fn a_name_cannot_forge_a_parent() {
        let stat = b"7 (a) S 1 (b) R 42 7 7 0 -1";
        assert_eq!(parse(7, stat), Some(process(7, 42, b'R')));
        assert_eq!(parse(7, b"7 (\xff\n) S 3 7"), Some(process(7, 3, b'S')));
        assert_eq!(parse(7, b"nonsense"), None);
        assert_eq!(parse(7, b"7 (cut)"), None);
    }

    #[test]
    fn descent_is_followed_and_strangers_are_not() {
        let family = [(10, 1), (30, 20), (20, 10), (40, 30), (50, 1), (60, 50), (21, 10)];
        let processes = family.map(|(pid, parent)| process(pid, parent, b'S'));
        assert_eq!(descendants(10, &processes), [20, 21, 30, 40]);
        assert!(descendants(40, &processes).is_empty());
    }

    #[test]
    fn whoever_is_missed_by_one_look_is_not_gone() {
        let looks = |members: [&[i32]; 2]| {
            let mut members = members.into_iter().map(<[i32]>::to_vec);
            finds_nobody(|| members.next().unwrap())
        };
        assert!(looks([&[], &[]]));
        assert!(!looks([&[], &[7]]));
        assert!(!looks([&[7], &[]]));
    }

    #[test]
    fn a_circle_of_pids_that_changed_meanwhile_ends() {
        let processes = [process(2, 1, b'S'), process(1, 2, b'S')];
        assert_eq!(descendants(1, &processes), [2]);
    }

    /// As with `hidepid` and a command that runs with other rights.
    #[test]
    fn children_are_found_without_the_table_of_processes() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert!(listed_children().contains(&pid));
        child.kill().unwrap();
        let family = Family { strangers: Vec::new() };
        let child = Child::of(child).unwrap();
        assert_eq!(family.members(&child).first(), Some(&pid));
    }

    #[test]
    fn this_process_is_listed_with_its_parent() {
        let parent = nix::unistd::getppid().as_raw();
        let is_this = |it: &Process| (it.pid, it.parent) == (getpid().as_raw(), parent);
        assert!(processes().iter().any(is_this));
    }
}
