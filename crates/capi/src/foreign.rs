//! Memory of the host: texts and bytes that it passes, and texts that it gets back. The unsafe code
//! here relies on the requirements in the header. The compiler checks handles for null.

use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::MaybeUninit;
use std::slice;

use crate::call::in_callback;
use crate::failure::{Failure, words};

/// Returns a text of the host, which ends with a zero byte.
///
/// # Safety
///
/// As [`zero_ended`].
pub(crate) unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a str, Failure> {
    // SAFETY: the caller promises it.
    let bytes = unsafe { zero_ended(text, name) }?;
    std::str::from_utf8(bytes).map_err(|_| Failure::argument(&format!("{name} is not UTF-8")))
}

/// Returns the bytes before a zero byte. They need not be UTF-8.
///
/// # Safety
///
/// `text` is null, or the start of bytes that end with a zero byte and stay as they are for `'a`.
pub(crate) unsafe fn zero_ended<'a>(text: *const c_char, name: &str) -> Result<&'a [u8], Failure> {
    if text.is_null() {
        return Err(Failure::argument(&format!("{name} is null")));
    }
    // SAFETY: it is not null, and the caller promises the rest.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// Returns bytes of the host. Null is accepted if there are none.
///
/// # Safety
///
/// `start` is null, or the start of `length` bytes that stay as they are for `'a`.
pub(crate) unsafe fn bytes<'a>(
    start: *const u8,
    length: usize,
    name: &str,
) -> Result<&'a [u8], Failure> {
    // SAFETY: the caller promises it.
    unsafe { array(start, length, name) }
}

/// Returns an array of the host. Null is accepted for an empty one.
///
/// # Safety
///
/// `start` is null, or the start of `count` values that stay as they are for `'a`.
pub(crate) unsafe fn array<'a, T>(
    start: *const T,
    count: usize,
    name: &str,
) -> Result<&'a [T], Failure> {
    if !is_array(start, count, name)? {
        return Ok(&[]);
    }
    // SAFETY: it is not null and not longer than memory, and the caller promises the rest.
    Ok(unsafe { slice::from_raw_parts(start, count) })
}

/// Returns an array of the host that is to be filled. Its present content is never read.
///
/// # Safety
///
/// `start` is null, or the start of `count` places that are not used by anything else for `'a`.
pub(crate) unsafe fn places<'a, T>(
    start: *mut MaybeUninit<T>,
    count: usize,
    name: &str,
) -> Result<&'a mut [MaybeUninit<T>], Failure> {
    if !is_array(start, count, name)? {
        return Ok(&mut []);
    }
    // SAFETY: it is not null and not longer than memory, and the caller promises the rest.
    Ok(unsafe { slice::from_raw_parts_mut(start, count) })
}

/// Returns `true` if the array has elements, and an error if it cannot be an array.
fn is_array<T>(start: *const T, count: usize, name: &str) -> Result<bool, Failure> {
    let size = count.checked_mul(size_of::<T>()).and_then(|size| isize::try_from(size).ok());
    match (start.is_null(), size) {
        (_, Some(0)) => Ok(false),
        (true, _) => Err(Failure::argument(&format!("{name} is null"))),
        (false, None) => Err(Failure::argument(&format!("{name} is longer than memory"))),
        (false, Some(_)) => Ok(true),
    }
}

/// Passes a text to the host, which returns it to [`redbolt_text_free`].
pub(crate) fn give(text: &str) -> *mut c_char {
    words(text).into_raw()
}

/// Ends a text that a function of redbolt returned. Null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_text_free(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: the caller promises that the text comes from `give`, and passes it once.
        drop(unsafe { CString::from_raw(text) });
    }
}

/// Frees the `data` of a callback: called once, on any thread, after the last call of the callback.
pub type EndCallback = Option<extern "C" fn(data: *mut c_void)>;

/// A value of the host that callbacks get back. redbolt does not use it.
#[derive(Clone, Copy)]
pub(crate) struct UserData(pub(crate) *mut c_void);

/// A value of the host, with the function that redbolt calls when it no longer needs the value.
pub(crate) struct OwnedData {
    data: UserData,
    end: EndCallback,
}

impl UserData {
    /// Returns the pointer. A closure that calls this captures the whole value, which may go to
    /// another thread, and not the pointer in it.
    pub(crate) fn get(self) -> *mut c_void {
        self.0
    }
}

impl OwnedData {
    pub(crate) fn new(data: *mut c_void, end: EndCallback) -> Self {
        Self { data: UserData(data), end }
    }

    pub(crate) fn get(&self) -> *mut c_void {
        self.data.get()
    }
}

impl Drop for OwnedData {
    fn drop(&mut self) {
        if let Some(end) = self.end {
            in_callback(|| end(self.get()));
        }
    }
}

// SAFETY: the pointer is only a number here. The header documents on which threads callbacks run,
// and the host ensures that its target can be used there.
unsafe impl Send for UserData {}
// SAFETY: as above.
unsafe impl Sync for UserData {}
