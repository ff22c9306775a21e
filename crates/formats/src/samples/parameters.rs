//! A layout from the parameters of an endpoint: `samples=ci16_le&channels=2&sample_rate=100MHz`.

use super::{Finite, MOST_CHANNELS, SampleLayout};

/// The parameters that describe samples: name, example and meaning.
pub const PARAMETERS: [(&str, &str, &str); 8] = [
    (
        "samples",
        "ci16_le",
        "encoding of the samples: a datatype of SigMF, or ro1 to ro16, co1 to co16, rm2",
    ),
    ("channels", "2", "channels of the samples, one value of each after the other; default 1"),
    ("sample_rate", "100MHz", "samples per second of each channel, also as a ratio such as 200/3"),
    ("scale", "0.0003", "physical value of one step of the samples; the samples stay as they are"),
    ("intercept", "0.5", "physical value of a sample of zero; default 0"),
    ("unit", "V", "unit of the physical value"),
    ("frequency", "1.42e9", "centre frequency in Hz"),
    ("channel_names", "x,y", "names of the channels, one for each"),
];

/// The longest unit, or name of a channel, in bytes.
const LONGEST_NAME: usize = 64;

/// A parameter that describes no samples.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The value of a parameter is wrong.
    #[error("`{name}={value}`: {why}")]
    Value {
        /// The parameter.
        name: &'static str,
        /// Its value.
        value: String,
        /// The reason.
        why: String,
    },
    /// A parameter describes samples, and there is no encoding.
    #[error("`{name}` describes samples, so it needs `samples`")]
    Alone {
        /// The parameter.
        name: &'static str,
    },
}

impl SampleLayout {
    /// Reads the parameters of an endpoint. `None` if none of them describes samples.
    pub fn of_parameters<'a>(
        mut value_of: impl FnMut(&'static str) -> Option<&'a str>,
    ) -> Result<Option<Self>, LayoutError> {
        let values = PARAMETERS.map(|(name, ..)| value_of(name));
        let [encoding, channels, rate, scale, intercept, unit, frequency, names] = values;
        let Some(encoding) = encoding else {
            let alone = PARAMETERS.iter().zip(values).find(|(_, value)| value.is_some());
            return match alone {
                Some(((name, ..), _)) => Err(LayoutError::Alone { name }),
                None => Ok(None),
            };
        };
        let encoding = read("samples", encoding, |it| it.parse())?;
        let channels = optional("channels", channels, channel_count)?.unwrap_or(1);
        let names = optional("channel_names", names, |it| channel_names(it, channels))?;
        if intercept.is_some() && scale.is_none() {
            let (name, value) = ("intercept", intercept.unwrap_or_default().to_owned());
            return Err(LayoutError::Value { name, value, why: "it needs `scale`".into() });
        }
        Ok(Some(Self {
            sample_rate: optional("sample_rate", rate, |it| it.parse::<super::SampleRate>())?,
            slope: optional("scale", scale, slope)?,
            intercept: optional("intercept", intercept, finite)?,
            unit: optional("unit", unit, name)?,
            frequency_hz: optional("frequency", frequency, finite)?,
            channel_names: names.unwrap_or_default(),
            ..Self::new(encoding, channels)
        }))
    }
}

fn read<T, E: ToString>(
    name: &'static str,
    value: &str,
    read: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, LayoutError> {
    read(value).map_err(|why| LayoutError::Value {
        name,
        value: value.chars().take(LONGEST_NAME).collect(),
        why: why.to_string(),
    })
}

fn optional<T, E: ToString>(
    name: &'static str,
    value: Option<&str>,
    with: impl FnOnce(&str) -> Result<T, E>,
) -> Result<Option<T>, LayoutError> {
    value.map(|value| read(name, value, with)).transpose()
}

fn channel_count(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (1..=MOST_CHANNELS).contains(number));
    number.ok_or_else(|| format!("it is a whole number from 1 to {MOST_CHANNELS}"))
}

fn finite(text: &str) -> Result<Finite, &'static str> {
    text.parse::<f64>().map_err(|_| "it is not a number").and_then(Finite::try_from)
}

fn slope(text: &str) -> Result<Finite, &'static str> {
    finite(text).and_then(|it| {
        if it.get() == 0.0 { Err("a scale of 0 makes all samples equal") } else { Ok(it) }
    })
}

fn name(text: &str) -> Result<String, String> {
    let fits = (1..=LONGEST_NAME).contains(&text.len()) && !text.chars().any(char::is_control);
    match fits {
        true => Ok(text.to_owned()),
        false => Err(format!("it is 1 to {LONGEST_NAME} bytes of text without control characters")),
    }
}

fn channel_names(text: &str, channels: u32) -> Result<Vec<String>, String> {
    let count = text.split(',').count();
    if count as u64 != u64::from(channels) {
        return Err(format!("there are {count} names for {channels} channels"));
    }
    let names = text.split(',').map(name).collect::<Result<Vec<_>, _>>()?;
    let mut sorted: Vec<&String> = names.iter().collect();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("two channels have the name {}", pair[0])),
        None => Ok(names),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(query: &str) -> Result<Option<SampleLayout>, LayoutError> {
        let pairs: Vec<(&str, &str)> =
            query.split('&').filter_map(|it| it.split_once('=')).collect();
        SampleLayout::of_parameters(|name| {
            pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1)
        })
    }

    #[test]
    fn every_parameter_is_read() {
        let text = "samples=ci16_le&channels=2&sample_rate=100MHz&scale=0.5&intercept=-1&unit=V&frequency=1.42e9&\
                    channel_names=x,y";
        let layout = layout(text).unwrap().unwrap();
        assert_eq!(
            layout.to_string(),
            "2 channels of ci16_le at 100000000 Hz, 0.5 V per step from -1 V, around 1420000000 Hz"
        );
        assert_eq!(layout.channel_names, ["x", "y"]);
    }

    #[test]
    fn no_parameter_is_no_layout_and_one_alone_is_refused() {
        assert_eq!(layout("name=x"), Ok(None));
        assert_eq!(layout("channels=2"), Err(LayoutError::Alone { name: "channels" }));
    }

    #[test]
    fn wrong_values_are_refused_by_name() {
        for (query, name) in [
            ("samples=i16", "samples"),
            ("samples=ri8&channels=0", "channels"),
            ("samples=ri8&channels=65537", "channels"),
            ("samples=ri8&sample_rate=0", "sample_rate"),
            ("samples=ri8&scale=0", "scale"),
            ("samples=ri8&scale=inf", "scale"),
            ("samples=ri8&intercept=1", "intercept"),
            ("samples=ri8&unit=", "unit"),
            ("samples=ri8&frequency=NaN", "frequency"),
            ("samples=ri8&channel_names=a,b", "channel_names"),
            ("samples=ri8&channels=2&channel_names=a,a", "channel_names"),
        ] {
            let error = layout(query).unwrap_err();
            assert!(
                matches!(error, LayoutError::Value { name: it, .. } if it == name),
                "{query}: {error}"
            );
        }
    }
}
