//! What the tests share: servers, and clients configured for them.

use std::time::Duration;

use redbolt::{Client, Config, ConfigBuilder};
use redbolt_proving::Server;

/// A builder with one node for each server. Answers may take long, for a test machine is busy.
pub(crate) fn builder(servers: &[Server]) -> ConfigBuilder {
    let builder = Config::builder().answer_within(PATIENCE).connect_within(PATIENCE);
    servers.iter().fold(builder, |builder, server| builder.node(&server.address()).unwrap())
}

pub(crate) fn client(servers: &[Server]) -> Client {
    Client::new(builder(servers).build().unwrap()).unwrap()
}

/// Far longer than any answer takes; only tests that wait it out see it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
