//! Bandwidth estimates: the size of a sample before its header is known, and the rates of a link.

use serde::Serialize;

use super::control::Captured;
use super::header::Kind;

/// TCP payload rate of 1 Gbit Ethernet, in bytes per second.
pub const LINK_BYTES_PER_SECOND: f64 = 118e6;

/// The measured rate that a PandA's own processor sends for a day without loss, in bytes per second.
pub const CALM_BYTES_PER_SECOND: f64 = 50e6;

/// One column of the future samples, unscaled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Column {
    /// `COUNTER1.OUT`
    pub field: String,
    /// `Mean`; empty for a gate that was not requested and comes with the averages.
    pub capture: String,
    /// The kind of its bytes.
    pub kind: Kind,
}

/// Returns the columns that these fields will give.
pub fn columns(captured: &[Captured]) -> Vec<Column> {
    let mut columns = Vec::new();
    let averages = |option: &String| matches!(option.as_str(), "Mean" | "StdDev");
    let averaged = captured.iter().any(|field| field.options.iter().any(averages));
    if averaged && !captured.iter().any(|field| is_gate(&field.field)) {
        let field = "PCAP.GATE_DURATION".to_owned();
        columns.push(Column { field, capture: String::new(), kind: Kind::Int32 });
    }
    for Captured { field, options } in captured {
        let mut push = |capture: &str, kind| {
            columns.push(Column { field: field.clone(), capture: capture.to_owned(), kind });
        };
        // A deviation includes its sum, which a mean then shares.
        let deviates = options.iter().any(|option| option == "StdDev");
        for option in options {
            match option.as_str() {
                "Mean" if deviates => {}
                "StdDev" => {
                    push("Mean", Kind::Int64);
                    push("StdDev", Kind::Int96);
                }
                other => push(other, kind(field, other)),
            }
        }
    }
    columns
}

fn is_gate(field: &str) -> bool {
    matches!(field, "PCAP.GATE_DURATION" | "PCAP.SAMPLES")
}

fn kind(field: &str, option: &str) -> Kind {
    match option {
        _ if field.starts_with("PCAP.BITS") => Kind::Uint32,
        _ if field.starts_with("PCAP.TS_") => Kind::Int64,
        "Sum" | "Mean" => Kind::Int64,
        _ => Kind::Int32,
    }
}

/// Returns the bytes of a sample with these columns.
pub fn sample_bytes(columns: &[Column]) -> u32 {
    columns.iter().map(|column| column.kind.bytes()).sum()
}

/// The load of the link at a trigger rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Load {
    /// Samples per second.
    pub samples_per_second: f64,
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// Fraction of the link's capacity.
    pub of_link: f64,
    /// The number of triggers to average into one sample for a safe rate; 1: none.
    pub average: u64,
}

/// Returns the load at a sample rate.
pub fn load(sample_bytes: u32, samples_per_second: f64) -> Load {
    let bytes_per_second = f64::from(sample_bytes) * samples_per_second;
    let average = (bytes_per_second / CALM_BYTES_PER_SECOND).ceil().max(1.0) as u64;
    let of_link = bytes_per_second / LINK_BYTES_PER_SECOND;
    Load { samples_per_second, bytes_per_second, of_link, average }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[&str]) -> Vec<Column> {
        columns(&lines.iter().filter_map(|line| Captured::read(line)).collect::<Vec<_>>())
    }

    #[test]
    fn the_fields_of_the_recordings_give_their_sixty_bytes() {
        let lines = [
            "PCAP.BITS0 Value",
            "COUNTER1.OUT Min Max Mean",
            "COUNTER2.OUT Min Max Mean",
            "COUNTER3.OUT Value",
            "PCAP.SAMPLES Value",
            "PCAP.TS_START Value",
            "PCAP.TS_CAPTURE Value",
        ];
        assert_eq!(sample_bytes(&of(&lines)), 60);
        let anonymous: Vec<&str> =
            lines.into_iter().filter(|line| !line.contains("SAMPLES")).collect();
        assert_eq!(sample_bytes(&of(&anonymous)), 60, "the gate comes with the averages");
        assert_eq!(sample_bytes(&of(&["A.B StdDev", "PCAP.SAMPLES Value"])), 24);
        assert_eq!(sample_bytes(&of(&["A.B Mean StdDev", "PCAP.SAMPLES Value"])), 24);
    }

    #[test]
    fn a_rate_beyond_the_link_asks_for_averages() {
        let load = load(60, 4e6);
        assert!(load.of_link > 2.0);
        assert_eq!(load.average, 5);
        assert_eq!(super::load(60, 1e3).average, 1);
    }
}
