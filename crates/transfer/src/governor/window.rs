//! A time of day in which a transfer may send.

use std::fmt;
use std::str::FromStr;

const DAY: u32 = 86_400;

/// A time of day, UTC: from, until. It may pass midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Second of the day at which it begins.
    from: u32,
    /// Second of the day at which it ends.
    until: u32,
}

/// A text that is no time window.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    /// There are not two times.
    #[error("`{text}` is no time window: it needs two times, as in 22:00-06:00")]
    Form {
        /// The text.
        text: String,
    },
    /// A time is none.
    #[error("`{time}` is no time of day: write hours and minutes from 00:00 to 24:00, in UTC")]
    Time {
        /// The time.
        time: String,
    },
    /// The window has no length.
    #[error(
        "a time window from {time} to {time} has no length; without --window, a transfer may always send"
    )]
    Empty {
        /// The time.
        time: String,
    },
}

impl Window {
    /// Returns true if this second of the day is in the window.
    pub fn contains(&self, second: u32) -> bool {
        match self.from < self.until {
            true => (self.from..self.until).contains(&second),
            false => second >= self.from || second < self.until,
        }
    }

    /// Seconds until the window begins; 0 if it contains this second of the day.
    pub fn opens_in(&self, second: u32) -> u32 {
        match self.contains(second) {
            true => 0,
            false => (self.from + DAY - second) % DAY,
        }
    }
}

impl FromStr for Window {
    type Err = WindowError;

    fn from_str(text: &str) -> Result<Self, WindowError> {
        let form = || WindowError::Form { text: text.to_owned() };
        let (from, until) = text.split_once(['-', '–']).ok_or_else(form)?;
        let (from, until) = (from.trim(), until.trim());
        let window = Self { from: second_of_day(from)? % DAY, until: second_of_day(until)? };
        match window.from == window.until % DAY && !(window.from == 0 && window.until == DAY) {
            true => Err(WindowError::Empty { time: from.to_owned() }),
            false => Ok(window),
        }
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, until) = (self.from / 60, self.until / 60);
        write!(f, "{:02}:{:02}-{:02}:{:02}", from / 60, from % 60, until / 60, until % 60)
    }
}

fn second_of_day(text: &str) -> Result<u32, WindowError> {
    let parse = || {
        let (hours, minutes) = text.strip_suffix('Z').unwrap_or(text).split_once(':')?;
        let number = |digits: &str| {
            let are_digits = digits.len() <= 2 && digits.bytes().all(|it| it.is_ascii_digit());
            digits.parse::<u32>().ok().filter(|_| are_digits)
        };
        let (hours, minutes) = (number(hours)?, number(minutes)?);
        let second = hours * 3600 + minutes * 60;
        (minutes < 60 && second <= DAY).then_some(second)
    };
    parse().ok_or_else(|| WindowError::Time { time: text.to_owned() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn window(text: &str) -> Window {
        text.parse().unwrap()
    }

    #[test]
    fn a_window_can_pass_midnight() {
        let night = window("22:00-06:00");
        for (second, inside, opens) in [
            (22 * 3600, true, 0),
            (0, true, 0),
            (6 * 3600 - 1, true, 0),
            (6 * 3600, false, 16 * 3600),
            (21 * 3600, false, 3600),
        ] {
            assert_eq!((night.contains(second), night.opens_in(second)), (inside, opens));
        }
        let day = window("06:00-22:00");
        assert!(day.contains(12 * 3600) && !day.contains(0));
        assert_eq!(day.opens_in(23 * 3600), 7 * 3600);
    }

    #[test]
    fn texts_that_are_no_window_say_what_is_wrong() {
        for (text, told) in [
            ("22:00", "needs two times, as in 22:00-06:00"),
            ("", "needs two times"),
            ("22-06:00", "`22` is no time of day"),
            ("22:00-24:01", "`24:01` is no time of day"),
            ("22:60-06:00", "`22:60` is no time of day"),
            ("+2:00-06:00", "`+2:00` is no time of day"),
            ("22:00-22:00", "has no length"),
            ("00:00-00:00", "has no length"),
        ] {
            let error = text.parse::<Window>().unwrap_err().to_string();
            assert!(error.contains(told), "{text}: {error}");
        }
    }

    #[test]
    fn the_whole_day_is_a_window() {
        let day = window("00:00-24:00");
        assert!((0..DAY).step_by(60).all(|second| day.contains(second)));
        assert_eq!(day.to_string(), "00:00-24:00");
    }

    proptest! {
        #[test]
        fn a_window_is_open_as_long_as_it_says_and_opens_when_it_says(
            from in 0u32..1440, length in 1u32..1440, second in 0u32..DAY
        ) {
            let until = (from + length) % 1440;
            let text = format!("{:02}:{:02}-{:02}:{:02}", from / 60, from % 60, until / 60, until % 60);
            let window = window(&text);
            prop_assert_eq!(window.to_string(), text);
            let open = (0..1440).filter(|minute| window.contains(minute * 60)).count();
            prop_assert_eq!(open, length as usize);
            let opens = window.opens_in(second);
            prop_assert!(window.contains((second + opens) % DAY));
            prop_assert!((0..opens).step_by(61).all(|wait| !window.contains((second + wait) % DAY)));
        }
    }
}
