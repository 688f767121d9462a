//! The protocol between the director and its workers: one line for each order and each report.

use std::io::{self, Write};
use std::time::Duration;

use crate::clock::Moment;
use crate::stage::Failure;

/// An order to take the lock and hold it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub(crate) ttl: Duration,
    /// The time for which to try.
    pub(crate) wait: Duration,
    /// The time for which to hold it; `None`: until the lease ends.
    pub(crate) keep: Option<Duration>,
    /// The time after the grant at which to extend once.
    pub(crate) extend_after: Option<Duration>,
    /// The time after which to become a writer or a reader, repeatedly until the TTL has passed.
    pub(crate) change_every: Option<Duration>,
    pub(crate) fenced: bool,
    pub(crate) wants: Wants,
    /// True: opens connections for this order and closes them after it.
    pub(crate) fresh: bool,
    /// The number of repetitions.
    pub(crate) times: u64,
}

impl Order {
    /// Creates an order to hold the lock exclusively until the lease ends, once.
    pub(crate) fn to_hold(ttl: Duration, wait: Duration) -> Self {
        let (wants, times) = (Wants::Alone, 1);
        let (keep, extend_after, change_every) = (None, None, None);
        Self {
            ttl,
            wait,
            keep,
            extend_after,
            change_every,
            fenced: false,
            wants,
            fresh: false,
            times,
        }
    }

    pub(crate) fn line(&self) -> String {
        let ms = |span: Duration| span.as_millis().to_string();
        let perhaps = |span: Option<Duration>| span.map_or_else(|| "-".to_owned(), ms);
        let Self { ttl, wait, keep, extend_after, change_every, fenced, wants, fresh, times } =
            *self;
        let (ttl, wait, keep, extend) = (ms(ttl), ms(wait), perhaps(keep), perhaps(extend_after));
        let (change, wants) = (perhaps(change_every), wants.word());
        format!("{ttl} {wait} {keep} {extend} {change} {fenced} {wants} {fresh} {times}")
    }

    pub(crate) fn parse(line: &str) -> Result<Self, Failure> {
        let words: Vec<&str> = line.split(' ').collect();
        let [ttl, wait, keep, extend, change, fenced, wants, fresh, times] = words[..] else {
            return Err(format!("not an order: {line:?}").into());
        };
        let ms = |word: &str| word.parse().map(Duration::from_millis);
        let perhaps = |word| if word == "-" { Ok(None) } else { ms(word).map(Some) };
        Ok(Self {
            ttl: ms(ttl)?,
            wait: ms(wait)?,
            keep: perhaps(keep)?,
            extend_after: perhaps(extend)?,
            change_every: perhaps(change)?,
            fenced: fenced.parse()?,
            wants: Wants::parse(wants)?,
            fresh: fresh.parse()?,
            times: times.parse()?,
        })
    }
}

/// The kind of lock to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wants {
    /// The lock, exclusively.
    Alone,
    /// The lock, shared with others.
    Shared,
    /// One of this many permits.
    Permit { of: u16 },
}

impl Wants {
    fn word(self) -> String {
        match self {
            Self::Alone => "alone".to_owned(),
            Self::Shared => "shared".to_owned(),
            Self::Permit { of } => of.to_string(),
        }
    }

    fn parse(word: &str) -> Result<Self, Failure> {
        Ok(match word {
            "alone" => Self::Alone,
            "shared" => Self::Shared,
            permits => Self::Permit { of: permits.parse()? },
        })
    }
}

/// A worker's report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The order is done.
    Done,
    /// The lock was granted, or the permit of this number, and a check at this moment found it
    /// held.
    Entered { at: Moment, token: Option<u64>, slot: Option<u16> },
    /// The worker writes from now on if it has read until now, or the other way round.
    Changed {
        /// The last check that found the lock held in the old mode.
        until: Moment,
        /// The first moment at which the lock is known to be held in the new mode.
        at: Moment,
    },
    /// The result of an extension: true if it succeeded.
    Extended(bool),
    /// The last check that found the lock held. `looked`: the check that found the lease expired;
    /// `None` if the worker left on its own.
    Left { at: Moment, looked: Option<Moment> },
    /// The lock was not granted.
    Refused(String),
    /// The number of calls of the loss callback.
    Told(usize),
    /// The worker writes to the protected resource, whether it still holds the lock or not.
    Writes { token: u64 },
}

impl Report {
    pub(crate) fn line(&self) -> String {
        let perhaps = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
        match self {
            Self::Done => "done".to_owned(),
            Self::Entered { at, token, slot } => {
                format!("entered {} {} {}", at.0, perhaps(*token), perhaps(slot.map(u64::from)))
            }
            Self::Changed { until, at } => format!("changed {} {}", until.0, at.0),
            Self::Extended(done) => format!("extended {done}"),
            Self::Left { at, looked } => {
                format!("left {} {}", at.0, perhaps(looked.map(|looked| looked.0)))
            }
            Self::Refused(reason) => format!("refused {}", reason.replace('\n', " ")),
            Self::Told(times) => format!("told {times}"),
            Self::Writes { token } => format!("writes {token}"),
        }
    }

    pub(crate) fn parse(line: &str) -> Result<Self, Failure> {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        let perhaps = |word: &str| if word == "-" { Ok(None) } else { word.parse().map(Some) };
        let pair = || rest.split_once(' ').ok_or_else(|| format!("an incomplete report: {line:?}"));
        Ok(match kind {
            "done" => Self::Done,
            "entered" => {
                let (at, rest) = pair()?;
                let (token, slot) = rest.split_once(' ').unwrap_or((rest, "-"));
                let slot = perhaps(slot)?.map(u16::try_from).transpose()?;
                Self::Entered { at: Moment(at.parse()?), token: perhaps(token)?, slot }
            }
            "changed" => {
                let (until, at) = pair()?;
                Self::Changed { until: Moment(until.parse()?), at: Moment(at.parse()?) }
            }
            "extended" => Self::Extended(rest.parse()?),
            "left" => {
                let (at, looked) = pair()?;
                Self::Left { at: Moment(at.parse()?), looked: perhaps(looked)?.map(Moment) }
            }
            "refused" => Self::Refused(rest.to_owned()),
            "told" => Self::Told(rest.parse()?),
            "writes" => Self::Writes { token: rest.parse()? },
            _ => return Err(format!("not a report: {line:?}").into()),
        })
    }
}

/// Writes a report to standard output.
pub(crate) fn say(report: &Report) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", report.line())?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_and_orders_parse_back() {
        let reports = [
            Report::Done,
            Report::Entered { at: Moment(7), token: None, slot: Some(3) },
            Report::Entered { at: Moment(7), token: Some(8), slot: None },
            Report::Changed { until: Moment(7), at: Moment(8) },
            Report::Extended(false),
            Report::Left { at: Moment(9), looked: Some(Moment(10)) },
            Report::Refused("held by another: 1 of 3".to_owned()),
            Report::Told(1),
            Report::Writes { token: 8 },
        ];
        for report in reports {
            assert_eq!(Report::parse(&report.line()).unwrap(), report);
        }
        let span = Duration::from_millis(400);
        let (extend_after, change_every) = (Some(span / 2), Some(span / 4));
        for wants in [Wants::Alone, Wants::Shared, Wants::Permit { of: 3 }] {
            let held = Order::to_hold(span, span * 2);
            let order = Order { extend_after, change_every, fenced: true, wants, times: 3, ..held };
            assert_eq!(Order::parse(&order.line()).unwrap().line(), order.line());
        }
        assert!(Order::parse("400").is_err() && Report::parse("entered 7").is_err());
    }
}
