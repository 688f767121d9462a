//! The handshake of a new link: one flight of commands before a node may vote.
//!
//! It finds out the kind of server, the commands that it lets this user run, and the restart
//! guard's value and TTL. The last of these can be read again later. A replica, a cluster-mode
//! server, one that may evict keys, and one on which a command is missing or forbidden are refused
//! as voters.
//!
//! See docs/how-it-works/protocol.md.

use bytes::BufMut;

use super::capability::{Ability, Capabilities, Version, tried};
use super::server::Replicas;
use crate::proto::classify::classify;
use crate::proto::config::{NodeSettings, Settings};
use crate::proto::lock_kind::CompareAndDelete;
use crate::proto::restart_guard::{ReplicationId, RestartGuard, RestartTrust, RunId};
use crate::proto::script::UNDO;
use crate::proto::vote::Cause;
use crate::resp::{Token, command};

/// Defines the steps, in order.
macro_rules! steps {
    ($($step:ident)+) => {
        /// A command of the handshake.
        #[doc(hidden)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[expect(clippy::exhaustive_enums, reason = "the fuzzer answers each of them")]
        pub enum Step {
            $($step,)+
        }

        impl Step {
            const ALL: &[Self] = &[$(Self::$step),+];
        }
    };
}

steps! {
    Auth Select SetName ClientId InfoServer InfoReplication InfoMemory
    Eval EvalSha Del DelEx DelIfEq Set RestartGuardValue RestartGuardTtl
}

impl Step {
    /// Returns the step whose answer completes the handshake, or a later read.
    pub(super) fn last(settings: &Settings) -> Self {
        match settings.restart_guard {
            RestartGuard::On => Self::RestartGuardTtl,
            RestartGuard::Off => Self::Set,
        }
    }

    /// Returns the steps that show whether a node that does not vote may do so now, in order. An
    /// ability that is known is not tried again.
    pub(crate) fn look(
        known: &Capabilities,
        reports_history: bool,
        settings: &Settings,
    ) -> impl Iterator<Item = Self> + use<> {
        let (guarded, writes) =
            (settings.restart_guard == RestartGuard::On, known.writes() == Ability::Given);
        let look =
            [Self::InfoReplication, Self::Set, Self::RestartGuardValue, Self::RestartGuardTtl];
        look.into_iter().filter(move |step| match step {
            Self::Set => !writes,
            Self::InfoReplication => guarded && reports_history,
            _ => guarded,
        })
    }

    fn reads_restart_guard(self) -> bool {
        matches!(self, Self::RestartGuardValue | Self::RestartGuardTtl)
    }

    /// Returns the steps that a node's settings call for, in order.
    pub(super) fn needed(
        node: &NodeSettings,
        settings: &Settings,
    ) -> impl Iterator<Item = Self> + use<> {
        let (auth, select) = (node.credentials.is_some(), node.database != 0);
        let guarded = settings.restart_guard == RestartGuard::On;
        Self::ALL.iter().copied().filter(move |step| match step {
            Self::Auth => auth,
            Self::Select => select,
            step => guarded || !step.reads_restart_guard(),
        })
    }

    pub(crate) fn encode(self, out: &mut impl BufMut, node: &NodeSettings, settings: &Settings) {
        let guard = &settings.restart_guard_key;
        let _ = match self {
            Self::Auth => {
                let credentials = node.credentials.as_ref();
                return credentials.expect("AUTH is needed only with credentials").encode_auth(out);
            }
            Self::Select => command(out, 2).arg(b"SELECT").int(node.database.into()),
            Self::SetName => {
                command(out, 3).arg(b"CLIENT").arg(b"SETNAME").arg(&settings.client_name)
            }
            Self::ClientId => command(out, 2).arg(b"CLIENT").arg(b"ID"),
            // Several sections in one INFO are an error before Redis 7.0.
            Self::InfoServer => command(out, 2).arg(b"INFO").arg(b"server"),
            Self::InfoReplication => command(out, 2).arg(b"INFO").arg(b"replication"),
            Self::InfoMemory => command(out, 2).arg(b"INFO").arg(b"memory"),
            Self::Eval => command(out, 3).arg(b"EVAL").arg(UNDO.text.as_bytes()).int(0),
            Self::EvalSha => command(out, 3).arg(b"EVALSHA").arg(UNDO.digest.as_bytes()).int(0),
            // The two options exclude each other, so nothing is written.
            Self::Set => {
                let set = command(out, 5).arg(b"SET").arg(guard).arg(b"");
                set.arg(b"NX").arg(b"XX")
            }
            Self::Del => command(out, 1).arg(b"DEL"),
            // Without a value it deletes nothing.
            Self::DelEx => command(out, 3).arg(b"DELEX").arg(guard).arg(b"IFEQ"),
            Self::DelIfEq => command(out, 3).arg(b"DELIFEQ").arg(guard).arg(NO_VALUE),
            Self::RestartGuardValue => command(out, 2).arg(b"GET").arg(guard),
            Self::RestartGuardTtl => command(out, 2).arg(b"PTTL").arg(guard),
        };
    }
}

/// The results of a link's handshake so far.
#[derive(Debug, Default)]
pub(crate) struct Handshake {
    /// The first reason why the node must not vote.
    refused: Option<Cause>,
    run_id: Option<RunId>,
    replication_id: Option<ReplicationId>,
    replicas: Option<Replicas>,
    client_id: Option<u64>,
    capabilities: Capabilities,
    /// Whether SELECT failed, so that commands on this connection run in another database.
    wrong_server: bool,
    /// The restart guard's value, or `None` if the key is missing.
    restart_guard: Option<Vec<u8>>,
    restart_guard_pttl: i64,
}

/// The answer has a type that the command cannot return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mistyped;

impl Handshake {
    pub(crate) fn refused(&self) -> Option<Cause> {
        self.refused
    }

    pub(crate) fn run_id(&self) -> Option<RunId> {
        self.run_id
    }

    pub(crate) fn replication_id(&self) -> Option<ReplicationId> {
        self.replication_id
    }

    pub(super) fn replicas(&self) -> Option<Replicas> {
        self.replicas
    }

    pub(crate) fn client_id(&self) -> Option<u64> {
        self.client_id
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    pub(super) fn is_wrong_server(&self) -> bool {
        self.wrong_server
    }

    pub(crate) fn restart_guard(&self) -> Option<&[u8]> {
        self.restart_guard.as_deref()
    }

    /// Returns the restart guard's value, empty if the key is missing, and its PTTL.
    pub(crate) fn into_restart_guard(self) -> (Vec<u8>, i64) {
        (self.restart_guard.unwrap_or_default(), self.restart_guard_pttl)
    }

    /// Takes an answer. Returns the cause if it is an error for which the node cannot vote.
    pub(crate) fn answer(
        &mut self,
        step: Step,
        answer: Token<'_>,
        node: &NodeSettings,
        settings: &Settings,
    ) -> Result<Option<Cause>, Mistyped> {
        match (step, answer) {
            (Step::Auth | Step::Select | Step::SetName, Token::Simple(_)) => {}
            (Step::ClientId, Token::Int(id)) => self.client_id = u64::try_from(id).ok(),
            (Step::InfoServer, Token::Bulk(info)) => self.server(info),
            (Step::InfoReplication, Token::Bulk(info)) => self.replication(info, node),
            (Step::InfoMemory, Token::Bulk(info)) => self.memory(info, settings),
            (Step::Eval, Token::Int(_)) => self.capabilities.set_scripts(Ability::Given),
            (Step::EvalSha, Token::Int(_)) => self.capabilities.set_digests(Ability::Given),
            (Step::Set, Token::NilBulk) => self.capabilities.set_writes(Ability::Given),
            (Step::Del, Token::Int(_)) => {}
            (Step::DelEx | Step::DelIfEq, Token::Int(_)) => self.deletes_by(step),
            (Step::RestartGuardValue, Token::Bulk(value)) => {
                self.restart_guard = Some(value.to_vec())
            }
            (Step::RestartGuardValue, Token::NilBulk) => self.restart_guard = None,
            (Step::RestartGuardTtl, Token::Int(pttl)) => self.restart_guard_pttl = pttl,
            (step, Token::Error(text)) => return Ok(self.error(step, text, node.restart_trust)),
            _ => return Err(Mistyped),
        }
        Ok(None)
    }

    /// Takes an error. Returns the cause if the node cannot vote for it. A connection's name and id
    /// are optional, and so is `INFO` for a node with `MarkerOnly`.
    fn error(&mut self, step: Step, text: &[u8], restart_trust: RestartTrust) -> Option<Cause> {
        let cause = classify(text).cause();
        let is_forbidden = cause.is_forbidden();
        match step {
            Step::SetName if is_forbidden => return None,
            // Servers without this command report an error in the arguments.
            Step::ClientId if is_forbidden || cause == Cause::ServerError => return None,
            Step::InfoServer | Step::InfoReplication | Step::InfoMemory
                if is_forbidden && restart_trust == RestartTrust::MarkerOnly =>
            {
                return None;
            }
            Step::EvalSha => {
                self.capabilities.set_digests(tried(text));
                return None;
            }
            Step::DelEx | Step::DelIfEq => {
                // The key may hold data of any type.
                if tried(text) == Ability::Given || cause == Cause::WrongType {
                    self.deletes_by(step);
                }
                return None;
            }
            Step::Set | Step::Del => return self.write_tried(step, tried(text)),
            Step::Select => self.wrong_server = true,
            _ => {}
        }
        let cause = match (step, cause) {
            // Old and other servers have various texts for this.
            (Step::Auth, Cause::ServerError) => Cause::WrongPassword,
            (Step::Select, Cause::ServerError) => Cause::NoSuchDatabase,
            (Step::RestartGuardValue, Cause::WrongType) => Cause::RestartGuardAltered,
            (Step::Eval, _) if is_forbidden => Cause::ScriptsForbidden,
            (_, cause) => cause,
        };
        self.refuse(cause);
        Some(cause)
    }

    /// Takes the outcome of a `SET` or `DEL` that could change nothing. Returns the cause if the
    /// node cannot vote.
    fn write_tried(&mut self, step: Step, outcome: Ability) -> Option<Cause> {
        match outcome {
            Ability::Refused(cause) if !cause.suspends_writes() => {
                self.refuse(cause);
                return Some(cause);
            }
            // Not by `DEL`: the number of its arguments is checked before all but its existence.
            _ if step == Step::Set => self.capabilities.set_writes(outcome),
            _ => {}
        }
        None
    }

    /// Records that the server has this command. If it has both, the shorter `DELIFEQ` is used,
    /// which is tried last.
    fn deletes_by(&mut self, step: Step) {
        let command = match step {
            Step::DelIfEq => CompareAndDelete::DelIfEq,
            _ => CompareAndDelete::DelEx,
        };
        self.capabilities.set_compare_and_delete(Some(command));
    }

    fn server(&mut self, info: &[u8]) {
        self.run_id = field(info, b"run_id").and_then(|id| id.try_into().ok());
        // Without it two nodes could be one server with two votes, undetected.
        if self.run_id.is_none() {
            self.refuse(Cause::UnexpectedReply);
        }
        if field(info, b"redis_mode") == Some(b"cluster") {
            self.refuse(Cause::ClusterMode);
        }
        self.capabilities.set_version(field(info, b"redis_version").and_then(Version::parse));
        if self.capabilities.version().is_some_and(|version| version < Version::OLDEST) {
            self.refuse(Cause::TooOld);
        }
    }

    fn replication(&mut self, info: &[u8], node: &NodeSettings) {
        match field(info, b"role") {
            Some(b"master") => {
                self.replication_id = replication_id(info);
                self.replicas = replicas(info);
            }
            // A failover is in progress, and a wait may outlast it. Without sentinels the address
            // is wrong.
            Some(_) if node.has_sentinels => self.refuse(Cause::ReadOnly),
            Some(_) => self.refuse(Cause::Replica),
            None => self.refuse(Cause::UnexpectedReply),
        }
    }

    fn memory(&mut self, info: &[u8], settings: &Settings) {
        let limited = !matches!(field(info, b"maxmemory"), None | Some(b"0"));
        let keeps = matches!(field(info, b"maxmemory_policy"), None | Some(b"noeviction"));
        // Such a server drops keys when its memory is full, also one that holds a lock.
        if limited && !keeps && !settings.accept_evicting {
            self.refuse(Cause::Evicting);
        }
    }

    fn refuse(&mut self, cause: Cause) {
        // The first refusal explains the others: without AUTH everything else is refused as well.
        self.refused.get_or_insert(cause);
    }
}

/// Returns whether `INFO replication` shows a master that has the same data as when `known` was
/// read.
pub(crate) fn is_same_master(info: &[u8], known: Option<ReplicationId>) -> bool {
    field(info, b"role") == Some(b"master") && replication_id(info) == known
}

fn replication_id(info: &[u8]) -> Option<ReplicationId> {
    field(info, b"master_replid")?.try_into().ok()
}

/// Reads the replicas. Only a server that needs some for writes reports how many are in time.
fn replicas(info: &[u8]) -> Option<Replicas> {
    let number = |name: &[u8]| std::str::from_utf8(field(info, name)?).ok()?.parse().ok();
    let connected = number(b"connected_slaves")?;
    Some(Replicas { connected, in_time: number(b"min_slaves_good_slaves") })
}

/// A value that no restart guard's key holds, so that nothing is deleted.
const NO_VALUE: &[u8] = b"tried by redbolt";

/// Returns the value of `name:value` in an `INFO` text.
fn field<'i>(info: &'i [u8], name: &[u8]) -> Option<&'i [u8]> {
    info.split(|&byte| byte == b'\n')
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(b":"))
        .map(<[u8]>::trim_ascii_end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::config::{Credentials, Secret};

    const SERVER: &[u8] = b"# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n\
        run_id:0123456789012345678901234567890123456789\r\n";

    fn handshake(server: &[u8], replication: &[u8], memory: &[u8]) -> Handshake {
        let mut handshake = Handshake::default();
        let settings = Settings::default();
        for (step, info) in [
            (Step::InfoServer, server),
            (Step::InfoReplication, replication),
            (Step::InfoMemory, memory),
        ] {
            let node = NodeSettings::default();
            handshake.answer(step, Token::Bulk(info), &node, &settings).unwrap();
        }
        handshake
    }

    #[test]
    fn a_plain_master_may_vote() {
        let memory = b"maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n";
        let handshake = handshake(SERVER, b"role:master\r\n", memory);
        assert_eq!(handshake.refused, None);
        assert_eq!(handshake.run_id, Some(*b"0123456789012345678901234567890123456789"));
    }

    /// A replica that sentinels name will be the master soon, or has just been it.
    #[test]
    fn a_replica_named_by_sentinels_is_not_a_configuration_error() {
        let mut handshake = Handshake::default();
        let node = NodeSettings::default().has_sentinels(true);
        let info = Token::Bulk(b"role:slave\r\n");
        let _ = handshake.answer(Step::InfoReplication, info, &node, &Settings::default());
        assert!(handshake.refused.is_some_and(|cause| !cause.is_configuration()));
    }

    #[test]
    fn other_servers_may_not_vote() {
        let refused = |server: &[u8], replication: &[u8], memory: &[u8]| {
            handshake(server, replication, memory).refused
        };
        let cluster = [b"redis_mode:cluster\r\n", SERVER].concat();
        assert_eq!(refused(&cluster, b"role:master\r\n", b""), Some(Cause::ClusterMode));
        assert_eq!(refused(SERVER, b"role:slave\r\n", b""), Some(Cause::Replica));
        assert_eq!(refused(b"run_id:short\r\n", b"role:master", b""), Some(Cause::UnexpectedReply));
        let memory = b"maxmemory:1048576\r\nmaxmemory_policy:volatile-ttl\r\n";
        assert_eq!(refused(SERVER, b"role:master\r\n", memory), Some(Cause::Evicting));
        let memory = b"maxmemory:1048576\r\nmaxmemory_policy:noeviction\r\n";
        assert_eq!(refused(SERVER, b"role:master\r\n", memory), None);
    }

    #[test]
    fn the_first_refusal_stands() {
        let mut handshake = Handshake::default();
        let (node, settings) = (NodeSettings::default(), Settings::default());
        let wrong = Token::Error(b"WRONGPASS invalid username-password pair");
        let noauth = Token::Error(b"NOAUTH Authentication required.");
        handshake.answer(Step::Auth, wrong, &node, &settings).unwrap();
        handshake.answer(Step::InfoServer, noauth, &node, &settings).unwrap();
        assert_eq!(handshake.refused, Some(Cause::WrongPassword));
        let nil = handshake.answer(Step::ClientId, Token::NilBulk, &node, &settings);
        assert_eq!(nil, Err(Mistyped));
    }

    #[test]
    fn a_name_and_an_id_are_optional() {
        let mut handshake = Handshake::default();
        let (node, settings) = (NodeSettings::default(), Settings::default());
        let denied = Token::Error(b"NOPERM this user has no permissions to run 'client|id'");
        handshake.answer(Step::ClientId, denied, &node, &settings).unwrap();
        assert_eq!((handshake.refused, handshake.client_id), (None, None));
        handshake.answer(Step::InfoMemory, denied, &node, &settings).unwrap();
        assert_eq!(handshake.refused, Some(Cause::NoPermission));
    }

    #[test]
    fn an_operator_can_do_without_info() {
        let mut handshake = Handshake::default();
        let settings = Settings::default();
        let node =
            NodeSettings { restart_trust: RestartTrust::MarkerOnly, ..NodeSettings::default() };
        let denied = Token::Error(b"NOPERM this user has no permissions to run 'info'");
        for step in [Step::InfoServer, Step::InfoReplication, Step::InfoMemory] {
            handshake.answer(step, denied, &node, &settings).unwrap();
        }
        assert_eq!((handshake.refused, handshake.run_id), (None, None));
        handshake.answer(Step::RestartGuardTtl, denied, &node, &settings).unwrap();
        assert_eq!(handshake.refused, Some(Cause::NoPermission));
    }

    fn answers(steps: &[(Step, Token<'_>)]) -> (Option<Cause>, Ability) {
        let (mut handshake, node) = (Handshake::default(), NodeSettings::default());
        for &(step, answer) in steps {
            handshake.answer(step, answer, &node, &Settings::default()).unwrap();
        }
        (handshake.refused, handshake.capabilities.writes())
    }

    const NOREPLICAS: Token<'_> = Token::Error(b"NOREPLICAS Not enough good replicas to write.");
    const BUSY: Token<'_> = Token::Error(b"BUSY Redis is busy running a script.");
    const NOPERM: Token<'_> = Token::Error(b"NOPERM this user has no permissions to run it");

    #[test]
    fn a_temporary_error_is_not_a_missing_ability() {
        for step in [Step::ClientId, Step::SetName, Step::Eval] {
            assert_eq!(answers(&[(step, BUSY)]).0, Some(Cause::Busy), "{step:?}");
        }
        assert_eq!(answers(&[(Step::Eval, NOPERM)]).0, Some(Cause::ScriptsForbidden));
        assert_eq!(answers(&[(Step::SetName, NOPERM)]).0, None, "it does without a name");
    }

    #[test]
    fn a_node_that_may_not_write_is_refused_and_one_that_cannot_for_now_is_not() {
        for step in [Step::Set, Step::Del] {
            assert_eq!(answers(&[(step, NOPERM)]), (Some(Cause::NoPermission), Ability::Unknown));
        }
        let usage = Token::Error(b"ERR wrong number of arguments for 'del' command");
        let told = answers(&[(Step::Set, NOREPLICAS), (Step::Del, usage)]);
        assert_eq!(told, (None, Ability::Refused(Cause::NoReplicas)), "whatever DEL says");
    }

    /// Some servers answer commands that others reject for their arguments.
    #[test]
    fn a_server_that_runs_the_tried_commands_can_write() {
        let told = answers(&[(Step::Set, Token::NilBulk), (Step::Del, Token::Int(0))]);
        assert_eq!(told, (None, Ability::Given));
    }

    #[test]
    fn the_oldest_supported_version_is_accepted() {
        let info = |version| [&b"redis_version:"[..], version, b"\r\n", SERVER].concat();
        for (version, refused) in [(&b"5.0.0"[..], None), (b"4.0.14", Some(Cause::TooOld))] {
            assert_eq!(handshake(&info(version), b"role:master\r\n", b"").refused, refused);
        }
    }

    #[test]
    fn auth_sends_the_user_before_the_password() {
        let auth = |user: Option<&[u8]>| {
            let credentials =
                Credentials::new(user.map(<[u8]>::to_vec), Secret::new(b"pw".to_vec()));
            let node = NodeSettings { credentials: Some(credentials), ..NodeSettings::default() };
            let mut out = Vec::new();
            Step::Auth.encode(&mut out, &node, &Settings::default());
            out
        };
        assert_eq!(auth(None), b"*2\r\n$4\r\nAUTH\r\n$2\r\npw\r\n");
        assert_eq!(auth(Some(b"me")), b"*3\r\n$4\r\nAUTH\r\n$2\r\nme\r\n$2\r\npw\r\n");
    }
}
