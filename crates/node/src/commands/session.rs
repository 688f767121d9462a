//! Commands about the connection itself: its identity, its database, and its end.

use super::call::{Call, Failure, Outcome, SYNTAX_ERROR, c_string, integer, is_word, wrong_arity};
use crate::{
    session::{ConnId, Session},
    store::DEFAULT_USER,
};

pub(super) fn auth(call: &mut Call<'_>) -> Outcome {
    let (user, password) = match call.args[1..] {
        [_] if call.store.settings.password.is_empty() => return Err(NO_PASSWORD_SET.into()),
        [password] => (DEFAULT_USER, password),
        [user, password] => (user, password),
        _ => return Err(SYNTAX_ERROR.into()),
    };
    if !is_password_of(call, user, password) {
        return Err("WRONGPASS invalid username-password pair or user is disabled.".into());
    }
    call.session().authenticated = true;
    call.ok()
}

pub(super) fn select(call: &mut Call<'_>) -> Outcome {
    let index = i32::try_from(integer(call.args[1])?).map_err(|_| INDEX_TOO_LARGE)?;
    call.session().database = call.database(index)?;
    call.ok()
}

pub(super) fn ping(call: &mut Call<'_>) -> Outcome {
    let is_subscribed = call.session().is_subscribed();
    match call.args[1..] {
        [] if is_subscribed => pong(call, b""),
        [message] if is_subscribed => pong(call, message),
        [] => call.reply.status("PONG"),
        [message] => call.reply.bulk(message),
        _ => return Err(wrong_arity("ping")),
    }
    Ok(())
}

/// Replies with an array, as a subscribed connection reads every message.
fn pong(call: &mut Call<'_>, message: &[u8]) {
    call.reply.array(2);
    call.reply.bulk(b"pong");
    call.reply.bulk(message);
}

pub(super) fn echo(call: &mut Call<'_>) -> Outcome {
    call.reply.bulk(call.args[1]);
    Ok(())
}

pub(super) fn quit(call: &mut Call<'_>) -> Outcome {
    call.store.close(call.conn);
    call.ok()
}

pub(super) fn reset(call: &mut Call<'_>) -> Outcome {
    let authenticated = call.store.settings.password.is_empty();
    *call.session() = Session::new(call.conn, authenticated);
    call.reply.status("RESET");
    Ok(())
}

pub(super) fn client_id(call: &mut Call<'_>) -> Outcome {
    call.int(call.conn.number() as i64)
}

pub(super) fn client_getname(call: &mut Call<'_>) -> Outcome {
    let name = call.session().name.clone();
    if name.is_empty() {
        call.reply.nil()
    } else {
        call.reply.bulk(&name)
    }
    Ok(())
}

pub(super) fn client_setname(call: &mut Call<'_>) -> Outcome {
    let name = call.args[2];
    if !name.iter().all(u8::is_ascii_graphic) {
        return Err(BAD_NAME.into());
    }
    call.session().name = name.to_vec();
    call.ok()
}

/// Kills connections by a filter. `CLIENT KILL address` finds none, because a sans-I/O store has no
/// addresses.
pub(super) fn client_kill(call: &mut Call<'_>) -> Outcome {
    if call.args.len() == 3 {
        return Err("ERR No such client".into());
    }
    let filter = KillFilter::parse(&call.args[2..])?;
    let hit = call.store.sessions.iter().filter(|session| filter.hits(session, call.conn));
    let doomed: Vec<ConnId> = hit.map(|session| session.id).collect();
    doomed.iter().for_each(|&id| call.store.close(id));
    call.int(doomed.len() as i64)
}

/// The server's classification of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Normal,
    Subscribed,
    /// A connection of replication, of which there are none here.
    Other,
}

struct KillFilter {
    id: Option<u64>,
    kind: Option<Kind>,
    skip_me: bool,
}

impl KillFilter {
    fn parse(args: &[&[u8]]) -> Result<Self, Failure> {
        let mut filter = Self { id: None, kind: None, skip_me: true };
        for pair in args.chunks(2) {
            match *pair {
                [word, id] if is_word(word, "ID") => {
                    let id = integer(id).ok().and_then(|id| u64::try_from(id).ok());
                    let id = id.filter(|&id| id > 0);
                    filter.id = Some(id.ok_or("ERR client-id should be greater than 0")?);
                }
                [word, kind] if is_word(word, "TYPE") => {
                    filter.kind = Some(Kind::named(kind)?);
                }
                [word, yes] if is_word(word, "SKIPME") && is_word(yes, "yes") => {
                    filter.skip_me = true;
                }
                [word, no] if is_word(word, "SKIPME") && is_word(no, "no") => {
                    filter.skip_me = false;
                }
                _ => return Err(SYNTAX_ERROR.into()),
            }
        }
        Ok(filter)
    }

    fn hits(&self, session: &Session, me: ConnId) -> bool {
        let kind = if session.is_subscribed() { Kind::Subscribed } else { Kind::Normal };
        self.kind.is_none_or(|wanted| wanted == kind)
            && self.id.is_none_or(|wanted| wanted == session.id.number())
            && !(self.skip_me && session.id == me)
    }
}

impl Kind {
    fn named(name: &[u8]) -> Result<Self, Failure> {
        match name.to_ascii_lowercase().as_slice() {
            b"normal" => Ok(Self::Normal),
            b"pubsub" => Ok(Self::Subscribed),
            b"master" | b"replica" | b"slave" => Ok(Self::Other),
            _ => {
                let name = c_string(name, name.len());
                Err(Failure([b"ERR Unknown client type '", name, b"'"].concat()))
            }
        }
    }
}

/// Returns true if the user has this password. The default user without a password is accepted with
/// any.
fn is_password_of(call: &Call<'_>, user: &[u8], password: &[u8]) -> bool {
    let expected = match user {
        DEFAULT_USER => Some(&call.store.settings.password),
        other => call.store.users.get(other),
    };
    expected.is_some_and(|expected| {
        expected == password || (user == DEFAULT_USER && expected.is_empty())
    })
}

const NO_PASSWORD_SET: &str = "ERR AUTH <password> called without any password configured for the \
                               default user. Are you sure your configuration is correct?";
const INDEX_TOO_LARGE: &str =
    "ERR value is out of range, value must between -2147483648 and 2147483647";
const BAD_NAME: &str = "ERR Client names cannot contain spaces, newlines or special characters.";
