//! Times in the notation of VEX files: `2026y325d19h51m48.9638s`. Always UTC.

use fullbore_time::Tai;

/// Writes a time with four digits of a second.
pub fn to_text(time: Tai) -> String {
    let text = format!("{time:.4}");
    let number = |range: std::ops::Range<usize>| text.get(range).and_then(|it| it.parse().ok());
    let parts: (Option<u32>, Option<u32>, Option<u32>) =
        (number(0..4), number(5..7), number(8..10));
    let (Some(year), Some(month), Some(day)) = parts else { return "?".to_owned() };
    let Some(clock) = text.get(11..24) else { return "?".to_owned() };
    let (hour, minute, second) = (&clock[..2], &clock[3..5], &clock[6..]);
    format!("{year:04}y{:03}d{hour}h{minute}m{second}s", day_of_year(year, month, day))
}

/// Reads a time. Parts at the end may be absent: `2026y325d19h`.
pub fn parse(text: &str) -> Option<Tai> {
    let (year, rest) = text.split_once('y')?;
    let (day, rest) = rest.split_once('d')?;
    let (hour, rest) = part(rest, 'h')?;
    let (minute, rest) = part(rest, 'm')?;
    let second = match rest {
        "" => "0",
        rest => rest.strip_suffix('s')?,
    };
    let second_ns = nanoseconds(second)?;
    Tai::of_day_of_year(digits(year)?, digits(day)?, [hour, minute], second_ns)
}

/// A number before a letter, or 0 at the end of the text.
fn part(text: &str, letter: char) -> Option<(u32, &str)> {
    match text {
        "" => Some((0, "")),
        text => {
            let (number, rest) = text.split_once(letter)?;
            Some((digits(number)?.into(), rest))
        }
    }
}

fn digits(text: &str) -> Option<u16> {
    text.bytes().all(|it| it.is_ascii_digit()).then(|| text.parse().ok())?
}

fn nanoseconds(text: &str) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if fraction.len() > 9 || !fraction.bytes().all(|it| it.is_ascii_digit()) {
        return None;
    }
    let fraction: i64 = format!("{fraction:0<9}").parse().ok()?;
    Some(i64::from(digits(whole)?) * 1_000_000_000 + fraction)
}

fn day_of_year(year: u32, month: u32, day: u32) -> u32 {
    const BEFORE: [u32; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let before = BEFORE.get(month.saturating_sub(1) as usize).copied().unwrap_or(0);
    before + day + u32::from(is_leap && month > 2)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_time_is_written_as_in_vex_files() {
        let time: Tai = "2026-11-21T19:51:48.9638Z".parse().unwrap();
        assert_eq!(to_text(time), "2026y325d19h51m48.9638s");
        let leap: Tai = "2024-03-01T00:00:00Z".parse().unwrap();
        assert_eq!(to_text(leap), "2024y061d00h00m00.0000s");
        assert_eq!(parse("2024y061d"), Some(leap));
        assert_eq!(parse("2026y325d19h51m48.9638s"), Some(time));
        // The leap second at the end of 2016.
        let second: Tai = "2016-12-31T23:59:60Z".parse().unwrap();
        assert_eq!(to_text(second), "2016y366d23h59m60.0000s");
        assert_eq!(parse("2016y366d23h59m60s"), Some(second));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "2026",
            "2026y",
            "2026y325",
            "y325d",
            "2026y400d",
            "2026y325d25h",
            "2026y325d1h2",
            "2026y+25d",
            "2026y325d19h51m48",
            "2026y325d19h51m48.1234567890s",
            "2026y325d19h51m-1s",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn times_are_read_as_they_are_written(seconds in 0_i64..4_000_000_000, part in 0_i64..10_000) {
            let time = Tai(seconds * 1_000_000_000 + part * 100_000);
            prop_assert_eq!(parse(&to_text(time)), Some(time));
        }

        #[test]
        fn no_text_is_too_strange_to_be_read(text in ".{0,40}") {
            let _ = parse(&text);
        }
    }
}
