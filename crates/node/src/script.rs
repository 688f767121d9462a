//! The model of a Lua script.

use sha1_smol::Sha1;

use crate::calls::{Answer, Calls, Stop};

/// A model of a Lua script: keys, then arguments, as `KEYS` and `ARGV` have them.
pub(crate) type Model = fn(&mut Calls<'_>, &[&[u8]], &[&[u8]]) -> Result<Answer, Stop>;

/// A script whose model is known.
#[derive(Clone)]
pub(crate) struct Script {
    pub(crate) text: &'static str,
    pub(crate) sha: [u8; SHA_DIGITS],
    pub(crate) run: Model,
    /// True if a client has sent the text since the start, so that EVALSHA finds it.
    pub(crate) loaded: bool,
}

impl Script {
    pub(crate) fn new(text: &'static str, run: Model) -> Self {
        let mut sha = [0; SHA_DIGITS];
        sha.copy_from_slice(Sha1::from(text).digest().to_string().as_bytes());
        Self { text, sha, run, loaded: false }
    }

    /// Returns true if EVALSHA finds it by this digest.
    pub(crate) fn is_called(&self, sha: &[u8]) -> bool {
        self.loaded && self.sha.eq_ignore_ascii_case(sha)
    }
}

pub(crate) const SHA_DIGITS: usize = 40;
