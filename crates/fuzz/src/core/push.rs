//! The other end of a push link: the commands of the core, and the replies of an honest node.
//! Messages on it are not judged: all of them are hints, and any of them may end the link.

use redbolt::proto::LinkId;
use redbolt_testkit::request;

use super::peer;
use super::request::State;

pub(super) struct PushWire {
    pub(super) link: Option<LinkId>,
    pub(super) state: State,
    /// The number of connections so far.
    pub(super) connection: u32,
    node: usize,
    has_user: bool,
    /// The bytes that the socket has not accepted.
    unsent: Vec<u8>,
    /// The number of commands of the first flight that were sent, and that were answered.
    replied: usize,
    answered: usize,
}

impl PushWire {
    pub(super) fn new(node: usize, has_user: bool) -> Self {
        Self {
            link: None,
            state: State::Closed,
            connection: 0,
            node,
            has_user,
            unsent: Vec::new(),
            replied: 0,
            answered: 0,
        }
    }

    /// Records that the core opens or closes the link. Returns true if it was open, or about to be.
    pub(super) fn is_notified(&mut self, link: LinkId, state: State) -> bool {
        self.link = Some(link);
        let is_open = self.state != State::Closed;
        self.reset(state);
        is_open
    }

    pub(super) fn reset(&mut self, state: State) {
        self.state = state;
        self.connection += 1;
        self.unsent.clear();
        (self.replied, self.answered) = (0, 0);
    }

    pub(super) fn took(&mut self, bytes: usize) {
        self.unsent.drain(..bytes);
    }

    /// Reads the unsent bytes of the core: one flight, and nothing more.
    pub(super) fn sync(&mut self, unsent: &[u8]) {
        let more = unsent.strip_prefix(&self.unsent[..]).expect("nothing is taken back");
        let mut rest = more;
        while !rest.is_empty() {
            assert_eq!(self.state, State::Open, "a command without a connection");
            let (words, len) = request::first(rest).expect("the core writes whole commands");
            let step = self.steps().nth(self.replied).expect("no more than the first flight");
            assert!(words.starts_with(step), "{step:?} is due");
            self.replied += 1;
            rest = &rest[len..];
        }
        self.unsent.extend_from_slice(more);
    }

    /// Returns the first words of the commands of the first flight.
    fn steps(&self) -> impl Iterator<Item = &'static [&'static [u8]]> {
        const STEPS: [&[&[u8]]; 5] = [
            &[b"AUTH"],
            &[b"CLIENT", b"SETNAME"],
            &[b"CLIENT", b"ID"],
            &[b"INFO", b"server"],
            &[b"SUBSCRIBE", b"__redis__:invalidate"],
        ];
        STEPS.into_iter().skip(usize::from(!self.has_user))
    }

    /// Returns the replies to all commands of the core.
    pub(super) fn honest(&mut self, era: char) -> String {
        let answers = ["+OK\r\n", "+OK\r\n", ":107\r\n", &peer::server(self.node, era), SUBSCRIBED];
        let first = usize::from(!self.has_user);
        let reported = answers[first + self.answered..first + self.replied].concat();
        self.answered = self.replied;
        reported
    }
}

const SUBSCRIBED: &str = "*3\r\n$9\r\nsubscribe\r\n$20\r\n__redis__:invalidate\r\n:1\r\n";
