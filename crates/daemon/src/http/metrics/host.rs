//! Metrics of the host: health of drives, drops of cards, the clock, open alerts. What is not known has no sample.

use fullbore_planning::doctor::Grade;

use super::{head, line, sample};
use crate::alerts::Kind;
use crate::alerts::history::Alert;
use crate::disks::{Disks, Drive};
use crate::machine::{Card, Machine};

type OfDrive = (&'static str, &'static str, fn(&Drive) -> Option<f64>);

/// Metrics of each drive, all gauges.
const DRIVES: &[OfDrive] = &[
    (
        "fullbore_drive_healthy",
        "1 if the drive calls itself healthy, 0 if it is worn or fails",
        |it| match it.health.grade {
            Grade::Unknown => None,
            Grade::Good | Grade::Advice => Some(1.0),
            Grade::Problem => Some(0.0),
        },
    ),
    ("fullbore_drive_temperature_celsius", "Temperature", |it| it.temperature_c),
    ("fullbore_drive_life_used_ratio", "Share of the life that is used", |it| {
        it.life_used_percent.map(|percent| percent as f64 / 100.0)
    }),
];

type OfCard = (&'static str, &'static str, fn(&Card) -> Option<u64>);

/// Metrics of each network interface, all counters of the kernel.
const CARDS: &[OfCard] = &[
    ("fullbore_card_received_packets", "Packets received", |it| it.received_packets),
    ("fullbore_card_received_bytes", "Bytes received", |it| it.received_bytes),
    ("fullbore_card_dropped_packets", "Packets that the kernel dropped", |it| it.dropped_packets),
    ("fullbore_card_missed_packets", "Packets that found no room in the card", |it| {
        it.missed_packets
    }),
    ("fullbore_card_error_packets", "Packets with errors", |it| it.error_packets),
];

/// Without a look, there are only headings.
pub(super) fn of_disks(text: &mut String, disks: Option<&Disks>) {
    for (name, help, value) in DRIVES {
        head(text, name, "gauge", help);
        for drive in disks.iter().flat_map(|it| &it.drives) {
            if let Some(value) = value(drive) {
                line(text, name, &[("drive", &drive.name)], value);
            }
        }
    }
    let name = "fullbore_member_drive";
    head(text, name, "gauge", "1 for each drive below a member");
    for member in disks.iter().flat_map(|it| &it.members) {
        for drive in &member.drives {
            line(text, name, &[("member", &member.path), ("drive", drive)], 1.0);
        }
    }
}

/// The same of cards and clock.
pub(super) fn of_machine(text: &mut String, machine: Option<&Machine>) {
    for (name, help, value) in CARDS {
        head(text, name, "counter", help);
        for card in machine.iter().flat_map(|it| &it.cards) {
            if let Some(value) = value(card) {
                line(text, &sample(name, "counter"), &[("card", &card.name)], value as f64);
            }
        }
    }
    let clock = machine.map(|it| &it.clock);
    let synchronised = clock.and_then(|it| it.synchronised).map(|it| f64::from(u8::from(it)));
    let chrony = clock.and_then(|it| it.chrony.as_ref());
    let (offset, error) = chrony.map(|it| (it.offset_s, it.largest_error_s)).unzip();
    for (name, help, value) in [
        (
            "fullbore_clock_synchronised",
            "1 if the kernel calls the clock synchronised",
            synchronised,
        ),
        ("fullbore_clock_offset_seconds", "By which the clock is ahead of true time", offset),
        ("fullbore_clock_error_seconds", "By which the clock can be wrong at most", error),
    ] {
        head(text, name, "gauge", help);
        if let Some(value) = value {
            line(text, name, &[], value);
        }
    }
}

pub(super) fn of_alerts(text: &mut String, open: &[Alert]) {
    let name = "fullbore_alerts";
    head(text, name, "gauge", "Problems that last, by kind");
    for kind in Kind::ALL {
        let count = open.iter().filter(|it| it.problem.kind == kind).count();
        line(text, name, &[("kind", kind.as_str())], count as f64);
    }
}

#[cfg(test)]
mod tests {
    use fullbore_planning::doctor::health;
    use fullbore_time::Tai;

    use super::*;

    #[test]
    fn what_a_drive_does_not_tell_has_no_sample() {
        let health = |passed| {
            health::of_smartctl("sda", &serde_json::json!({"smart_status": {"passed": passed}}))
        };
        let drive = |name: &str, passed: Option<bool>, temperature_c| Drive {
            name: name.into(),
            model: None,
            rotational: None,
            health: health(passed).finding,
            temperature_c,
            limit_c: None,
            life_used_percent: None,
            power_on_hours: None,
        };
        let drives = vec![
            drive("sda", Some(true), Some(41.5)),
            drive("sdb", Some(false), None),
            drive("sdc", None, None),
        ];
        let (members, benchmarks, writes) = (vec![], vec![], vec![]);
        let mut text = String::new();
        let disks = Disks { time: Tai(0), members, drives, benchmarks, writes };
        of_disks(&mut text, Some(&disks));
        for wanted in [
            "fullbore_drive_healthy{drive=\"sda\"} 1\n",
            "fullbore_drive_healthy{drive=\"sdb\"} 0\n",
            "fullbore_drive_temperature_celsius{drive=\"sda\"} 41.5\n",
        ] {
            assert!(text.contains(wanted), "{text}");
        }
        assert!(!text.contains("sdc") && !text.contains("life_used_ratio{"), "{text}");
    }
}
