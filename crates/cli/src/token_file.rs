//! The file that holds a detached lock between two commands, with its access checks.
//!
//! A process that can read the file has the lock, so the file is treated as `ssh` treats a key: it
//! must belong to this user, and only this user may read it. It is opened once, never through a
//! symbolic link, and all checks are made on the opened file. It appears whole or not at all: it is
//! written under another name, read back, and then moved. It is not synced, since a restart of the
//! machine makes it void. A new file replaces only an empty one, such as `mktemp` makes, or that of
//! an expired lock. If two processes write the same file, one fails. A file system where others can
//! read every file is refused before the lock is taken.
//!
//! A process that reads the file in order to write it locks it until then.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use redbolt::{DetachedLock, net};

use crate::duration::show;
use crate::exit::Failure;
use crate::name;

/// The lock in a file.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) detached: DetachedLock,
    /// Whether a release was sent that too few nodes have confirmed.
    pub(crate) is_released: bool,
}

/// The content of a file.
#[derive(Debug)]
pub(crate) enum Content {
    Nothing,
    Lock(Box<Held>),
}

/// A file that no other `redbolt` uses until this is dropped.
#[derive(Debug)]
pub(crate) enum Alone {
    Locked(Flock<File>),
    /// The file is not locked because its file system has no locks, so others cannot be excluded.
    Open(File),
}

impl Alone {
    fn file(&self) -> &File {
        match self {
            Self::Locked(file) => file,
            Self::Open(file) => file,
        }
    }
}

/// Reads a file that must exist, and locks it. Returns `None` if it was removed while another
/// process had it locked.
///
/// It waits for that process, for at most `patience`.
pub(crate) fn read(path: &Path, patience: Duration) -> Result<Option<(Held, Alone)>, Failure> {
    let Some(file) = open(path)? else {
        return Err(Failure::usage(format_args!("{}: no such file", path.display())));
    };
    let Some(alone) = keep_others_out(path, file, patience)? else { return Ok(None) };
    match content(path, alone.file())? {
        Content::Lock(held) => Ok(Some((*held, alone))),
        Content::Nothing => {
            Err(Failure::usage(format_args!("{}: it is empty, no lock record", path.display())))
        }
    }
}

/// Returns the content of a file, or `None` if there is none.
fn found(path: &Path) -> Result<Option<Content>, Failure> {
    open(path)?.map(|file| content(path, &file)).transpose()
}

/// Opens a file that only this user can read. Returns `None` if there is none.
fn open(path: &Path) -> Result<Option<File>, Failure> {
    // Without O_NONBLOCK it would wait for the other end of a pipe.
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = match OpenOptions::new().read(true).custom_flags(flags.bits()).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(path, &error)),
    };
    let metadata = file.metadata().map_err(|error| unreadable(path, &error))?;
    if !metadata.is_file() {
        return Err(Failure::usage(format_args!("{}: {NOT_REGULAR}", path.display())));
    }
    check_access(path, &metadata)?;
    Ok(Some(file))
}

fn content(path: &Path, file: &File) -> Result<Content, Failure> {
    let mut text = Vec::new();
    file.take(LONGEST).read_to_end(&mut text).map_err(|error| unreadable(path, &error))?;
    content_of(path, text)
}

/// Parses the bytes of a file.
pub(crate) fn content_of(path: &Path, text: Vec<u8>) -> Result<Content, Failure> {
    if text.is_empty() {
        return Ok(Content::Nothing);
    }
    let text = String::from_utf8(text).unwrap_or_default();
    let (text, is_released) = match text.strip_suffix(RELEASED) {
        Some(text) => (text, true),
        None => (text.as_str(), false),
    };
    match text.parse::<DetachedLock>() {
        Ok(detached) => Ok(Content::Lock(Box::new(Held { detached, is_released }))),
        Err(error) => Err(Failure::usage(format_args!("{}: {error}", path.display()))),
    }
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    let path = path.display();
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ELOOP) => {
            Failure::usage(format_args!("{path}: a symbolic link, {NOT_REGULAR}"))
        }
        Some(Errno::ENXIO) => Failure::usage(format_args!("{path}: {NOT_REGULAR}")),
        Some(Errno::EACCES | Errno::EPERM) => Failure::usage(format_args!("{path}: {error}")),
        _ => Failure::system(format_args!("{path}: {error}")),
    }
}

/// Waits until no other process has the file locked. Returns `None` if the file no longer exists.
fn keep_others_out(
    path: &Path,
    mut file: File,
    patience: Duration,
) -> Result<Option<Alone>, Failure> {
    let until = Instant::now() + patience;
    loop {
        file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(locked) if is_at(path, &locked) => return Ok(Some(Alone::Locked(locked))),
            // The process that had locked the file has replaced or removed it.
            Ok(_) => match open(path)? {
                Some(file) => file,
                None => return Ok(None),
            },
            Err((_, Errno::EWOULDBLOCK)) if Instant::now() >= until => {
                return Err(Failure::system(format_args!(
                    "{}: another redbolt does not get done with it",
                    path.display()
                )));
            }
            Err((file, Errno::EWOULDBLOCK)) => {
                thread::sleep(PAUSE);
                file
            }
            Err((file, Errno::EINTR)) => file,
            Err((file, _)) => return Ok(Some(Alone::Open(file))),
        };
    }
}

/// Returns whether this is still the file of that name.
fn is_at(path: &Path, file: &File) -> bool {
    file.metadata().is_ok_and(|file| is_file_at(path, &file))
}

/// Returns whether the file of that name is this one.
fn is_file_at(path: &Path, file: &fs::Metadata) -> bool {
    let is_it = |there: fs::Metadata| (there.dev(), there.ino()) == (file.dev(), file.ino());
    fs::symlink_metadata(path).is_ok_and(is_it)
}

/// Refuses a file that others can read, or that another user created.
fn check_access(path: &Path, metadata: &fs::Metadata) -> Result<(), Failure> {
    let (word, path) = (name::word(path.as_os_str()), path.display());
    let mode = metadata.permissions().mode() & 0o777;
    if metadata.uid() != nix::unistd::geteuid().as_raw() {
        return Err(Failure::usage(format_args!("{path}: it belongs to another user")));
    }
    if mode & 0o077 != 0 {
        return Err(Failure::usage(format_args!(
            "{path}: its mode is {mode:04o}, and others must not be able to read or write it, for it \
             can release the lock\nif nobody has: chmod 600 {word}"
        )));
    }
    Ok(())
}

/// Refuses a file system that gives others access to a file created for this user alone, as those
/// without modes do (vfat, exfat, CIFS, drvfs).
fn check_file_system(path: &Path, created: &fs::Metadata) -> Result<(), Failure> {
    let (path, mode) = (path.display(), created.permissions().mode() & 0o777);
    let wrong = if created.uid() != nix::unistd::geteuid().as_raw() {
        "gives every file to another user".to_owned()
    } else if mode & 0o077 != 0 {
        format!("gives every file the mode {mode:04o}")
    } else {
        return Ok(());
    };
    Err(Failure::usage(format_args!(
        "{path}: its file system {wrong}, so that others could release the lock\nname a file on \
         another file system, such as /dev/shm or /tmp"
    )))
}

/// A temporary file for a future record. It is removed unless it is moved to its final name.
#[derive(Debug)]
pub(crate) struct Draft {
    file: File,
    beside: Beside,
    path: PathBuf,
    place: Place,
}

/// The temporary name. A file with it is removed at the end.
#[derive(Debug)]
struct Beside(PathBuf);

impl Drop for Beside {
    fn drop(&mut self) {
        // After a rename there is no such file.
        let _ = fs::remove_file(&self.0);
    }
}

/// The state of the final name of a record.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// There is no file.
    Free,
    /// There is a file that may be replaced if it has not changed: it is empty, or its lock has
    /// expired.
    Vacant,
    /// There is the file of this lock, locked by this process.
    Ours,
}

impl Draft {
    /// Creates a draft for a lock that is still to be acquired, so that an error shows first.
    pub(crate) fn of_new(path: &Path) -> Result<Self, Failure> {
        let before = found(path).map_err(|failure| failure.with_hint(NAME_ANOTHER))?;
        let place = if before.is_some() { Place::Vacant } else { Place::Free };
        if let Some(left) = before.as_ref().and_then(lives_for) {
            return Err(Failure::usage(format_args!(
                "{}: it holds a lock that lives for {} more\nto let go of that one: redbolt release \
                 --token-file {}",
                path.display(),
                show(left),
                name::word(path.as_os_str())
            )));
        }
        Self::begin(path, place)
    }

    /// Creates a draft for a lock whose record exists, and is locked by this process.
    pub(crate) fn of_known(path: &Path, _: &Alone) -> Result<Self, Failure> {
        Self::begin(path, Place::Ours)
    }

    fn begin(path: &Path, place: Place) -> Result<Self, Failure> {
        let ends_in_slash = path.as_os_str().as_bytes().ends_with(b"/");
        if path.file_name().is_none() || ends_in_slash {
            return Err(Failure::usage(format_args!("{}: not the name of a file", path.display())));
        }
        // The name is short because the final one may be as long as a name can be. It differs from
        // names that an earlier process with this number may have left.
        let name = format!(".redbolt.{}.{}", process::id(), net::now().wall.0);
        let beside = path.with_file_name(name);
        let file = create(&beside)
            .map_err(|error| Failure::system(format_args!("{}: {error}", path.display())))?;
        let draft = Self { file, beside: Beside(beside), path: path.to_owned(), place };
        let metadata = draft.file.metadata().map_err(|error| unreadable(path, &error))?;
        check_file_system(path, &metadata)?;
        Ok(draft)
    }

    /// Writes the record and moves it to its final name.
    pub(crate) fn keep(self, detached: &DetachedLock) -> io::Result<()> {
        self.put(&detached.to_text())
    }

    /// Writes and moves a record like [`keep`](Self::keep) for a lock whose release was sent, so
    /// that the next try does not take its own work for a loss.
    pub(crate) fn keep_released(self, detached: &DetachedLock) -> io::Result<()> {
        self.put(&(detached.to_text() + RELEASED))
    }

    fn put(self, text: &str) -> io::Result<()> {
        let Self { mut file, beside: Beside(ref beside), ref path, place } = self;
        file.write_all(text.as_bytes())?;
        let draft = file.metadata()?;
        close(file)?;
        // The record that it replaces must not be lost to an empty file.
        read_back(beside, text)?;
        match place {
            Place::Free => put_new(beside, path, |from, to| fs::hard_link(from, to)),
            Place::Vacant => put_into_vacant(beside, path),
            Place::Ours => fs::rename(beside, path),
        }?;
        let kept = read_back(path, text);
        if kept.is_err() && is_file_at(path, &draft) {
            fs::remove_file(path)?;
        }
        kept
    }
}

/// Closes a file. A network file system may report only now that it has no room for the data.
fn close(file: File) -> io::Result<()> {
    match nix::unistd::close(file) {
        Ok(()) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Fails unless the file has this text.
fn read_back(path: &Path, text: &str) -> io::Result<()> {
    let mut there = Vec::new();
    let file = open(path).map_err(|failure| io::Error::other(failure.to_string()))?;
    file.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?
        .take(LONGEST)
        .read_to_end(&mut there)?;
    match there == text.as_bytes() {
        true => Ok(()),
        false => Err(io::Error::other("what was written cannot be read back")),
    }
}

/// Moves a file to a name that must be free. Unlike a rename, `link` fails if another process was
/// faster. Without links, an empty file is created instead, in which only one process succeeds. All
/// other faults show when that file is created.
fn put_new(
    from: &Path,
    to: &Path,
    link: impl FnOnce(&Path, &Path) -> io::Result<()>,
) -> io::Result<()> {
    match link(from, to) {
        Ok(()) => return Ok(()),
        // A network file system may send a request twice, and the second one finds the link of the
        // first.
        Err(_) if fs::symlink_metadata(from).is_ok_and(|from| is_file_at(to, &from)) => {
            return Ok(());
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(error),
        Err(_) => {}
    }
    drop(create(to)?);
    let put = put_into_vacant(from, to);
    if put.is_err() && matches!(found(to), Ok(Some(Content::Nothing))) {
        fs::remove_file(to)?;
    }
    put
}

/// Replaces a file unless it has got a lock that is still held.
fn put_into_vacant(from: &Path, to: &Path) -> io::Result<()> {
    let in_use = || io::Error::new(io::ErrorKind::AlreadyExists, "somebody else has written it");
    let file = open(to).map_err(|_| in_use())?.ok_or_else(in_use)?;
    let alone = keep_others_out(to, file, A_MOMENT).map_err(|_| in_use())?.ok_or_else(in_use)?;
    match content(to, alone.file()) {
        Ok(content) if lives_for(&content).is_none() => fs::rename(from, to),
        _ => Err(in_use()),
    }
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Returns how long the lock in a file still lasts, or `None` if it has expired or there is none.
fn lives_for(content: &Content) -> Option<Duration> {
    let Content::Lock(held) = content else { return None };
    Some(held.detached.remaining(net::now())).filter(|left| !left.is_zero())
}

/// Removes the file of a lock that has ended, unless another file has replaced it.
pub(crate) fn remove(path: &Path, detached: &DetachedLock) -> io::Result<()> {
    match found(path) {
        Ok(Some(Content::Lock(there))) if there.detached == *detached => fs::remove_file(path),
        _ => Ok(()),
    }
}

/// Returns whether this is still the record in the file.
pub(crate) fn has(path: &Path, detached: &DetachedLock) -> bool {
    matches!(found(path), Ok(Some(Content::Lock(there)))
        if there.detached == *detached && !there.is_released)
}

/// The line after the record of a lock whose release was sent.
const RELEASED: &str = "released\n";

/// The longest file, above 64 resources of 64 KiB with three characters for each byte.
const LONGEST: u64 = 16 << 20;

/// How long to wait for a process that has locked a file without a living lock, which needs only a
/// moment.
const A_MOMENT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(10);

const NOT_REGULAR: &str = "not a regular file";

const NAME_ANOTHER: &str = "name a file that does not exist yet";

#[cfg(test)]
mod tests {
    use super::*;

    fn no_links(_: &Path, _: &Path) -> io::Result<()> {
        Err(Errno::EPERM.into())
    }

    #[test]
    fn where_there_are_no_links_a_file_is_put_into_a_free_place_only() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::write(&from, "one").unwrap();
        put_new(&from, &to, no_links).unwrap();
        assert_eq!(fs::read_to_string(&to).unwrap(), "one");
        fs::write(&from, "two").unwrap();
        let refused = put_new(&from, &to, no_links).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&to).unwrap(), "one");
    }

    #[test]
    fn a_file_that_cannot_be_moved_there_leaves_nothing_in_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("to");
        put_new(&folder.path().join("missing"), &to, no_links).unwrap_err();
        assert!(!to.exists());
    }
}
