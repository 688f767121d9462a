//! Hearing of a failover: sentinels that have answered go on to tell of each change of a master.
//!
//! What one says is a vote and nothing else: it replaces what that sentinel has answered before, and a connection is given up
//! only when more than half of the node's sentinels name another place. Then all are asked again, which decides. So one that
//! lies, or that is late, ends nothing. A sentinel that has gone away is listened to again when all are asked the next time.
//!
//! Silence says nothing: who is cut off hears nothing either. So a word has an age, which is that of the question, and the question is
//! repeated on the same connection. Not here: opening and closing the links of locks, and how old a word may be.

use std::io;

use mio::Registry;

use super::{CHANNEL, Place, place_in, place_of, question};
use crate::net::address::Address;
use crate::net::socket::Socket;
use crate::proto::{ClockReading, sentinel_word};
use crate::resp::{BytesMut, Frame, FrameDecoder, command};

/// A sentinel that has said where the master is, and from now on says when that changes.
pub(in crate::net) struct Told {
    /// Which of the node's sentinels.
    pub(super) by: usize,
    pub(super) word: Word,
    pub(super) ear: Box<Ear>,
}

/// Where a sentinel has said that the master is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) place: Place,
    /// When it was asked. What it has told of its own accord is no younger.
    pub(super) asked_at: ClockReading,
}

/// A connection on which a sentinel tells of changes.
pub(super) struct Ear {
    socket: Socket,
    decoder: FrameDecoder,
    buffer: BytesMut,
    /// When it was asked again; `None` if no answer is due.
    asked_at: Option<ClockReading>,
}

impl Ear {
    pub(super) fn new(socket: Socket, decoder: FrameDecoder, buffer: BytesMut) -> Self {
        Self { socket, decoder, buffer, asked_at: None }
    }

    /// Asks again, unless an answer is due. A connection on which something is told of takes no questions, so it is told of nothing
    /// meanwhile.
    fn ask(&mut self, master: &str, now: ClockReading) -> io::Result<()> {
        if self.asked_at.is_some() {
            return Ok(());
        }
        let mut out = Vec::new();
        let _ = command(&mut out, 2).arg(b"UNSUBSCRIBE").arg(CHANNEL);
        question(&mut out, master);
        self.asked_at = Some(now);
        // So little always fits, unless it does not read any more.
        match self.socket.write(&out)? == out.len() && !self.socket.has_unsent() {
            true => Ok(()),
            false => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    /// Takes what has come: answers, and changes that concern this master. An error is the end of the connection.
    fn hear(&mut self, master: &str, said: &mut Option<Word>) -> io::Result<()> {
        // One that never stops is not listened to.
        for _ in 0..READS {
            while let Some(frame) = self.decoder.next(&mut self.buffer).map_err(io::Error::other)? {
                self.take(&frame, master, said)?;
            }
            let mut chunk = [0; 512];
            match self.socket.read(&mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.buffer.extend_from_slice(&chunk[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::InvalidData.into())
    }

    fn take(&mut self, frame: &Frame, master: &str, said: &mut Option<Word>) -> io::Result<()> {
        let is_answer = matches!(frame, Frame::NilArray) || place_in(frame).is_some();
        if matches!(frame, Frame::Error(_)) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        if let Some(asked_at) = self.asked_at.take_if(|_| is_answer) {
            *said = place_in(frame).map(|place| Word { place, asked_at });
        } else if let (Some(place), Some(before)) = (switched(frame, master), &said) {
            *said = Some(Word { place, asked_at: before.asked_at });
        }
        Ok(())
    }
}

/// The new place, if a message says that this master has one: `name old-host old-port new-host new-port`.
fn switched(frame: &Frame, master: &str) -> Option<Place> {
    let Frame::Array(parts) = frame else { return None };
    let [Frame::Bulk(kind), _, Frame::Bulk(text)] = &parts[..] else { return None };
    let words: Vec<&str> = std::str::from_utf8(text).ok()?.split(' ').collect();
    match words[..] {
        [name, _, _, host, port] if name == master && &kind[..] == b"message" => {
            place_of(host, port)
        }
        _ => None,
    }
}

/// What all sentinels of all nodes have said last.
pub(in crate::net) struct Ears {
    seats: Vec<Seat>,
    /// The `mio::Token` of the first seat; the others follow.
    first_token: usize,
}

/// One sentinel of one node.
struct Seat {
    node: usize,
    master: String,
    said: Option<Word>,
    ear: Option<Box<Ear>>,
}

impl Ears {
    pub(in crate::net) fn new(addresses: &[Address], first_token: usize) -> Self {
        let mut seats = Vec::new();
        for (node, address) in addresses.iter().enumerate() {
            let Address::Sentinels(sentinels) = address else { continue };
            let seat = |_| Seat { node, master: sentinels.master.clone(), said: None, ear: None };
            seats.extend(sentinels.places.iter().map(seat));
        }
        Self { seats, first_token }
    }

    pub(in crate::net) fn len(&self) -> usize {
        self.seats.len()
    }

    /// Whether anybody is listened to.
    pub(in crate::net) fn is_listening(&self) -> bool {
        self.seats.iter().any(|seat| seat.ear.is_some())
    }

    /// Whether each sentinel of a node is listened to.
    pub(in crate::net) fn are_all_open(&self, node: usize) -> bool {
        self.seats.iter().all(|seat| seat.node != node || seat.ear.is_some())
    }

    /// Asks those of a node again that are listened to, on the same connections. Whether that is most of its sentinels.
    pub(in crate::net) fn ask(
        &mut self,
        node: usize,
        now: ClockReading,
        registry: &Registry,
    ) -> bool {
        let (mut all, mut asked) = (0, 0);
        for (_, seat) in self.of_mut(node) {
            all += 1;
            match seat.ear.as_mut().map(|ear| ear.ask(&seat.master, now)) {
                Some(Ok(())) => asked += 1,
                Some(Err(_)) => seat.end(registry),
                None => {}
            }
        }
        2 * asked > all
    }

    /// When more than half of a node's sentinels had all been asked that have named this place; `None` if fewer have.
    pub(in crate::net) fn vouched_at(&self, node: usize, place: &Place) -> Option<ClockReading> {
        let seats = self.seats.iter().filter(|seat| seat.node == node);
        let words = seats.clone().filter_map(|seat| seat.said.as_ref());
        let named = words.filter(|word| word.place == *place).map(|word| word.asked_at);
        sentinel_word::vouched_at(seats.count(), named)
    }

    /// The sentinels of a node are being asked: what they have said before is old.
    pub(in crate::net) fn forget(&mut self, node: usize) {
        self.of_mut(node).for_each(|(_, seat)| seat.said = None);
    }

    /// Listens to a sentinel that has answered, instead of to its connection before.
    pub(in crate::net) fn listen(&mut self, node: usize, told: Told, registry: &Registry) {
        let Told { by, word, mut ear } = told;
        let first_token = self.first_token;
        let Some((at, seat)) = self.of_mut(node).nth(by) else { return };
        seat.said = Some(word);
        seat.end(registry);
        let token = mio::Token(first_token + at);
        // What came with the answer is not reported again.
        let is_there = ear.hear(&seat.master, &mut seat.said).is_ok();
        if is_there && ear.socket.register(registry, token).is_ok() {
            seat.ear = Some(ear);
        }
    }

    /// Takes what has come from the sentinel on this seat, one of [`len`](Self::len). Its node.
    pub(in crate::net) fn hear(&mut self, at: usize, registry: &Registry) -> usize {
        let seat = &mut self.seats[at];
        if let Some(ear) = &mut seat.ear
            && ear.hear(&seat.master, &mut seat.said).is_err()
        {
            seat.end(registry);
        }
        seat.node
    }

    /// The place that more than half of a node's sentinels have named last.
    pub(in crate::net) fn named(&self, node: usize) -> Option<Place> {
        let seats = self.seats.iter().filter(|seat| seat.node == node);
        let said: Vec<_> = seats.map(|seat| seat.said.as_ref().map(|word| &word.place)).collect();
        let votes = |place| said.iter().filter(|&&other| other == place).count();
        said.iter().copied().find(|&place| 2 * votes(place) > said.len())?.cloned()
    }

    fn of_mut(&mut self, node: usize) -> impl Iterator<Item = (usize, &mut Seat)> {
        self.seats.iter_mut().enumerate().filter(move |(_, seat)| seat.node == node)
    }
}

impl Seat {
    fn end(&mut self, registry: &Registry) {
        if let Some(mut ear) = self.ear.take() {
            ear.socket.close();
            ear.socket.deregister(registry);
        }
    }
}

const READS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::Timestamp;

    const NODES: [&str; 3] =
        ["redis+sentinel://a+b+c/jobs", "redis://d", "redis+sentinel://a+b/other"];

    fn ears() -> Ears {
        Ears::new(&NODES.map(|text| text.parse().unwrap()), 7)
    }

    #[test]
    fn a_place_counts_that_more_than_half_have_named_last() {
        let mut ears = ears();
        let [old, new] = ["old", "new"].map(|host| (host.to_owned(), 6_379));
        assert_eq!((ears.len(), ears.is_listening(), ears.named(0)), (5, false, None));
        let said = |ears: &mut Ears, node, by, place: &Place| {
            let word = Word { place: place.clone(), asked_at: ClockReading::default() };
            ears.of_mut(node).nth(by).unwrap().1.said = Some(word);
            ears.named(node)
        };
        assert_eq!(said(&mut ears, 0, 0, &old), None);
        assert_eq!(said(&mut ears, 0, 2, &old), Some(old.clone()));
        assert_eq!(said(&mut ears, 0, 1, &new), Some(old.clone()));
        assert_eq!(said(&mut ears, 0, 0, &new), Some(new.clone()));
        assert_eq!(said(&mut ears, 2, 0, &new), None, "one of two is not enough");
        assert_eq!(said(&mut ears, 2, 1, &new), Some(new));
        ears.forget(0);
        assert_eq!(ears.named(0), None);
        assert!(ears.named(2).is_some());
    }

    /// Of those that name it, so many as are needed, and the youngest.
    #[test]
    fn a_place_is_vouched_for_since_the_oldest_question_of_a_majority() {
        let mut ears = ears();
        let [old, new] = ["old", "new"].map(|host| (host.to_owned(), 6_379));
        let at = |at| ClockReading { boot: Timestamp(at), wall: Timestamp(at) };
        let mut said = |by, place: &Place, asked_at| {
            let word = Word { place: place.clone(), asked_at: at(asked_at) };
            ears.of_mut(0).nth(by).unwrap().1.said = Some(word);
            ears.vouched_at(0, &old)
        };
        assert_eq!(said(1, &old, 5), None);
        assert_eq!(said(0, &old, 3), Some(at(3)));
        assert_eq!(said(2, &old, 7), Some(at(5)));
        assert_eq!(said(0, &old, 9), Some(at(7)));
        assert_eq!(said(2, &new, 9), Some(at(5)));
        assert_eq!(said(0, &new, 9), None);
        assert_eq!((ears.vouched_at(0, &new), ears.vouched_at(2, &old)), (Some(at(9)), None));
    }

    #[test]
    fn only_news_of_the_master_count() {
        let bulk = |text: &'static str| Frame::Bulk(text.into());
        let told = |kind, text| {
            let frame = Frame::Array(vec![bulk(kind), bulk("+switch-master"), bulk(text)]);
            switched(&frame, "jobs")
        };
        let place = Some(("10.0.0.2".to_owned(), 7));
        assert_eq!(told("message", "jobs 10.0.0.1 6 10.0.0.2 7"), place);
        for (kind, text) in [
            ("message", "other 10.0.0.1 6 10.0.0.2 7"),
            ("message", "jobs 10.0.0.1 6 10.0.0.2 0"),
            ("message", "jobs 10.0.0.1 6 10.0.0.2"),
            ("subscribe", "jobs 10.0.0.1 6 10.0.0.2 7"),
        ] {
            assert_eq!(told(kind, text), None, "{kind} {text}");
        }
        let confirmation =
            Frame::Array(vec![bulk("subscribe"), bulk("+switch-master"), Frame::Int(1)]);
        assert_eq!(switched(&confirmation, "jobs"), None);
    }
}
