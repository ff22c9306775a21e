//! What a client of live spectra asks for.

use fullbore_analysis::plan::{FEWEST_CHANNELS, LineId, Plan, Wanted};
use fullbore_analysis::window::Window;
use fullbore_core::name::{self, Name};
use serde::{Deserialize, Serialize};

/// The most rows in a second.
pub const MOST_ROWS: u32 = 25;

/// The most spectral channels: one byte each in a row.
pub const MOST_CHANNELS: usize = 8192;

/// The longest request in bytes.
pub const LONGEST: usize = 1024;

/// A request: one line of JSON. What is absent has its default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The stream.
    pub stream: String,
    /// Spectral channels: a multiple of 8, from 8 to 8192. Default: 1024.
    #[serde(default = "usual_channels")]
    pub channels: usize,
    /// The most rows in a second: 1 to 25. Default: 10.
    #[serde(default = "usual_rows")]
    pub rows: u32,
    /// The thread. Default: that of the first frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<u16>,
    /// The channel of the thread, from 0. Default: 0.
    #[serde(default)]
    pub channel: usize,
    /// The window: rectangular, hann, hamming or blackman. Default: hann.
    #[serde(default = "usual_window")]
    pub window: String,
}

/// The default of [`Request::channels`].
pub fn usual_channels() -> usize {
    1024
}

/// The default of [`Request::rows`].
pub fn usual_rows() -> u32 {
    10
}

/// The default of [`Request::window`].
pub fn usual_window() -> String {
    Window::default().name().to_owned()
}

/// A request that cannot be carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// It is not JSON, or has other keys.
    #[error("the request is not understood: {source}")]
    Json {
        /// The reason.
        source: serde_json::Error,
    },
    /// The name of the stream.
    #[error("stream: {source}")]
    Stream {
        /// The reason.
        source: name::Error,
    },
    /// The number of channels.
    #[error(
        "channels: {channels} are asked for; the number is a multiple of 8, from {FEWEST_CHANNELS} to {MOST_CHANNELS}"
    )]
    Channels {
        /// The number.
        channels: usize,
    },
    /// The number of rows.
    #[error("rows: {rows} in a second are asked for; the number is 1 to {MOST_ROWS}")]
    Rows {
        /// The number.
        rows: u32,
    },
    /// The window.
    #[error("window: {source}")]
    Window {
        /// The reason.
        source: fullbore_analysis::window::WindowError,
    },
}

/// A request that was checked.
#[derive(Clone, Debug)]
pub(super) struct Checked {
    pub stream: Name,
    pub line: LineId,
    pub rows: u32,
    /// The plan, with levels.
    pub plan: Plan,
}

impl Request {
    /// Checks the request.
    pub fn check(&self) -> Result<(), RequestError> {
        self.checked().map(|_| ())
    }

    pub(super) fn read(line: &[u8]) -> Result<Checked, RequestError> {
        let request: Self =
            serde_json::from_slice(line).map_err(|source| RequestError::Json { source })?;
        request.checked()
    }

    pub(super) fn checked(&self) -> Result<Checked, RequestError> {
        let stream =
            self.stream.parse::<Name>().map_err(|source| RequestError::Stream { source })?;
        let (channels, rows) = (self.channels, self.rows);
        let known = FEWEST_CHANNELS..=MOST_CHANNELS;
        if !known.contains(&channels) || !channels.is_multiple_of(8) {
            return Err(RequestError::Channels { channels });
        }
        if !(1..=MOST_ROWS).contains(&rows) {
            return Err(RequestError::Rows { rows });
        }
        let window =
            self.window.parse::<Window>().map_err(|source| RequestError::Window { source })?;
        let wanted = Wanted { spectra: true, power: true, levels: true, cross: None };
        let line = LineId { thread: self.thread, channel: self.channel };
        Ok(Checked { stream, line, rows, plan: Plan { channels, window, bin: None, wanted } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_defaults() {
        let checked = Request::read(br#"{"stream":"46220"}"#).unwrap();
        assert_eq!((checked.plan.channels, checked.rows), (1024, 10));
        assert_eq!(checked.line, LineId { thread: None, channel: 0 });
        let text = serde_json::to_vec(&Request {
            stream: "46220".into(),
            channels: 8192,
            rows: 25,
            thread: Some(3),
            channel: 2,
            window: "blackman".into(),
        });
        let checked = Request::read(&text.unwrap()).unwrap();
        assert_eq!(checked.line, LineId { thread: Some(3), channel: 2 });
        assert_eq!(checked.plan.window, Window::Blackman);
    }

    #[test]
    fn a_request_that_cannot_be_carried_out_is_refused() {
        for (wrong, why) in [
            ("", "not understood"),
            ("{}", "stream"),
            (r#"{"stream":"../x"}"#, "stream: "),
            (r#"{"stream":"a","channels":12}"#, "channels: 12"),
            (r#"{"stream":"a","channels":0}"#, "channels: 0"),
            (r#"{"stream":"a","channels":8200}"#, "channels: 8200"),
            (r#"{"stream":"a","channels":-8}"#, "not understood"),
            (r#"{"stream":"a","rows":0}"#, "rows: 0"),
            (r#"{"stream":"a","rows":26}"#, "rows: 26"),
            (r#"{"stream":"a","thread":65536}"#, "not understood"),
            (r#"{"stream":"a","window":"flat"}"#, "window: "),
            (r#"{"stream":"a","more":1}"#, "unknown field"),
        ] {
            let error = Request::read(wrong.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(why), "{wrong}: {error}");
        }
    }
}
