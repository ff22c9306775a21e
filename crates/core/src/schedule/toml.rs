//! A schedule as TOML: a session, and a table for each scan or series of scans.

use serde::Deserialize;

use super::{Error, Given, MOST_SCANS, duration, start};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    session: Option<String>,
    #[serde(default)]
    scan: Vec<Table>,
}

/// One scan, or `repeat` of them with a `pause` between two.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    name: String,
    start: Time,
    duration: Length,
    repeat: Option<u32>,
    pause: Option<Length>,
    target: Option<String>,
}

/// TOML has native times; a text is accepted too.
#[derive(Deserialize)]
#[serde(untagged)]
enum Time {
    Toml(::toml::value::Datetime),
    Text(String),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Length {
    Whole(u32),
    Seconds(f64),
    Text(String),
}

impl Length {
    fn text(&self) -> String {
        match self {
            Length::Whole(seconds) => seconds.to_string(),
            Length::Seconds(seconds) => seconds.to_string(),
            Length::Text(text) => text.clone(),
        }
    }
}

pub fn read(text: &str) -> Result<(Option<String>, Vec<Given>), Error> {
    let parsed: Text = ::toml::from_str(text).map_err(|error| Error::Form {
        line: error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count()),
        what: error.message().to_owned(),
    })?;
    let mut scans = Vec::new();
    for table in &parsed.scan {
        series(table, &mut scans)?;
    }
    Ok((parsed.session, scans))
}

/// The scans of a series have numbered names: `no0001`, `no0002`, …
fn series(table: &Table, scans: &mut Vec<Given>) -> Result<(), Error> {
    let wrong = |what: String| Error::Scan { scan: table.name.clone(), what };
    let begin = match &table.start {
        Time::Toml(time) => start(&time.to_string(), wrong)?,
        Time::Text(text) => start(text, wrong)?,
    };
    let lasts = duration(&table.duration.text(), wrong)?;
    let pause = match &table.pause {
        Some(pause) => duration(&pause.text(), wrong)?,
        None => std::time::Duration::ZERO,
    };
    let Some(count) = table.repeat else {
        if table.pause.is_some() {
            return Err(wrong("`pause` needs `repeat = N`".to_owned()));
        }
        scans.push(Given {
            name: table.name.clone(),
            start: begin,
            duration: lasts,
            target: table.target.clone(),
        });
        return Ok(());
    };
    if count == 0 || count as usize > MOST_SCANS {
        return Err(wrong(format!("repeat = {count} is not within 1 to {MOST_SCANS}")));
    }
    let step = lasts.saturating_add(pause).as_nanos().min(i64::MAX as u128) as i64;
    for number in 0..count {
        scans.push(Given {
            name: format!("{}{:04}", table.name, number + 1),
            start: begin.plus_ns(step.saturating_mul(i64::from(number))),
            duration: lasts,
            target: table.target.clone(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Schedule;

    #[test]
    fn the_session_of_the_paper_is_one_table() {
        let text = "session = \"exp1\"\n[[scan]]\nname = \"no\"\nstart = \"2026-11-22T18:00:00Z\"\n\
                    duration = \"40s\"\npause = 20\nrepeat = 60\n";
        let schedule = Schedule::read(text, None).unwrap();
        assert_eq!(schedule.session.as_ref().unwrap().as_str(), "exp1");
        assert_eq!(schedule.scans.len(), 60);
        let last = &schedule.scans[59];
        assert_eq!(last.name.as_str(), "no0060");
        assert_eq!(last.start.since(schedule.scans[0].start), 59 * 60 * 1_000_000_000);
        assert!(schedule.notes.is_empty());
    }

    #[test]
    fn what_is_wrong_is_told_where_it_is() {
        for (text, part) in [
            ("[[scan]]\nname = 1\n", "line 2"),
            ("[[scan]]\nnaem = \"a\"\n", "naem"),
            ("[[scan]]\nname = \"a\"\nstart = \"2026-11-22T18:00:00Z\"\n", "duration"),
            (
                "[[scan]]\nname = \"a\"\nstart = \"2026-11-22T18:00:00Z\"\nduration = \"1s\"\nrepeat = 0\n",
                "repeat",
            ),
            (
                "[[scan]]\nname = \"a\"\nstart = \"2026-11-22T18:00:00Z\"\nduration = \"1s\"\npause = 2\n",
                "repeat = N",
            ),
        ] {
            let error = read(text).err().unwrap();
            assert!(error.to_string().contains(part), "{text:?} gave {error}");
        }
    }
}
