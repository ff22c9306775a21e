//! The rate of a link in one direction: PCI Express by speed and lanes, Ethernet by rate and MTU, others as given.
//!
//! | PCI Express | transfers/s | encoding |
//! |---|---|---|
//! | 1, 2 | 2.5, 5 G | 8 of 10 bits |
//! | 3, 4, 5 | 8, 16, 32 G | 128 of 130 bits |
//! | 6 | 64 G | 242 of 256 bytes |
//!
//! Raw rate = transfers × lanes × encoding ÷ 8. A packet carries up to the maximum payload size (MPS) and 20 to 28 bytes
//! beside it, so usable = raw × MPS ÷ (MPS + 28). The kernel reports no MPS to unprivileged readers: 128 bytes, the
//! smallest, is then assumed (82 %).

use std::fmt;
use std::str::FromStr;

use fullbore_core::units::ByteRate;
use fullbore_survey::report;

/// Header, digest and framing of a PCI Express packet at the most, in bytes.
const PCIE_OVERHEAD: f64 = 28.0;

/// The smallest maximum payload size, in bytes.
const LEAST_PAYLOAD: u32 = 128;

/// IPv4 and UDP headers within the MTU, in bytes.
const UDP_HEADERS: f64 = 28.0;

/// Preamble, Ethernet header, checksum and gap beside the MTU, in bytes.
const ETHERNET_OVERHEAD: f64 = 38.0;

/// The MTU of a network that nobody changed.
const USUAL_MTU: u32 = 1500;

/// The most lanes of a link.
const MOST_LANES: u32 = 32;

/// A link, one direction of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Link {
    /// PCI Express.
    Pcie {
        /// Transfers per second and lane, in units of 10⁸: 25 is 2.5 GT/s.
        tenths: u32,
        /// The number of lanes.
        lanes: u32,
        /// The maximum payload size in bytes, if known.
        payload: Option<u32>,
    },
    /// Ethernet, seen from UDP over IPv4.
    Ethernet {
        /// The line rate.
        rate: ByteRate,
        /// The MTU, if known.
        mtu: Option<u32>,
    },
    /// Any other link, whose usable rate is given: SAS, USB, or a measured one.
    Other {
        /// Its usable rate.
        rate: ByteRate,
    },
}

impl Link {
    /// The rate of the line in bytes per second, after its encoding.
    pub fn raw(&self) -> f64 {
        match *self {
            Self::Pcie { tenths, lanes, .. } => {
                let encoding = match tenths {
                    ..=50 => 8.0 / 10.0,
                    51..=320 => 128.0 / 130.0,
                    _ => 242.0 / 256.0,
                };
                f64::from(tenths) * 1e8 * f64::from(lanes) * encoding / 8.0
            }
            Self::Ethernet { rate, .. } | Self::Other { rate } => rate.0 as f64,
        }
    }

    /// The rate of data in bytes per second.
    pub fn usable(&self) -> f64 {
        let share = match *self {
            Self::Pcie { payload, .. } => {
                let payload = f64::from(payload.unwrap_or(LEAST_PAYLOAD));
                payload / (payload + PCIE_OVERHEAD)
            }
            Self::Ethernet { mtu, .. } => {
                let mtu = f64::from(mtu.unwrap_or(USUAL_MTU));
                (mtu - UDP_HEADERS) / (mtu + ETHERNET_OVERHEAD)
            }
            Self::Other { .. } => 1.0,
        };
        self.raw() * share
    }

    /// The reasoning behind [`usable`](Self::usable), for the sum of a rule.
    pub fn sum(&self) -> String {
        let (raw, usable) = (report::rate(self.raw()), report::rate(self.usable()));
        match self {
            Self::Pcie { payload: Some(payload), .. } => {
                format!("{self}: {raw}, {usable} of it payload in packets of {payload} bytes")
            }
            Self::Pcie { payload: None, .. } => format!(
                "{self}: {raw}, {usable} of it payload if packets carry {LEAST_PAYLOAD} bytes (assumed, the smallest)"
            ),
            Self::Ethernet { mtu: Some(mtu), .. } => {
                format!("{self}: {raw}, {usable} of it UDP payload at MTU {mtu}")
            }
            Self::Ethernet { mtu: None, .. } => {
                format!("{self}: {raw}, {usable} of it UDP payload at MTU {USUAL_MTU} (assumed)")
            }
            Self::Other { .. } => format!("{self}"),
        }
    }

    /// The same link with this maximum payload size or MTU.
    pub fn with_payload(self, bytes: Option<u32>) -> Self {
        match self {
            Self::Pcie { tenths, lanes, payload } => {
                Self::Pcie { tenths, lanes, payload: bytes.or(payload) }
            }
            Self::Ethernet { rate, mtu } => Self::Ethernet { rate, mtu: bytes.or(mtu) },
            other => other,
        }
    }

    /// The lesser of two ends, for PCI Express in speed and lanes.
    pub fn both(&self, other: &Self) -> Self {
        match (self, other) {
            (
                Self::Pcie { tenths, lanes, payload },
                Self::Pcie { tenths: others, lanes: fewer, .. },
            ) => Self::Pcie {
                tenths: *tenths.min(others),
                lanes: *lanes.min(fewer),
                payload: *payload,
            },
            _ if other.raw() < self.raw() => other.clone(),
            _ => self.clone(),
        }
    }

    /// A link as the kernel reports it: `8.0 GT/s PCIe`, or `8 GT/s` in older ones, and a plain number of lanes.
    /// `Unknown`, no lanes and other texts are no link.
    pub fn from_sysfs(speed: &str, width: &str) -> Option<Self> {
        let number = speed.split_whitespace().next()?;
        let rest = speed.trim().strip_prefix(number)?.trim_start();
        if !rest.starts_with("GT/s") {
            return None;
        }
        let gigatransfers: f64 = number.parse().ok()?;
        let lanes: u32 = width.trim().parse().ok()?;
        let tenths = (gigatransfers * 10.0).round();
        let known = [25.0, 50.0, 80.0, 160.0, 320.0, 640.0].contains(&tenths);
        (known && (1..=MOST_LANES).contains(&lanes)).then_some(Self::Pcie {
            tenths: tenths as u32,
            lanes,
            payload: None,
        })
    }

    /// A PCI Express link by its rate in GB/s after the encoding, as hwloc reports it.
    pub fn from_hwloc(gigabytes: f64) -> Option<Self> {
        let lanes = [1, 2, 4, 8, 12, 16, 32];
        let all = [25, 50, 80, 160, 320, 640]
            .into_iter()
            .flat_map(|tenths| lanes.map(|lanes| Self::Pcie { tenths, lanes, payload: None }));
        let off = |link: &Self| (link.raw() / 1e9 / gigabytes - 1.0).abs();
        // Several pairs have about the same rate, as 8 GT/s ×16 and 16 GT/s ×8. The slower lanes are more common.
        all.filter(|link| gigabytes > 0.0 && off(link) < 0.01).min_by_key(|link| match link {
            Self::Pcie { lanes, .. } => (*lanes > 16, *lanes == 12, 32 - lanes),
            _ => unreachable!("all candidates are PCI Express"),
        })
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pcie { tenths, lanes, .. } => {
                let generation = match tenths {
                    ..=25 => 1,
                    26..=50 => 2,
                    51..=80 => 3,
                    81..=160 => 4,
                    161..=320 => 5,
                    _ => 6,
                };
                write!(f, "PCIe gen{generation} x{lanes}")
            }
            Self::Ethernet { rate, .. } => write!(f, "{rate} Ethernet"),
            Self::Other { rate } => write!(f, "a link of {}", report::rate(rate.0 as f64)),
        }
    }
}

/// A text that is no link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no link: write for example `gen3 x4` (PCI Express), `10GbE` (Ethernet), or a usable rate such as 2.4GB/s"
)]
pub struct NoLink {
    text: String,
}

impl FromStr for Link {
    type Err = NoLink;

    fn from_str(text: &str) -> Result<Self, NoLink> {
        let lower = text.trim().to_ascii_lowercase();
        let pcie = || {
            let (generation, lanes) = lower.strip_prefix("gen")?.split_once('x')?;
            let tenths = match generation.trim() {
                "1" => 25,
                "2" => 50,
                "3" => 80,
                "4" => 160,
                "5" => 320,
                "6" => 640,
                _ => return None,
            };
            let lanes = lanes.trim().parse().ok().filter(|it| (1..=MOST_LANES).contains(it))?;
            Some(Self::Pcie { tenths, lanes, payload: None })
        };
        let ethernet = || {
            let gigabits: f64 = lower.strip_suffix("gbe")?.trim().parse().ok()?;
            let valid = gigabits > 0.0 && gigabits <= 10_000.0;
            let rate = ByteRate((gigabits * 1e9 / 8.0) as u64);
            valid.then_some(Self::Ethernet { rate, mtu: None })
        };
        let other = || {
            let rate: ByteRate = lower.ends_with("/s").then(|| text.parse().ok())??;
            (rate.0 > 0).then_some(Self::Other { rate })
        };
        pcie().or_else(ethernet).or_else(other).ok_or_else(|| NoLink { text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_rates_are_those_of_the_standard() {
        let rates = [
            (1, [250.0, 500.0, 1000.0, 2000.0, 4000.0]),
            (2, [500.0, 1000.0, 2000.0, 4000.0, 8000.0]),
            (3, [985.0, 1969.0, 3938.0, 7877.0, 15754.0]),
            (4, [1969.0, 3938.0, 7877.0, 15754.0, 31508.0]),
            (5, [3938.0, 7877.0, 15754.0, 31508.0, 63015.0]),
            (6, [7563.0, 15125.0, 30250.0, 60500.0, 121_000.0]),
        ];
        for (generation, row) in rates {
            for (lanes, megabytes) in [1, 2, 4, 8, 16].into_iter().zip(row) {
                let link: Link = format!("gen{generation} x{lanes}").parse().unwrap();
                assert!((link.raw() / 1e6 - megabytes).abs() < 0.6, "{link}: {}", link.raw());
            }
        }
    }

    #[test]
    fn usable_rates_are_within_the_published_range() {
        for (payload, least, most) in [(128, 0.82, 0.86), (256, 0.90, 0.93), (512, 0.94, 0.96)] {
            let link: Link = "gen3 x4".parse().unwrap();
            let link = link.with_payload(Some(payload));
            let share = link.usable() / link.raw();
            assert!((least..most).contains(&share), "{payload}: {share}");
        }
        let ethernet: Link = "10GbE".parse().unwrap();
        let share = |mtu| (ethernet.clone().with_payload(Some(mtu)).usable() / 12.5e6).round();
        assert_eq!((share(9000), share(1500)), (99.0, 96.0));
    }

    #[test]
    fn links_are_read_as_every_kernel_writes_them() {
        let read = |speed, width| Link::from_sysfs(speed, width).map(|link| link.to_string());
        assert_eq!(read("8.0 GT/s PCIe", "4").as_deref(), Some("PCIe gen3 x4"));
        assert_eq!(read("8 GT/s", "16").as_deref(), Some("PCIe gen3 x16"));
        assert_eq!(read("2.5 GT/s PCIe", "1\n").as_deref(), Some("PCIe gen1 x1"));
        for (speed, width) in [("Unknown", "4"), ("8.0 GT/s PCIe", "0"), ("", ""), ("9 GT/s", "4")]
        {
            assert_eq!(read(speed, width), None, "{speed}");
        }
    }

    #[test]
    fn hwloc_rates_give_lanes_and_speed() {
        let read = |rate| Link::from_hwloc(rate).map(|link| link.to_string());
        assert_eq!(read(15.753_846).as_deref(), Some("PCIe gen3 x16"));
        assert_eq!(read(3.938_461).as_deref(), Some("PCIe gen3 x4"));
        assert_eq!(read(1.0).as_deref(), Some("PCIe gen1 x4"));
        assert_eq!(read(0.0), None);
        assert_eq!(read(77.7), None);
    }

    #[test]
    fn nonsense_is_no_link() {
        for text in ["", "gen9 x4", "gen3 x0", "gen3 x99", "GbE", "-1GbE", "0GB/s", "fast", "10"] {
            assert!(text.parse::<Link>().is_err(), "{text}");
        }
        assert_eq!("1GB/s".parse::<Link>().unwrap().usable(), 1e9);
    }

    #[test]
    fn the_lesser_end_limits_speed_and_lanes_separately() {
        let (port, card): (Link, Link) = ("gen4 x8".parse().unwrap(), "gen3 x16".parse().unwrap());
        assert_eq!(port.both(&card).to_string(), "PCIe gen3 x8");
    }
}
