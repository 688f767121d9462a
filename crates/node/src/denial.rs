//! Commands that an operator disabled: renamed to nothing, or forbidden to all users. Forbidden
//! keys and channels are not modelled.

use std::collections::BTreeMap;

/// The way in which a command was disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// As by `ACL SETUSER … -command`.
    Forbidden,
    /// As by `rename-command COMMAND ""`.
    RenamedAway,
}

impl Denial {
    /// Returns the error in a script that calls the command.
    pub(crate) fn in_script(self) -> &'static str {
        match self {
            Self::Forbidden => {
                "ERR The user executing the script can't run this command or subcommand"
            }
            Self::RenamedAway => "ERR Unknown Redis command called from script",
        }
    }
}

/// The disabled commands, by their names in lower case.
#[derive(Clone, Debug, Default)]
pub(crate) struct Denials(BTreeMap<String, Denial>);

impl Denials {
    pub(crate) fn set(&mut self, command: &str, denial: Option<Denial>) {
        let name = command.to_ascii_lowercase();
        match denial {
            Some(denial) => drop(self.0.insert(name, denial)),
            None => drop(self.0.remove(&name)),
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub(crate) fn of(&self, command: &str) -> Option<Denial> {
        if self.is_empty() { None } else { self.0.get(command).copied() }
    }
}
