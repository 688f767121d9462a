//! Waiting for a condition, with a bound.

use std::{
    thread,
    time::{Duration, Instant},
};

/// Waits until the condition holds.
///
/// # Errors The text that describes the condition, if it does not hold within the limit.
pub fn until(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) -> Result<(), String> {
    let end = Instant::now() + limit;
    while !holds() {
        if Instant::now() > end {
            return Err(format!("not within {limit:?}: {what}"));
        }
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_that_never_holds_is_named() {
        let mut times = 0;
        let third = || {
            times += 1;
            times == 3
        };
        assert_eq!(until("the third time", Duration::from_secs(60), third), Ok(()));
        let never = until("never", Duration::ZERO, || false);
        assert_eq!(never, Err("not within 0ns: never".to_owned()));
    }
}
