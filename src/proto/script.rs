//! The Lua scripts that run on a node.
//!
//! Compare-and-set needs a script on every server that has no command for it. Each takes its
//! resources as KEYS and everything else as ARGV, so nothing is ever spliced into the text. The
//! texts are public because an operator may have to allow them, and a model of a node must know
//! them. Not here: when which is sent, see `recipe`.

use sha1_smol::Sha1;

/// Grants all of KEYS to the token ARGV\[1\] for ARGV\[2\] ms and returns `OK`, or touches nothing
/// and returns the longest remaining TTL among them, -1 if one has none.
pub const ACQUIRE_MANY: &str = "\
local most = -2 \
for _, k in ipairs(KEYS) do \
local t = redis.call('PTTL', k) \
if t == -1 then return -1 end \
if t > most then most = t end \
end \
if most >= 0 then return most end \
for _, k in ipairs(KEYS) do redis.call('SET', k, ARGV[1], 'PX', ARGV[2]) end \
return redis.status_reply('OK')";

/// Lets KEYS live for at least ARGV\[2\] ms more and returns 1 if all of them hold the token
/// ARGV\[1\]; otherwise returns 0. It never shortens a TTL and never brings a key back.
pub const EXTEND: &str = "\
for _, k in ipairs(KEYS) do \
if redis.call('GET', k) ~= ARGV[1] then return 0 end \
end \
for _, k in ipairs(KEYS) do \
if redis.call('PTTL', k) < tonumber(ARGV[2]) then redis.call('PEXPIRE', k, ARGV[2]) end \
end \
return 1";

/// Deletes those of KEYS that hold the token ARGV\[1\] and returns how many.
pub const UNDO: &str = "\
local n = 0 \
for _, k in ipairs(KEYS) do \
if redis.call('GET', k) == ARGV[1] then n = n + redis.call('DEL', k) end \
end \
return n";

/// One of the scripts above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Script {
    AcquireMany,
    Extend,
    Undo,
}

impl Script {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::AcquireMany => ACQUIRE_MANY,
            Self::Extend => EXTEND,
            Self::Undo => UNDO,
        }
    }
}

/// The names by which `EVALSHA` calls the scripts.
pub(super) struct Digests([[u8; 40]; SCRIPTS.len()]);

impl Digests {
    pub(super) fn new() -> Self {
        Self(SCRIPTS.map(|script| {
            let mut hex = [0; 40];
            hex.copy_from_slice(Sha1::from(script.text()).digest().to_string().as_bytes());
            hex
        }))
    }

    pub(super) fn of(&self, script: Script) -> &[u8; 40] {
        &self.0[script as usize]
    }
}

/// Which scripts a connection has sent by their text, so that the node knows them by digest.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Loaded(u8);

impl Loaded {
    pub(super) fn contains(self, script: Script) -> bool {
        self.0 & (1 << script as u8) != 0
    }

    pub(super) fn insert(&mut self, script: Script) {
        self.0 |= 1 << script as u8;
    }

    /// The text was not sent after all.
    pub(super) fn forget(&mut self, script: Script) {
        self.0 &= !(1 << script as u8);
    }

    /// The node answered `NOSCRIPT`: it has forgotten all of them.
    pub(super) fn forget_all(&mut self) {
        self.0 = 0;
    }
}

const SCRIPTS: [Script; 3] = [Script::AcquireMany, Script::Extend, Script::Undo];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_script_has_its_own_digest() {
        let digests = Digests::new();
        for script in SCRIPTS {
            let expected = Sha1::from(script.text()).digest().to_string();
            assert_eq!(digests.of(script), expected.as_bytes());
        }
    }
}
