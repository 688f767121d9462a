//! Notifications: subscriptions, published messages, and CLIENT TRACKING.

use std::collections::BTreeSet;

use super::call::{Call, Failure, Outcome, SYNTAX_ERROR, integer, is_word};
use crate::session::{ConnId, Tracking};

/// Subscribes, with one reply per channel.
pub(super) fn subscribe(call: &mut Call<'_>) -> Outcome {
    for channel in &call.args[1..] {
        call.session().channels.insert(channel.to_vec());
        confirm(call, b"subscribe", Some(channel));
    }
    Ok(())
}

/// Unsubscribes, with one reply per channel, and one if there is none. Without arguments channels
/// end in the order of their names here, in any order on the server.
pub(super) fn unsubscribe(call: &mut Call<'_>) -> Outcome {
    if call.args.len() > 1 {
        for channel in &call.args[1..] {
            call.session().channels.remove(*channel);
            confirm(call, b"unsubscribe", Some(channel));
        }
        return Ok(());
    }
    if !call.session().is_subscribed() {
        confirm(call, b"unsubscribe", None);
    }
    while let Some(channel) = call.session().channels.pop_first() {
        confirm(call, b"unsubscribe", Some(&channel));
    }
    Ok(())
}

fn confirm(call: &mut Call<'_>, what: &[u8], channel: Option<&[u8]>) {
    let left = call.session().channels.len();
    call.reply.array(3);
    call.reply.bulk(what);
    match channel {
        Some(channel) => call.reply.bulk(channel),
        None => call.reply.nil(),
    }
    call.reply.int(left as i64);
}

pub(super) fn publish(call: &mut Call<'_>) -> Outcome {
    let count = call.store.publish(call.args[1], call.args[2]);
    call.int(count as i64)
}

/// Replies with all subscribed channels, in the order of their names here.
pub(super) fn pubsub_channels(call: &mut Call<'_>) -> Outcome {
    let all = call.store.sessions.iter().flat_map(|session| &session.channels);
    let all: BTreeSet<Vec<u8>> = all.cloned().collect();
    call.reply.array(all.len());
    all.iter().for_each(|channel| call.reply.bulk(channel));
    Ok(())
}

pub(super) fn pubsub_numsub(call: &mut Call<'_>) -> Outcome {
    let channels = &call.args[2..];
    call.reply.array(2 * channels.len());
    for &channel in channels {
        let sessions = call.store.sessions.iter();
        let count = sessions.filter(|session| session.channels.contains(channel)).count();
        call.reply.bulk(channel);
        call.reply.int(count as i64);
    }
    Ok(())
}

pub(super) fn client_tracking(call: &mut Call<'_>) -> Outcome {
    let options = Options::parse(call)?;
    if is_word(call.args[2], "ON") {
        let before = call.session().tracking;
        options.check(before.is_some())?;
        let Options { redirect, no_loop, opt_in, .. } = options;
        let caches_next = before.is_some_and(|before| before.caches_next);
        call.session().tracking =
            Some(Tracking { redirect, no_loop, opt_in, caches_next, is_broken: false });
    } else if is_word(call.args[2], "OFF") {
        call.session().tracking = None;
    } else {
        return Err(SYNTAX_ERROR.into());
    }
    call.ok()
}

/// Makes the server track the reads of the next command, for a connection that tracks no others.
pub(super) fn client_caching(call: &mut Call<'_>) -> Outcome {
    let answer = call.args[2];
    let Some(tracking) = &mut call.session().tracking else { return Err(NOT_TRACKING.into()) };
    if is_word(answer, "YES") {
        if !tracking.opt_in {
            return Err(
                "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode."
                    .into(),
            );
        }
        tracking.caches_next = true;
    } else if is_word(answer, "NO") {
        return Err(
            "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.".into()
        );
    } else {
        return Err(SYNTAX_ERROR.into());
    }
    call.ok()
}

pub(super) fn client_trackinginfo(call: &mut Call<'_>) -> Outcome {
    let tracking = call.session().tracking;
    let is_set = |which: fn(Tracking) -> bool| tracking.is_some_and(which);
    let flags = [
        (true, if tracking.is_some() { "on" } else { "off" }),
        (is_set(|tracking| tracking.opt_in), "optin"),
        (is_set(|tracking| tracking.opt_in && tracking.caches_next), "caching-yes"),
        (is_set(|tracking| tracking.no_loop), "noloop"),
        (is_set(|tracking| tracking.is_broken), "broken_redirect"),
    ];
    call.reply.array(6);
    call.reply.bulk(b"flags");
    call.reply.array(flags.iter().filter(|(is_set, _)| *is_set).count());
    for (_, name) in flags.iter().filter(|(is_set, _)| *is_set) {
        call.reply.bulk(name.as_bytes());
    }
    call.reply.bulk(b"redirect");
    call.reply.int(redirection(tracking));
    call.reply.bulk(b"prefixes");
    call.reply.array(0);
    Ok(())
}

pub(super) fn client_getredir(call: &mut Call<'_>) -> Outcome {
    let tracking = call.session().tracking;
    call.int(redirection(tracking))
}

/// Returns the redirection: -1 if the connection does not track, 0 if no connection is notified.
fn redirection(tracking: Option<Tracking>) -> i64 {
    tracking.map_or(-1, |tracking| tracking.redirect.map_or(0, |target| target.number() as i64))
}

/// The options behind ON or OFF.
#[derive(Default)]
struct Options {
    redirect: Option<ConnId>,
    no_loop: bool,
    broadcast: bool,
    opt_in: bool,
    opt_out: bool,
    prefixes: usize,
}

impl Options {
    /// Parses the options; behind OFF they have no effect.
    fn parse(call: &mut Call<'_>) -> Result<Self, Failure> {
        let mut options = Self::default();
        let mut args = call.args[3..].iter();
        while let Some(arg) = args.next() {
            let flag = match arg.to_ascii_uppercase().as_slice() {
                b"NOLOOP" => &mut options.no_loop,
                b"BCAST" => &mut options.broadcast,
                b"OPTIN" => &mut options.opt_in,
                b"OPTOUT" => &mut options.opt_out,
                b"REDIRECT" => {
                    let target = args.next().ok_or(SYNTAX_ERROR)?;
                    options.redirect_to(call, target)?;
                    continue;
                }
                b"PREFIX" => {
                    args.next().ok_or(SYNTAX_ERROR)?;
                    options.prefixes += 1;
                    continue;
                }
                _ => return Err(SYNTAX_ERROR.into()),
            };
            *flag = true;
        }
        Ok(options)
    }

    fn redirect_to(&mut self, call: &mut Call<'_>, target: &[u8]) -> Outcome {
        if self.redirect.is_some() {
            return Err("ERR A client can only redirect to a single other client".into());
        }
        let target = ConnId::from_number(integer(target)?.cast_unsigned());
        call.store.session(target).ok_or(NO_SUCH_TARGET)?;
        self.redirect = Some(target);
        Ok(())
    }

    /// Checks that the options fit together and are supported.
    fn check(&self, tracks_already: bool) -> Outcome {
        match self {
            Self { broadcast: false, prefixes: 1.., .. } => {
                Err("ERR PREFIX option requires BCAST mode to be enabled".into())
            }
            Self { broadcast: true, .. } if tracks_already => Err(NO_SWITCH.into()),
            Self { broadcast: true, opt_in, opt_out, .. } if *opt_in || *opt_out => {
                Err("ERR OPTIN and OPTOUT are not compatible with BCAST".into())
            }
            Self { opt_in: true, opt_out: true, .. } => {
                Err("ERR You can't specify both OPTIN mode and OPTOUT mode".into())
            }
            Self { broadcast: true, .. } | Self { opt_out: true, .. } => {
                Err("ERR this embedded node tracks only what a connection has read".into())
            }
            _ => Ok(()),
        }
    }
}

const NOT_TRACKING: &str = "ERR CLIENT CACHING can be called only when the client is in tracking mode \
                            with OPTIN or OPTOUT mode enabled";
const NO_SWITCH: &str = "ERR You can't switch BCAST mode on/off before disabling tracking for this \
                         client, and then re-enabling it with a different mode.";
const NO_SUCH_TARGET: &str = "ERR The client ID you want redirect to does not exist";
