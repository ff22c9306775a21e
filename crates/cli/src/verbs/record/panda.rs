//! The load of the link, printed when PandAs are armed.

use std::time::Duration;

use fullbore_core::name::Name;
use fullbore_core::panda::PandaSource;
use fullbore_core::units::ByteRate;
use fullbore_engine::recorder::{Event, EventHandler, RecordingConfig, SourceConfig};
use fullbore_engine::sink::SinkConfig;
#[cfg(feature = "hdf5")]
use fullbore_engine::sink::container::ContainerFormat;
use fullbore_formats::panda::general;
use fullbore_formats::{panda::bandwidth, panda::bandwidth::Load};
use fullbore_panda::{ControlPort, Timeouts};
use serde::Serialize;

use crate::output::Output;

/// The timeout for reading a PandA's captured fields.
const ASK: Duration = Duration::from_secs(2);

/// The bandwidth of a PandA's captured fields, compared with the link.
#[derive(Serialize)]
struct Forecast<'a> {
    event: &'static str,
    stream: &'a Name,
    sample_bytes: u32,
    /// Triggers per second that fill a link of 1 Gbit/s.
    most_samples_per_second: f64,
    /// The load at the given rate.
    load: Option<Load>,
}

/// What is printed when PandAs are armed.
pub struct Forecasts {
    pandas: Vec<PandaSource>,
    /// The expected samples per second.
    rate: Option<f64>,
}

impl Forecasts {
    /// The PandAs of a recording into a container, and the rate of its endpoint.
    pub fn of(config: &RecordingConfig) -> Self {
        let pandas = config.sources.iter().filter_map(|source| match source {
            SourceConfig::Panda(panda) => Some(panda.source.clone()),
            _ => None,
        });
        if config.sinks.iter().all(|sink| sink.store().is_some()) {
            return Self { pandas: Vec::new(), rate: None };
        }
        let rate = config.sinks.iter().find_map(|sink| match sink {
            #[cfg(feature = "hdf5")]
            SinkConfig::Container(container) => match &container.format {
                ContainerFormat::Hdf5(options) => options.rows_per_second,
                ContainerFormat::Samples { .. } => None,
            },
            _ => None,
        });
        Self { pandas: pandas.collect(), rate }
    }

    /// Prints what the link carries of each PandA, and whether the rate fits. A PandA that does not answer is recorded
    /// all the same.
    pub fn tell(&self, output: Output, tell: &mut EventHandler<'_>) {
        for source in &self.pandas {
            let Some(forecast) = ask(source, self.rate).filter(|forecast| !output.event(forecast))
            else {
                continue;
            };
            let mut text = format!(
                "{} bytes a sample; a link of 1 Gbit/s carries {:.0} samples a second",
                forecast.sample_bytes, forecast.most_samples_per_second
            );
            if let Some(load) = forecast.load {
                text += "\n";
                text += advice(load).trim_end();
            }
            let several = self.pandas.len() > 1;
            tell(&Event::Note {
                text: if several { format!("{}: {text}", source.name) } else { text },
            });
        }
    }
}

fn ask(source: &PandaSource, rate: Option<f64>) -> Option<Forecast<'_>> {
    let patience = Timeouts { connect: ASK, answer: ASK, ..Timeouts::default() };
    let captured = ControlPort::connect(source, patience).ok()?.captured_fields().ok()?;
    let sample_bytes = bandwidth::sample_bytes(&bandwidth::columns(&captured));
    (sample_bytes > 0).then(|| Forecast {
        event: "forecast",
        stream: &source.name,
        sample_bytes,
        most_samples_per_second: bandwidth::LINK_BYTES_PER_SECOND / f64::from(sample_bytes),
        load: rate.map(|rate| bandwidth::load(sample_bytes, rate)),
    })
}

/// The effect of a trigger rate on the link, and advice if it does not fit.
pub fn advice(load: Load) -> String {
    let rate = ByteRate(load.bytes_per_second as u64);
    let percent = load.of_link * 100.0;
    let mut text = format!(
        "{} triggers a second: {:.1} MB/s ({rate}), {percent:.0} % of the link\n",
        general(load.samples_per_second, 6),
        load.bytes_per_second / 1e6
    );
    if load.average > 1 {
        let verdict = match load.of_link > 1.0 {
            true => "it does not fit: it will end in `Data overrun`",
            false => {
                "it fits the link, but a PandA's own processor has been seen to fall behind above 50 MB/s"
            }
        };
        let every = load.samples_per_second / load.average as f64;
        text += &format!(
            "  {verdict}\n  average: capture Mean (or Min Max Mean) and let one sample stand for {} \
             triggers: {} samples a second\n  or capture fewer fields\n",
            load.average,
            general(every, 6)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use fullbore_formats::panda::bandwidth;

    use super::*;

    #[test]
    fn a_rate_above_that_of_the_pandas_processor_is_warned_of() {
        let told = |megabytes: f64| advice(bandwidth::load(60, megabytes * 1e6 / 60.0));
        let falls_behind = "a PandA's own processor has been seen to fall behind above 50 MB/s";
        assert!(!told(49.0).contains("fall behind") && !told(49.0).contains("does not fit"));
        for above in [51.0, 117.0] {
            assert!(told(above).contains(falls_behind), "{}", told(above));
        }
        assert!(told(119.0).contains("it does not fit: it will end in `Data overrun`"));
    }
}
