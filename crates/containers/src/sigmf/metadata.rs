//! The metadata of SigMF 1.2.6 as JSON: `global`, `captures` and `annotations`.
//!
//! What SigMF has no field for is in fields named `fullbore:…`. The metadata declares them as an extension that
//! readers may ignore.

use fullbore_core::account::Account;
use fullbore_formats::samples::SampleLayout;
use fullbore_time::Tai;
use serde::Serialize;

use crate::{Ending, Note, Opening, SampleGap};

/// The version of SigMF.
pub const VERSION: &str = "1.2.6";

/// The version of the fields `fullbore:…`.
const EXTENSION_VERSION: &str = "1.0.0";

/// The largest sample rate, and the largest centre frequency of either sign, in Hz.
const MOST_HERTZ: f64 = 1e12;

/// The longest label in characters, by the advice of SigMF.
const LABEL_CHARACTERS: usize = 20;

/// An extension that the metadata uses.
#[derive(Serialize)]
struct Extension {
    name: &'static str,
    version: &'static str,
    optional: bool,
}

/// What is known before the first sample.
pub struct Facts {
    scan: String,
    stream: String,
    software: String,
    hw: String,
    collection: Option<String>,
}

/// Gaps that are filled, by numbers of samples in the stream.
#[derive(Serialize)]
pub struct Filled<'a> {
    /// The listed ones.
    pub gaps: &'a [SampleGap],
    /// The number of gaps after them.
    pub unlisted: u64,
}

/// `global`.
#[derive(Serialize)]
pub struct Global<'a> {
    #[serde(rename = "core:datatype")]
    datatype: String,
    #[serde(rename = "core:version")]
    version: &'static str,
    #[serde(rename = "core:num_channels")]
    channels: u32,
    #[serde(rename = "core:sample_rate", skip_serializing_if = "Option::is_none")]
    sample_rate: Option<f64>,
    #[serde(rename = "core:sha512", skip_serializing_if = "Option::is_none")]
    sha512: Option<String>,
    #[serde(rename = "core:recorder", skip_serializing_if = "str::is_empty")]
    recorder: &'a str,
    #[serde(rename = "core:hw", skip_serializing_if = "str::is_empty")]
    hw: &'a str,
    #[serde(rename = "core:description")]
    description: String,
    #[serde(rename = "core:collection", skip_serializing_if = "Option::is_none")]
    collection: Option<&'a str>,
    #[serde(rename = "core:extensions")]
    extensions: [Extension; 1],
    #[serde(rename = "fullbore:scan")]
    scan: &'a str,
    #[serde(rename = "fullbore:stream")]
    stream: &'a str,
    /// Samples of each channel, those that are not there too.
    #[serde(rename = "fullbore:samples")]
    samples: u64,
    /// The exact sample rate, the scale and the names of the channels.
    #[serde(rename = "fullbore:layout")]
    layout: &'a SampleLayout,
    #[serde(rename = "fullbore:filled", skip_serializing_if = "Option::is_none")]
    filled: Option<Filled<'a>>,
    #[serde(rename = "fullbore:account", skip_serializing_if = "Option::is_none")]
    account: Option<&'a Account>,
    /// What the samples lack, if a write failed.
    #[serde(rename = "fullbore:lacks", skip_serializing_if = "Option::is_none")]
    lacks: Option<&'a str>,
}

impl Facts {
    /// The facts of an opening.
    pub fn of(opening: &Opening<'_>) -> Self {
        let origin = &opening.origin;
        let words = [("host", origin.host), ("source", origin.source)];
        let known = words.into_iter().filter(|(_, value)| !value.is_empty());
        let hw: Vec<String> = known.map(|(name, value)| format!("{name} {value}")).collect();
        let name = origin.list.and_then(|list| list.file_stem());
        Self {
            scan: opening.scan.to_owned(),
            stream: opening.stream.to_owned(),
            software: origin.software.to_owned(),
            hw: hw.join(", "),
            collection: name.map(|name| name.to_string_lossy().into_owned()),
        }
    }

    /// The field `global`.
    pub fn global<'a>(
        &'a self,
        layout: &'a SampleLayout,
        samples: u64,
        sha512: Option<String>,
        filled: Filled<'a>,
        ending: &Ending<'a>,
    ) -> Global<'a> {
        let rate = layout.sample_rate.map(|rate| rate.hertz());
        Global {
            datatype: layout.encoding.to_string(),
            version: VERSION,
            channels: layout.channels,
            sample_rate: rate.filter(|&rate| rate <= MOST_HERTZ),
            sha512,
            recorder: &self.software,
            hw: &self.hw,
            description: format!("stream {} of the scan {}", self.stream, self.scan),
            collection: self.collection.as_deref(),
            extensions: [Extension {
                name: "fullbore",
                version: EXTENSION_VERSION,
                optional: true,
            }],
            scan: &self.scan,
            stream: &self.stream,
            samples,
            layout,
            filled: (!filled.gaps.is_empty()).then_some(filled),
            account: ending.account,
            lacks: ending.lacks,
        }
    }
}

/// One of `captures`: a run of samples without a gap.
#[derive(Serialize)]
pub struct Capture {
    #[serde(rename = "core:sample_start")]
    sample_start: u64,
    #[serde(rename = "core:global_index")]
    global_index: u64,
    #[serde(rename = "core:datetime", skip_serializing_if = "Option::is_none")]
    datetime: Option<Tai>,
    #[serde(rename = "core:frequency", skip_serializing_if = "Option::is_none")]
    frequency: Option<f64>,
}

impl Capture {
    /// A run that begins with these samples of the file and of the stream.
    pub fn new(in_file: u64, in_stream: u64, time: Option<Tai>, frequency: Option<f64>) -> Self {
        Self {
            sample_start: in_file,
            global_index: in_stream,
            datetime: time,
            frequency: frequency.filter(|hertz| hertz.abs() <= MOST_HERTZ),
        }
    }
}

/// One of `annotations`: a note on a sample.
#[derive(Serialize)]
pub struct Annotation<'a> {
    #[serde(rename = "core:sample_start")]
    sample_start: u64,
    #[serde(rename = "core:label")]
    label: String,
    #[serde(rename = "core:comment")]
    comment: &'a str,
    #[serde(rename = "core:generator")]
    generator: &'static str,
    #[serde(rename = "core:uuid")]
    uuid: &'a str,
    /// The marked moment.
    #[serde(rename = "fullbore:time")]
    time: Tai,
}

impl<'a> Annotation<'a> {
    /// The note on a sample of the file.
    pub fn new(in_file: u64, note: &'a Note) -> Self {
        Self {
            sample_start: in_file,
            label: note.text.chars().take(LABEL_CHARACTERS).collect(),
            comment: &note.text,
            generator: "fullbore",
            uuid: &note.uuid,
            time: note.time,
        }
    }
}

/// The file of metadata.
#[derive(Serialize)]
pub struct Document<'a> {
    global: Global<'a>,
    captures: Vec<Capture>,
    annotations: Vec<Annotation<'a>>,
}

impl<'a> Document<'a> {
    /// The metadata; annotations are put in order.
    pub fn new(
        global: Global<'a>,
        captures: Vec<Capture>,
        mut annotations: Vec<Annotation<'a>>,
    ) -> Self {
        annotations.sort_by_key(|it| it.sample_start);
        Self { global, captures, annotations }
    }

    /// The bytes of the file.
    pub fn to_json(&self) -> Vec<u8> {
        let mut text = serde_json::to_vec_pretty(self).expect("metadata has only plain fields");
        text.push(b'\n');
        text
    }
}
