//! One task for each lock in flight, on a runtime of tokio.

use std::time::Duration;

use anyhow::{Result, anyhow};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Returns a runtime on the calling thread.
pub(super) fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// Returns a runtime with a thread for each core that it may run on.
pub(super) fn many_threads() -> Result<Runtime> {
    Ok(Builder::new_multi_thread().enable_all().build()?)
}

/// Distributes `locks` locks over one task for each resource. `lock` returns the task that acquires
/// and releases this many locks on one resource.
pub(super) fn fly<F>(
    runtime: &Runtime,
    resources: &[String],
    locks: usize,
    mut lock: impl FnMut(String, usize) -> F,
) -> Result<()>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for (at, resource) in resources.iter().enumerate() {
            // The shares are as even as whole numbers allow.
            let share = (locks + resources.len() - 1 - at) / resources.len();
            tasks.spawn(lock(resource.clone(), share));
        }
        let all = async {
            while let Some(outcome) = tasks.join_next().await {
                outcome??;
            }
            Ok(())
        };
        timeout(PATIENCE, all).await.map_err(|_| anyhow!("the nodes do not answer"))?
    })
}

/// The limit for all locks of a block.
const PATIENCE: Duration = Duration::from_secs(60);
