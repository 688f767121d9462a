//! The push link of one node: the meaning of the bytes on it.
//!
//! This is [server-assisted client-side caching][page] in its form for RESP2: this connection
//! subscribes to one channel, and the command link sends its invalidations there (`CLIENT TRACKING
//! ON REDIRECT`). It may also subscribe to the channels of other libraries (`channels`). A message
//! is a hint: a key has changed, all keys may have, or a lock may be free.
//!
//! [page]: https://redis.io/docs/latest/develop/reference/client-side-caching/

use super::{Cursor, News, Push, PushStep};
use crate::proto::config::{NodeSettings, Settings};
use crate::proto::core::links::{Mistyped, Step};
use crate::proto::{classify::classify, time::Timestamp, vote::Cause};
use crate::resp::{Token, command};

impl Push {
    /// Sends the first flight.
    pub(super) fn handshake(&mut self, node: &NodeSettings, settings: &Settings, now: Timestamp) {
        let auth = node.credentials.as_ref().map(|_| Step::Auth);
        for step in auth.into_iter().chain([Step::SetName, Step::ClientId, Step::InfoServer]) {
            self.pipeline
                .push(PushStep::Handshake(step), now, |out| step.encode(out, node, settings));
        }
        self.pipeline.push(PushStep::Subscribe, now, |out| {
            let _ = command(out, 2).arg(b"SUBSCRIBE").arg(CHANNEL);
        });
    }

    /// Takes one token from the node.
    pub(super) fn read<'b>(
        &mut self,
        token: Token<'b>,
        node: &NodeSettings,
        settings: &Settings,
    ) -> Result<Option<News<'b>>, Mistyped> {
        let (next, news) = match (self.reading, token) {
            (Cursor::Start, Token::Array(3)) => (Cursor::Kind, None),
            (Cursor::Start, answer) => {
                return self.answer(answer, node, settings);
            }
            (Cursor::Kind, Token::Bulk(b"subscribe")) => (Cursor::Subscribe, None),
            (Cursor::Kind, Token::Bulk(b"unsubscribe")) => (Cursor::Unsubscribe, None),
            (Cursor::Kind, Token::Bulk(b"message")) => (Cursor::Channel, None),
            (Cursor::Subscribe | Cursor::Unsubscribe, Token::Bulk(name)) if self.awaits(name) => {
                (Cursor::Count, None)
            }
            (Cursor::Count, Token::Int(_)) => (Cursor::Start, self.confirmed()),
            (Cursor::Channel, Token::Bulk(CHANNEL)) => (Cursor::Body, None),
            (Cursor::Channel, Token::Bulk(name)) => match self.channels.resource(name) {
                Some(of) => (Cursor::Published(of), None),
                None => return Err(Mistyped),
            },
            (Cursor::Published(of), Token::Bulk(_)) => (Cursor::Start, Some(News::Published(of))),
            (Cursor::Body, Token::NilArray | Token::NilBulk) => (Cursor::Start, Some(News::All)),
            // Any client may publish there, but only the server sends arrays.
            (Cursor::Body, Token::Array(0) | Token::Bulk(_)) => (Cursor::Start, None),
            (Cursor::Body, Token::Array(keys)) => (Cursor::Keys(keys), None),
            (Cursor::Keys(1), Token::Bulk(key)) => (Cursor::Start, Some(News::Key(key))),
            (Cursor::Keys(keys), Token::Bulk(key)) => {
                (Cursor::Keys(keys - 1), Some(News::Key(key)))
            }
            _ => return Err(Mistyped),
        };
        self.reading = next;
        Ok(news)
    }

    /// Returns whether the oldest command without an answer is the one about this channel that is
    /// being confirmed.
    fn awaits(&self, name: &[u8]) -> bool {
        match (self.reading, self.pipeline.oldest().map(|due| &due.pending)) {
            (Cursor::Subscribe, Some(PushStep::Subscribe)) => name == CHANNEL,
            (Cursor::Subscribe, Some(PushStep::SubscribeTo(entered))) => **entered == *name,
            (Cursor::Unsubscribe, Some(PushStep::UnsubscribeFrom(left))) => **left == *name,
            _ => false,
        }
    }

    fn confirmed<'b>(&mut self) -> Option<News<'b>> {
        match self.pipeline.answered()?.pending {
            PushStep::Subscribe => Some(self.outcome()),
            PushStep::SubscribeTo(name) => self.channel_subscribed(&name).map(News::Confirmed),
            PushStep::UnsubscribeFrom(name) => {
                self.channel_unsubscribed(&name);
                None
            }
            PushStep::Handshake(_) => None,
        }
    }

    /// Takes an answer that is not a confirmation.
    fn answer<'b>(
        &mut self,
        answer: Token<'b>,
        node: &NodeSettings,
        settings: &Settings,
    ) -> Result<Option<News<'b>>, Mistyped> {
        match (self.pipeline.answered().map(|due| due.pending), answer) {
            // The node does not know the command, or forbids it. Without its own id the command
            // link cannot be told to send anything here.
            (
                Some(PushStep::Handshake(Step::ClientId) | PushStep::Subscribe),
                Token::Error(text),
            ) => {
                self.untracked = self.untracked.or_else(|| Some(classify(text).cause()));
                let is_last = self.pipeline.len() == 0;
                Ok(is_last.then(|| self.outcome()))
            }
            (Some(PushStep::SubscribeTo(name)), Token::Error(text)) => {
                self.channel_refused(&name, classify(text).cause());
                Ok(Some(News::ChannelRefused))
            }
            (Some(PushStep::UnsubscribeFrom(_)), Token::Error(text)) => {
                Ok(Some(News::UnsubscribeRefused(classify(text).cause())))
            }
            (Some(PushStep::Handshake(step)), answer) => {
                self.handshake.answer(step, answer, node, settings)?;
                Ok(None)
            }
            _ => Err(Mistyped),
        }
    }

    fn outcome<'b>(&self) -> News<'b> {
        match (self.handshake.refused(), self.untracked, self.handshake.client_id()) {
            (Some(cause), ..) => News::Subscribed(Err(cause)),
            (None, Some(cause), _) => News::Untracked(cause),
            (None, None, None) => News::Subscribed(Err(Cause::UnexpectedReply)),
            (None, None, Some(_)) => News::Subscribed(Ok(())),
        }
    }
}

/// The channel on which servers report changes.
pub(crate) const CHANNEL: &[u8] = b"__redis__:invalidate";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::config::NodeSettings;

    const FLIGHT: &[u8] = b"+OK\r\n:9\r\n\
        $47\r\nrun_id:0123456789012345678901234567890123456789\r\n\
        *3\r\n$9\r\nsubscribe\r\n$20\r\n__redis__:invalidate\r\n:1\r\n";

    /// Returns the news on a push link from a stream, with `*` for all keys.
    fn notifications(stream: &[u8]) -> Result<Vec<String>, Mistyped> {
        let (node, settings) = (NodeSettings::default(), Settings::default());
        let mut push = Push::new();
        push.handshake(&node, &settings, Timestamp(0));
        let (mut at, mut notifications) = (0, Vec::new());
        while let Some((token, len)) = push.decoder.next(&stream[at..]).unwrap() {
            notifications.extend(push.read(token, &node, &settings)?.map(|news| match news {
                News::All => "*".to_owned(),
                News::Key(key) => String::from_utf8_lossy(key).into_owned(),
                News::Subscribed(outcome) => format!("{outcome:?}"),
                other => format!("{other:?}"),
            }));
            at += len;
        }
        Ok(notifications)
    }

    #[test]
    fn changes_are_reported_after_the_confirmation() {
        let messages: &[u8] =
            b"*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n*1\r\n$3\r\njob\r\n\
            *3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n\
            *3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n*-1\r\n";
        let notifications = notifications(&[FLIGHT, messages].concat()).unwrap();
        assert_eq!(notifications, ["Ok(())", "job", "a", "b", "*"]);
    }

    #[test]
    fn a_subscription_that_is_forbidden_is_reported_with_the_reason() {
        let flight = b"+OK\r\n:9\r\n$47\r\nrun_id:0123456789012345678901234567890123456789\r\n\
            -NOPERM this user has no permissions to access one of the channels used as arguments\r\n";
        assert_eq!(notifications(flight).unwrap(), ["Untracked(NoPermission)"]);
    }

    #[test]
    fn an_unexpected_message_ends_the_link() {
        for nonsense in [
            &b":1\r\n"[..],
            b"*3\r\n$7\r\nmessage\r\n$5\r\nother\r\n",
            b"*3\r\n$8\r\npmessage\r\n",
            b"*2\r\n$4\r\npong\r\n$0\r\n\r\n",
            b"*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n:1\r\n",
        ] {
            assert_eq!(notifications(&[FLIGHT, nonsense].concat()), Err(Mistyped));
        }
    }
}
