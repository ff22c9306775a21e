//! How large a sample will be, before a header says it, and which rate a link carries.

use serde::Serialize;

use super::control::Captured;
use super::header::Kind;

/// What 1 Gbit Ethernet carries of TCP payload, in bytes a second.
pub const LINK_BYTES_PER_SECOND: f64 = 118e6;

/// What a PandA's own processor was measured to send without loss over a day, in bytes a second.
pub const CALM_BYTES_PER_SECOND: f64 = 50e6;

/// One column of the samples to come, unscaled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Column {
    /// `COUNTER1.OUT`
    pub field: String,
    /// `Mean`; empty for a gate that was not asked for and comes with the averages.
    pub capture: String,
    /// What its bytes will be.
    pub kind: Kind,
}

/// The columns that these fields will give.
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
        // A deviation brings its sum along, which a mean then shares.
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

/// Bytes of a sample of these columns.
pub fn sample_bytes(columns: &[Column]) -> u32 {
    columns.iter().map(|column| column.kind.bytes()).sum()
}

/// How a rate of triggers stands to what the link carries.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Load {
    /// Samples a second.
    pub samples_per_second: f64,
    /// Bytes a second.
    pub bytes_per_second: f64,
    /// Of what the link carries.
    pub of_link: f64,
    /// Triggers to average into one sample so that it fits calmly; 1: none.
    pub average: u64,
}

/// The load of so many samples a second.
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
