//! Chooses a configuration from the input.

use std::sync::Arc;
use std::time::Duration;

use redbolt::proto::{
    Config, Core, Credentials, NodeSettings, RestartGuard, Secret, Settings, Setup, WakeStrategy,
};

use crate::input::Input;

/// Chooses a configuration. Two bytes choose the number of nodes, the quorum, the treatment of
/// nodes without a restart guard, and whether locks wait in the queue; durations and flags follow.
pub(super) fn choose(input: &mut Input<'_>) -> Core {
    let (size, flags) = (input.byte(), input.byte());
    let nodes = usize::from(size % 5) + 1;
    let quorum = [None, Some(nodes), Some(nodes / 2 + 1)][usize::from(size / 5 % 3)];
    let nodes = (0..nodes).map(|node| node_settings(node, flags)).collect();
    let mut settings = Settings::new(nodes);
    settings.quorum = quorum;
    settings.setup =
        [Setup::Enrol, Setup::IfNew, Setup::Change, Setup::Init][usize::from(size / 15 % 4)];
    settings.restart_guard = if flags & 128 == 0 { RestartGuard::On } else { RestartGuard::Off };
    settings.accept_evicting = flags & 4 != 0;
    settings.label = if flags & 8 != 0 { b"host 1:42".to_vec() } else { Vec::new() };
    settings.wake = if size / 60 == 3 { WakeStrategy::Queue } else { WakeStrategy::Timer };
    choose_spans(&mut settings, flags & 3);
    let config = Config::new(settings).expect("every choice is valid");
    Core::new(Arc::new(config), entropy(size ^ flags))
}

/// Returns the settings of a node. Node 1 may need a user, node 2 a password, node 3 a database.
fn node_settings(node: usize, flags: u8) -> NodeSettings {
    let mut settings = NodeSettings::default();
    let password = Secret::new(b"pass\r\nword".to_vec());
    match node {
        0 if flags & 16 != 0 => {
            settings.credentials = Some(Credentials::new(Some(b"ann".to_vec()), password));
        }
        1 if flags & 32 != 0 => settings.credentials = Some(Credentials::new(None, password)),
        2 if flags & 64 != 0 => settings.database = 3,
        _ => {}
    }
    settings
}

/// Chooses the defaults, everything short, everything long and odd, or a `max_hold` that is soon
/// exceeded.
fn choose_spans(settings: &mut Settings, choice: u8) {
    let ms = Duration::from_millis;
    match choice {
        0 => {}
        1 => {
            settings.max_ttl = ms(1_000);
            settings.max_hold = None;
            settings.response_timeout = ms(5);
            settings.connect_timeout = ms(20);
            settings.dead_peer_timeout = ms(50);
            settings.retry_backoff = (ms(1), ms(2));
            settings.reconnect_backoff = (ms(1), ms(4));
        }
        2 => {
            settings.drift_ppm = 499_999;
            settings.response_timeout = ms(2_000);
            settings.connect_timeout = ms(3_000);
            settings.dead_peer_timeout = ms(1_000);
            settings.retry_backoff = (ms(200), ms(5));
            settings.reconnect_backoff = (ms(1_000), ms(20));
        }
        _ => {
            settings.max_ttl = Duration::from_secs(24 * 60 * 60);
            settings.max_hold = Some(Duration::from_secs(20));
            settings.drift_ppm = 0;
        }
    }
}

/// Returns entropy in which every other word is drawn, so that no two tokens are equal, and the
/// words between are extremes. It is not the test kit's generator, because inputs of the corpus
/// depend on these bytes.
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
