//! Sources from their endpoints.

use std::time::Duration;

use fullbore_core::device::BytesStream;
use fullbore_core::endpoint::{self, UdpSource};
use fullbore_core::panda::PandaSource;
use fullbore_engine::recorder::{PandaConfig, SourceConfig};
use fullbore_gige::CameraConfig;

use super::{OptionError, RecordingOptions, packet_files, sample_files, tcp};

pub(super) fn is_panda(text: &str) -> bool {
    text.trim_start().starts_with("panda:")
}

/// The sources of these endpoints, in their order. PandAs are armed if `arm` says so.
pub fn sources_of(
    texts: &[String],
    arm: bool,
    reconnect: Duration,
) -> Result<Vec<SourceConfig>, OptionError> {
    let mut pandas = pandas_of(texts)?.into_iter();
    let mut sources = Vec::new();
    for text in texts {
        if is_panda(text) {
            let panda = |source| PandaConfig { source, arm, reconnect, dump: None };
            sources.extend(pandas.next().map(panda).map(SourceConfig::Panda));
        } else if packet_files::is_meant(text) {
            let flows = packet_files::parse(text).map_err(of(text))?;
            sources.extend(flows.into_iter().map(SourceConfig::from));
        } else if tcp::is_meant(text) {
            sources.push(SourceConfig::from(tcp::parse(text).map_err(of(text))?));
        } else if CameraConfig::is_meant(text) {
            sources.push(SourceConfig::from(CameraConfig::parse(text).map_err(of(text))?));
        } else if sample_files::is_meant(text) {
            sources.push(sample_files::parse(text).map_err(of(text))?);
        } else if BytesStream::is_meant(text) {
            let stream = BytesStream::parse(text).map_err(of(text))?;
            sources.push(SourceConfig::from(stream));
        } else {
            let ports = UdpSource::parse(text).map_err(of(text))?;
            sources.extend(ports.into_iter().map(SourceConfig::from));
        }
    }
    Ok(sources)
}

/// An error of this endpoint.
pub(super) fn of(text: &str) -> impl FnOnce(endpoint::Error) -> OptionError + '_ {
    |source| OptionError::Endpoint { text: text.to_owned(), source }
}

/// The PandAs among the sources. If several have no name, they are numbered.
fn pandas_of(sources: &[String]) -> Result<Vec<PandaSource>, OptionError> {
    let texts = sources.iter().filter(|text| is_panda(text));
    let parsed = texts.map(|text| PandaSource::parse(text).map_err(of(text)));
    Ok(told_apart(parsed.collect::<Result<Vec<_>, _>>()?))
}

/// Numbers the PandAs without names, if there are several.
pub fn told_apart(mut pandas: Vec<PandaSource>) -> Vec<PandaSource> {
    let unnamed: Vec<&mut PandaSource> =
        pandas.iter_mut().filter(|panda| panda.name.as_str() == "panda").collect();
    if unnamed.len() > 1 {
        for (number, panda) in (1..).zip(unnamed) {
            panda.name = format!("panda{number}").parse().expect("it is a name");
        }
    }
    pandas
}

impl RecordingOptions {
    pub(super) fn sources(&self) -> Result<Vec<SourceConfig>, OptionError> {
        sources_of(&self.source, self.arm, self.reconnect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_pandas_without_a_name_are_numbered() {
        let named = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(|text| text.to_string()).collect();
            let names = pandas_of(&texts).unwrap().into_iter().map(|panda| panda.name.to_string());
            names.collect::<Vec<_>>()
        };
        assert_eq!(named(&["panda://a"]), ["panda"]);
        let several = ["panda://a", "udp://:5000", "panda://b?name=left", "panda://c"];
        assert_eq!(named(&several), ["panda1", "left", "panda2"]);
    }
}
