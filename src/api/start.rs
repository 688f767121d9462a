//! The error of starting a client, a driver or an engine.

use std::io;

use super::config::ConfigError;
use crate::proto::{messages, sources};

messages! {
    /// A reason why a [`Client`](crate::Client), a [`Driver`](crate::Driver) or an
    /// [`Engine`](crate::Engine) was not started.
    ///
    /// It converts to an [`io::Error`], for programs that have no error type.
    #[derive(Debug)]
    #[non_exhaustive]
    pub enum StartError {
        /// The configuration is invalid, in [`Client::connect`](crate::Client::connect) or
        /// [`Engine::connect`](crate::Engine::connect).
        Config(error: ConfigError): "{error}",
        /// The system has no file descriptors, no threads or no randomness left.
        Io(error: io::Error): "{error}",
        /// The range of tokens for [`Driver::in_registry`](crate::Driver::in_registry) is too small.
        Tokens {
            /// The number of tokens given.
            given: usize,
            /// The number of tokens needed.
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
