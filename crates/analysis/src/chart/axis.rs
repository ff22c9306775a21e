//! An axis: the range of values, and round numbers beside it.

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// The quantity.
    pub label: String,
    /// The unit; empty if it has none.
    pub unit: String,
    /// First and last value.
    pub range: (f64, f64),
}

/// A round number on an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    /// The value.
    pub value: f64,
    /// The number as text.
    pub text: String,
}

impl Axis {
    /// An axis over a range. A range without extent is widened.
    pub fn new(label: &str, unit: &str, range: (f64, f64)) -> Self {
        let (low, high) = range;
        let range = match low.is_finite() && high.is_finite() {
            true if high > low => (low, high),
            true => (low - 0.5, low + 0.5),
            false => (0.0, 1.0),
        };
        Self { label: label.into(), unit: unit.into(), range }
    }

    /// An axis over all finite values, with a little room on both sides.
    pub fn around(label: &str, unit: &str, values: impl IntoIterator<Item = f64>) -> Self {
        let extent = values.into_iter().filter(|value| value.is_finite());
        let none = (f64::INFINITY, f64::NEG_INFINITY);
        let (low, high) = extent.fold(none, |(low, high), it| (low.min(it), high.max(it)));
        let room = (high - low) * 0.05;
        Self::new(label, unit, (low - room, high + room))
    }

    /// The share of a value in the range; outside it, that of the nearer end.
    pub fn place(&self, value: f64) -> f64 {
        let (low, high) = self.range;
        ((value - low) / (high - low)).clamp(0.0, 1.0)
    }

    /// The label with the unit.
    pub fn title(&self) -> String {
        match self.unit.is_empty() {
            true => self.label.clone(),
            false => format!("{} ({})", self.label, self.unit),
        }
    }

    /// About this many round numbers within the range.
    pub fn ticks(&self, wanted: usize) -> Vec<Tick> {
        let (low, high) = self.range;
        let step = nice((high - low) / wanted.max(1) as f64);
        let digits = (-step.log10().floor()).clamp(0.0, 12.0) as usize;
        let first = (low / step - 1e-9).ceil();
        let count = ((high / step + 1e-9).floor() - first).clamp(0.0, 100.0) as usize;
        let tick = |n: usize| {
            // Adding 0 makes zero positive.
            let value = (first + n as f64) * step + 0.0;
            Tick { value, text: format!("{value:.digits$}") }
        };
        (0..=count).map(tick).collect()
    }
}

/// The smallest of 1, 2 or 5 times a power of ten that is not below `step`.
pub fn nice(step: f64) -> f64 {
    if !(step.is_finite() && step > 0.0) {
        return 1.0;
    }
    let power = 10f64.powf(step.log10().floor());
    let factors = [1.0, 2.0, 5.0, 10.0];
    factors.into_iter().find(|factor| factor * power >= step * 0.999_999).unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within_the_range() {
        for (range, texts) in [
            ((0.0, 16.0), vec!["0", "5", "10", "15"]),
            ((-1.3, 0.2), vec!["-1.0", "-0.5", "0.0"]),
            ((1420.1, 1420.9), vec!["1420.2", "1420.4", "1420.6", "1420.8"]),
        ] {
            let ticks = Axis::new("", "", range).ticks(4);
            assert_eq!(ticks.into_iter().map(|tick| tick.text).collect::<Vec<_>>(), texts);
        }
    }

    #[test]
    fn any_values_give_an_axis() {
        let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
        for values in
            [vec![], odd.to_vec(), vec![3.0], vec![-1e300, 1e300], vec![1.0, f64::NAN, 2.0]]
        {
            let axis = Axis::around("", "", values.clone());
            assert!(axis.range.1 > axis.range.0, "{values:?}");
            assert!(axis.ticks(5).len() <= 101, "{values:?}");
        }
    }
}
