//! Starts the library's threads, and locks the mutexes that they share. It contains unsafe code.
//!
//! Invariant: no thread of the library handles a signal to the process, which goes to any thread
//! that does not block it. Otherwise a program that reads SIGTERM from a signalfd, or waits for it
//! in one thread, could be killed. A new thread inherits its parent's mask, which is set only for
//! the start; a mask set by the thread itself would come too late. Neither `std` nor a dependency
//! has a safe call for this.

#![allow(unsafe_code)]

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Starts a thread that blocks all signals except for faults ([`FAULTS`]).
pub(crate) fn start<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let _blocked = Blocked::new()?;
    Builder::new().name(name.to_owned()).spawn(work)
}

/// Locks a mutex even if a holder panicked: each step leaves the guarded data complete.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A guard that blocks the signals of this thread until it is dropped.
struct Blocked {
    before: libc::sigset_t,
    /// Keeps the guard on its thread, because a mask belongs to one thread.
    _stays: PhantomData<*const ()>,
}

impl Blocked {
    fn new() -> io::Result<Self> {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: `sigfillset` writes the whole set, `sigdelset` gets an initialized set, and both
        // write only there.
        let all = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            for fault in FAULTS {
                libc::sigdelset(all.as_mut_ptr(), fault);
            }
            all.assume_init()
        };
        // SAFETY: `all` is a set that lives through the call, which writes the old mask to
        // `before`.
        let error =
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, before.as_mut_ptr()) };
        match error {
            // SAFETY: the call succeeded, so it wrote the old mask.
            0 => Ok(Self { before: unsafe { before.assume_init() }, _stays: PhantomData }),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: `before` is the mask that this thread had; a null pointer declines the current
        // one.
        let error = unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut())
        };
        debug_assert_eq!(error, 0, "a mask that was read can be set");
    }
}

/// The signals of faults in the thread itself. If they were blocked, the kernel would end the
/// process without the handlers that report a stack overflow or a crash.
const FAULTS: [libc::c_int; 6] =
    [libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGSEGV, libc::SIGSYS, libc::SIGTRAP];

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    /// Returns the mask of this thread; bit 0 is signal 1.
    fn mask() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap()
    }

    fn bit(signal: libc::c_int) -> u64 {
        1 << (signal - 1)
    }

    #[test]
    fn a_thread_takes_no_signal_but_of_its_own_faults() {
        let before = mask();
        let thread =
            start("redbolt-test", || (mask(), std::thread::current().name().map(str::len)));
        let (blocked, name) = thread.unwrap().join().unwrap();
        assert_eq!((mask(), name), (before, Some(12)), "and the caller as before");
        let open = FAULTS.into_iter().chain([libc::SIGKILL, libc::SIGSTOP]);
        // The C library keeps signals 32 and 33 for itself.
        let open = open.map(bit).fold(bit(32) | bit(33), |all, bit| all | bit);
        assert_eq!(blocked | open, u64::MAX);
        assert_eq!(blocked & FAULTS.map(bit).into_iter().sum::<u64>(), 0);
    }

    #[test]
    fn a_mask_of_the_caller_is_restored() {
        let (first, inner, last) = std::thread::spawn(|| {
            let outer = Blocked::new().unwrap();
            let first = mask();
            let inner = start("redbolt-test", mask).unwrap().join().unwrap();
            let last = mask();
            drop(outer);
            (first, inner, last)
        })
        .join()
        .unwrap();
        assert_eq!((first, first), (inner, last));
    }
}
