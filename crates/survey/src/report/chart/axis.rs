//! An axis: the position of a value, and round numbers beside the axis.

use crate::report::text;

/// The quantity of an axis, which determines the format of its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Bytes per second.
    Rate,
    /// Bytes, in powers of 1000.
    Size,
    /// Bytes, in powers of 1024: blocks and sessions.
    BlockSize,
    /// Seconds.
    Seconds,
    /// Nanoseconds.
    Nanoseconds,
    /// Degrees Celsius.
    Celsius,
    /// The number of nines of a percentile: 2 is 99 %.
    Nines,
    /// A plain number.
    Count,
    /// A plain number that doubles from one tick to the next.
    Doubling,
}

/// One axis of a plot.
#[derive(Clone, Debug)]
pub struct Axis {
    /// The label, without unit.
    pub label: String,
    /// The quantity.
    pub quantity: Quantity,
    /// First and last value.
    pub range: (f64, f64),
    /// True for a logarithmic axis.
    pub logarithmic: bool,
}

/// A round number on an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    /// The value.
    pub value: f64,
    /// The text; empty for a line without a number.
    pub text: String,
}

impl Axis {
    /// An axis from zero to slightly above the largest of these values.
    pub fn from_zero(
        label: &str,
        quantity: Quantity,
        values: impl IntoIterator<Item = f64>,
    ) -> Self {
        let most = values.into_iter().filter(|value| value.is_finite()).fold(0.0, f64::max);
        let most = if most > 0.0 { most * 1.06 } else { 1.0 };
        Self { label: label.into(), quantity, range: (0.0, most), logarithmic: false }
    }

    /// An axis from the smallest to the largest of these values.
    pub fn within(label: &str, quantity: Quantity, values: impl IntoIterator<Item = f64>) -> Self {
        let (low, high) = extent(values).unwrap_or((0.0, 1.0));
        let high = if high > low { high } else { low + 1.0 };
        Self { label: label.into(), quantity, range: (low, high), logarithmic: false }
    }

    /// A logarithmic axis from the smallest to the largest of the positive values.
    pub fn logarithmic(
        label: &str,
        quantity: Quantity,
        values: impl IntoIterator<Item = f64>,
    ) -> Self {
        let above = values.into_iter().filter(|value| *value > 0.0);
        let (low, high) = extent(above).unwrap_or((1.0, 10.0));
        let high = if high > low { high } else { low * 2.0 };
        Self { label: label.into(), quantity, range: (low, high), logarithmic: true }
    }

    /// Widens the range on both sides, so that no point lies on the frame.
    pub fn with_room(self) -> Self {
        let (low, high) = self.range;
        let range = match self.logarithmic {
            true => (low / (high / low).powf(0.04), high * (high / low).powf(0.04)),
            false => (low - (high - low) * 0.04, high + (high - low) * 0.04),
        };
        Self { range, ..self }
    }

    /// The position of a value, from 0 to 1. A value outside the range is at the nearer end.
    pub fn place(&self, value: f64) -> f64 {
        let (low, high) = self.range;
        let share = match self.logarithmic {
            false => (value - low) / (high - low),
            true => (value.max(low).ln() - low.ln()) / (high.ln() - low.ln()),
        };
        if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
    }

    /// The label with the unit of the numbers.
    pub fn title(&self) -> String {
        match self.unit().1 {
            unit if !unit.is_empty() && !self.label.is_empty() => {
                format!("{} ({unit})", self.label)
            }
            _ => self.label.clone(),
        }
    }

    /// The divisor of the numbers and its unit. `None` if each number has its own unit.
    fn unit(&self) -> (f64, &'static str) {
        if self.logarithmic {
            return (1.0, "");
        }
        let high = self.range.1;
        let of = |steps: &[(f64, &'static str)]| {
            let last = steps.last().copied().unwrap_or((1.0, ""));
            steps.iter().copied().find(|(step, _)| high >= 2.0 * step).unwrap_or(last)
        };
        match self.quantity {
            Quantity::Rate => of(&[(1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")]),
            Quantity::Size => {
                of(&[(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")])
            }
            Quantity::Seconds => of(&[(3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms")]),
            Quantity::Nanoseconds => of(&[(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")]),
            Quantity::Celsius => (1.0, "°C"),
            _ => (1.0, ""),
        }
    }

    /// Round numbers within the range, about `wanted` of them.
    pub fn ticks(&self, wanted: usize) -> Vec<Tick> {
        match (self.logarithmic, self.quantity) {
            (true, Quantity::BlockSize | Quantity::Doubling) => self.powers_of_two(wanted),
            (true, _) => self.decades(wanted),
            (false, _) => self.steps(wanted),
        }
    }

    fn steps(&self, wanted: usize) -> Vec<Tick> {
        let (divisor, _) = self.unit();
        let (low, high) = (self.range.0 / divisor, self.range.1 / divisor);
        let step = match self.quantity {
            Quantity::Nines => 1.0,
            _ => nice((high - low) / wanted.max(1) as f64),
        };
        let digits = (-step.log10().floor()).clamp(0.0, 6.0) as usize;
        let first = (low / step - 1e-9).ceil();
        let count = ((high / step + 1e-9).floor() - first).clamp(0.0, 100.0) as usize;
        let tick = |n: usize| {
            let value = (first + n as f64) * step;
            let text = match self.quantity {
                Quantity::Nines => percentile(value),
                _ => format!("{value:.digits$}"),
            };
            Tick { value: value * divisor, text }
        };
        (0..=count).map(tick).collect()
    }

    fn powers_of_two(&self, wanted: usize) -> Vec<Tick> {
        let (low, high) = (self.range.0.log2().ceil(), self.range.1.log2().floor());
        let count = (high - low).clamp(0.0, 64.0) as usize;
        let every = (count + 1).div_ceil(wanted.max(1)).max(1);
        let tick = |n: usize| {
            let value = (low + n as f64).exp2();
            let text = if n.is_multiple_of(every) { self.short(value) } else { String::new() };
            Tick { value, text }
        };
        (0..=count).map(tick).collect()
    }

    fn decades(&self, wanted: usize) -> Vec<Tick> {
        let (low, high) = (self.range.0.log10().floor() as i32, self.range.1.log10().ceil() as i32);
        // With few decades, halves and fifths get ticks too.
        let factors: &[f64] = if ((high - low).max(0) as usize) <= wanted.div_ceil(2) {
            &[1.0, 2.0, 5.0]
        } else {
            &[1.0]
        };
        let every = ((high - low).max(0) as usize / wanted.max(1) + 1) as i32;
        let values = (low..=high)
            .filter(|power| (power - low) % every == 0)
            .flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)));
        let inside = |value: &f64| (self.range.0 * 0.999..=self.range.1 * 1.001).contains(value);
        values.filter(inside).map(|value| Tick { value, text: self.short(value) }).collect()
    }

    /// A round value without superfluous digits.
    fn short(&self, value: f64) -> String {
        self.told(value).replace(".00 ", " ").replace(".0 ", " ")
    }

    /// A value with its own unit.
    pub fn told(&self, value: f64) -> String {
        match self.quantity {
            Quantity::Rate => text::rate(value),
            Quantity::Size => text::size(value),
            Quantity::BlockSize => text::block_size(value as u64),
            Quantity::Seconds => text::seconds(value),
            Quantity::Nanoseconds => text::nanoseconds(value),
            Quantity::Celsius => format!("{value:.0} °C"),
            Quantity::Nines => percentile(value),
            Quantity::Count | Quantity::Doubling => text::count(value as u64),
        }
    }
}

/// `99.9 %` for three nines.
fn percentile(nines: f64) -> String {
    let digits = (nines - 2.0).ceil().clamp(0.0, 6.0) as usize;
    format!("{:.digits$} %", 100.0 * (1.0 - 10f64.powf(-nines)))
}

/// The smallest and the largest of these values.
fn extent(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    values.into_iter().filter(|value| value.is_finite()).fold(None, |extent, value| match extent {
        None => Some((value, value)),
        Some((low, high)) => Some((value.min(low), value.max(high))),
    })
}

/// 1, 2 or 5 times a power of ten, not below `step`.
fn nice(step: f64) -> f64 {
    if !(step.is_finite() && step > 0.0) {
        return 1.0;
    }
    let power = 10f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= step * 0.999);
    factor.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(axis: &Axis, wanted: usize) -> Vec<String> {
        axis.ticks(wanted).into_iter().map(|tick| tick.text).collect()
    }

    #[test]
    fn ticks_stand_at_round_numbers_in_the_unit_of_the_title() {
        let axis = Axis::from_zero("rate", Quantity::Rate, [6.41e9, 1.0]);
        assert_eq!(axis.title(), "rate (GB/s)");
        assert_eq!(texts(&axis, 5), ["0", "2", "4", "6"]);
        let axis = Axis::from_zero("rate", Quantity::Rate, [442e6]);
        assert_eq!((axis.title().as_str(), texts(&axis, 5).len()), ("rate (MB/s)", 5));
        let axis = Axis::from_zero("time", Quantity::Seconds, [2073.0]);
        assert_eq!(axis.title(), "time (min)");
    }

    #[test]
    fn logarithmic_ticks_are_powers() {
        let sizes = [131_072.0, 4_294_967_296.0];
        let axis = Axis::logarithmic("session", Quantity::BlockSize, sizes);
        let told = texts(&axis, 8);
        assert_eq!((told.len(), told[0].as_str(), told[1].as_str()), (16, "128 KiB", ""));
        let axis = Axis::logarithmic("latency", Quantity::Nanoseconds, [9e5, 5e7]);
        assert_eq!(texts(&axis, 6), ["1 ms", "2 ms", "5 ms", "10 ms", "20 ms", "50 ms"]);
    }

    #[test]
    fn nines_are_told_as_percentiles() {
        let axis = Axis::from_zero("writes", Quantity::Nines, [3.8]);
        assert_eq!(texts(&axis, 5), ["0 %", "90 %", "99 %", "99.9 %", "99.99 %"]);
    }

    #[test]
    fn an_axis_of_nothing_or_of_one_value_is_still_one() {
        for axis in [
            Axis::from_zero("rate", Quantity::Rate, []),
            Axis::within("time", Quantity::Seconds, [3.0]),
            Axis::logarithmic("size", Quantity::BlockSize, [0.0, f64::NAN]),
            Axis::logarithmic("size", Quantity::Size, [4096.0]),
        ] {
            assert!(axis.ticks(5).len() < 100);
            for value in [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e300] {
                assert!((0.0..=1.0).contains(&axis.place(value)), "{axis:?} {value}");
            }
        }
    }
}
