//! The configuration that an input chooses.

use std::sync::Arc;
use std::time::Duration;

use redbolt::proto::{
    Config, Core, Credentials, NodeSettings, RestartGuard, Secret, Settings, Setup, WakeStrategy,
};

use crate::input::Input;

/// Two bytes: how many nodes, which quorum, and what happens to nodes without a restart guard; then spans and
/// flags.
pub(super) fn choose(input: &mut Input<'_>) -> Core {
    let (size, flags) = (input.byte(), input.byte());
    let nodes = usize::from(size % 5) + 1;
    let quorum = [None, Some(nodes), Some(nodes / 2 + 1)][usize::from(size / 5 % 3)];
    let settings = Settings {
        nodes: (0..nodes).map(|node| node_settings(node, flags)).collect(),
        quorum,
        setup: [Setup::Enrol, Setup::IfNew, Setup::Change, Setup::Init][usize::from(size / 15 % 4)],
        restart_guard: if flags & 128 == 0 { RestartGuard::On } else { RestartGuard::Off },
        accept_evicting: flags & 4 != 0,
        label: if flags & 8 != 0 { b"host 1:42".to_vec() } else { Vec::new() },
        wake: WakeStrategy::Timer,
        ..spans(flags & 3)
    };
    let config = Config::new(settings).expect("every choice is in range");
    Core::new(Arc::new(config), entropy(size ^ flags))
}

/// Node 1 may need a user, node 2 a password, node 3 a database.
fn node_settings(node: usize, flags: u8) -> NodeSettings {
    let mut settings = NodeSettings::default();
    let password = Secret::new(b"pass\r\nword".to_vec());
    match node {
        0 if flags & 16 != 0 => {
            settings.credentials = Some(Credentials { user: Some(b"ann".to_vec()), password });
        }
        1 if flags & 32 != 0 => settings.credentials = Some(Credentials { user: None, password }),
        2 if flags & 64 != 0 => settings.database = 3,
        _ => {}
    }
    settings
}

/// The defaults, everything short, everything long and odd, a hold that is soon too long.
fn spans(choice: u8) -> Settings {
    let ms = Duration::from_millis;
    let defaults = Settings::default();
    match choice {
        0 => defaults,
        1 => Settings {
            max_ttl: ms(1_000),
            max_hold: None,
            response_timeout: ms(5),
            connect_timeout: ms(20),
            dead_peer_timeout: ms(50),
            retry_backoff: (ms(1), ms(2)),
            reconnect_backoff: (ms(1), ms(4)),
            ..defaults
        },
        2 => Settings {
            drift_ppm: 499_999,
            response_timeout: ms(2_000),
            connect_timeout: ms(3_000),
            dead_peer_timeout: ms(1_000),
            retry_backoff: (ms(200), ms(5)),
            reconnect_backoff: (ms(1_000), ms(20)),
            ..defaults
        },
        _ => Settings {
            max_ttl: Duration::from_secs(24 * 60 * 60),
            max_hold: Some(Duration::from_secs(20)),
            drift_ppm: 0,
            ..defaults
        },
    }
}

/// Every other word is drawn, so that no two tokens are equal; the words between are extremes.
fn entropy(seed: u8) -> impl FnMut(&mut [u8]) + Send + 'static {
    let mut state = u64::from(seed);
    move |pool| {
        for (at, word) in pool.chunks_exact_mut(8).enumerate() {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let drawn = [mixed, 0, mixed, u64::MAX][at % 4];
            word.copy_from_slice(&drawn.to_le_bytes());
        }
    }
}
