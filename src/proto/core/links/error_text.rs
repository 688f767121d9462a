//! The texts of a node's errors, made safe to show.
//!
//! Causes are one byte each and travel with votes, while texts stay with their node. Servers repeat
//! what they were sent, so nothing is shown that could be a token.

use super::node::Node;
use crate::proto::classify::{ServerError, classify, without_arguments};
use crate::proto::key_state::RANDOM_DIGITS;
use crate::proto::mutants::mutant;
use crate::proto::vote::Cause;

impl Node {
    /// Keeps an error's text for the refusal. Errors on a link that is being left are ignored.
    pub(in crate::proto::core) fn note(&mut self, text: &[u8]) {
        if let ServerError::Cause(cause) = classify(text)
            && !self.link.is_leaving()
        {
            self.note_of(Some(cause), text);
        }
    }

    /// Keeps an error's text if it explains more than its cause.
    pub(super) fn note_of(&mut self, cause: Option<Cause>, text: &[u8]) {
        let notifies = |cause: &Cause| {
            let is_vague = matches!(cause, Cause::ServerError | Cause::Unavailable);
            is_vague || cause.is_forbidden() || *cause == Cause::ScriptsForbidden
        };
        if let Some(cause) = cause.filter(notifies) {
            self.explain(cause, presentable(text));
        }
    }
}

/// Returns an error's text without anything that we sent. Servers repeat the arguments of unknown
/// commands, and one of these is the token. Of a truncated token, less than half of its random
/// digits are shown.
fn presentable(text: &[u8]) -> String {
    if mutant!(TokenInWords) {
        return String::from_utf8_lossy(text).into_owned();
    }
    let text = without_arguments(text);
    let text = &text[..text.len().min(LONGEST_NOTE)];
    let mut words = String::with_capacity(text.len());
    for run in text.chunk_by(|a, b| a.is_ascii_hexdigit() == b.is_ascii_hexdigit()) {
        if run[0].is_ascii_hexdigit() && run.len() >= RANDOM_DIGITS / 2 {
            words.push_str("(hidden)");
        } else {
            words.extend(run.iter().map(|&b| match b {
                b' '..=b'~' => char::from(b),
                _ => '?',
            }));
        }
    }
    words
}

const LONGEST_NOTE: usize = 160;

#[cfg(test)]
mod tests {
    use super::presentable;

    #[test]
    fn arguments_and_tokens_are_not_shown() {
        let text = b"ERR unknown command 'SET', with args beginning with: 'job' '00112233445566778899aabbccddeeff' ";
        assert_eq!(presentable(text), "ERR unknown command 'SET'");
        let text = b"ERR no 00112233445566778899aabbccddeeff:host here\r";
        assert_eq!(presentable(text), "ERR no (hidden):host here?");
        let mut long = vec![b' '; 140];
        long.extend_from_slice(b"00112233445566778899aabbccddeeff");
        assert_eq!(presentable(&long).trim(), "(hidden)");
        assert_eq!(
            presentable(b"ERR new 'x' '0011223344556677"),
            "ERR new 'x' '(hidden)",
            "half of one"
        );
    }
}
