//! The file that a lock lives in between two commands: who may read it, and how it is written.
//!
//! What is in it *is* the lock, so it is treated as `ssh` treats a key: ours, and nobody else can read
//! it. It appears whole or not at all: written beside its place, synced, and moved there. A new one
//! never takes the place of another (of two that are told to write the same file, one fails), except of
//! a lock that is over. Not here: taking, extending and releasing.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process;

use redbolt::{LockRecord, net};

use crate::duration::show;
use crate::exit::Failure;

/// What is in a file.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) record: LockRecord,
    /// It was let go, and too few nodes have confirmed that.
    pub(crate) is_released: bool,
}

/// Reads a file that must be there.
pub(crate) fn read(path: &Path) -> Result<Held, Failure> {
    found(path)?.ok_or_else(|| Failure::usage(format_args!("{}: no such file", path.display())))
}

/// What is in a file; `None` if there is none.
fn found(path: &Path) -> Result<Option<Held>, Failure> {
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            Failure::usage(format_args!("{}: {error}", path.display()))
        }
        _ => Failure::system(format_args!("{}: {error}", path.display())),
    };
    // Not opened first: that would wait for the other end of a pipe.
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => {
            return Err(Failure::usage(format_args!("{}: not a regular file", path.display())));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
        Ok(_) => {}
    }
    let file = File::open(path).map_err(unreadable)?;
    check_access(path, &file.metadata().map_err(unreadable)?)?;
    let mut text = Vec::new();
    file.take(LONGEST).read_to_end(&mut text).map_err(unreadable)?;
    let text = String::from_utf8(text).unwrap_or_default();
    let (text, is_released) = match text.strip_suffix(RELEASED) {
        Some(text) => (text, true),
        None => (text.as_str(), false),
    };
    match LockRecord::from_text(text) {
        Ok(record) => Ok(Some(Held { record, is_released })),
        Err(error) => Err(Failure::usage(format_args!("{}: {error}", path.display()))),
    }
}

/// Refuses a file that others can read or that somebody else has put there.
fn check_access(path: &Path, metadata: &fs::Metadata) -> Result<(), Failure> {
    let (path, mode) = (path.display(), metadata.permissions().mode() & 0o777);
    if us().is_some_and(|us| metadata.uid() != us) {
        return Err(Failure::usage(format_args!("{path}: it belongs to another user")));
    }
    if mode & 0o077 != 0 {
        return Err(Failure::usage(format_args!(
            "{path}: its mode is {mode:04o}, and others must not be able to read or write it, for it \
             can release the lock\nif nobody has: chmod 600 {path}"
        )));
    }
    Ok(())
}

#[cfg(target_os = "linux")]
fn us() -> Option<u32> {
    Some(nix::unistd::geteuid().as_raw())
}

#[cfg(not(target_os = "linux"))]
fn us() -> Option<u32> {
    None
}

/// An empty file beside the place of a record that is still to come. It is removed unless it gets there.
#[derive(Debug)]
pub(crate) struct Draft {
    file: File,
    beside: PathBuf,
    path: PathBuf,
    /// Whether there was a file in its place that may be replaced.
    replaces: bool,
}

impl Draft {
    /// For a lock that is not taken yet: so whoever cannot write the file learns it before.
    pub(crate) fn of_new(path: &Path) -> Result<Self, Failure> {
        let before = found(path)?;
        if let Some(left) = before.as_ref().map(|held| held.record.remaining(net::now()))
            && !left.is_zero()
        {
            return Err(Failure::usage(format_args!(
                "{}: it holds a lock that lives for {} more\nto let go of that one: redbolt release \
                 --token-file {0}",
                path.display(),
                show(left)
            )));
        }
        Self::begin(path, before.is_some())
    }

    /// For a lock whose record is there already.
    pub(crate) fn of_known(path: &Path) -> Result<Self, Failure> {
        Self::begin(path, true)
    }

    fn begin(path: &Path, replaces: bool) -> Result<Self, Failure> {
        let Some(name) = path.file_name() else {
            return Err(Failure::usage(format_args!("{}: not the name of a file", path.display())));
        };
        let mut beside = OsString::from(".");
        beside.push(name);
        // Not one that an earlier process of this number may have left.
        beside.push(format!(".{}.{}", process::id(), net::now().wall.0));
        let beside = path.with_file_name(beside);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside);
        let file =
            file.map_err(|error| Failure::system(format_args!("{}: {error}", beside.display())))?;
        Ok(Self { file, beside, path: path.to_owned(), replaces })
    }

    /// Writes the record, and puts it into its place.
    pub(crate) fn keep(self, record: &LockRecord) -> io::Result<()> {
        self.put(&record.to_text())
    }

    /// The same of a lock that was let go, so that whoever tries again does not take what it has done
    /// itself for a loss.
    pub(crate) fn keep_released(self, record: &LockRecord) -> io::Result<()> {
        self.put(&(record.to_text() + RELEASED))
    }

    fn put(mut self, text: &str) -> io::Result<()> {
        self.file.write_all(text.as_bytes())?;
        self.file.sync_all()?;
        if self.replaces {
            fs::rename(&self.beside, &self.path)?;
        } else {
            // Unlike a rename it fails where somebody has been faster.
            fs::hard_link(&self.beside, &self.path)?;
        }
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or_else(|| Path::new(".")))?.sync_all()
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After a rename there is none.
        let _ = fs::remove_file(&self.beside);
    }
}

/// Removes the file of a lock that has ended, unless another one has come into its place.
pub(crate) fn remove(path: &Path, record: &LockRecord) -> io::Result<()> {
    match found(path) {
        Ok(Some(there)) if there.record == *record => fs::remove_file(path),
        _ => Ok(()),
    }
}

/// Whether this is still the record in the file.
pub(crate) fn has(path: &Path, record: &LockRecord) -> bool {
    matches!(found(path), Ok(Some(there)) if there.record == *record && !there.is_released)
}

/// Behind the record of a lock that was let go.
const RELEASED: &str = "released\n";

/// More than 64 resources of 64 KiB take, each byte written as three.
const LONGEST: u64 = 16 << 20;
