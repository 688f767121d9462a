//! The Lua scripts that run on a node.
//!
//! Compare-and-set needs a script on every server that has no command for it. Each script takes its resources as KEYS
//! and everything else as ARGV, so its text never varies. The texts are public because an operator may have to allow
//! them, and a model of a node must know them. Not here: when each is sent, see `lock_kind`.

/// The node does not vote unless its guard lives for [`BIG_MS`](super::restart_guard::BIG_MS) at the most.
macro_rules! check_restart_guard {
    () => {
        "if guard then \
         local t = redis.call('PTTL', guard) \
         if t < 0 or t > 126144000000 then return redis.status_reply(string.format('GUARD %.0f', t)) end \
         end "
    };
}

/// The longest TTL among the n resources is the denial's answer.
macro_rules! find_longest {
    () => {
        "local most = -2 \
         for i = 1, n do \
         local t = redis.call('PTTL', KEYS[i]) \
         if t == -1 then return -1 end \
         if t > most then most = t end \
         end \
         if most >= 0 then return most end "
    };
}

/// Reads what the i-th of KEYS holds. Data of another type than a string is nobody's token, and no
/// number. Any other error, such as a missing permission, says nothing about the key and is the answer.
macro_rules! read_value {
    () => {
        "local v = redis.pcall('GET', KEYS[i]) \
         if type(v) == 'table' and not string.find(v.err, '^WRONGTYPE') then return v end "
    };
}

/// Reads the i-th of KEYS, a counter, as a number below a bound.
macro_rules! read_counter {
    ($bound:literal) => {
        concat!(
            read_value!(),
            "v = tonumber(v or 0) \
             if not (v and v ",
            $bound,
            ") then return redis.error_reply('ERR the fencing counter cannot be raised') end "
        )
    };
}

/// Nothing is set that could not be looked at and deleted again. The keys are free, so that this changes nothing:
/// where it is forbidden, the script ends here, before it has written anything.
macro_rules! rehearse_undo {
    () => {
        "redis.call('GET', KEYS[1]) redis.call('DEL', KEYS[1]) "
    };
}

/// Grants the resources to the token ARGV\[1\] for ARGV\[2\] ms and returns `OK`, or touches nothing
/// and returns the longest remaining TTL among them, -1 if one has none.
///
/// ARGV\[3\] is the number of resources. A key behind them is the guard: if it does not let the node
/// vote, nothing is touched and the answer is the status line `GUARD` with the guard's PTTL.
pub const ACQUIRE_MANY: &str = concat!(
    "local n = tonumber(ARGV[3]) \
     local guard = KEYS[n + 1] ",
    check_restart_guard!(),
    find_longest!(),
    rehearse_undo!(),
    "for i = 1, n do redis.call('SET', KEYS[i], ARGV[1], 'PX', ARGV[2]) end \
     return redis.status_reply('OK')"
);

/// As [`ACQUIRE_MANY`], and raises the resources' fencing counters: KEYS are n resources, their n
/// counters, and the guard. ARGV\[4\] is the proposed value, the client's wall clock in µs,
/// ARGV\[5\] how many ms the counters live.
///
/// A grant is the status line `OK` with the new value of all counters: the smallest even number that is
/// no less than the proposal and greater than each of them. (Odd ones are kept for holders who share.) A
/// proposal over 5 s from the node's own clock touches nothing and is answered by `CLOCK` and that
/// clock in µs. A counter that is no number, or that would reach 2^53, where Lua's numbers end, is an
/// error.
pub const ACQUIRE_FENCED: &str = concat!(
    "local n = tonumber(ARGV[3]) \
     local guard = KEYS[2 * n + 1] ",
    check_restart_guard!(),
    find_longest!(),
    "local c = tonumber(ARGV[4]) \
     local time = redis.call('TIME') \
     local now = time[1] * 1000000 + time[2] \
     if math.abs(c - now) > 5000000 then \
     return redis.status_reply(string.format('CLOCK %.0f', now)) end \
     for i = n + 1, 2 * n do ",
    read_counter!("< 9007199254740990"),
    "if v >= c then c = math.floor(v) + 1 end \
     end \
     local text = string.format('%.0f', c + c % 2) ",
    rehearse_undo!(),
    "for i = 1, n do \
     redis.call('SET', KEYS[n + i], text, 'PX', ARGV[5]) \
     redis.call('SET', KEYS[i], ARGV[1], 'PX', ARGV[2]) \
     end \
     return redis.status_reply('OK ' .. text)"
);

/// Raises fencing counters to at least ARGV\[3\] and returns 1 if all resources hold the token
/// ARGV\[1\]; otherwise returns 0. KEYS are ARGV\[2\] resources and their counters, which live for
/// ARGV\[4\] ms if they are raised. A counter that is no number, or beyond 2^53 - 1, is an error.
pub const WRITE_BACK: &str = concat!(
    "local n = tonumber(ARGV[2]) \
     for i = 1, n do ",
    read_value!(),
    "if v ~= ARGV[1] then return 0 end \
     end \
     for i = n + 1, 2 * n do ",
    read_counter!("<= 9007199254740991"),
    "if v < tonumber(ARGV[3]) then redis.call('SET', KEYS[i], ARGV[3], 'PX', ARGV[4]) end \
     end \
     return 1"
);

/// Gives the guard KEYS\[1\] the value ARGV\[2\] for ARGV\[3\] ms if its value is ARGV\[1\], where
/// an empty one stands for a missing key. Returns 1 if it has the new value now, whoever gave it, and
/// 0 if it has another one. A quarantine does not shorten a longer one that is under way.
pub const ENROL: &str = "\
local v = redis.call('GET', KEYS[1]) or '' \
if v == ARGV[1] then \
local px = tonumber(ARGV[3]) \
local t = redis.call('PTTL', KEYS[1]) \
if px > 126144000000 and t > px then px = t end \
redis.call('SET', KEYS[1], ARGV[2], 'PX', string.format('%.0f', px)) \
return 1 \
end \
if v == ARGV[2] then return 1 end \
return 0";

/// Lets KEYS live for at least ARGV\[2\] ms more and returns 1 if all of them hold the token
/// ARGV\[1\]; otherwise returns 0. It never shortens a TTL and never brings a key back.
pub const EXTEND: &str = concat!(
    "for i = 1, #KEYS do ",
    read_value!(),
    "if v ~= ARGV[1] then return 0 end \
     end \
     for _, k in ipairs(KEYS) do \
     if redis.call('PTTL', k) < tonumber(ARGV[2]) then redis.call('PEXPIRE', k, ARGV[2]) end \
     end \
     return 1"
);

/// Deletes those of KEYS that hold the token ARGV\[1\] and returns how many.
pub const UNDO: &str = concat!(
    "local n = 0 \
     for i = 1, #KEYS do ",
    read_value!(),
    "if v == ARGV[1] then n = n + redis.call('DEL', KEYS[i]) end \
     end \
     return n"
);

/// Deletes KEYS\[1\] if it is what was seen, and returns 1 if it was, 0 otherwise: data of the type
/// ARGV\[1\], and if that is `string`, one whose bytes up to the ARGV\[2\]-th, from zero, are ARGV\[3\].
pub const FORCE_UNLOCK: &str = "\
local same \
if ARGV[1] == 'string' then \
local v = redis.pcall('GETRANGE', KEYS[1], 0, ARGV[2]) \
if type(v) == 'table' and not string.find(v.err, 'WRONGTYPE') then return v end \
same = v == ARGV[3] \
else \
same = redis.call('TYPE', KEYS[1]).ok == ARGV[1] \
end \
if same then return redis.call('DEL', KEYS[1]) end \
return 0";

/// A script about a lock's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Script {
    AcquireFenced,
    AcquireMany,
    Extend,
    Undo,
    WriteBack,
}

impl Script {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::AcquireFenced => ACQUIRE_FENCED,
            Self::AcquireMany => ACQUIRE_MANY,
            Self::Extend => EXTEND,
            Self::Undo => UNDO,
            Self::WriteBack => WRITE_BACK,
        }
    }

    /// The SHA-1 of its text, by which `EVALSHA` calls it.
    pub(super) fn digest(self) -> &'static str {
        match self {
            Self::AcquireFenced => "86f9f41e394bd24c8f64789c50a4680d023d088d",
            Self::AcquireMany => "b275dfea5a3537917d4db4ed14faff83848fcf19",
            Self::Extend => "86a8d9cdc20196bce2f0a8bc957ad02e81307539",
            Self::Undo => "1dbe430de2052796a8d3e82cfeb8624677097d3a",
            Self::WriteBack => "64fdd7b1c3f68697e72e33c03fc637f9b1c2f1ec",
        }
    }

    /// Whether it reads the guard's key, the last of its KEYS.
    pub(super) fn checks_restart_guard(self) -> bool {
        matches!(self, Self::AcquireFenced | Self::AcquireMany)
    }
}

/// Which scripts a connection has sent by their text, so that the node knows them by digest.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Loaded(u8);

impl Loaded {
    /// Whether it is new.
    pub(super) fn insert(&mut self, script: Script) -> bool {
        let before = self.0;
        self.0 |= 1 << script as u8;
        self.0 != before
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

#[cfg(test)]
const SCRIPTS: [Script; 5] =
    [Script::AcquireFenced, Script::AcquireMany, Script::Extend, Script::Undo, Script::WriteBack];

#[cfg(test)]
mod tests {
    use sha1_smol::Sha1;

    use super::*;

    /// A number in a Lua text cannot be a constant of ours.
    #[test]
    fn the_texts_know_the_bound_of_the_restart_guard() {
        let bound = format!("t > {} ", crate::proto::restart_guard::BIG_MS);
        assert!(ACQUIRE_MANY.contains(&bound) && ACQUIRE_FENCED.contains(&bound));
        assert!(ENROL.contains(&format!("px > {} ", crate::proto::restart_guard::BIG_MS)));
        let far = format!("> {} ", crate::proto::fence::MAX_SKEW.as_micros());
        assert!(ACQUIRE_FENCED.contains(&far));
        assert!(ACQUIRE_FENCED.contains(&format!("v < {})", crate::proto::fence::MAX_TOKEN - 1)));
        assert!(WRITE_BACK.contains(&format!("v <= {})", crate::proto::fence::MAX_TOKEN)));
    }

    #[test]
    fn each_script_has_its_own_digest() {
        for script in SCRIPTS {
            let digest = Sha1::from(script.text()).digest().to_string();
            assert_eq!(script.digest(), digest, "{script:?}");
        }
    }
}
