//! Messages of a supervisor, which never wait for a reader.
//!
//! Standard error can be a full pipe, or a terminal stopped with Ctrl-S. A process that waits there
//! neither extends a lock nor stops a command. So a message is written at once or dropped.
//! [`say`](crate::say) waits instead, for use when redbolt has nothing else left to do.
//!
//! Pipes and terminals are opened again for this, because the descriptor is shared with the command
//! and must stay blocking. A descriptor that cannot be opened again (a socket, or a file of another
//! user) is polled before each write. Output of the command may fill it between the two.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};

use nix::fcntl::OFlag;
use nix::libc::PIPE_BUF;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::write;

use crate::say::lines;

/// Writes the message to standard error, if it can take the message now.
pub(crate) fn say(message: impl fmt::Display) {
    raw(&lines(message));
}

/// Writes a line that is rewritten in place, if standard error can take it now.
pub(crate) fn raw(text: &str) {
    // A terminal that takes only a part gets only that part.
    let _ = write_now(io::stderr().as_fd(), text.as_bytes());
}

fn write_now(to: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
    if let Some(mut anew) = open_anew(to) {
        return anew.write_all(bytes);
    }
    for part in bytes.chunks(PIPE_BUF) {
        let mut set = [PollFd::new(to, PollFlags::POLLOUT)];
        poll(&mut set, PollTimeout::ZERO)?;
        let takes = set[0].revents().is_some_and(|ready| ready.contains(PollFlags::POLLOUT));
        // A pipe with room has room for this much.
        if !takes || write(to, part)? < part.len() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
    }
    Ok(())
}

/// Opens a descriptor again, except for a regular file, which would be written from its beginning.
fn open_anew(of: BorrowedFd<'_>) -> Option<File> {
    let path = format!("/proc/self/fd/{}", of.as_raw_fd());
    let kind = fs::metadata(&path).ok()?.file_type();
    if !kind.is_fifo() && !kind.is_char_device() {
        return None;
    }
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    OpenOptions::new().write(true).custom_flags(flags.bits()).open(path).ok()
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use nix::fcntl::{FcntlArg, fcntl};

    use super::*;

    fn flags(of: impl AsFd) -> OFlag {
        OFlag::from_bits_retain(fcntl(of, FcntlArg::F_GETFL).unwrap())
    }

    /// Fills it, and leaves it to wait again.
    fn fill(to: impl AsFd) {
        let before = flags(&to);
        fcntl(&to, FcntlArg::F_SETFL(before | OFlag::O_NONBLOCK)).unwrap();
        while write(&to, &[0; 4096]).is_ok() {}
        fcntl(&to, FcntlArg::F_SETFL(before)).unwrap();
    }

    #[test]
    fn what_cannot_be_said_at_once_is_not_said() {
        let (mut reader, pipe) = io::pipe().unwrap();
        write_now(pipe.as_fd(), b"heard").unwrap();
        let mut heard = [0; 5];
        reader.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"heard");
        fill(&pipe);
        for text in [&b"short"[..], &[b'x'; 9000]] {
            assert!(write_now(pipe.as_fd(), text).is_err());
        }
        assert!(!flags(&pipe).contains(OFlag::O_NONBLOCK), "the command has it too");
    }

    #[test]
    fn a_socket_that_is_full_is_not_waited_for() {
        let (mut reader, socket) = UnixStream::pair().unwrap();
        write_now(socket.as_fd(), b"heard").unwrap();
        let mut heard = [0; 5];
        reader.read_exact(&mut heard).unwrap();
        fill(&socket);
        assert!(write_now(socket.as_fd(), b"unheard").is_err());
    }

    #[test]
    fn a_file_is_written_to_behind_what_is_there() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"before ").unwrap();
        write_now(file.as_fd(), b"after").unwrap();
        io::Seek::rewind(&mut file).unwrap();
        assert_eq!(io::read_to_string(file).unwrap(), "before after");
    }
}
