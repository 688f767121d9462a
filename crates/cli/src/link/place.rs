//! The location of a node, and the login for it.

use redbolt::Config;
use redbolt::net::Address;

use super::login::Login;
use crate::addresses;
use crate::args::Nodes;

/// The address of a node, its database, and the login.
pub(crate) struct Place {
    pub(super) address: Address,
    pub(super) database: u32,
    pub(super) login: Option<Login>,
}

impl Place {
    /// Returns the places of all nodes, in order. `config` was built from `nodes`.
    pub(crate) fn all(nodes: &Nodes, config: &Config) -> Vec<Self> {
        let given = addresses::given(nodes).unwrap_or_default();
        let shared = addresses::password(nodes).ok().flatten();
        let known = config.addresses().iter().zip(&config.settings().nodes);
        let places = given.iter().zip(known).map(|(given, (address, settings))| Self {
            address: address.clone(),
            database: settings.database,
            login: Login::of(&given.text, shared),
        });
        places.collect()
    }

    /// Returns whether the address of the node has a password.
    pub(crate) fn has_login(&self) -> bool {
        self.login.is_some()
    }

    /// Returns this place without a login, for the server's default user.
    pub(crate) fn without_login(&self) -> Self {
        Self { address: self.address.clone(), database: 0, login: None }
    }

    /// Returns the number of the database that contains the locks.
    pub(crate) fn database(&self) -> u32 {
        self.database
    }
}
