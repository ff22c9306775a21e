//! A schedule as comma-separated values: a line of names, then a line for each scan.
//!
//! The columns `scan` (or `name`), `start` and `duration` (or `stop`) may have any order; `target` is optional, and
//! others are ignored. Lines that begin with `#` are comments.

use super::{Error, Given, duration, start};
use std::time::Duration;

use fullbore_time::Tai;

/// True if the first line that is not a comment is a line of names.
pub fn is_csv(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with('#')).unwrap_or("");
    first.split(',').any(|name| is(name, &["start"])) && !first.contains('=')
}

fn is(name: &str, names: &[&str]) -> bool {
    names.iter().any(|known| name.trim().eq_ignore_ascii_case(known))
}

pub fn read(text: &str) -> Result<Vec<Given>, Error> {
    let mut reader = ::csv::ReaderBuilder::new()
        .comment(Some(b'#'))
        .trim(::csv::Trim::All)
        .from_reader(text.as_bytes());
    let names = reader.headers().map_err(|error| form(1, error.to_string()))?.clone();
    let find = |known: &[&str]| names.iter().position(|name| is(name, known));
    let (name, begin) = (find(&["scan", "name"]), find(&["start"]));
    let (lasts, stop, target) =
        (find(&["duration"]), find(&["stop", "end"]), find(&["target", "source"]));
    let (Some(name), Some(begin), true) = (name, begin, lasts.is_some() || stop.is_some()) else {
        let what = "the columns scan, start and duration (or stop) are needed".to_owned();
        return Err(form(1, what));
    };
    let mut scans = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| {
            form(error.position().map_or(1, |at| at.line() as usize), error.to_string())
        })?;
        let line = record.position().map_or(1, |at| at.line() as usize);
        let cell = |column: usize| record.get(column).unwrap_or("").to_owned();
        let wrong = |what| form(line, what);
        let start = start(&cell(begin), wrong)?;
        let duration = match (lasts, stop) {
            (Some(column), _) => duration(&cell(column), wrong)?,
            (None, Some(column)) => until(start, &cell(column), line)?,
            (None, None) => unreachable!("one of them was found above"),
        };
        let target = target.map(cell).filter(|target| !target.is_empty());
        scans.push(Given { name: cell(name), start, duration, target });
    }
    Ok(scans)
}

fn until(begin: Tai, text: &str, line: usize) -> Result<Duration, Error> {
    let end = start(text, |what| form(line, what))?;
    u64::try_from(end.since(begin))
        .map(Duration::from_nanos)
        .map_err(|_| form(line, "it stops before it starts".to_owned()))
}

fn form(line: usize, what: String) -> Error {
    Error::Form { line, what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_come_in_any_order_and_a_stop_will_do() {
        let text = "# the night\nstart, Stop ,target,scan\n\
                    2026-11-22T18:00:00Z,2026-11-22T18:00:40Z,\"3C84, or so\",no0001\n";
        assert!(is_csv(text));
        let scans = read(text).unwrap();
        assert_eq!(scans[0].duration, Duration::from_secs(40));
        assert_eq!(scans[0].target.as_deref(), Some("3C84, or so"));
    }

    #[test]
    fn a_bad_line_is_told_by_its_number() {
        for text in [
            "scan,start,duration\na,2026-11-22T18:00:00Z,4s\nb,2026-11-22T18:00:00Z\n",
            "scan,start,stop\na,2026-11-22T18:00:00Z,2026-11-22T18:00:40Z\nb,2026-11-22T18:00:00Z,2026-11-22T17:00:00Z\n",
        ] {
            let error = read(text).err().unwrap();
            assert!(error.to_string().starts_with("line 3"), "{error}");
        }
        assert!(read("scan,start\n").err().unwrap().to_string().contains("duration"));
    }
}
