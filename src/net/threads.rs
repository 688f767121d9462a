//! Starting the threads of the library, and the mutexes that they share.
//!
//! A signal to the process goes to any of its threads that does not block it. Invariant: no thread of the library takes one, so
//! that a program which reads SIGTERM from a signalfd, or waits for it in one thread, does not die of it. The new thread
//! inherits the mask of its parent, which is set for the moment of the start: a mask that the thread set itself would come
//! too late. Neither `std` nor a crate of the library's tree has a safe call for this.

#![allow(unsafe_code)]

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Starts a thread that blocks all signals.
pub(crate) fn start<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let _blocked = Blocked::new()?;
    Builder::new().name(name.to_owned()).spawn(work)
}

/// Locks a mutex, also one whose holder has panicked: what it guards is complete after each step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The signals of this thread are blocked until this is dropped.
struct Blocked {
    before: libc::sigset_t,
    /// The mask belongs to one thread, so this does not leave it.
    _stays: PhantomData<*const ()>,
}

impl Blocked {
    fn new() -> io::Result<Self> {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: `sigfillset` writes the whole set, `sigdelset` takes a set that was written, and both only write there.
        let all = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            for fault in FAULTS {
                libc::sigdelset(all.as_mut_ptr(), fault);
            }
            all.assume_init()
        };
        // SAFETY: `all` is a set that lives through the call, and the old mask is written to `before`.
        let error =
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, before.as_mut_ptr()) };
        match error {
            // SAFETY: the call has succeeded, so it has written the old mask.
            0 => Ok(Self { before: unsafe { before.assume_init() }, _stays: PhantomData }),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: `before` is the mask that this thread had, and the present one is not asked for.
        let error = unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut())
        };
        debug_assert_eq!(error, 0, "a mask that was read can be set");
    }
}

/// The signals of a fault in the thread itself. The kernel ends the process if they are blocked, without the handlers that report
/// a stack overflow or a crash.
const FAULTS: [libc::c_int; 6] =
    [libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGSEGV, libc::SIGSYS, libc::SIGTRAP];

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    /// The mask of this thread: bit 0 is signal 1.
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
        // Two are the C library's.
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
