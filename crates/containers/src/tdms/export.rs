//! The channels of a group as samples, for files of other formats and for recordings.

use std::io;

use fullbore_formats::samples::{Code, Encoding, MOST_CHANNELS, SampleLayout};
use fullbore_formats::tdms::{DataType, Object, ObjectId, Value};
use fullbore_time::Tai;

use super::properties::{Scale, rate_of, scale_of};
use super::reader::{ChannelReader, TdmsFile, TdmsFileError, WINDOW, Window};
use super::transpose::Columns;

/// Bytes of rows that are read at once, about.
const PIECE: usize = 2 << 20;

/// The longest name of a channel in a layout, in bytes.
const LONGEST_NAME: usize = 64;

/// The samples of a group.
#[derive(Clone, Debug)]
pub struct GroupSamples {
    /// The group's name.
    pub group: String,
    /// The samples.
    pub layout: SampleLayout,
    /// Samples of each channel.
    pub samples: u64,
    /// The time of the first sample.
    pub start: Option<Tai>,
    /// The facts of the file that the samples lack, a sentence each.
    pub lacks: Vec<String>,
    channels: Vec<ObjectId>,
    data_type: DataType,
}

/// The encoding of values of a type.
fn encoding(data_type: DataType) -> Option<Encoding> {
    let signed = |bytes| Code::Signed { bytes, big_endian: false };
    let unsigned = |bytes| Code::Unsigned { bytes, big_endian: false };
    let float = |bytes| Code::Float { bytes, big_endian: false };
    let (complex, code) = match data_type {
        DataType::I8 => (false, signed(1)),
        DataType::I16 => (false, signed(2)),
        DataType::I32 => (false, signed(4)),
        DataType::U8 | DataType::Boolean => (false, unsigned(1)),
        DataType::U16 => (false, unsigned(2)),
        DataType::U32 => (false, unsigned(4)),
        DataType::F32 | DataType::F32WithUnit => (false, float(4)),
        DataType::F64 | DataType::F64WithUnit => (false, float(8)),
        DataType::ComplexF32 => (true, float(4)),
        DataType::ComplexF64 => (true, float(8)),
        DataType::I64 | DataType::U64 | DataType::Text | DataType::Timestamp => return None,
    };
    Some(Encoding { complex, code })
}

/// The value that all have in common.
fn common<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Option<T> {
    let mut values = values.into_iter();
    let first = values.next()?;
    values.all(|it| it == first).then_some(first)
}

impl GroupSamples {
    /// The samples of a group; of the only one, without a name.
    pub fn of(file: &TdmsFile, group: Option<&str>) -> Result<Self, TdmsFileError> {
        let groups = file.contents().groups();
        let group = match (group, &groups[..]) {
            (_, []) => return Err(file.refuse("no channel has values")),
            (None, [only]) => only,
            (Some(wanted), _) if groups.contains(&wanted) => wanted,
            (wanted, _) => {
                let wanted = wanted
                    .map_or("it has several groups".into(), |it| format!("it has no group `{it}`"));
                let shown: Vec<&str> = groups.iter().copied().take(20).collect();
                return Err(file.refuse(format!("{wanted}: choose one of {}", shown.join(", "))));
            }
        };
        let mut lacks = Vec::new();
        let contents = file.contents();
        let is_text = |id: &ObjectId| contents.object(*id).data_type == Some(DataType::Text);
        let (texts, channels): (Vec<_>, Vec<_>) = contents.channels(group).partition(is_text);
        if !texts.is_empty() {
            lacks.push(format!(
                "group {group} has {} channels of text, which are left out",
                texts.len()
            ));
        }
        let objects: Vec<&Object> = channels.iter().map(|id| contents.object(*id)).collect();
        if objects.len() as u64 > u64::from(MOST_CHANNELS) {
            return Err(
                file.refuse(format!("group {group} has more than {MOST_CHANNELS} channels"))
            );
        }
        if let Some(it) = objects.iter().find(|it| it.has_more_scalers) {
            return Err(file.refuse(format!("{} has several scalers of DAQmx", it.path)));
        }
        let data_type = common(objects.iter().map(|it| it.data_type)).flatten();
        let data_type = data_type.ok_or_else(|| {
            file.refuse(format!("the channels of group {group} have no type of values in common"))
        })?;
        let encoding = encoding(data_type).ok_or_else(|| {
            file.refuse(format!(
                "the values of group {group} are {data_type:?}, which are no samples"
            ))
        })?;
        let least = objects.iter().map(|it| it.values).min().unwrap_or(0);
        let most = objects.iter().map(|it| it.values).max().unwrap_or(0);
        if least != most {
            let differ =
                format!("the channels of group {group} have from {least} to {most} values");
            if !contents.is_cut() {
                return Err(file.refuse(differ));
            }
            lacks.push(format!("{differ}: the first {least} of each are taken"));
        }
        let layout = SampleLayout::new(encoding, objects.len() as u32);
        let mut samples = Self {
            group: group.to_string(),
            layout,
            samples: least,
            start: None,
            lacks,
            channels,
            data_type,
        };
        samples.describe(file, &objects);
        Ok(samples)
    }

    /// Takes over the properties that all channels have in common.
    fn describe(&mut self, file: &TdmsFile, objects: &[&Object]) {
        let group =
            file.contents().find(&fullbore_formats::tdms::ObjectPath::Group(self.group.clone()));
        let of_group = |name| file.contents().object(group?).property(name);
        let of_channels = |name| common(objects.iter().map(|it| it.property(name))).flatten();
        let exact = of_group("sample_rate").and_then(Value::as_text).and_then(|it| it.parse().ok());
        let increment = of_channels("wf_increment").and_then(Value::number);
        self.layout.sample_rate = exact.or_else(|| increment.and_then(rate_of));
        let start = of_channels("wf_start_time").or_else(|| of_group("start"));
        self.start = match start {
            // LabVIEW writes its epoch for waveforms without a time.
            Some(Value::Timestamp(time)) if time.seconds != 0 => time.tai(),
            _ => None,
        };
        self.layout.frequency_hz =
            of_group("frequency_hz").and_then(Value::number).and_then(|it| it.try_into().ok());
        let unit = of_channels("unit_string").and_then(Value::as_text).unwrap_or_default();
        self.layout.unit = fits(unit).then(|| unit.to_owned());
        match common(objects.iter().map(|it| scale_of(&it.properties))) {
            Some(Scale::None) => {}
            Some(Scale::Linear(slope, intercept)) => {
                self.layout.slope = Some(slope);
                self.layout.intercept = Some(intercept);
            }
            Some(Scale::Other) => {
                let group = &self.group;
                self.lacks.push(format!(
                    "the scale of group {group} is not linear, so its codes stay unscaled"
                ));
            }
            None => {
                let group = &self.group;
                self.lacks.push(format!(
                    "the scales of group {group} differ, so its codes stay unscaled"
                ));
            }
        }
        let names: Vec<&str> = objects.iter().filter_map(|it| it.path.channel()).collect();
        if names.iter().all(|it| fits(it)) {
            self.layout.channel_names = names.into_iter().map(str::to_owned).collect();
        } else {
            self.lacks.push("the names of the channels are empty, too long or not text".to_owned());
        }
    }
}

/// True if a layout can have this name.
fn fits(name: &str) -> bool {
    (1..=LONGEST_NAME).contains(&name.len()) && !name.chars().any(char::is_control)
}

/// Reads the samples of a group.
pub struct GroupReader<'a> {
    file: &'a TdmsFile,
    channels: Vec<ChannelReader>,
    columns: Columns,
    window: Window,
    values: Vec<u8>,
    rows: Vec<u8>,
    left: u64,
}

impl<'a> GroupReader<'a> {
    /// A reader from the first sample on.
    pub fn new(file: &'a TdmsFile, samples: &GroupSamples) -> Self {
        let reader = |&id| ChannelReader::new(id, samples.data_type);
        let channels: Vec<ChannelReader> = samples.channels.iter().map(reader).collect();
        let size = samples.data_type.bytes().unwrap_or(1) as usize;
        let count = channels.len();
        let in_window = WINDOW / file.contents().widest_row().max(1);
        let values = (PIECE / (size * count)).min(in_window as usize).max(1);
        let columns = Columns { size, count, values };
        let (values, rows) = (vec![0; columns.bytes()], vec![0; columns.bytes()]);
        let left = samples.samples;
        Self { file, channels, columns, window: Window::default(), values, rows, left }
    }

    /// The next samples, of all channels, little-endian; `None` after the last.
    pub fn next_rows(&mut self) -> Result<Option<&[u8]>, TdmsFileError> {
        if self.left == 0 {
            return Ok(None);
        }
        let values = self.left.min(self.columns.values as u64) as usize;
        let columns = Columns { values, ..self.columns };
        let bytes = columns.bytes();
        self.read(values * columns.size, bytes).map_err(|source| self.file.failed(source))?;
        columns.take(&self.values[..bytes], &mut self.rows[..bytes]);
        self.left -= values as u64;
        Ok(Some(&self.rows[..bytes]))
    }

    fn read(&mut self, column_bytes: usize, bytes: usize) -> io::Result<()> {
        let columns = self.values[..bytes].chunks_exact_mut(column_bytes);
        for (channel, values) in self.channels.iter_mut().zip(columns) {
            channel.read(self.file, &mut self.window, values)?;
        }
        Ok(())
    }
}
