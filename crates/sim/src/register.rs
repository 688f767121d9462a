//! The resources that the locks protect: one register that checks fencing tokens, and one that
//! takes every write.
//!
//! The first refuses a write with a token smaller than the largest it has seen, and a read with one
//! smaller than the largest of a writer. The second is like most resources: a holder that was
//! paused past its lease overwrites the value of its successor.

use crate::world::queue::Time;

/// A write or a read that a register took.
#[derive(Clone, Copy, Debug)]
struct Taken {
    job: u16,
    /// The time at which the first node granted the user's lock.
    begun: Time,
    is_write: bool,
}

#[derive(Default)]
pub(crate) struct Register {
    largest: u64,
    largest_of_writers: u64,
    fenced: Vec<Taken>,
    unfenced: Vec<Taken>,
    /// Stale writes that the unfenced register took: writes behind those of a later holder.
    pub(crate) stale: u64,
    /// Writes that the fenced register refused.
    pub(crate) refused: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    pub(crate) job: u16,
    pub(crate) token: Option<u64>,
    pub(crate) granted: Time,
    pub(crate) begun: Time,
}

impl Register {
    pub(crate) fn clear(&mut self) {
        (self.largest, self.largest_of_writers) = (0, 0);
        self.fenced.clear();
        self.unfenced.clear();
        (self.stale, self.refused) = (0, 0);
    }

    /// Writes to both registers. Fails with the token if the fenced register took the write
    /// although a later holder had already used it.
    pub(crate) fn write(&mut self, writer: User) -> Result<(), u64> {
        let User { job, token, granted, begun } = writer;
        let is_later = |other: &Taken| other.job != job && other.begun > granted;
        self.stale += u64::from(self.unfenced.iter().any(is_later));
        let taken = Taken { job, begun, is_write: true };
        self.unfenced.push(taken);
        let Some(token) = token else { return Ok(()) };
        if token < self.largest {
            self.refused += 1;
            return Ok(());
        }
        (self.largest, self.largest_of_writers) = (token, token);
        let stale = self.fenced.iter().any(is_later);
        self.fenced.push(taken);
        if stale { Err(token) } else { Ok(()) }
    }

    /// Reads the fenced register. Fails with the token if it answered although a later holder had
    /// already written.
    pub(crate) fn read(&mut self, reader: User) -> Result<(), u64> {
        let User { job, token, granted, begun } = reader;
        let Some(token) = token else { return Ok(()) };
        if token < self.largest_of_writers {
            self.refused += 1;
            return Ok(());
        }
        self.largest = self.largest.max(token);
        let stale = self.fenced.iter().any(|other| other.is_write && other.begun > granted);
        self.fenced.push(Taken { job, begun, is_write: false });
        if stale { Err(token) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer(job: u16, token: u64, at: Time) -> User {
        User { job, token: Some(token), begun: at, granted: at + 5 }
    }

    #[test]
    fn a_stale_write_is_refused_by_its_token() {
        let mut register = Register::default();
        assert_eq!(register.write(writer(0, 7, 0)), Ok(()));
        assert_eq!(register.write(writer(1, 9, 100)), Ok(()));
        assert_eq!(register.write(writer(0, 7, 0)), Ok(()));
        assert_eq!((register.refused, register.stale), (1, 1));
    }

    #[test]
    fn tokens_that_do_not_grow_are_found() {
        let mut register = Register::default();
        assert_eq!(register.write(writer(1, 7, 100)), Ok(()));
        assert_eq!(register.write(writer(0, 7, 0)), Err(7), "the register took a stale write");
    }

    #[test]
    fn a_stale_read_is_refused_by_the_token_of_a_writer_and_not_of_a_reader() {
        let mut register = Register::default();
        assert_eq!(register.read(writer(0, 7, 0)), Ok(()));
        assert_eq!(register.read(writer(1, 9, 100)), Ok(()));
        assert_eq!(register.read(writer(0, 7, 0)), Ok(()), "no write came in between");
        assert_eq!(register.write(writer(2, 8, 50)), Ok(()));
        assert_eq!(register.refused, 1, "a later reader was there");
        assert_eq!(register.write(writer(2, 10, 200)), Ok(()));
        assert_eq!(register.read(writer(1, 9, 100)), Ok(()));
        assert_eq!(register.refused, 2);
        assert_eq!(register.read(writer(1, 11, 100)), Err(11), "the register showed a stale value");
    }

    #[test]
    fn holders_at_the_same_time_may_write_in_any_order() {
        let mut register = Register::default();
        assert_eq!(register.write(writer(1, 7, 3)), Ok(()));
        assert_eq!(register.write(writer(0, 8, 0)), Ok(()));
        assert_eq!(register.stale, 0);
    }
}
