//! Finds out whether SIGPIPE was ignored when this program was started.
//!
//! The runtime of Rust programs ignores SIGPIPE before `main`, and does not record the previous
//! setting. So one function runs before the runtime, as constructors of C libraries do. It asks the
//! kernel, stores one bit and does nothing else: it allocates nothing, uses nothing that the
//! runtime sets up, and cannot panic.

#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::libc;

/// Returns `true` if the caller had SIGPIPE ignored.
pub(crate) fn ignored_pipe() -> bool {
    IGNORED_PIPE.load(Ordering::Relaxed)
}

static IGNORED_PIPE: AtomicBool = AtomicBool::new(false);

// SAFETY: the C library calls each entry of this section once, before `main` and with one thread.
// Entries are pointers to C functions, whose arguments may be ignored.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = look;

extern "C" fn look() {
    let mut found = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action this only writes the present one to `found`, which is valid if it is all zeros.
    let found = unsafe {
        libc::sigaction(libc::SIGPIPE, ptr::null(), found.as_mut_ptr());
        found.assume_init()
    };
    IGNORED_PIPE.store(found.sa_sigaction == libc::SIG_IGN, Ordering::Relaxed);
}
