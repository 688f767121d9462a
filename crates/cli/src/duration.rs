//! Durations as users read them.

use std::time::Duration;

/// Shows a duration with a precision that suits its size: `85 us`, `1.24 ms`, `8.3 s`.
pub(crate) fn show(duration: Duration) -> String {
    let micros = duration.as_micros();
    match micros {
        0..1_000 => format!("{micros} us"),
        1_000..100_000 => format!("{:.2} ms", duration.as_secs_f64() * 1000.0),
        100_000..1_000_000 => format!("{:.0} ms", duration.as_secs_f64() * 1000.0),
        _ => format!("{:.1} s", duration.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_precision_follows_the_size() {
        assert_eq!(show(Duration::from_micros(85)), "85 us");
        assert_eq!(show(Duration::from_micros(1_240)), "1.24 ms");
        assert_eq!(show(Duration::from_micros(250_900)), "251 ms");
        assert_eq!(show(Duration::from_millis(8_310)), "8.3 s");
    }
}
