//! The stored scans: `scan_set`, `scan_check?`, `rtime?` and `dir_info?`.

use fullbore_time::Tai;

use super::{FlexBuff, Session, setup};
use crate::line::Statement;
use crate::reply::{Code, Reply};
use crate::station::{Facts, ScanFacts, Station, StoredScan};
use crate::vex_time;

/// Bytes before the end at which `scan_set=<scan>:e` begins.
const NEAR_END: u64 = 1_000_000;

/// Bytes by which `scan_set=<scan>:s+` moves the start.
const BEHIND_START: u64 = 65_536;

/// The scan that a runtime chose, and the part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) name: String,
    pub(super) start: u64,
    /// `None`: the end of the scan, which may still be recorded.
    pub(super) end: Option<u64>,
}

impl Chosen {
    /// A whole scan.
    pub(super) fn whole(name: String) -> Self {
        Self { name, start: 0, end: None }
    }
}

/// What is known of the chosen scan.
enum Known {
    Facts(ScanFacts),
    Refused(Reply),
    Reading,
}

impl FlexBuff {
    /// Answers what concerns stored scans; `None` if it needs what is being read from a disk.
    pub(super) fn about_scans(
        &mut self,
        session: &Session,
        station: &mut dyn Station,
        statement: &Statement,
    ) -> Option<Reply> {
        Some(match (statement.keyword.as_str(), statement.is_command()) {
            ("rtime", false) => self.time_left(session, station),
            ("dir_info", false) => {
                let space = station.space();
                let used = space.total_bytes.saturating_sub(space.free_bytes);
                let told = [station.scans().len() as u64, used, space.total_bytes];
                Reply::done().with_all(told.map(|it| it.to_string()))
            }
            ("scan_set", true) if super::recording::is_running(station, &session.runtime) => {
                Reply::because(Code::Conflict, "not whilst vbsrecord is in progress")
            }
            ("scan_set", true) => return self.choose(session, station, statement),
            ("scan_set", false) => self.tell_chosen(session, station),
            ("scan_check", false) => return self.check(session, station),
            ("disk2file", true) => return self.copy(session, station, statement),
            ("disk2file", false) => super::files::tell(station.copying(&session.runtime)),
            ("file_check", false) => return super::files::check(station, statement),
            _ => Reply::because(Code::NotImplemented, "this is either a command or a query only"),
        })
    }

    /// `rtime?`: the time left at the rate of the mode.
    fn time_left(&mut self, session: &Session, station: &dyn Station) -> Reply {
        let space = station.space();
        let share = space.free_bytes as f64 * 100.0 / space.total_bytes.max(1) as f64;
        let free = [format!("{:.4}GB", space.free_bytes as f64 / 1e9), format!("{share:.4}%")];
        let Some(mode) = self.own(session).setup.mode else {
            let unknown = ["<unknown>", "0", "0MHz", "0Mbps"];
            return Reply::done().with("0s").with_all(free).with_all(unknown);
        };
        let with_headers = f64::from(mode.frame_bytes()) / f64::from(mode.payload);
        let rate = f64::from(mode.mbits) * 1e6 * with_headers;
        let seconds = format!("{:.3}s", space.free_bytes as f64 * 8.0 / rate);
        let tracks = setup::tracks(&mode).to_string();
        let rate = format!("{:.2}Mbps", rate / 1e6);
        Reply::done().with(seconds).with_all(free).with_all(["VDIF", &tracks, "0MHz"]).with(rate)
    }

    /// `scan_set=<scan>[:<start>[:<end>]]`.
    fn choose(
        &mut self,
        session: &Session,
        station: &mut dyn Station,
        statement: &Statement,
    ) -> Option<Reply> {
        if statement.field(0).eq_ignore_ascii_case("null") {
            self.own(session).chosen = None;
            return Some(Reply::done());
        }
        let now = self.own(session).chosen.as_ref().map(|it| it.name.clone());
        let Some(scan) = find(station.scans(), statement.field(0), now.as_deref()) else {
            return Some(Reply::because(Code::Failed, "there is no such scan"));
        };
        let (start, end) = (statement.field(1), statement.field(2));
        let is_timed = |text: &str| vex_time::parse(text).is_some();
        let facts = match is_timed(start) || is_timed(end) {
            false => None,
            true => match known(station, &scan.name) {
                Known::Facts(facts) => Some(facts),
                Known::Refused(reply) => return Some(reply),
                Known::Reading => return None,
            },
        };
        let start = match start {
            "" => Some(0),
            text => position(text, scan.bytes, facts.as_ref()),
        };
        let end = match end {
            "" => Some(None),
            text => position(text, scan.bytes, facts.as_ref()).map(Some),
        };
        Some(match (start, end) {
            (Some(start), Some(end)) if start < end.unwrap_or(scan.bytes.max(1)) => {
                self.own(session).chosen = Some(Chosen { name: scan.name, start, end });
                Reply::done()
            }
            (Some(_), Some(_)) => {
                Reply::because(Code::Parameter, "the start is not before the end")
            }
            _ => {
                let why = "a position is s, c, e, s+, +bytes, -bytes or a time in the scan such as 2026y325d19h51m48s";
                Reply::because(Code::Parameter, why)
            }
        })
    }

    fn tell_chosen(&mut self, session: &Session, station: &dyn Station) -> Reply {
        let Some(Chosen { name, start, end }) = self.own(session).chosen.clone() else {
            return Reply::because(Code::Failed, "no scan is set");
        };
        let scans = station.scans();
        let at = scans.iter().position(|it| it.name == name);
        let number = at.map_or("?".to_owned(), |it| (it + 1).to_string());
        let bytes = at.map_or(0, |it| scans[it].bytes);
        let end = end.unwrap_or(bytes).to_string();
        Reply::done().with(number).with(name).with(start.to_string()).with(end)
    }

    /// `scan_check?`: from the manifest and the account, so nothing is guessed from a part of the data.
    fn check(&mut self, session: &Session, station: &mut dyn Station) -> Option<Reply> {
        let Some(Chosen { name, .. }) = self.own(session).chosen.clone() else {
            return Some(Reply::because(Code::Conflict, "no scan is set"));
        };
        if super::recording::is_running(station, &session.runtime) {
            return Some(Reply::because(Code::Conflict, "not whilst vbsrecord is in progress"));
        }
        let at = station.scans().iter().position(|it| it.name == name);
        let number = at.map_or("?".to_owned(), |it| (it + 1).to_string());
        Some(match known(station, &name) {
            Known::Reading => return None,
            Known::Refused(reply) => reply,
            Known::Facts(facts) => Reply::done().with(number).with(name).with_all(told(&facts)),
        })
    }
}

/// What is known of a scan.
fn known(station: &mut dyn Station, scan: &str) -> Known {
    match station.facts(scan) {
        Facts::Known(facts) => Known::Facts(facts),
        Facts::Failed(why) => Known::Refused(Reply::because(Code::Failed, &why)),
        Facts::Reading => Known::Reading,
    }
}

/// The fields of `scan_check?` from the format on. A format that is not known ends them.
pub(super) fn told(facts: &ScanFacts) -> Vec<String> {
    let unknown = || "?".to_owned();
    let (Some(format), Some(start)) = (&facts.format, facts.start) else { return vec![unknown()] };
    let tracks = facts.tracks.filter(|it| *it > 0);
    let rate = facts.bit_rate.zip(tracks).map(|(rate, tracks)| rate / f64::from(tracks) / 1e6);
    vec![
        format.clone(),
        tracks.map_or_else(unknown, |it| it.to_string()),
        vex_time::to_text(start),
        facts.seconds.map_or_else(unknown, |it| format!("{it:.5}s")),
        rate.map_or_else(unknown, |it| format!("{}Mbps", short(it))),
        facts.missing_bytes.map_or_else(unknown, |it| it.to_string()),
        facts.frame_bytes.map_or_else(unknown, |it| it.to_string()),
    ]
}

/// A number with at most six digits behind the point, and no zeros at its end.
fn short(number: f64) -> String {
    let text = format!("{number:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The scan that a client means: a name, a number from 1, a part of a name, a step from the chosen one, or the last.
fn find(scans: &[StoredScan], text: &str, chosen: Option<&str>) -> Option<StoredScan> {
    let here = || scans.iter().position(|it| Some(it.name.as_str()) == chosen);
    let exact = scans.iter().find(|it| it.name == text);
    let found = match (exact, text.to_ascii_lowercase().as_str()) {
        (Some(exact), _) => Some(exact),
        (None, "") => scans.last(),
        (None, "inc" | "next") => here().and_then(|it| scans.get(it + 1)).or(scans.first()),
        (None, "dec") => {
            here().and_then(|it| it.checked_sub(1)).map_or(scans.last(), |it| scans.get(it))
        }
        (None, part) => match part.parse::<usize>() {
            Ok(number) => number.checked_sub(1).and_then(|it| scans.get(it)),
            // One stream of a scan by the name of its directory.
            Err(_) => scans
                .iter()
                .find(|it| is_stream_of(text, &it.name))
                .or_else(|| scans.iter().find(|it| it.name.to_ascii_lowercase().contains(part))),
        },
    };
    let mut found = found?.clone();
    if is_stream_of(text, &found.name) {
        found.name = text.to_owned();
    }
    Some(found)
}

fn is_stream_of(text: &str, scan: &str) -> bool {
    text.strip_prefix(scan).is_some_and(|rest| rest.starts_with("_ds"))
}

/// A byte of a scan.
fn position(text: &str, bytes: u64, facts: Option<&ScanFacts>) -> Option<u64> {
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
        is_number.then(|| text.parse::<u64>().ok())?
    };
    let byte = match text.to_ascii_lowercase().as_str() {
        "s" => Some(0),
        "c" => Some(bytes / 2),
        "e" => Some(bytes.saturating_sub(NEAR_END)),
        "s+" => Some(BEHIND_START),
        text => match (text.strip_prefix('+'), text.strip_prefix('-')) {
            (Some(from_start), _) => number(from_start),
            (None, Some(from_end)) => bytes.checked_sub(number(from_end)?),
            (None, None) => byte_at(vex_time::parse(text)?, facts?),
        },
    }?;
    // A scan with fixed frames is cut between frames.
    let frame = facts.and_then(|it| it.frame_bytes).map_or(1, |it| u64::from(it.max(1)));
    (byte <= bytes).then_some(byte - byte % frame)
}

/// The byte of an instant, if the scan has it.
fn byte_at(time: Tai, facts: &ScanFacts) -> Option<u64> {
    let seconds = time.since(facts.start?) as f64 / 1e9;
    let share = seconds / facts.seconds.filter(|it| *it > 0.0)?;
    (0.0..=1.0).contains(&share).then_some((facts.bytes as f64 * share) as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scans() -> Vec<StoredScan> {
        let scan = |name: &str| StoredScan { name: name.to_owned(), bytes: 8032 * 1000 };
        ["r1_Wz_no1", "r1_Wz_no2", "r2_Wz_no10"].map(scan).to_vec()
    }

    #[test]
    fn a_scan_is_found_in_every_way() {
        let scans = scans();
        let found = |text: &str, now| find(&scans, text, now).map(|it| it.name).unwrap_or_default();
        let two = Some("r1_Wz_no2");
        for (text, now, name) in [
            ("r1_Wz_no1", None, "r1_Wz_no1"),
            ("", None, "r2_Wz_no10"),
            ("2", None, "r1_Wz_no2"),
            ("0", None, ""),
            ("4", None, ""),
            ("WZ_NO1", None, "r1_Wz_no1"),
            ("no10", None, "r2_Wz_no10"),
            ("next", two, "r2_Wz_no10"),
            ("inc", Some("r2_Wz_no10"), "r1_Wz_no1"),
            ("dec", two, "r1_Wz_no1"),
            ("dec", Some("r1_Wz_no1"), "r2_Wz_no10"),
            ("r1_Wz_no2_ds46220", None, "r1_Wz_no2_ds46220"),
            ("nothing", None, ""),
        ] {
            assert_eq!(found(text, now), name, "{text}");
        }
    }

    #[test]
    fn a_position_is_a_byte_or_a_time() {
        let facts = ScanFacts {
            format: Some("VDIF".into()),
            tracks: Some(2),
            start: "2026-11-21T00:00:00Z".parse().ok(),
            seconds: Some(10.0),
            bit_rate: None,
            missing_bytes: None,
            frame_bytes: Some(8032),
            bytes: 8_032_000,
        };
        let at = |text: &str| position(text, 8_032_000, Some(&facts));
        assert_eq!(at("s"), Some(0));
        assert_eq!(at("c"), Some(4_016_000));
        assert_eq!(at("s+"), Some(8 * 8032));
        assert_eq!(at("e"), Some((8_032_000 - 1_000_000) / 8032 * 8032));
        assert_eq!(at("+20000"), Some(16_064));
        assert_eq!(at("-8032"), Some(8_023_968));
        assert_eq!(at("2026y325d00h00m05s"), Some(4_016_000));
        for wrong in [
            "2026y325d00h00m11s",
            "2026y324d",
            "+9000000",
            "-9000000",
            "5000",
            "x",
            "+",
            "+-1",
            "é",
        ] {
            assert_eq!(at(wrong), None, "{wrong}");
        }
        assert_eq!(position("2026y325d00h00m05s", 8_032_000, None), None);
    }

    proptest! {
        #[test]
        fn no_position_is_outside_of_the_scan(text in "[sce+0-9ydhm.-]{0,24}", bytes in 0_u64..1 << 50) {
            if let Some(byte) = position(&text, bytes, None) {
                prop_assert!(byte <= bytes);
            }
        }
    }
}
