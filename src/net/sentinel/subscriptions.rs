//! Connections on which sentinels publish changes of masters, to follow failovers at once.
//!
//! Invariant: a message of a sentinel is only a vote. It replaces the sentinel's earlier answer,
//! and a link is closed only if more than half of the node's sentinels name another address; then
//! all are queried again. A wrong or late sentinel alone ends nothing.
//!
//! Silence does not confirm a master: a partitioned client receives nothing either. So an answer is
//! as old as its query, which is repeated on the same connection. A sentinel whose connection ended
//! is queried again with all others.

use std::io;

use mio::Registry;

use super::protocol::{CHANNEL, encode_query, master_in, switched_to};
use crate::net::address::Address;
use crate::net::host_port::HostPort;
use crate::net::socket::Socket;
use crate::proto::{ClockReading, sentinel_answer};
use crate::resp::{BytesMut, Frame, FrameDecoder, command};

/// A sentinel's answer, and the connection on which it publishes changes.
pub(crate) struct NewSubscription {
    /// The index of the sentinel among those of the node.
    pub(super) by: usize,
    pub(super) named: NamedMaster,
    pub(super) subscription: Box<Subscription>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NamedMaster {
    pub(super) place: HostPort,
    /// When the query was sent. An unsolicited message does not count as younger.
    pub(super) asked_at: ClockReading,
}

/// A connection on which a sentinel publishes changes.
pub(super) struct Subscription {
    socket: Socket,
    decoder: FrameDecoder,
    buffer: BytesMut,
    /// When the pending query was sent; `None` if no answer is due.
    asked_at: Option<ClockReading>,
}

impl Subscription {
    pub(super) fn new(socket: Socket, decoder: FrameDecoder, buffer: BytesMut) -> Self {
        Self { socket, decoder, buffer, asked_at: None }
    }

    /// Repeats the query unless an answer is due. With RESP2 a subscribed connection accepts no
    /// other commands, so the client unsubscribes for the query.
    fn ask(&mut self, master: &str, now: ClockReading) -> io::Result<()> {
        if self.asked_at.is_some() {
            return Ok(());
        }
        let mut out = Vec::new();
        let _ = command(&mut out, 2).arg(b"UNSUBSCRIBE").arg(CHANNEL);
        encode_query(&mut out, master);
        self.asked_at = Some(now);
        // These few bytes always fit, unless the sentinel has stopped reading.
        match self.socket.write(&out)? == out.len() && !self.socket.has_unsent() {
            true => Ok(()),
            false => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    /// Reads answers, and changes of this master. After an error the connection must be closed.
    fn receive(&mut self, master: &str, named: &mut Option<NamedMaster>) -> io::Result<()> {
        // A sentinel that never stops sending must not block this thread.
        for _ in 0..READS {
            while let Some(frame) = self.decoder.next(&mut self.buffer).map_err(io::Error::other)? {
                self.take(&frame, master, named)?;
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

    fn take(
        &mut self,
        frame: &Frame,
        master: &str,
        named: &mut Option<NamedMaster>,
    ) -> io::Result<()> {
        let is_answer = matches!(frame, Frame::NilArray) || master_in(frame).is_some();
        if matches!(frame, Frame::Error(_)) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        // Only the answer to a query is known to be younger than that query, so an unsolicited
        // message keeps the age of the last answer.
        if let Some(asked_at) = self.asked_at.take_if(|_| is_answer) {
            *named = master_in(frame).map(|place| NamedMaster { place, asked_at });
        } else if let (Some(place), Some(before)) = (switched_to(frame, master), &named) {
            *named = Some(NamedMaster { place, asked_at: before.asked_at });
        }
        Ok(())
    }
}

/// The sentinels of all nodes, with the master that each has named last.
pub(crate) struct Subscriptions {
    sentinels: Vec<SubscribedSentinel>,
    /// The `mio::Token` of the first sentinel; the others follow.
    first_token: usize,
}

struct SubscribedSentinel {
    node: usize,
    master: String,
    named: Option<NamedMaster>,
    subscription: Option<Box<Subscription>>,
}

impl Subscriptions {
    pub(crate) fn new(addresses: &[Address], first_token: usize) -> Self {
        let mut all = Vec::new();
        for (node, address) in addresses.iter().enumerate() {
            let Address::Sentinels(sentinels) = address else { continue };
            let master = &sentinels.master;
            all.extend(sentinels.places.iter().map(|_| SubscribedSentinel::new(node, master)));
        }
        Self { sentinels: all, first_token }
    }

    /// Returns the number of sentinels of all nodes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.sentinels.len()
    }

    pub(crate) fn is_any_open(&self) -> bool {
        self.sentinels.iter().any(|sentinel| sentinel.subscription.is_some())
    }

    /// Returns whether every sentinel of a node has a subscription.
    pub(crate) fn are_all_open(&self, node: usize) -> bool {
        self.sentinels.iter().all(|it| it.node != node || it.subscription.is_some())
    }

    /// Queries a node's sentinels again on the open connections. Returns whether those are more
    /// than half.
    pub(crate) fn ask(&mut self, node: usize, now: ClockReading, registry: &Registry) -> bool {
        let (mut all, mut asked) = (0, 0);
        for (_, sentinel) in self.of_mut(node) {
            all += 1;
            let open = sentinel.subscription.as_mut();
            match open.map(|subscription| subscription.ask(&sentinel.master, now)) {
                Some(Ok(())) => asked += 1,
                Some(Err(_)) => sentinel.close(registry),
                None => {}
            }
        }
        2 * asked > all
    }

    /// Returns the latest time for which a majority of the node's sentinels, queried then or later,
    /// has named this address; `None` without a majority.
    pub(crate) fn vouched_at(&self, node: usize, place: &HostPort) -> Option<ClockReading> {
        let sentinels = self.sentinels.iter().filter(|sentinel| sentinel.node == node);
        let named = sentinels.clone().filter_map(|sentinel| sentinel.named.as_ref());
        let votes = named.filter(|named| named.place == *place).map(|named| named.asked_at);
        sentinel_answer::vouched_at(sentinels.count(), votes)
    }

    /// Forgets the answers of a node's sentinels, before they are queried again.
    pub(crate) fn forget(&mut self, node: usize) {
        self.of_mut(node).for_each(|(_, sentinel)| sentinel.named = None);
    }

    /// Replaces a sentinel's answer and its connection.
    pub(crate) fn add(&mut self, node: usize, new: NewSubscription, registry: &Registry) {
        let NewSubscription { by, named, mut subscription } = new;
        let first_token = self.first_token;
        let Some((at, sentinel)) = self.of_mut(node).nth(by) else { return };
        sentinel.named = Some(named);
        sentinel.close(registry);
        let token = mio::Token(first_token + at);
        // The poller does not report bytes that came with the answer.
        let is_open = subscription.receive(&sentinel.master, &mut sentinel.named).is_ok();
        if is_open && subscription.socket.register(registry, token).is_ok() {
            sentinel.subscription = Some(subscription);
        }
    }

    /// Reads from the sentinel with this index, below [`len`](Self::len). Returns its node.
    pub(crate) fn receive(&mut self, at: usize, registry: &Registry) -> usize {
        let sentinel = &mut self.sentinels[at];
        if let Some(subscription) = &mut sentinel.subscription
            && subscription.receive(&sentinel.master, &mut sentinel.named).is_err()
        {
            sentinel.close(registry);
        }
        sentinel.node
    }

    /// Returns the address that more than half of a node's sentinels have named last.
    pub(crate) fn named(&self, node: usize) -> Option<HostPort> {
        let sentinels = self.sentinels.iter().filter(|sentinel| sentinel.node == node);
        let named: Vec<_> =
            sentinels.map(|sentinel| sentinel.named.as_ref().map(|named| &named.place)).collect();
        let votes = |place| named.iter().filter(|&&other| other == place).count();
        named.iter().copied().find(|&place| 2 * votes(place) > named.len())?.cloned()
    }

    fn of_mut(&mut self, node: usize) -> impl Iterator<Item = (usize, &mut SubscribedSentinel)> {
        self.sentinels.iter_mut().enumerate().filter(move |(_, sentinel)| sentinel.node == node)
    }
}

impl SubscribedSentinel {
    fn new(node: usize, master: &str) -> Self {
        Self { node, master: master.to_owned(), named: None, subscription: None }
    }

    fn close(&mut self, registry: &Registry) {
        if let Some(subscription) = self.subscription.take() {
            subscription.socket.close_in(registry);
        }
    }
}

/// The maximum number of reads from one sentinel per turn.
const READS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::Timestamp;

    const NODES: [&str; 3] =
        ["redis+sentinel://a+b+c/jobs", "redis://d", "redis+sentinel://a+b/other"];

    fn subscriptions() -> Subscriptions {
        Subscriptions::new(&NODES.map(|text| text.parse().unwrap()), 7)
    }

    #[test]
    fn a_place_counts_that_more_than_half_have_named_last() {
        let mut all = subscriptions();
        let [old, new] = ["old", "new"].map(|host| (host.to_owned(), 6_379));
        assert_eq!((all.len(), all.is_any_open(), all.named(0)), (5, false, None));
        let record = |all: &mut Subscriptions, node, by, place: &HostPort| {
            let named = NamedMaster { place: place.clone(), asked_at: ClockReading::default() };
            all.of_mut(node).nth(by).unwrap().1.named = Some(named);
            all.named(node)
        };
        assert_eq!(record(&mut all, 0, 0, &old), None);
        assert_eq!(record(&mut all, 0, 2, &old), Some(old.clone()));
        assert_eq!(record(&mut all, 0, 1, &new), Some(old.clone()));
        assert_eq!(record(&mut all, 0, 0, &new), Some(new.clone()));
        assert_eq!(record(&mut all, 2, 0, &new), None, "one of two is not enough");
        assert_eq!(record(&mut all, 2, 1, &new), Some(new));
        all.forget(0);
        assert_eq!(all.named(0), None);
        assert!(all.named(2).is_some());
    }

    /// The time is that of the oldest query in the youngest majority that names the address.
    #[test]
    fn a_place_is_vouched_for_since_the_oldest_question_of_a_majority() {
        let mut all = subscriptions();
        let [old, new] = ["old", "new"].map(|host| (host.to_owned(), 6_379));
        let at = |at| ClockReading { boot: Timestamp(at), wall: Timestamp(at) };
        let mut record = |by, place: &HostPort, asked_at| {
            let named = NamedMaster { place: place.clone(), asked_at: at(asked_at) };
            all.of_mut(0).nth(by).unwrap().1.named = Some(named);
            all.vouched_at(0, &old)
        };
        assert_eq!(record(1, &old, 5), None);
        assert_eq!(record(0, &old, 3), Some(at(3)));
        assert_eq!(record(2, &old, 7), Some(at(5)));
        assert_eq!(record(0, &old, 9), Some(at(7)));
        assert_eq!(record(2, &new, 9), Some(at(5)));
        assert_eq!(record(0, &new, 9), None);
        assert_eq!((all.vouched_at(0, &new), all.vouched_at(2, &old)), (Some(at(9)), None));
    }
}
