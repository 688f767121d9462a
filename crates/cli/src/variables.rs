//! Reads variables of the environment.
//!
//! An empty variable counts as not set. docker compose (`X=${X}`), Helm and systemd create such
//! variables.

use std::env;
use std::ffi::OsString;

/// Returns the value of a variable, unless it is empty.
pub(crate) fn value(name: &str) -> Option<OsString> {
    #[cfg(any(test, feature = "fuzz"))]
    if let Some(variables) = chosen::variables() {
        return variables.get(name).cloned().filter(|value| !value.is_empty());
    }
    env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns the variable that stands in for an option.
pub(crate) fn of_option(option: &str) -> Option<&'static str> {
    VARIABLES.iter().find(|(name, _)| *name == option).map(|(_, variable)| *variable)
}

/// The options that can come from the environment, and their variables.
pub(crate) const VARIABLES: [(&str, &str); 18] = [
    ("--label", LABEL_VARIABLE),
    ("--max-ttl", MAX_TTL_VARIABLE),
    ("--restart-guard-key", RESTART_GUARD_KEY_VARIABLE),
    ("--restart-trust", RESTART_TRUST_VARIABLE),
    ("--response-timeout", RESPONSE_TIMEOUT_VARIABLE),
    ("--connect-timeout", CONNECT_TIMEOUT_VARIABLE),
    ("--password-file", PASSWORD_FILE_VARIABLE),
    ("--sentinel-user", SENTINEL_USER_VARIABLE),
    ("--sentinel-password-file", SENTINEL_PASSWORD_FILE_VARIABLE),
    ("--sentinel-tls", SENTINEL_TLS_VARIABLE),
    ("--sentinel-tls-ca", SENTINEL_TLS_CA_VARIABLE),
    ("--sentinel-tls-cert", SENTINEL_TLS_CERT_VARIABLE),
    ("--sentinel-tls-key", SENTINEL_TLS_KEY_VARIABLE),
    ("--sentinel-tls-server-name", SENTINEL_TLS_SERVER_NAME_VARIABLE),
    ("--tls-ca", TLS_CA_VARIABLE),
    ("--tls-cert", TLS_CERT_VARIABLE),
    ("--tls-key", TLS_KEY_VARIABLE),
    ("--tls-server-name", TLS_SERVER_NAME_VARIABLE),
];

/// Variables that stand in for options.
pub(crate) const NODES_VARIABLE: &str = "REDBOLT_NODES";
pub(crate) const NODES_FILE_VARIABLE: &str = "REDBOLT_NODES_FILE";
pub(crate) const PASSWORD_FILE_VARIABLE: &str = "REDBOLT_PASSWORD_FILE";
pub(crate) const LABEL_VARIABLE: &str = "REDBOLT_LABEL";
pub(crate) const MAX_TTL_VARIABLE: &str = "REDBOLT_MAX_TTL";
pub(crate) const RESTART_GUARD_KEY_VARIABLE: &str = "REDBOLT_RESTART_GUARD_KEY";
pub(crate) const RESTART_TRUST_VARIABLE: &str = "REDBOLT_RESTART_TRUST";
pub(crate) const RESPONSE_TIMEOUT_VARIABLE: &str = "REDBOLT_RESPONSE_TIMEOUT";
pub(crate) const CONNECT_TIMEOUT_VARIABLE: &str = "REDBOLT_CONNECT_TIMEOUT";
pub(crate) const SENTINEL_USER_VARIABLE: &str = "REDBOLT_SENTINEL_USER";
pub(crate) const SENTINEL_PASSWORD_FILE_VARIABLE: &str = "REDBOLT_SENTINEL_PASSWORD_FILE";
pub(crate) const SENTINEL_TLS_VARIABLE: &str = "REDBOLT_SENTINEL_TLS";
pub(crate) const SENTINEL_TLS_CA_VARIABLE: &str = "REDBOLT_SENTINEL_TLS_CA";
pub(crate) const SENTINEL_TLS_CERT_VARIABLE: &str = "REDBOLT_SENTINEL_TLS_CERT";
pub(crate) const SENTINEL_TLS_KEY_VARIABLE: &str = "REDBOLT_SENTINEL_TLS_KEY";
pub(crate) const SENTINEL_TLS_SERVER_NAME_VARIABLE: &str = "REDBOLT_SENTINEL_TLS_SERVER_NAME";
pub(crate) const TLS_CA_VARIABLE: &str = "REDBOLT_TLS_CA";
pub(crate) const TLS_CERT_VARIABLE: &str = "REDBOLT_TLS_CERT";
pub(crate) const TLS_KEY_VARIABLE: &str = "REDBOLT_TLS_KEY";
pub(crate) const TLS_SERVER_NAME_VARIABLE: &str = "REDBOLT_TLS_SERVER_NAME";

/// The variables chosen by a test. No test may change those of the process while others run.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod chosen {
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStrExt;
    use std::rc::Rc;

    use clap::Command;

    use super::VARIABLES;

    pub(crate) type Variables = BTreeMap<&'static str, OsString>;

    thread_local! {
        static CHOSEN: RefCell<Option<Rc<Variables>>> = const { RefCell::new(None) };
    }

    /// Returns the variables that were chosen for this thread.
    pub(crate) fn variables() -> Option<Rc<Variables>> {
        CHOSEN.with_borrow(Clone::clone)
    }

    /// Runs `body` on this thread as if these were all variables.
    #[cfg_attr(not(test), allow(dead_code, reason = "the program has only those of its process"))]
    pub(crate) fn with<T>(variables: Variables, body: impl FnOnce() -> T) -> T {
        let before = CHOSEN.replace(Some(Rc::new(variables)));
        let outcome = body();
        CHOSEN.set(before);
        outcome
    }

    /// Adds the options that the chosen variables replace, because clap reads only those of the
    /// process.
    pub(crate) fn complete(command: &Command, mut words: Vec<OsString>) -> Vec<OsString> {
        let Some(variables) = variables() else { return words };
        let subcommand = words.get(1).and_then(|name| command.find_subcommand(name));
        let Some(subcommand) = subcommand else { return words };
        let is_option = |word: &&OsString| *word != "--";
        for (option, variable) in VARIABLES {
            let is_typed = |word: &OsString| {
                let rest = word.as_bytes().strip_prefix(option.as_bytes());
                rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'=')
            };
            let is_known = subcommand.get_arguments().any(|arg| arg.get_long() == option.get(2..));
            let value = variables.get(variable).filter(|value| !value.is_empty());
            let Some(value) = value.filter(|_| is_known) else { continue };
            if !words.iter().take_while(is_option).any(is_typed) {
                let mut word = OsString::from(format!("{option}="));
                word.push(value);
                words.insert(2, word);
            }
        }
        words
    }
}
