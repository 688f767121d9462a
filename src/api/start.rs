//! Why a client, a driver or an engine was not started.

use std::io;

use super::config::ConfigError;
use crate::proto::{messages, sources};

messages! {
    /// Why a [`Client`](crate::Client), a [`Driver`](crate::Driver) or an [`Engine`](crate::Engine) was not started.
    ///
    /// It turns into an [`io::Error`], for programs that have no error of their own.
    #[derive(Debug)]
    #[non_exhaustive]
    pub enum StartError {
        /// The configuration does not hold, of [`Client::connect`](crate::Client::connect) and [`Engine::connect`](crate::Engine::connect).
        Config(error: ConfigError): "{error}",
        /// The system has no file descriptors, no threads or no randomness left.
        Io(error: io::Error): "{error}",
        /// The range of tokens for [`Driver::in_registry`](crate::Driver::in_registry) is too small.
        Tokens {
            /// How many were given.
            given: usize,
            /// How many there must be.
            needed: usize,
        }: "{given} tokens given, {needed} needed",
    }
}

sources! { StartError: Config, Io; from Config(ConfigError), Io(io::Error) }

impl From<StartError> for io::Error {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Io(error) => error,
            error => Self::new(io::ErrorKind::InvalidInput, error),
        }
    }
}
