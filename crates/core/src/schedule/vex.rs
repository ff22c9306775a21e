//! The scan list of a VEX file: the block `$SCHED`, of one station.
//!
//! ```text
//! $SCHED;
//!   scan No0001;
//!     start=2026y326d18h00m00s; mode=m1; source=3C84;
//!     station=Ef: 0 sec: 40 sec: 0.000 GB: : : 1;     station: start: stop: … , in seconds after the scan's start
//!   endscan;
//! ```
//!
//! A VEX file is a list of statements that end in `;`; `*` begins a comment. The session is `exper_name`
//! of `$EXPER`. Format: the VEX 1.5b1 standard (VLBI standards body, 2002) and VEX 2.0, which agree in this.

use std::collections::BTreeSet;
use std::time::Duration;

use fullbore_time::Tai;

use super::{Error, Given};

/// True if this is a VEX file: its first statement, after comments, shows it.
pub fn is_vex(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim_start);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with('*')).unwrap_or("");
    first.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("VEX"))
}

/// A statement, without its `;`, and its first line.
struct Statement {
    line: usize,
    text: String,
}

impl Statement {
    fn wrong(&self, what: impl Into<String>) -> Error {
        Error::Form { line: self.line, what: what.into() }
    }

    /// `name = value`.
    fn assignment(&self) -> Option<(&str, &str)> {
        let (name, value) = self.text.split_once('=')?;
        Some((name.trim(), value.trim()))
    }
}

/// Returns statements without comments, several on a line or one over several. A `;` or `*` within quotes is text;
/// quotes end with their line.
fn statements(text: &str) -> Vec<Statement> {
    let mut statements = Vec::new();
    let mut open: Option<Statement> = None;
    for (line, words) in (1..).zip(text.lines()) {
        if words.trim_start().starts_with('$') {
            // A new block ends any open statement.
            statements.extend(open.take());
        }
        let mut quoted = false;
        for sign in words.chars().chain([' ']) {
            match sign {
                '*' if !quoted => break,
                ';' if !quoted => statements.extend(open.take()),
                ' ' | '\t' if open.is_none() => {}
                sign => {
                    quoted ^= sign == '"';
                    open.get_or_insert_with(|| Statement { line, text: String::new() })
                        .text
                        .push(sign);
                }
            }
        }
        if let Some(statement) = &mut open {
            // The next line begins another word.
            statement.text.push(' ');
        }
    }
    statements.extend(open);
    for statement in &mut statements {
        statement.text.truncate(statement.text.trim_end().len());
    }
    statements
}

/// One scan during parsing.
#[derive(Default)]
struct Scan<'t> {
    name: &'t str,
    start: Option<Tai>,
    target: Option<&'t str>,
    /// Station, and the seconds after the start at which it begins and ends.
    stations: Vec<(&'t str, f64, f64)>,
}

pub fn read(text: &str, station: Option<&str>) -> Result<(Option<String>, Vec<Given>), Error> {
    let mut session = None;
    let mut scans = Vec::new();
    let mut block = "";
    let mut open: Option<Scan<'_>> = None;
    let statements = statements(text);
    for statement in &statements {
        if statement.text.starts_with('$') {
            block = &statement.text;
            continue;
        }
        match (block.to_ascii_uppercase().as_str(), statement.assignment()) {
            ("$EXPER", Some((name, value))) if name.eq_ignore_ascii_case("exper_name") => {
                session.get_or_insert_with(|| value.to_ascii_lowercase());
            }
            ("$SCHED", _) => {
                if let Some(scan) = sched(statement, &mut open)? {
                    scans.push(scan);
                }
            }
            _ => {}
        }
    }
    if let Some(scan) = open {
        let what = "it has no endscan".to_owned();
        return Err(Error::Scan { scan: scan.name.to_owned(), what });
    }
    let station = chosen(&scans, station)?;
    scans
        .iter()
        .filter_map(|scan| given(scan, &station).transpose())
        .collect::<Result<_, _>>()
        .map(|scans| (session, scans))
}

/// Takes one statement of `$SCHED`; returns the scan that it ends.
fn sched<'t>(
    statement: &'t Statement,
    open: &mut Option<Scan<'t>>,
) -> Result<Option<Scan<'t>>, Error> {
    let first = statement.text.split_whitespace().next().unwrap_or("");
    match first.to_ascii_lowercase().as_str() {
        "scan" => {
            let name = statement.text[first.len()..].trim();
            if let Some(before) = open.replace(Scan { name, ..Scan::default() }) {
                return Err(statement.wrong(format!("scan `{}` has no endscan", before.name)));
            }
            return Ok(None);
        }
        "endscan" => {
            let scan = open.take().ok_or_else(|| statement.wrong("endscan without a scan"))?;
            return Ok(Some(scan));
        }
        _ => {}
    }
    let (Some(scan), Some((name, value))) = (open, statement.assignment()) else { return Ok(None) };
    match name.to_ascii_lowercase().as_str() {
        "start" => {
            let time = epoch(value);
            scan.start = Some(time.ok_or_else(|| {
                statement.wrong(format!("`{value}` is not a time such as 2026y326d18h00m00s"))
            })?);
        }
        "source" => scan.target = Some(value),
        "station" => scan.stations.push(station_of(value).ok_or_else(|| {
            statement.wrong(format!("`{value}` is not a station such as Ef: 0 sec: 40 sec"))
        })?),
        _ => {}
    }
    Ok(None)
}

/// `Ef: 0 sec: 40 sec: …`
fn station_of(value: &str) -> Option<(&str, f64, f64)> {
    let mut parts = value.split(':').map(str::trim);
    let station = parts.next().filter(|station| !station.is_empty())?;
    let (begin, end) = (seconds(parts.next()?)?, seconds(parts.next()?)?);
    Some((station, begin, end))
}

/// `40 sec`, `2 min` or `1 hr`.
fn seconds(text: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    let number: f64 = words.next()?.parse().ok()?;
    let unit = match words.next().unwrap_or("sec").to_ascii_lowercase().as_str() {
        "sec" | "s" => 1.0,
        "min" => 60.0,
        "hr" => 3600.0,
        _ => return None,
    };
    (number.is_finite() && number.abs() < 1e7).then_some(number * unit)
}

/// Parses `2026y326d18h00m00.5s`; the parts after the day are optional.
fn epoch(text: &str) -> Option<Tai> {
    let (year, rest) = text.split_once('y')?;
    let (day, rest) = rest.split_once('d')?;
    let mut rest = rest;
    let mut part = |mark: char| -> Option<f64> {
        if rest.is_empty() {
            return Some(0.0);
        }
        let (number, after) = rest.split_once(mark)?;
        rest = after;
        number.parse::<f64>().ok().filter(|number| (0.0..62.0).contains(number))
    };
    let (hour, minute, second) = (part('h')?, part('m')?, part('s')?);
    let (year, day): (u16, u16) = (year.trim().parse().ok()?, day.parse().ok()?);
    if !rest.is_empty()
        || !(1970..2200).contains(&year)
        || !(1..=366).contains(&day)
        || hour >= 24.0
    {
        return None;
    }
    let clock = [hour, minute].map(|part| part as u32);
    // A schedule does not contain fractions of hours or minutes.
    if hour.fract() != 0.0 || minute.fract() != 0.0 {
        return None;
    }
    Tai::of_day_of_year(year, day, clock, (second * 1e9).round() as i64)
}

/// Returns the requested station, or the only one.
fn chosen(scans: &[Scan<'_>], requested: Option<&str>) -> Result<String, Error> {
    let all: BTreeSet<&str> =
        scans.iter().flat_map(|scan| scan.stations.iter().map(|(station, ..)| *station)).collect();
    let found = match requested {
        Some(requested) => all.iter().find(|station| station.eq_ignore_ascii_case(requested)),
        None if all.len() == 1 => all.first(),
        None => None,
    };
    match found {
        Some(station) => Ok((*station).to_owned()),
        None if all.is_empty() => Err(Error::Empty),
        None => Err(Error::Station { stations: all.into_iter().collect::<Vec<_>>().join(", ") }),
    }
}

/// Returns the station's part of a scan; `None` if it has none.
fn given(scan: &Scan<'_>, station: &str) -> Result<Option<Given>, Error> {
    let Some((_, begin, end)) = scan.stations.iter().find(|(name, ..)| *name == station) else {
        return Ok(None);
    };
    let wrong = |what: &str| Error::Scan { scan: scan.name.to_owned(), what: what.to_owned() };
    let start = scan.start.ok_or_else(|| wrong("it has no start"))?;
    let duration =
        Duration::try_from_secs_f64(end - begin).map_err(|_| wrong("it stops before it starts"))?;
    Ok(Some(Given {
        name: scan.name.to_owned(),
        start: start.plus_ns((begin * 1e9).round() as i64),
        duration,
        target: scan.target.map(str::to_owned),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const VEX: &str = "VEX_rev = 1.5;\n* a comment; with = marks\n$EXPER;\n def N24K1; exper_name = N24K1; enddef;\n\
        $MODE; def m; enddef;\n$SCHED;\n\
        scan No0001;\n  start=2026y326d18h00m00s; mode=m; source=3C84; * \"quoted\"\n\
          station=Ef:    0 sec:   40 sec:    0.000 GB:   :       : 1;\n\
          station=On:   10 sec:   40 sec:    0.000 GB:   :       : 1;\nendscan;\n\
        scan No0002;\n  start=2026y326d18h01m00s; mode=m; source=DA193;\n\
          station=On:    0 sec:  2 min:    0.000 GB:   :       : 1;\nendscan;\n";

    #[test]
    fn each_station_has_its_own_scans() {
        let (session, onsala) = read(VEX, Some("on")).unwrap();
        assert_eq!(session.as_deref(), Some("n24k1"));
        assert_eq!(onsala.len(), 2);
        assert_eq!(onsala[0].start, "2026-11-22T18:00:10Z".parse().unwrap());
        assert_eq!(onsala[0].duration, Duration::from_secs(30));
        assert_eq!(onsala[1].duration, Duration::from_secs(120));
        let (_, effelsberg) = read(VEX, Some("Ef")).unwrap();
        assert_eq!(effelsberg.len(), 1);
        assert_eq!(effelsberg[0].target.as_deref(), Some("3C84"));
    }

    #[test]
    fn which_station_is_asked_where_there_are_several() {
        for requested in [None, Some("Wb")] {
            let error = read(VEX, requested).err().unwrap();
            assert_eq!(error, Error::Station { stations: "Ef, On".to_owned() });
        }
    }

    #[test]
    fn statements_run_over_lines_and_share_them() {
        let joined =
            VEX.replace(":\n", ": ").replace('\n', " ").replace("* a comment; with = marks", "");
        let joined = joined.replace("* \"quoted\"", "");
        let spread = VEX
            .replace("= 1.5;", "=\n  1.5\n;")
            .replace("scan No0001;", "scan\n  No0001 * the first; of all\n;")
            .replace("start=2026y326d18h00m00s;", "start =\n\n 2026y326d18h00m00s ;")
            .replace("station=On:   10 sec:", "station = On:\n\t10\n   sec *:\n:\n");
        for text in [joined, spread] {
            for station in ["Ef", "On"] {
                let (session, scans) = read(&text, Some(station)).unwrap();
                let (expected, same) = read(VEX, Some(station)).unwrap();
                assert_eq!((session, scans.len()), (expected, same.len()), "{text}");
                for (scan, same) in scans.iter().zip(&same) {
                    let of = |scan: &Given| (scan.start, scan.duration, scan.target.clone());
                    assert_eq!((&scan.name, of(scan)), (&same.name, of(same)), "{text}");
                }
            }
        }
    }

    #[test]
    fn a_block_begins_whatever_was_left_open_before_it() {
        let text =
            VEX.replace("def m; enddef;", "def m; enddef").replace("$MODE;", "nonsense\n$MODE;");
        assert_eq!(read(&text, Some("On")).unwrap().1.len(), 2);
    }

    #[test]
    fn what_is_wrong_in_the_middle_of_a_statement_is_told_by_the_line_it_begins_on() {
        let text = "VEX_rev=1.5;\n$SCHED;\nscan a;\nstart\n=\ntomorrow\n;\n";
        let error = read(text, None).err().unwrap().to_string();
        assert!(error.contains("line 4") && error.contains("tomorrow"), "{error}");
    }

    #[test]
    fn times_are_days_of_the_year() {
        assert_eq!(epoch("2026y001d00h00m00s"), "2026-01-01T00:00:00Z".parse().ok());
        assert_eq!(epoch("2024y366d23h59m59.5s"), "2024-12-31T23:59:59.5Z".parse().ok());
        assert_eq!(epoch("2015y182d00h00m00s"), "2015-07-01T00:00:00Z".parse().ok());
        assert_eq!(epoch("2015y181d23h59m60.5s"), "2015-06-30T23:59:60.5Z".parse().ok());
        assert_eq!(epoch("2016y366d23h59m60s"), "2016-12-31T23:59:60Z".parse().ok());
        assert_eq!(epoch("2026y326d18h"), "2026-11-22T18:00:00Z".parse().ok());
        for text in [
            "",
            "2026y366d00h00m00s",
            "2026y000d",
            "26",
            "2026y10d25h",
            "2026y10d1h61m99s",
            "2016y365d23h59m60s",
            "2026y1d1h1m1s1",
        ] {
            assert_eq!(epoch(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (text, part) in [
            ("VEX_rev=1.5;\n$SCHED;\nscan a;\nscan b;\n", "line 4: scan `a` has no endscan"),
            ("VEX_rev=1.5;\n$SCHED;\nendscan;\n", "line 3"),
            ("VEX_rev=1.5;\n$SCHED;\nscan a; start=tomorrow;\n", "tomorrow"),
            ("VEX_rev=1.5;\n$SCHED;\nscan a; station=Ef: 0 sec;\n", "station such as"),
            ("VEX_rev=1.5;\n$SCHED;\nscan a; station=Ef: 0 sec: 4 sec;\n", "no endscan"),
            ("VEX_rev=1.5;\n$SCHED;\nscan a; station=Ef: 0 sec: 4 sec; endscan;\n", "no start"),
            (
                "VEX_rev=1.5;\n$SCHED;\nscan a; start=2026y1d; station=Ef: 9 sec: 4 sec; endscan;\n",
                "stops before",
            ),
            ("VEX_rev=1.5;\n", "no scan"),
        ] {
            let error = read(text, None).err().unwrap();
            assert!(error.to_string().contains(part), "{text:?} gave {error}");
        }
    }
}
