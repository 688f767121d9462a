//! redbolt for C, C++ and languages that can call them: `redbolt.h`, `redbolt.hpp`, `libredbolt`.
//!
//! Each exported function checks its arguments, calls the library, and turns the result into a
//! status and an error with a text. Nothing is decided here. The manual's page "The C library"
//! describes how to use it; the header is generated from the documentation of this crate.
//!
//! How the functions are built:
//!
//! * A handle arrives as `Option<&T>`, `Option<&mut T>` or `Option<Box<T>>`, which is a pointer that
//!   may be null. The compiler lets no function use one without a check. Pointers to plain bytes go
//!   through `foreign`, which has the other half of the crate's unsafe code.
//! * An out parameter arrives as `Option<&mut MaybeUninit<T>>`: its previous content is never read.
//! * `call` stops panics, and notices whether a callback is running on this thread.
//! * A client or a driver is for one thread at a time. Its door is a mutex that no thread waits for:
//!   a concurrent call gets a status, and the data behind it are safe (`door`).

#![allow(
    clippy::missing_safety_doc,
    reason = "one rule holds for all: a pointer is null, or what the header says, for as long as the call takes"
)]
#![deny(missing_docs, unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

mod call;
pub mod client;
pub mod config;
mod door;
pub mod driver;
pub mod engine;
pub mod error;
pub mod event;
pub mod failure;
pub mod foreign;
mod holder;
pub mod inspect;
pub mod lock;
mod many;
mod numbers;
pub mod request;
pub mod security;
pub mod status;
mod task;
pub mod view;

/// The version of the binary interface that the header describes. It changes when a program that
/// was compiled with an older header would fail: compare it with `redbolt_abi_version()` if the
/// library is loaded at run time.
pub const REDBOLT_ABI_VERSION: u32 = 1;

/// Returns the version of the binary interface of the loaded library: `REDBOLT_ABI_VERSION` of its
/// header.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_abi_version() -> u32 {
    REDBOLT_ABI_VERSION
}

/// Returns the version of redbolt, such as "0.1.0". It lives as long as the library.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_version() -> *const std::ffi::c_char {
    VERSION.as_ptr()
}

const VERSION: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes(),
) {
    Ok(version) => version,
    Err(_) => panic!("a version has no zero byte"),
};

#[cfg(test)]
mod tests {
    use super::*;

    /// The header promises which handles many threads may use at once, and that other concurrent
    /// use breaks nothing.
    #[test]
    fn handles_that_threads_share_can_be_shared() {
        fn shared<T: Send + Sync>() {}
        shared::<config::ConfigHandle>();
        shared::<request::RequestHandle>();
        shared::<engine::EngineHandle>();
        shared::<client::ClientHandle>();
        shared::<driver::DriverHandle>();
    }
}
