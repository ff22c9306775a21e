//! Tests 00 and 11: the properties of the target before the tests, and their comparison after them.
//!
//! The link is compared with the expected one (`--link gen3x4`), or else with the best that both ends support:
//!
//! ```text
//!                             with --link      without
//! fast enough                 passed           passed
//! slower                      failed           failed
//! link unknown to the kernel  failed           unknown
//! ```

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use super::medium::{Link, Look, transfers};
use super::run::{CHUNK, Failure, Run, ensure};

/// The rate of each PCI Express generation from the first on, in units of 0.1 GT/s.
const GENERATIONS: [u64; 7] = [25, 50, 80, 160, 320, 640, 1280];

/// The possible lane counts of a link.
const WIDTHS: [u32; 7] = [1, 2, 4, 8, 12, 16, 32];

/// The link that a target is expected to have, such as `gen3x4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub struct ExpectedLink {
    generation: u8,
    width: u32,
}

impl ExpectedLink {
    fn transfers(self) -> u64 {
        GENERATIONS[usize::from(self.generation) - 1]
    }

    /// True if a link with this speed and width is at least as fast.
    fn is_met(self, speed: &str, width: u32) -> bool {
        transfers(speed) >= self.transfers() && width >= self.width
    }
}

impl From<ExpectedLink> for String {
    fn from(link: ExpectedLink) -> Self {
        link.to_string()
    }
}

impl fmt::Display for ExpectedLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gen{}x{}", self.generation, self.width)
    }
}

/// A text that is no link.
#[derive(Debug, thiserror::Error)]
#[error(
    "{text} is not a PCI link: write the generation (1 to 7) and the number of lanes, for example gen3x4"
)]
pub struct NoLink {
    text: String,
}

impl FromStr for ExpectedLink {
    type Err = NoLink;

    fn from_str(text: &str) -> Result<Self, NoLink> {
        let lower = text.to_ascii_lowercase();
        let parts = lower.strip_prefix("gen").and_then(|rest| rest.split_once('x'));
        let numbers = parts.and_then(|(generation, width)| {
            Some((generation.trim().parse::<u8>().ok()?, width.parse::<u32>().ok()?))
        });
        match numbers {
            Some((generation, width))
                if (1..=GENERATIONS.len()).contains(&usize::from(generation))
                    && WIDTHS.contains(&width) =>
            {
                Ok(Self { generation, width })
            }
            _ => Err(NoLink { text: text.to_owned() }),
        }
    }
}

/// Inspects the target. Passed if its link is fast enough, and its first and last chunk are accessible.
pub fn at_first(run: &mut Run) -> Result<(), Failure> {
    let look = run.rig.medium.look();
    tell(run, &look);
    let judged = judge(look.link.as_ref(), run.link);
    if let Err(Failure::Found(_)) = judged {
        return judged;
    }
    let last = run.usable - CHUNK;
    for first in [0, last] {
        let seed = run.seed();
        run.write(first, 1, seed)?;
        run.verify(first, 1, seed)?;
    }
    run.info(format!("first and last chunk, at 0x0 and {last:#x}, are written and read"));
    judged
}

/// Inspects the target again. Passed if size and link are unchanged, and no errors have been counted.
pub fn at_last(run: &mut Run, first: &Look) -> Result<(), Failure> {
    let look = run.rig.medium.look();
    tell(run, &look);
    let judged = judge(look.link.as_ref(), run.link);
    if let Err(Failure::Found(_)) = judged {
        return judged;
    }
    ensure(look.bytes == first.bytes, || {
        format!("the target had {} bytes, and now has {}", first.bytes, look.bytes)
    })?;
    ensure(look.link == first.link, || "the link has changed since the first test".into())?;
    let (before, after) = (first.errors.unwrap_or(0), look.errors.unwrap_or(0));
    ensure(after <= before, || {
        format!("the kernel has counted {} errors of the device meanwhile", after - before)
    })?;
    judged
}

fn tell(run: &mut Run, look: &Look) {
    look.lines.iter().for_each(|line| run.info(line.clone()));
    if let Some(expected) = run.link {
        run.info(format!("link expected: {expected}"));
    }
    let Some(link) = &look.link else {
        return run.info("link: unknown (the kernel tells of none for this target)");
    };
    let best = match is_known(&link.best_speed, link.best_width) {
        true => format!("both ends can {} x{}", link.best_speed, link.best_width),
        false => "what both ends can is unknown".into(),
    };
    run.info(format!("link: {} x{} ({best})", link.speed, link.width));
    if let (Some(speed), Some(width)) = (&link.port_speed, link.port_width) {
        run.info(format!("port above it: {speed} x{width}"));
    }
}

/// True if speed and number of lanes are known. For a link that is down the kernel reports `Unknown`, and 0 or 255
/// lanes.
fn is_known(speed: &str, width: u32) -> bool {
    transfers(speed) > 0 && WIDTHS.contains(&width)
}

/// Compares a link with the expected one, or else with the best that both ends support.
fn judge(link: Option<&Link>, expected: Option<ExpectedLink>) -> Result<(), Failure> {
    let known = link.filter(|link| is_known(&link.speed, link.width));
    match (known, expected) {
        (None, Some(expected)) => Err(Failure::Found(format!(
            "the link is unknown, and {expected} is expected: the kernel tells of no link for this target"
        ))),
        (None, None) => Err(Failure::Unknown("the kernel tells of no link for this target".into())),
        (Some(link), Some(expected)) => meets(link, expected),
        (Some(link), None) => is_the_best(link),
    }
}

/// Checks that both ends of the link are as fast as expected, if both are known.
fn meets(link: &Link, expected: ExpectedLink) -> Result<(), Failure> {
    let port = link.port_speed.as_deref().zip(link.port_width);
    let port = port.map(|(speed, width)| ("the port above the drive", speed, width));
    for (what, speed, width) in [("the link", &*link.speed, link.width)].into_iter().chain(port) {
        ensure(expected.is_met(speed, width), || {
            format!(
                "{what} runs at {speed} x{width}, and {expected} is expected: a wrong or bad slot, cable or contact"
            )
        })?;
    }
    Ok(())
}

fn is_the_best(link: &Link) -> Result<(), Failure> {
    if !is_known(&link.best_speed, link.best_width) {
        return Err(Failure::Unknown(format!(
            "the link runs at {} x{}, and the kernel does not tell what both ends can",
            link.speed, link.width
        )));
    }
    let slow = transfers(&link.speed) < transfers(&link.best_speed) || link.width < link.best_width;
    ensure(!slow, || {
        format!(
            "the link runs at {} x{}, and both ends can {} x{}: a bad slot, cable or contact",
            link.speed, link.width, link.best_speed, link.best_width
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(speed: &str, width: u32) -> Link {
        Link {
            speed: speed.into(),
            width,
            best_speed: "8.0 GT/s PCIe".into(),
            best_width: 4,
            port_speed: None,
            port_width: None,
        }
    }

    fn word(link: Option<&Link>, expected: Option<&str>) -> &'static str {
        match judge(link, expected.map(|text| text.parse().unwrap())) {
            Ok(()) => "pass",
            Err(Failure::Unknown(_)) => "unknown",
            Err(_) => "fail",
        }
    }

    #[test]
    fn a_link_is_judged_by_what_is_expected_or_else_by_what_both_ends_can() {
        for (speed, width, alone, with_gen3x4) in [
            ("8.0 GT/s PCIe", 4, "pass", "pass"),
            ("16.0 GT/s PCIe", 8, "pass", "pass"),
            ("8.0 GT/s PCIe", 2, "fail", "fail"),
            ("2.5 GT/s PCIe", 4, "fail", "fail"),
            ("Unknown", 4, "unknown", "fail"),
            ("8.0 GT/s PCIe", 0, "unknown", "fail"),
            ("8.0 GT/s PCIe", 255, "unknown", "fail"),
        ] {
            let link = link(speed, width);
            assert_eq!(word(Some(&link), None), alone, "{speed} x{width}");
            assert_eq!(word(Some(&link), Some("gen3x4")), with_gen3x4, "{speed} x{width}");
        }
        assert_eq!((word(None, None), word(None, Some("gen1x1"))), ("unknown", "fail"));
        let both_best = link("8.0 GT/s PCIe", 4);
        assert_eq!(word(Some(&both_best), Some("gen4x4")), "fail", "both ends can no more");
    }

    #[test]
    fn both_ends_have_to_meet_what_is_expected() {
        let mut link = link("8.0 GT/s PCIe", 4);
        (link.port_speed, link.port_width) = (Some("8.0 GT/s PCIe".into()), Some(4));
        assert_eq!(word(Some(&link), Some("gen3x4")), "pass");
        link.port_width = Some(2);
        assert_eq!(word(Some(&link), Some("gen3x4")), "fail");
    }

    #[test]
    fn without_what_both_ends_can_a_link_is_judged_only_by_what_is_expected() {
        let mut link = link("8.0 GT/s PCIe", 4);
        (link.best_speed, link.best_width) = ("Unknown".into(), 0);
        assert_eq!(word(Some(&link), None), "unknown");
        assert_eq!(word(Some(&link), Some("gen3x4")), "pass");
        assert_eq!(word(Some(&link), Some("gen3x8")), "fail");
    }

    #[test]
    fn links_are_read_as_people_write_them_and_nothing_else_is() {
        for (text, told) in [("gen3x4", "gen3x4"), ("Gen5x16", "gen5x16"), ("GEN1X1", "gen1x1")] {
            assert_eq!(text.parse::<ExpectedLink>().unwrap().to_string(), told);
        }
        for text in
            ["", "gen3", "x4", "3x4", "gen0x4", "gen8x4", "gen3x3", "gen3x0", "gen3x4x", "genx"]
        {
            assert!(text.parse::<ExpectedLink>().is_err(), "{text}");
        }
    }
}
