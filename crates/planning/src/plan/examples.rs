//! Plans of published systems, as descriptions: a check of the rules, and a place to begin.

use super::error::Error;

/// A named plan.
#[derive(Clone, Copy, Debug)]
pub struct Example {
    /// Its name.
    pub name: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
    /// Its description in TOML.
    pub text: &'static str,
}

macro_rules! example {
    ($name:literal, $about:literal) => {
        Example {
            name: $name,
            about: $about,
            text: include_str!(concat!("examples/", $name, ".toml")),
        }
    };
}

/// All examples.
pub const ALL: &[Example] = &[
    example!(
        "chassis",
        "digitizer and generator behind one switch of a PXI Express chassis, with the disks"
    ),
    example!("chassis-apart", "the same instruments and disks, each on a link of its own"),
    example!("terabyte", "1 TB of disks at 100 MS/s of 16 bits: hours until it is full"),
    example!("nvme-peak", "an NVMe drive planned by its peak rate"),
    example!("nvme-continuous", "the same drive, planned by the rate over its whole capacity"),
    example!("station", "a VLBI station: 16 Gbit/s in 60 scans onto eight pools, 20 TB"),
    example!("panda", "a PandA at 60 MB/s on gigabit Ethernet into HDF5 on an SSD"),
];

/// Finds an example.
pub fn example(name: &str) -> Result<&'static Example, Error> {
    ALL.iter().find(|example| example.name == name).ok_or_else(|| Error::NoExample {
        name: name.to_owned(),
        known: ALL.iter().map(|example| example.name).collect::<Vec<_>>().join(", "),
    })
}
