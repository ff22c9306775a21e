//! Properties of channels that LabVIEW and others know: waveforms, units and linear scales.

use std::collections::BTreeMap;

use fullbore_formats::samples::{Finite, SampleLayout, SampleRate};
use fullbore_formats::tdms::{ObjectEntry, Timestamp, Value};
use fullbore_time::Tai;

/// The raw data itself, as the input of a scale.
const RAW: u32 = u32::MAX;

/// Adds the facts of a channel: unit, scale, and the time of its samples.
pub fn describe(
    mut entry: ObjectEntry,
    layout: &SampleLayout,
    start: Option<Tai>,
    chunk_rows: u64,
) -> ObjectEntry {
    if let Some(unit) = &layout.unit {
        entry = entry.with("unit_string", Value::text(unit.as_str()));
    }
    if let Some(rate) = layout.sample_rate {
        let (hertz, seconds) = rate.ratio();
        if let Some(start) = start {
            entry = entry.with("wf_start_time", Value::Timestamp(Timestamp::from(start)));
        }
        entry = entry
            .with("wf_start_offset", Value::F64(0.0))
            .with("wf_increment", Value::F64(seconds as f64 / hertz as f64))
            .with("wf_samples", Value::I32(i32::try_from(chunk_rows).unwrap_or(i32::MAX)));
    }
    let Some(slope) = layout.slope else { return entry };
    let intercept = layout.intercept.map_or(0.0, Finite::get);
    entry
        .with("NI_Scaling_Status", Value::text("unscaled"))
        .with("NI_Number_Of_Scales", Value::U32(1))
        .with("NI_Scale[0]_Scale_Type", Value::text("Linear"))
        .with("NI_Scale[0]_Linear_Slope", Value::F64(slope.get()))
        .with("NI_Scale[0]_Linear_Y_Intercept", Value::F64(intercept))
        .with("NI_Scale[0]_Linear_Input_Source", Value::U32(RAW))
}

/// The scale of a channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// None: the values are the physical ones, or codes that nothing describes.
    None,
    /// Slope and intercept.
    Linear(Finite, Finite),
    /// A scale of another kind, or several.
    Other,
}

/// The largest number of scales of a channel that are looked at.
const MOST_SCALES: u32 = 64;

/// The scale in the properties of a channel. Scales without a type are names of DAQmx for its raw data.
pub fn scale_of(properties: &BTreeMap<Vec<u8>, Value>) -> Scale {
    let get = |name: &str| properties.get(name.as_bytes());
    let count = get("NI_Number_Of_Scales").and_then(Value::number).unwrap_or(0.0);
    if get("NI_Scaling_Status").and_then(Value::as_text) == Some("scaled") {
        return Scale::None;
    }
    let name = |number: u32, field: &str| format!("NI_Scale[{number}]_{field}");
    let kind = |number: u32| get(&name(number, "Scale_Type")).and_then(Value::as_text);
    let scales: Vec<u32> =
        (0..MOST_SCALES.min(count as u32)).filter(|&number| kind(number).is_some()).collect();
    let number = match scales[..] {
        [] => return Scale::None,
        [number] if kind(number) == Some("Linear") => number,
        _ => return Scale::Other,
    };
    let finite = |field| {
        let value = get(&name(number, field)).and_then(Value::number)?;
        Finite::try_from(value).ok()
    };
    match finite("Linear_Slope").zip(finite("Linear_Y_Intercept")) {
        Some((slope, intercept)) if slope.get() != 0.0 => Scale::Linear(slope, intercept),
        _ => Scale::Other,
    }
}

/// The properties of a channel whose values are no longer rows of DAQmx: its scales have the raw data as their input.
pub fn without_daqmx(properties: &BTreeMap<Vec<u8>, Value>) -> Vec<(Vec<u8>, Value)> {
    let is_scale =
        |number: u32| properties.contains_key(format!("NI_Scale[{number}]_Scale_Type").as_bytes());
    let changed = |(name, value): (&Vec<u8>, &Value)| {
        let is_input = name.starts_with(b"NI_Scale[") && name.ends_with(b"_Input_Source");
        let value = match value {
            Value::U32(number) if is_input && !is_scale(*number) => Value::U32(RAW),
            other => other.clone(),
        };
        (name.clone(), value)
    };
    properties.iter().map(changed).collect()
}

/// The sample rate of a waveform: the nearest ratio with a small denominator.
pub fn rate_of(increment: f64) -> Option<SampleRate> {
    let hertz = 1.0 / increment;
    if !(1e-9..1e15).contains(&hertz) {
        return None;
    }
    // Continued fractions: the best ratio for each size of the denominator.
    let (mut above, mut below) = ([1u64, 0], [0u64, 1]);
    let mut rest = hertz;
    loop {
        let whole = rest.floor();
        let next = |[last, before]: [u64; 2]| {
            let product = (whole as u64).checked_mul(last)?;
            Some([product.checked_add(before)?, last])
        };
        (above, below) = (next(above)?, next(below)?);
        let ratio = above[0] as f64 / below[0] as f64;
        let error = ((ratio - hertz) / hertz).abs();
        if error <= 1e-14 || below[0] > 1_000_000 {
            return SampleRate::new(above[0], below[0]);
        }
        rest = 1.0 / (rest - whole);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_a_waveform_is_exact_again() {
        for (above, below) in [(204_800, 1), (200, 3), (1, 7), (61_440_000, 1), (3_000_000_000, 7)]
        {
            let rate = SampleRate::new(above, below);
            assert_eq!(rate_of(below as f64 / above as f64), rate, "{above}/{below}");
        }
        for none in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-300] {
            assert_eq!(rate_of(none), None, "{none}");
        }
    }

    #[test]
    fn a_scale_is_read_as_it_was_written() {
        let number = |it: f64| Finite::try_from(it).unwrap();
        let layout = SampleLayout {
            slope: Some(number(0.5)),
            intercept: Some(number(-1.0)),
            ..SampleLayout::new("ri16_le".parse().unwrap(), 1)
        };
        let path = fullbore_formats::tdms::ObjectPath::File;
        let entry = describe(ObjectEntry::new(path), &layout, None, 1);
        let mut properties: BTreeMap<_, _> = entry.properties.into_iter().collect();
        assert_eq!(scale_of(&properties), Scale::Linear(number(0.5), number(-1.0)));
        properties.insert(b"NI_Scale[0]_Scale_Type".to_vec(), Value::text("Polynomial"));
        assert_eq!(scale_of(&properties), Scale::Other);
        assert_eq!(scale_of(&BTreeMap::new()), Scale::None);
    }
}
