//! Parses and formats durations as users write and read them: `50us`, `500ms`, `10s`, `1.5s`,
//! `1m30s`, `1h`.
//!
//! A number without a unit is refused: `flock` would read seconds and Redis milliseconds, and a
//! lock that is a thousand times too short is worse than an error.

use std::time::Duration;

/// Parses a duration from a command-line argument: a number with a unit, or several, the largest
/// unit first.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let (mut seconds, mut rest, mut largest) = (0.0, text, f64::INFINITY);
    while !rest.is_empty() || largest.is_infinite() {
        let (number, behind) = rest.split_at(length_of(rest, is_of_number));
        let value: f64 = number.parse().map_err(|_| format!("not a duration; {EXAMPLES}"))?;
        let (unit, behind) = behind.split_at(length_of(behind, |c| !is_of_number(c)));
        let size = size_of(unit)?;
        if size >= largest {
            return Err(format!("{unit:?} is behind a smaller or equal unit; {EXAMPLES}"));
        }
        (seconds, rest, largest) = (seconds + value * size, behind, size);
    }
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if duration <= LONGEST => Ok(duration),
        _ => Err(format!("too long: at most 876000h; {EXAMPLES}")),
    }
}

fn is_of_number(c: char) -> bool {
    c.is_ascii_digit() || c == '.'
}

/// Returns the length of the leading part whose characters all match.
fn length_of(text: &str, is_such: impl Fn(char) -> bool) -> usize {
    text.find(|c| !is_such(c)).unwrap_or(text.len())
}

/// Returns the seconds of a unit.
fn size_of(unit: &str) -> Result<f64, String> {
    Ok(match unit {
        "us" => 0.000_001,
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "" => return Err(format!("a duration needs a unit; {EXAMPLES}")),
        _ => return Err(format!("{unit:?} is not a unit of time; {EXAMPLES}")),
    })
}

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

/// Writes a duration so that [`parse`] reads the same, in whole microseconds.
pub(crate) fn exact(duration: Duration) -> String {
    match duration.subsec_micros() {
        0 => format!("{}s", duration.as_secs()),
        micros if micros % 1_000 == 0 => format!("{}ms", duration.as_millis()),
        _ => format!("{}us", duration.as_micros()),
    }
}

/// The longest duration: a century. Sums and small multiples of such durations do not overflow,
/// neither as a [`Duration`] nor added to a clock, nor as nanoseconds in 64 bits.
const LONGEST: Duration = Duration::from_secs(876_000 * 60 * 60);

const EXAMPLES: &str = "write it like 500ms, 10s, 1m30s or 1h";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read() {
        assert_eq!(parse("50us"), Ok(Duration::from_micros(50)));
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(parse("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse("1h"), Ok(Duration::from_secs(3600)));
        assert_eq!(parse("0s"), Ok(Duration::ZERO));
        assert_eq!(parse("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse("1h5m1.5s250ms"), Ok(Duration::from_micros(3_901_750_000)));
    }

    #[test]
    fn a_bare_number_is_refused_with_the_reason() {
        assert_eq!(
            parse("10").unwrap_err(),
            "a duration needs a unit; write it like 500ms, 10s, 1m30s or 1h"
        );
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "", "s", "-5s", "10 s", "10sec", "1.2.3s", ".", "1e9s", "nan", "10S", "1m30", "30s1m",
            "1s1s", "1m 30s", "1m-5s",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
        assert!(parse(&format!("{}s", "9".repeat(40))).is_err());
        assert!(parse("876001h").unwrap_err().contains("at most 876000h"));
        assert_eq!(parse("876000h"), Ok(LONGEST));
    }

    #[test]
    fn what_is_written_exactly_is_read_again() {
        assert_eq!(exact(Duration::from_secs(90)), "90s");
        assert_eq!(exact(Duration::from_millis(1_500)), "1500ms");
        assert_eq!(parse(&exact(Duration::from_millis(61))), Ok(Duration::from_millis(61)));
    }

    #[test]
    fn the_precision_follows_the_size() {
        assert_eq!(show(Duration::from_micros(85)), "85 us");
        assert_eq!(show(Duration::from_micros(1_240)), "1.24 ms");
        assert_eq!(show(Duration::from_micros(250_900)), "251 ms");
        assert_eq!(show(Duration::from_millis(8_310)), "8.3 s");
    }
}
