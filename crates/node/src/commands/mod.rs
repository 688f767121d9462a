//! The command table, and the checks before every command.
//!
//! The checks come in the server's order: the name, the number of arguments, authentication,
//! whether the connection is subscribed, whether the keys are loaded. A command writes its whole
//! reply, or fails and has written nothing.

mod call;
mod hashes;
mod lists;
mod scripting;
mod server;
mod session;
mod sorted_sets;
mod strings;
mod tracking;

use self::call::{Call, Failure, Outcome, c_string, is_word, wrong_arity};
use crate::{clock::ClockReading, denial::Denial, reply::Reply, session::ConnId, store::Store};

impl Store {
    /// Runs one command, its name first, and appends the reply to `out`. On a connection that has
    /// ended it does nothing: the last commands of a killed client do not run.
    pub fn command(&mut self, conn: ConnId, args: &[&[u8]], now: ClockReading, out: &mut Vec<u8>) {
        if args.is_empty() || self.session(conn).is_none() {
            return;
        }
        let mut call = Call { store: self, conn, args, now, reply: Reply::new(out), named: &[] };
        let outcome = find(args, call.store).and_then(|(command, body)| {
            command.permit(&mut call)?;
            let outcome = body(&mut call);
            command.note_reading(&mut call);
            outcome
        });
        call.store.settle(Some(conn), call.named);
        if !is_about_itself(args) {
            // A failed command counts too: it was the next command.
            let tracking = call.store.session(conn).and_then(|session| session.tracking.as_mut());
            tracking.into_iter().for_each(|tracking| tracking.caches_next = false);
        }
        if let Err(Failure(text)) = outcome {
            call.reply.error(&text);
        }
    }
}

type Handler = fn(&mut Call<'_>) -> Outcome;

/// An entry of the command table.
struct Command {
    name: &'static str,
    /// The name as a number, for fast comparison.
    key: u128,
    arity: Arity,
    body: Body,
    /// True if a client may call it before AUTH.
    open: bool,
    /// True if it runs while the node still loads its keys.
    loading: bool,
    /// True if a client may call it while it is subscribed.
    subscribed: bool,
    /// True if only some servers have it.
    optional: bool,
    reads: Reads,
}

/// The words of a command that are keys which it only reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reads {
    Nothing,
    One,
    Many,
}

/// The number of words of a command, including its name (and its subcommand's).
#[derive(Clone, Copy)]
enum Arity {
    Exactly(usize),
    AtLeast(usize),
}

enum Body {
    Run(Handler),
    Subcommands(&'static [Command]),
}

use Arity::{AtLeast, Exactly};

const COMMANDS: &[Command] = &[
    Command::new("auth", AtLeast(2), session::auth).open_to_all().while_loading(),
    Command::with(
        "client",
        &[
            Command::new("caching", Exactly(3), tracking::client_caching).while_loading(),
            Command::new("getname", Exactly(2), session::client_getname).while_loading(),
            Command::new("getredir", Exactly(2), tracking::client_getredir).while_loading(),
            Command::new("id", Exactly(2), session::client_id).while_loading(),
            Command::new("kill", AtLeast(3), session::client_kill).while_loading(),
            Command::new("setname", Exactly(3), session::client_setname).while_loading(),
            Command::new("tracking", AtLeast(3), tracking::client_tracking).while_loading(),
            Command::new("trackinginfo", Exactly(2), tracking::client_trackinginfo).while_loading(),
        ],
    ),
    Command::with(
        "config",
        &[
            Command::new("get", AtLeast(3), server::config_get).while_loading(),
            Command::new("set", AtLeast(4), server::config_set).while_loading(),
        ],
    ),
    Command::new("del", AtLeast(2), strings::del),
    Command::new("delex", AtLeast(2), strings::delex).of_some_servers(),
    Command::new("delifeq", Exactly(3), strings::delifeq).of_some_servers(),
    Command::new("echo", Exactly(2), session::echo).while_loading(),
    Command::new("eval", AtLeast(3), scripting::eval),
    Command::new("evalsha", AtLeast(3), scripting::evalsha),
    Command::new("exists", AtLeast(2), strings::exists).reading(Reads::Many),
    Command::new("expire", AtLeast(3), strings::expire),
    Command::new("flushall", AtLeast(1), server::flushall),
    Command::new("flushdb", AtLeast(1), server::flushdb),
    Command::new("get", Exactly(2), strings::get).reading(Reads::One),
    Command::new("getrange", Exactly(4), strings::getrange).reading(Reads::One),
    Command::new("hget", Exactly(3), hashes::hget).reading(Reads::One),
    Command::new("hkeys", Exactly(2), hashes::hkeys).reading(Reads::One),
    Command::new("hlen", Exactly(2), hashes::hlen).reading(Reads::One),
    Command::new("info", AtLeast(1), server::info).while_loading(),
    Command::new("llen", Exactly(2), lists::llen).reading(Reads::One),
    Command::new("pexpire", AtLeast(3), strings::pexpire),
    Command::new("ping", AtLeast(1), session::ping).while_subscribed(),
    Command::new("pttl", Exactly(2), strings::pttl).reading(Reads::One),
    Command::new("publish", Exactly(3), tracking::publish).while_loading(),
    Command::with(
        "pubsub",
        &[
            Command::new("channels", Exactly(2), tracking::pubsub_channels).while_loading(),
            Command::new("numsub", AtLeast(2), tracking::pubsub_numsub).while_loading(),
        ],
    ),
    Command::new("quit", AtLeast(1), session::quit)
        .open_to_all()
        .while_loading()
        .while_subscribed(),
    Command::new("reset", Exactly(1), session::reset)
        .open_to_all()
        .while_loading()
        .while_subscribed(),
    Command::with(
        "script",
        &[
            Command::new("exists", AtLeast(3), scripting::script_exists),
            Command::new("flush", AtLeast(2), scripting::script_flush),
            Command::new("load", Exactly(3), scripting::script_load),
        ],
    ),
    Command::new("select", Exactly(2), session::select).while_loading(),
    Command::new("set", AtLeast(3), strings::set),
    Command::new("subscribe", AtLeast(2), tracking::subscribe).while_loading().while_subscribed(),
    Command::new("swapdb", Exactly(3), server::swapdb),
    Command::new("time", Exactly(1), server::time).while_loading(),
    Command::new("ttl", Exactly(2), strings::ttl).reading(Reads::One),
    Command::new("type", Exactly(2), strings::type_of).reading(Reads::One),
    Command::new("unsubscribe", AtLeast(1), tracking::unsubscribe)
        .while_loading()
        .while_subscribed(),
    Command::new("zcard", Exactly(2), sorted_sets::zcard).reading(Reads::One),
    Command::new("zrange", AtLeast(4), sorted_sets::zrange).reading(Reads::One),
    Command::new("zrank", Exactly(3), sorted_sets::zrank).reading(Reads::One),
    Command::new("zscore", Exactly(3), sorted_sets::zscore).reading(Reads::One),
];

impl Command {
    const fn new(name: &'static str, arity: Arity, run: Handler) -> Self {
        Self::entry(name, arity, Body::Run(run))
    }

    const fn with(name: &'static str, subcommands: &'static [Self]) -> Self {
        Self::entry(name, AtLeast(2), Body::Subcommands(subcommands))
    }

    const fn entry(name: &'static str, arity: Arity, body: Body) -> Self {
        let key = key_of(name.as_bytes());
        let (open, loading, subscribed, optional) = (false, false, false, false);
        Self { name, key, arity, body, open, loading, subscribed, optional, reads: Reads::Nothing }
    }

    const fn open_to_all(self) -> Self {
        Self { open: true, ..self }
    }

    const fn while_loading(self) -> Self {
        Self { loading: true, ..self }
    }

    const fn while_subscribed(self) -> Self {
        Self { subscribed: true, ..self }
    }

    const fn of_some_servers(self) -> Self {
        Self { optional: true, ..self }
    }

    const fn reading(self, reads: Reads) -> Self {
        Self { reads, ..self }
    }

    fn permit(&self, call: &mut Call<'_>) -> Outcome {
        let password_set = !call.store.settings.password.is_empty();
        if password_set && !self.open && !call.session().authenticated {
            return Err("NOAUTH Authentication required.".into());
        }
        self.is_allowed(call)?;
        if call.session().is_subscribed() && !self.subscribed {
            return Err(not_while_subscribed(call.args));
        }
        if call.store.is_loading(call.now) && !self.loading {
            return Err("LOADING Redis is loading the dataset in memory".into());
        }
        Ok(())
    }

    fn is_allowed(&self, call: &Call<'_>) -> Outcome {
        if call.store.denials.is_empty() {
            return Ok(());
        }
        let is_forbidden = |name: &str| call.store.denials.of(name) == Some(Denial::Forbidden);
        let container = named(COMMANDS, call.args[0]).map_or("", |container| container.name);
        let name = match container == self.name {
            true => self.name.to_owned(),
            false => format!("{container}|{}", self.name),
        };
        if is_forbidden(container) || is_forbidden(&name) {
            let words = format!("NOPERM this user has no permissions to run the '{name}' command");
            return Err(words.into());
        }
        Ok(())
    }

    /// Records that the command has read its keys, even if it failed.
    fn note_reading(&self, call: &mut Call<'_>) {
        call.named = match self.reads {
            Reads::Nothing => return,
            Reads::One => &call.args[1..2],
            Reads::Many => &call.args[1..],
        };
        if call.session().tracking.is_some() {
            call.store.journal.read();
        }
    }
}

impl Arity {
    fn allows(self, words: usize) -> bool {
        match self {
            Exactly(n) => words == n,
            AtLeast(n) => words >= n,
        }
    }
}

/// Returns the command that `args` call, with subcommands resolved and the right number of
/// arguments.
fn find(args: &[&[u8]], store: &Store) -> Result<(&'static Command, Handler), Failure> {
    let is_there = |command: &&Command| {
        (!command.optional || store.optional.contains(&command.name))
            && store.denials.of(command.name) != Some(Denial::RenamedAway)
    };
    let Some(command) = named(COMMANDS, args[0]).filter(is_there) else {
        return Err(unknown_command(args));
    };
    match command.body {
        Body::Run(run) if command.arity.allows(args.len()) => Ok((command, run)),
        Body::Subcommands(subcommands) if args.len() > 1 => {
            find_subcommand(command, subcommands, args)
        }
        _ => Err(wrong_arity(command.name)),
    }
}

fn find_subcommand(
    container: &Command,
    subcommands: &'static [Command],
    args: &[&[u8]],
) -> Result<(&'static Command, Handler), Failure> {
    let Some(command) = named(subcommands, args[1]) else {
        return Err(unknown_subcommand(container.name, args[1]));
    };
    match command.body {
        Body::Run(run) if command.arity.allows(args.len()) => Ok((command, run)),
        _ => Err(wrong_arity(&format!("{}|{}", container.name, command.name))),
    }
}

fn named(table: &'static [Command], name: &[u8]) -> Option<&'static Command> {
    let key = key_of(name);
    let command = table.binary_search_by_key(&key, |command| command.key).ok().map(|at| &table[at]);
    command.filter(|command| command.name.len() == name.len())
}

/// Returns a name in lower case as one number, in the order of the names; 0 for a name longer than
/// any command's. Every command is looked up, and numbers compare in one step.
const fn key_of(name: &[u8]) -> u128 {
    if name.is_empty() || name.len() > LONGEST_NAME {
        return 0;
    }
    let (mut key, mut at) = (0, 0);
    while at < name.len() {
        key = key << 8 | name[at].to_ascii_lowercase() as u128;
        at += 1;
    }
    key << (8 * (LONGEST_NAME - name.len()))
}

/// Returns true if it is a subcommand of CLIENT, well-formed or not.
fn is_about_itself(args: &[&[u8]]) -> bool {
    let subcommand = args.get(1).filter(|_| is_word(args[0], "CLIENT"));
    let client = named(COMMANDS, b"client").map(|command| &command.body);
    match (subcommand, client) {
        (Some(name), Some(Body::Subcommands(all))) => named(all, name).is_some(),
        _ => false,
    }
}

/// Quotes the arguments like the server, which stops once their quotes have used up a separate
/// budget.
fn unknown_command(args: &[&[u8]]) -> Failure {
    let mut quoted = Vec::new();
    for arg in &args[1..] {
        if quoted.len() >= QUOTED {
            break;
        }
        let room = QUOTED - quoted.len();
        quoted.extend_from_slice(&[b"'", c_string(arg, room), b"' "].concat());
    }
    let name = c_string(args[0], QUOTED);
    Failure([b"ERR unknown command '", name, b"', with args beginning with: ", &quoted].concat())
}

fn unknown_subcommand(container: &str, name: &[u8]) -> Failure {
    let help = format!("'. Try {} HELP.", container.to_ascii_uppercase());
    let name = c_string(name, QUOTED);
    Failure([b"ERR unknown subcommand '", name, help.as_bytes()].concat())
}

fn not_while_subscribed(args: &[&[u8]]) -> Failure {
    let words = match named(COMMANDS, args[0]) {
        Some(Command { body: Body::Subcommands(_), .. }) => 2,
        _ => 1,
    };
    let name = args[..words].join(&b'|').to_ascii_lowercase();
    Failure([b"ERR Can't execute '", &name[..], ALLOWED].concat())
}

const LONGEST_NAME: usize = size_of::<u128>();
const ALLOWED: &[u8] = b"': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are \
                         allowed in this context";
const QUOTED: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_in_order_and_found_in_any_case() {
        let is_sorted = |table: &[Command]| {
            table.is_sorted_by_key(|command| command.name)
                && table.iter().all(|command| command.name.len() <= LONGEST_NAME)
        };
        assert!(is_sorted(COMMANDS));
        for command in COMMANDS {
            assert!(match command.body {
                Body::Run(_) => true,
                Body::Subcommands(table) => is_sorted(table),
            });
        }
        assert!(named(COMMANDS, b"GeT").is_some());
        for unknown in [&b"ge"[..], b"gett", b"", b"get\0", b"get-or-something-longer"] {
            assert!(named(COMMANDS, unknown).is_none());
        }
    }

    #[test]
    fn a_long_unknown_command_is_quoted_in_part() {
        let long = [b'x'; 100];
        let Failure(text) = unknown_command(&[b"FOO", &long, &long, b"c"]);
        let x = |n| "x".repeat(n);
        let expected = format!(
            "ERR unknown command 'FOO', with args beginning with: '{}' '{}' ",
            x(100),
            x(25)
        );
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}
