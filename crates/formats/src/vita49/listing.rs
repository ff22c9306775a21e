//! The changes of a history, as a manifest keeps them and people read them.

use std::fmt;

use fullbore_time::Tai;
use serde::{Deserialize, Serialize};

use super::history::Change;
use crate::samples::Finite;

/// A change, as a manifest keeps it. A value is absent until a packet has told it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedChange {
    /// The stream id: eight hexadecimal digits.
    pub stream_id: String,
    /// The time in the packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Tai>,
    /// Samples per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample_rate_hz: Option<Finite>,
    /// Reference frequency of the radio-frequency signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rf_frequency_hz: Option<Finite>,
    /// Reference frequency of the intermediate-frequency signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_frequency_hz: Option<Finite>,
    /// Offset of the radio frequency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rf_offset_hz: Option<Finite>,
    /// Offset of the band at the intermediate frequency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub band_offset_hz: Option<Finite>,
    /// Bandwidth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_hz: Option<Finite>,
    /// Reference level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference_level_dbm: Option<Finite>,
    /// Gain of both stages together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain_db: Option<Finite>,
    /// The payload format of the data packets: sixteen hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_format: Option<String>,
}

impl From<&Change> for ListedChange {
    fn from(change: &Change) -> Self {
        let Change { stream, time, context } = change;
        let finite = |value: Option<f64>| value.and_then(|value| Finite::try_from(value).ok());
        Self {
            stream_id: format!("{stream:08x}"),
            time: *time,
            sample_rate_hz: finite(context.sample_rate),
            rf_frequency_hz: finite(context.rf_frequency),
            if_frequency_hz: finite(context.if_frequency),
            rf_offset_hz: finite(context.rf_offset),
            band_offset_hz: finite(context.band_offset),
            bandwidth_hz: finite(context.bandwidth),
            reference_level_dbm: finite(context.reference_level),
            gain_db: finite(context.gain.map(|(first, second)| first + second)),
            payload_format: context.payload_format.map(|word| format!("{word:016X}")),
        }
    }
}

impl fmt::Display for ListedChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.stream_id)?;
        self.time.map_or(Ok(()), |time| write!(f, " {time:.3}"))?;
        let values = [
            ("RF", self.rf_frequency_hz, "Hz"),
            ("IF", self.if_frequency_hz, "Hz"),
            ("bandwidth", self.bandwidth_hz, "Hz"),
            ("rate", self.sample_rate_hz, "Hz"),
            ("reference level", self.reference_level_dbm, "dBm"),
            ("gain", self.gain_db, "dB"),
        ];
        for (name, value, unit) in values {
            value.map_or(Ok(()), |value| write!(f, ", {name} {} {unit}", value.get()))?;
        }
        self.payload_format.as_ref().map_or(Ok(()), |word| write!(f, ", payload format {word}"))
    }
}

/// The changes of a stream of context, as a manifest keeps them: the first ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// The changes, in order of the packets; the first one of each stream id has its first values.
    pub changes: Vec<ListedChange>,
    /// The changes beyond [`LISTED`](super::history::LISTED).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unlisted: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vita49::Context;

    #[test]
    fn a_listing_reads_back_and_names_only_what_packets_told() {
        let context =
            Context { sample_rate: Some(2e6), gain: Some((6.0, -1.5)), ..Context::default() };
        let time = Some(Tai::from_unix_ns(1_700_000_002_000_000_000));
        let change = ListedChange::from(&Change { stream: 0xAB, time, context });
        let listing = Listing { changes: vec![change], unlisted: 0 };
        let json = serde_json::to_value(&listing).unwrap();
        assert_eq!(
            json,
            serde_json::json!({"changes": [{
                "stream_id": "000000ab", "time": "2023-11-14T22:13:22.000000000Z",
                "sample_rate_hz": 2e6, "gain_db": 4.5,
            }]})
        );
        assert_eq!(serde_json::from_value::<Listing>(json).unwrap(), listing);
        let change =
            ListedChange::from(&Change { stream: 1, time: None, context: Context::default() });
        assert_eq!(serde_json::to_string(&change).unwrap(), r#"{"stream_id":"00000001"}"#);
    }
}
