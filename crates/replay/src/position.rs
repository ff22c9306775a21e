//! A position in a recording, with the same syntax for every command that takes a range.

use std::time::Duration;

use fullbore_time::Tai;

/// A position in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The frame with this index.
    Frame(i64),
    /// The frames of this time.
    Time(Tai),
    /// This time after the first frame.
    After(Duration),
}

impl std::str::FromStr for Position {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(offset) = text.strip_prefix('+') {
            let offset = humantime::parse_duration(offset).or_else(|error| {
                // The parser accepts only whole units, so `2.5s` is handled here.
                let seconds = offset.strip_suffix('s').and_then(|it| it.parse::<f64>().ok());
                seconds.and_then(|it| Duration::try_from_secs_f64(it).ok()).ok_or(error)
            });
            return offset.map(Position::After).map_err(|error| format!("`{text}`: {error}"));
        }
        if let Ok(index) = text.parse() {
            return Ok(Position::Frame(index));
        }
        text.parse().map(Position::Time).map_err(|_| {
            format!("`{text}` is no place: write 2026-11-21T18:00:00, +2.5s, or a frame's index")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_time_an_offset_or_an_index() {
        assert_eq!("1234".parse(), Ok(Position::Frame(1234)));
        assert_eq!("+2500ms".parse(), Ok(Position::After(Duration::from_millis(2500))));
        assert_eq!("+2.5s".parse(), Ok(Position::After(Duration::from_millis(2500))));
        let time: Tai = "2026-11-21T18:00:00Z".parse().unwrap();
        assert_eq!("2026-11-21T18:00:00".parse(), Ok(Position::Time(time)));
        for text in ["noon", "+noon", "+-1s", "+infs"] {
            assert!(text.parse::<Position>().unwrap_err().contains(text), "{text}");
        }
    }
}
