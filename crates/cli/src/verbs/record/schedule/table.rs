//! The account of a session as a table.

use fullbore_core::account::{Terms, Verdict};
use fullbore_core::completeness::Completeness;
use fullbore_core::units::ByteSize;
use fullbore_recording::session::{SHORT_NS, ScanEntry, ScanOutcome, SessionAccount};

use crate::output::count;

/// The columns beside the scan's name, with their widths.
const COLUMNS: [(&str, usize); 7] = [
    ("bytes", 10),
    ("expected", 12),
    ("written", 12),
    ("missing", 9),
    ("overrun", 9),
    ("damaged", 9),
    ("late", 9),
];

/// The scans of the session, a line each, and their sum.
pub fn table(session: &SessionAccount) -> String {
    let names = session.scans.iter().map(|outcome| outcome.scan.as_str().len());
    let width = names.max().unwrap_or(0).max(5);
    let heads = COLUMNS.map(|(name, width)| format!("  {name:>width$}")).concat();
    let mut text = format!("\n{:width$}{heads}  complete, verdict\n", "scan");
    for outcome in &session.scans {
        text += &format!("{:width$}{}\n", outcome.scan, row(outcome));
    }
    text += &format!("{:width$}{}\n", "all", figures(session.bytes, &session.terms));
    if !session.left.is_empty() {
        text +=
            &format!("{} still lay ahead when it was stopped\n", count(session.left.len(), "scan"));
    }
    text
}

/// The row after a scan's name.
fn row(outcome: &ScanEntry) -> String {
    let spoken = |verdict: &Option<Verdict>, completeness: &Option<Completeness>| {
        let short = completeness.as_ref().map_or("nothing came".to_owned(), Completeness::short);
        short + &verdict.map_or(String::new(), |verdict| format!(", {verdict}"))
    };
    let text = match &outcome.came {
        ScanOutcome::Recorded {
            bytes,
            terms,
            verdict,
            completeness,
            late_seconds,
            cut_short_seconds,
        } => {
            let late = match (*late_seconds * 1e9) as i64 > SHORT_NS {
                true => format!(", {late_seconds:.1} s late"),
                false => String::new(),
            };
            let short = cut_short_seconds
                .map_or(String::new(), |lacks| format!(", CUT SHORT by {lacks:.1} s"));
            figures(*bytes, terms) + &format!("  {}{late}{short}", spoken(verdict, completeness))
        }
        ScanOutcome::RecordedBefore { bytes, terms, verdict, completeness, unsealed, .. } => {
            let verdict = match unsealed.is_empty() {
                true => spoken(verdict, completeness),
                false => "not sealed".to_owned(),
            };
            figures(*bytes, terms) + &format!("  {verdict}, recorded before")
        }
        ScanOutcome::Failed { why, bytes, terms } => {
            let why = why.lines().next().unwrap_or("");
            match bytes {
                0 => format!("  failed: {why}"),
                _ => figures(*bytes, terms) + &format!("  FAILED: {why}"),
            }
        }
        ScanOutcome::Missed => "  missed: it was over before it could be armed".to_owned(),
    };
    let name = outcome.recorded_as.as_ref();
    text + &name.map_or(String::new(), |name| format!(", as {name}"))
}

fn figures(bytes: u64, terms: &Terms) -> String {
    let Terms { expected, written, missing, overrun, damaged, late, .. } = terms;
    let terms = [expected, written, missing, overrun, damaged, late].map(u64::to_string);
    let cells = std::iter::once(ByteSize(bytes).to_string()).chain(terms);
    let cells = COLUMNS.iter().zip(cells);
    cells.map(|((_, width), cell)| format!("  {cell:>width$}")).collect()
}

#[cfg(test)]
mod tests {
    use fullbore_core::manifest::State;
    use fullbore_core::name::Name;
    use fullbore_time::Tai;

    use super::*;

    fn recorded(terms: Terms, late_seconds: f64, cut_short_seconds: Option<f64>) -> ScanOutcome {
        let verdict = Some(Verdict::Proven);
        let completeness = Some(Completeness::of_terms(terms, Verdict::Proven, State::Sealed));
        let bytes = 1_000_000;
        ScanOutcome::Recorded {
            bytes,
            terms,
            verdict,
            completeness,
            late_seconds,
            cut_short_seconds,
        }
    }

    fn session(scans: Vec<(&str, Option<&str>, ScanOutcome)>) -> SessionAccount {
        let outcome = |(scan, recorded_as, came): (&str, Option<&str>, ScanOutcome)| ScanEntry {
            scan: scan.parse().unwrap(),
            start: Tai(0),
            recorded_as: recorded_as.map(|name| name.parse().unwrap()),
            came,
        };
        let mut session = SessionAccount::new(Name::session("day").unwrap(), Tai(0));
        session.scans = scans.into_iter().map(outcome).collect();
        session
    }

    fn row_of<'t>(table: &'t str, name: &str) -> &'t str {
        table.lines().find(|line| line.starts_with(name)).unwrap()
    }

    #[test]
    fn a_scan_that_was_cut_short_is_told_as_such_in_the_table() {
        let terms = Terms { expected: 10, written: 10, ..Terms::default() };
        let session = session(vec![
            ("no1", None, recorded(terms, 0.0, None)),
            ("no2", None, recorded(terms, 0.0, Some(12.34))),
        ]);
        let table = table(&session);
        assert!(
            row_of(&table, "no2").ends_with("complete, proven, CUT SHORT by 12.3 s"),
            "{table}"
        );
        assert!(row_of(&table, "no1").ends_with("proven"), "{table}");
        let json = serde_json::to_value(&session).unwrap();
        assert_eq!(json["scans"][1]["cut_short_seconds"], 12.34);
        assert!(json["scans"][0].get("cut_short_seconds").is_none());
    }

    #[test]
    fn every_term_has_its_column_and_its_sum() {
        let terms = Terms {
            expected: 155,
            written: 100,
            missing: 1,
            overrun: 3,
            damaged: 50,
            late: 1,
            ..Terms::default()
        };
        let failed = ScanOutcome::Failed { why: "gone\nmore".to_owned(), bytes: 7, terms };
        let mut session =
            session(vec![("no1", None, recorded(terms, 0.2, None)), ("no2", None, failed)]);
        session.add(1_000_000, &terms);
        session.add(7, &terms);
        let table = table(&session);
        let cells = |name: &str| -> Vec<String> {
            row_of(&table, name)
                .split("  ")
                .filter(|it| !it.is_empty())
                .map(|it| it.trim().to_owned())
                .collect()
        };
        assert_eq!(
            cells("scan")[2..8],
            ["expected", "written", "missing", "overrun", "damaged", "late"]
        );
        assert_eq!(
            cells("no1")[2..],
            ["155", "100", "1", "3", "50", "1", "LOST 55 (35 %), proven"]
        );
        assert_eq!(cells("no2")[2..], ["155", "100", "1", "3", "50", "1", "FAILED: gone"]);
        assert_eq!(cells("all")[2..], ["310", "200", "2", "6", "100", "2"]);
        let widths: Vec<usize> = ["scan", "no1"]
            .map(|name| {
                row_of(&table, name).find("LOST").or(row_of(&table, name).find("complete")).unwrap()
            })
            .to_vec();
        assert_eq!(widths[0], widths[1], "{table}");
    }

    #[test]
    fn late_is_said_from_where_it_counts() {
        let of = |late| {
            row(&session(vec![("a", None, recorded(Terms::default(), late, None))]).scans[0])
        };
        assert!(!of(0.25).contains("late") && of(0.3).contains("0.3 s late"));
    }

    #[test]
    fn the_rest_of_a_scan_is_told_by_its_name_and_what_was_there_before_as_such() {
        let before = |unsealed: Vec<Name>| ScanOutcome::RecordedBefore {
            bytes: 5,
            terms: Terms::default(),
            verdict: Some(Verdict::Consistent),
            completeness: Some(Completeness::of_terms(
                Terms::default(),
                Verdict::Consistent,
                State::Sealed,
            )),
            parts: vec!["no1".parse().unwrap()],
            unsealed,
        };
        let session = session(vec![
            ("no1", None, before(Vec::new())),
            ("no2", None, before(vec!["no2".parse().unwrap()])),
            ("no3", Some("no3-2"), recorded(Terms::default(), 2.0, None)),
        ]);
        let table = table(&session);
        assert!(
            row_of(&table, "no1").ends_with("complete, consistent, recorded before"),
            "{table}"
        );
        assert!(row_of(&table, "no2").ends_with("not sealed, recorded before"), "{table}");
        assert!(
            row_of(&table, "no3").ends_with("complete, proven, 2.0 s late, as no3-2"),
            "{table}"
        );
        let json = serde_json::to_value(&session).unwrap();
        assert_eq!(json["scans"][0]["outcome"], "recorded-before");
        assert_eq!(json["scans"][2]["recorded_as"], "no3-2");
    }
}
