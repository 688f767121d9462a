//! A model of undo across connections: one node, a client that loses its connection once, and a
//! stranger.
//!
//! Commands of one connection run in order. After the client loses a connection, any prefix of what
//! it wrote there may still run, at any later moment while the network keeps it: a *ghost*. A reply
//! is lost only with its connection. Time passes in ticks. Quorums play no part here, and the
//! core's own tests cover a second lost connection.

use std::fmt;

use crate::search::Model;

/// The TTL of the keys, in ticks.
const TTL: u8 = 4;

/// The rules of undo, and the faults.
#[derive(Clone, Copy, Debug)]
pub struct Ghosts {
    /// True: a kill is sent only to the process at the other end of the old connection.
    pub same_run_only: bool,
    /// True: an undo that a ghost may follow is sent again when half of the TTL that was left has
    /// passed.
    pub undo_again: bool,
    /// True: the next attempt has its own token.
    pub fresh_token: bool,
    /// True: a reply that arrives after its attempt was given up counts for nothing.
    pub late_is_nothing: bool,
    /// True: the undo follows the request on the same connection. False: it may overtake the
    /// request.
    pub in_order: bool,
    /// True: the server lets the client kill connections.
    pub may_kill: bool,
    /// The number of ticks for which the network keeps what the first connection sent; `None`: for
    /// ever.
    pub network_keeps: Option<u8>,
    /// The number of restarts of the server, each with its memory kept.
    pub restarts: u8,
}

impl Ghosts {
    /// The rules of the library, with ghosts that end at half of the TTL.
    pub const RULES: Self = Self {
        same_run_only: true,
        undo_again: true,
        fresh_token: true,
        late_is_nothing: true,
        in_order: true,
        may_kill: true,
        network_keeps: Some(TTL / 2),
        restarts: 1,
    };
}

/// The server, the connections and the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    key: Option<Token>,
    key_ttl: u8,
    run: u8,
    next_id: u8,
    /// The client's old connection, its new one, and the stranger's.
    connections: [Connection; 3],
    client: Client,
    stranger_killed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Token {
    First,
    Second,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Connection {
    /// The server's ID of the connection; 0 while it is not open there.
    id: u8,
    /// The commands that were written and have not run, in order.
    queue: [Option<Command>; 4],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Command {
    Handshake,
    Kill,
    Ask(Token),
    Undo,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Client {
    link: Link,
    claim: Claim,
    /// The ticks since the request of the first attempt.
    age: u8,
    /// The request of the first attempt was answered.
    answered: bool,
    /// The undo of the first attempt has to be confirmed.
    owed: bool,
    /// The undo is in flight on the current connection.
    undoing: bool,
    /// The request may still be in the lost connection.
    ghost: bool,
    /// The age at which the undo is sent again; 0 for never.
    again_at: u8,
    /// The ticks left of the leases of the first and the second attempt; `holds`: whether they are
    /// held.
    left: [u8; 2],
    holds: [bool; 2],
    asked_again: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Link {
    Old,
    Down,
    /// The new connection before its handshake was answered. `New`: after.
    Handshake,
    New,
    /// The new connection was lost too.
    Gone,
}

/// The client's view of its first attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Claim {
    None,
    Asked,
    GivenUp,
    /// The undo was confirmed.
    Settled,
    /// A TTL has passed since the request, so nothing is owed any longer.
    Forgotten,
}

const OLD: usize = 0;
const NEW: usize = 1;
const STRANGER: usize = 2;

/// The ID of the old connection, and the run that it leads to.
const OLD_ID: u8 = 1;
const OLD_RUN: u8 = 0;

/// One event.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "`Display` says what each is")]
pub enum Step {
    Tick,
    Asks { again: bool },
    GivesUp,
    Loses { kept: usize },
    Opens,
    UndoesAgain,
    Runs { connection: usize, what: &'static str, received: bool },
    Restarts,
    StrangerConnects,
    Closes,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Tick => f.write_str("a tick passes"),
            Self::Asks { again: false } => f.write_str("the client asks"),
            Self::Asks { again: true } => f.write_str("the client asks once more"),
            Self::GivesUp => f.write_str("the client gives up, or releases"),
            Self::Loses { kept } => {
                write!(f, "the client loses its connection; {kept} commands may still run")
            }
            Self::Opens => f.write_str("the client connects"),
            Self::UndoesAgain => f.write_str("the client undoes once more"),
            Self::Runs { connection, what, received } => {
                let from = ["the old connection", "the new one", "the stranger's"][connection];
                let received = if received { "" } else { "; nobody hears the answer" };
                write!(f, "{what} runs from {from}{received}")
            }
            Self::Restarts => f.write_str("the server restarts"),
            Self::StrangerConnects => f.write_str("a stranger connects"),
            Self::Closes => f.write_str("the server closes the old connection"),
        }
    }
}

impl Model for Ghosts {
    type State = State;
    type Step = Step;

    fn begins(&self) -> Vec<State> {
        let closed = Connection { id: 0, queue: [None; 4] };
        let client = Client {
            link: Link::Old,
            claim: Claim::None,
            age: 0,
            answered: false,
            owed: false,
            undoing: false,
            ghost: false,
            again_at: 0,
            left: [0; 2],
            holds: [false; 2],
            asked_again: false,
        };
        vec![State {
            key: None,
            key_ttl: 0,
            run: OLD_RUN,
            next_id: OLD_ID + 1,
            connections: [Connection { id: OLD_ID, ..closed }, closed, closed],
            client,
            stranger_killed: false,
        }]
    }

    fn steps(&self, state: &State, found: &mut impl FnMut(Step, State)) {
        let Client { claim, age, answered, .. } = state.client;
        // An attempt is given up before its TTL has passed.
        if claim != Claim::Asked || answered || age + 1 < TTL {
            found(Step::Tick, self.tick(state));
        }
        self.client_steps(state, found);
        for connection in [OLD, NEW] {
            self.runs(state, connection, found);
        }
        if state.run < self.restarts {
            found(Step::Restarts, state.restarted());
        }
        if state.connections[STRANGER].id == 0 {
            let mut next = *state;
            next.connect(STRANGER);
            found(Step::StrangerConnects, next);
        }
        if state.client.link != Link::Old && state.connections[OLD].id != 0 {
            let mut next = *state;
            next.close(OLD);
            found(Step::Closes, next);
        }
    }

    fn wrong(&self, state: &State) -> Option<&'static str> {
        let client = state.client;
        let token = |again| if again && self.fresh_token { Token::Second } else { Token::First };
        let lost = |again: bool| {
            let at = usize::from(again);
            client.holds[at] && client.left[at] > 0 && state.key != Some(token(again))
        };
        let asks = state.connections.iter().flat_map(|connection| connection.queue);
        let may_come = asks.flatten().any(|command| command == Command::Ask(Token::First));
        let there = state.key == Some(Token::First);
        let late = self.network_keeps.is_some_and(|ticks| client.age > TTL + ticks);
        if state.stranger_killed {
            Some("a stranger's connection was killed")
        } else if lost(false) || lost(true) {
            Some("the key of a lock that is held is not there")
        } else if !self.fresh_token {
            None
        } else if client.claim == Claim::Settled && (there || may_come) {
            Some("an undo counts as done, and the key is there or may yet come")
        } else if there && late {
            Some("a key outlives its bound")
        } else {
            None
        }
    }
}

impl Ghosts {
    fn tick(&self, state: &State) -> State {
        let mut next = *state;
        let client = &mut next.client;
        if client.claim != Claim::None {
            client.age = (client.age + 1).min(2 * TTL + 1);
        }
        // The TTL bounds whatever could not be undone.
        if client.age >= TTL && client.claim != Claim::None {
            (client.claim, client.owed, client.ghost) = (Claim::Forgotten, false, false);
            client.again_at = 0;
        }
        for at in 0..2 {
            client.left[at] = client.left[at].saturating_sub(1);
            client.holds[at] &= client.left[at] > 0;
        }
        // The network drops what it has kept for too long, and the client loses the connection.
        if self.network_keeps.is_some_and(|ticks| client.age >= ticks) {
            let silent = next.connections[OLD].queue[0].is_some();
            next.connections[OLD].queue = [None; 4];
            if silent && next.client.link == Link::Old {
                next.lose_link();
            }
        }
        next.key_ttl = next.key_ttl.saturating_sub(1);
        if next.key_ttl == 0 {
            next.key = None;
        }
        next
    }

    fn client_steps(&self, state: &State, found: &mut impl FnMut(Step, State)) {
        let client = state.client;
        if client.claim == Claim::None && client.link == Link::Old {
            let mut next = *state;
            next.client.claim = Claim::Asked;
            next.client.left[0] = TTL;
            next.write(OLD, Command::Ask(Token::First));
            found(Step::Asks { again: false }, next);
        }
        if client.claim == Claim::Asked {
            let mut next = *state;
            next.client.claim = Claim::GivenUp;
            (next.client.owed, next.client.holds[0]) = (true, false);
            self.undo(&mut next);
            found(Step::GivesUp, next);
        }
        if client.again_at > 0 && client.age >= client.again_at {
            let mut next = *state;
            next.client.again_at = 0;
            self.undo(&mut next);
            found(Step::UndoesAgain, next);
        }
        let given_up = !matches!(client.claim, Claim::None | Claim::Asked);
        if given_up
            && !client.asked_again
            && let Some(link) = client.link.connection()
        {
            let mut next = *state;
            next.client.asked_again = true;
            next.client.left[1] = TTL;
            let token = if self.fresh_token { Token::Second } else { Token::First };
            next.write(link, Command::Ask(token));
            found(Step::Asks { again: true }, next);
        }
        if client.link == Link::Down {
            let mut next = *state;
            next.client.link = Link::Handshake;
            next.connect(NEW);
            next.write(NEW, Command::Handshake);
            found(Step::Opens, next);
        }
        let at = if client.link == Link::Old { OLD } else { NEW };
        if !matches!(client.link, Link::Down | Link::Gone) {
            let written = state.connections[at].queue.iter().flatten().count();
            // Any prefix of the written commands may still reach the server.
            for kept in 0..=written {
                let mut next = *state;
                next.connections[at].queue[kept..].fill(None);
                next.lose_link();
                found(Step::Loses { kept }, next);
            }
        }
    }

    /// Writes the undo if a link is open.
    fn undo(&self, state: &mut State) {
        let Some(link) = state.client.link.connection() else { return };
        if state.client.owed && !state.client.undoing {
            state.client.undoing = true;
            let queue = &mut state.connections[link].queue;
            let overtakes = !self.in_order && queue[0] == Some(Command::Ask(Token::First));
            if overtakes {
                (queue[0], queue[1]) = (Some(Command::Undo), Some(Command::Ask(Token::First)));
            } else {
                state.write(link, Command::Undo);
            }
        }
    }

    /// Runs the next command of a connection. If the client still has the connection, it receives
    /// the reply or loses the connection instead.
    fn runs(&self, state: &State, at: usize, found: &mut impl FnMut(Step, State)) {
        let Connection { id, queue } = state.connections[at];
        let (Some(command), true) = (queue[0], id != 0) else { return };
        let mut next = *state;
        next.connections[at].queue.rotate_left(1);
        next.connections[at].queue[3] = None;
        let (what, yes) = match command {
            Command::Handshake => ("the handshake", true),
            Command::Kill => ("the kill", self.kill(&mut next)),
            Command::Ask(token) => ("the ask", next.grant(token)),
            Command::Undo => ("the undo", next.delete()),
        };
        let is_live = match state.client.link {
            Link::Old => at == OLD,
            Link::Handshake | Link::New => at == NEW,
            Link::Down | Link::Gone => false,
        };
        if !is_live {
            return found(Step::Runs { connection: at, what, received: false }, next);
        }
        let mut unheard = next;
        unheard.lose_link();
        found(Step::Runs { connection: at, what, received: false }, unheard);
        // A client that killed its own connection receives no reply.
        if next.connections[at].id != 0 {
            self.receive(&mut next, command, yes);
            found(Step::Runs { connection: at, what, received: true }, next);
        }
    }

    fn kill(&self, state: &mut State) -> bool {
        if !self.may_kill {
            return false;
        }
        for at in [OLD, NEW, STRANGER] {
            // After a restart the old ID may belong to another connection.
            if state.connections[at].id == OLD_ID {
                state.stranger_killed |= at == STRANGER;
                state.close(at);
            }
        }
        true
    }

    fn receive(&self, state: &mut State, command: Command, yes: bool) {
        let client = &mut state.client;
        match command {
            Command::Handshake => {
                client.link = Link::New;
                // IDs begin again in each run, so a kill in another run could hit a stranger.
                let same = state.run == OLD_RUN || !self.same_run_only;
                if client.ghost && same {
                    state.write(NEW, Command::Kill);
                }
                self.undo(state);
            }
            Command::Kill if yes => client.ghost = false,
            Command::Kill => {}
            Command::Ask(Token::First) if !client.answered => {
                client.answered = true;
                // The undo may have run already, so a late grant means nothing.
                let counts = client.claim == Claim::Asked || !self.late_is_nothing;
                client.holds[0] |= yes && counts && client.left[0] > 0;
            }
            Command::Ask(_) => client.holds[1] |= yes && client.left[1] > 0,
            Command::Undo => self.undone(client),
        }
    }

    /// Settles the undo, unless a ghost may follow it.
    fn undone(&self, client: &mut Client) {
        client.undoing = false;
        if client.claim != Claim::GivenUp {
            return;
        }
        if client.ghost && self.undo_again {
            client.ghost = false;
            client.again_at = client.age + (TTL - client.age).div_ceil(2);
        } else if client.again_at == 0 {
            (client.owed, client.claim) = (false, Claim::Settled);
        }
    }
}

impl Link {
    /// Returns the connection that takes requests and undos.
    fn connection(self) -> Option<usize> {
        match self {
            Self::Old => Some(OLD),
            Self::New => Some(NEW),
            Self::Down | Self::Handshake | Self::Gone => None,
        }
    }
}

impl State {
    fn write(&mut self, at: usize, command: Command) {
        let free = self.connections[at].queue.iter_mut().find(|slot| slot.is_none());
        *free.expect("a client has at most four commands in flight") = Some(command);
    }

    fn connect(&mut self, at: usize) {
        self.connections[at].id = self.next_id;
        self.next_id += 1;
    }

    /// The server closes the connection, so nothing more of it runs.
    fn close(&mut self, at: usize) {
        self.connections[at] = Connection { id: 0, queue: [None; 4] };
    }

    /// The client notices that its connection is lost.
    fn lose_link(&mut self) {
        let client = &mut self.client;
        if client.link == Link::Old {
            client.link = Link::Down;
            client.ghost = client.claim != Claim::None && !client.answered;
        } else {
            client.link = Link::Gone;
        }
        client.undoing = false;
    }

    fn restarted(&self) -> Self {
        let mut next = *self;
        for at in [OLD, NEW, STRANGER] {
            next.close(at);
        }
        // Connection IDs begin again with the process.
        (next.run, next.next_id) = (self.run + 1, 1);
        if !matches!(next.client.link, Link::Down | Link::Gone) {
            next.lose_link();
        }
        next
    }

    fn grant(&mut self, token: Token) -> bool {
        if self.key.is_some() {
            return false;
        }
        (self.key, self.key_ttl) = (Some(token), TTL);
        true
    }

    fn delete(&mut self) -> bool {
        if self.key == Some(Token::First) {
            (self.key, self.key_ttl) = (None, 0);
        }
        true
    }
}
