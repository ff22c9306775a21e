//! The network interfaces, with what they dropped.

use std::fs;

use fullbore_survey::bench::environment::{Roots, text};
use serde::Serialize;
use utoipa::ToSchema;

/// The most interfaces that are looked at.
const MOST: usize = 256;

/// A network interface. Counters are those of the kernel since it was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Card {
    /// Its name.
    pub name: String,
    /// `up`, `down`, `unknown`.
    pub state: Option<String>,
    /// Its speed in 10⁶ bits per second.
    pub speed_mbit: Option<u64>,
    /// The largest packet in bytes.
    pub mtu: Option<u64>,
    /// Its driver.
    pub driver: Option<String>,
    /// The NUMA node.
    pub numa_node: Option<u64>,
    /// Packets received.
    pub received_packets: Option<u64>,
    /// Their bytes.
    pub received_bytes: Option<u64>,
    /// Packets that the kernel dropped.
    pub dropped_packets: Option<u64>,
    /// Packets that found no room in the card.
    pub missed_packets: Option<u64>,
    /// Packets with errors.
    pub error_packets: Option<u64>,
}

/// All of them, by name.
pub(super) fn of(roots: &Roots) -> Vec<Card> {
    let Ok(entries) = fs::read_dir(roots.sysfs.join("class/net")) else { return Vec::new() };
    let names = entries.flatten().map(|it| it.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|it| it != "lo").take(MOST).collect();
    names.sort();
    names.into_iter().map(|name| card(roots, name)).collect()
}

fn card(roots: &Roots, name: String) -> Card {
    let place = roots.sysfs.join("class/net").join(&name);
    let number = |file: &str| text(&place.join(file)).and_then(|it| it.parse::<u64>().ok());
    let driver = fs::read_link(place.join("device/driver")).ok();
    let driver = driver.and_then(|it| Some(it.file_name()?.to_string_lossy().into_owned()));
    Card {
        state: text(&place.join("operstate")),
        // A card that is down has the speed -1, which is no number here.
        speed_mbit: number("speed"),
        mtu: number("mtu"),
        driver,
        numa_node: number("device/numa_node"),
        received_packets: number("statistics/rx_packets"),
        received_bytes: number("statistics/rx_bytes"),
        dropped_packets: number("statistics/rx_dropped"),
        missed_packets: number("statistics/rx_missed_errors"),
        error_packets: number("statistics/rx_errors"),
        name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_tells_its_speed_and_its_drops() {
        let place = tempfile::tempdir().unwrap();
        let net = place.path().join("class/net");
        for (file, content) in [
            ("ens1/operstate", "up"),
            ("ens1/speed", "100000"),
            ("ens1/statistics/rx_dropped", "7"),
            ("ens1/statistics/rx_missed_errors", "3"),
            ("ens0/speed", "-1"),
            ("lo/speed", "10"),
        ] {
            let path = net.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{content}\n")).unwrap();
        }
        let roots = Roots { sysfs: place.path().to_owned(), ..Roots::default() };
        let cards = of(&roots);
        let names: Vec<&str> = cards.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["ens0", "ens1"]);
        assert_eq!((cards[0].speed_mbit, cards[1].speed_mbit), (None, Some(100_000)));
        assert_eq!((cards[1].dropped_packets, cards[1].missed_packets), (Some(7), Some(3)));
        assert_eq!((cards[1].state.as_deref(), cards[1].mtu), (Some("up"), None));
    }
}
