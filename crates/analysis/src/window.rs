//! Windows: the weight of each sample of a segment before the Fourier transform.

use std::f64::consts::TAU;
use std::fmt;
use std::str::FromStr;

/// A window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Window {
    /// Every weight is 1.
    Rectangular,
    /// `½ − ½ cos(2πn/L)`.
    #[default]
    Hann,
    /// `0.54 − 0.46 cos(2πn/L)`.
    Hamming,
    /// The three terms of Blackman: 0.42, 0.5 and 0.08.
    Blackman,
}

/// A text is not a window.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a window: it is rectangular, hann, hamming or blackman")]
pub struct WindowError {
    /// The text, at most its first 32 characters.
    text: String,
}

impl Window {
    /// All windows.
    pub const ALL: [Window; 4] =
        [Window::Rectangular, Window::Hann, Window::Hamming, Window::Blackman];

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Window::Rectangular => "rectangular",
            Window::Hann => "hann",
            Window::Hamming => "hamming",
            Window::Blackman => "blackman",
        }
    }

    /// The weights of a segment of this length: those of one period, as spectra need them (`sym=False` in SciPy).
    pub fn weights(self, length: usize) -> Vec<f32> {
        let terms: &[f64] = match self {
            Window::Rectangular => &[1.0],
            Window::Hann => &[0.5, -0.5],
            Window::Hamming => &[0.54, -0.46],
            Window::Blackman => &[0.42, -0.5, 0.08],
        };
        let weight = |n: usize| {
            let angle = TAU * n as f64 / length as f64;
            let terms = terms.iter().enumerate();
            terms.map(|(order, term)| term * (order as f64 * angle).cos()).sum::<f64>() as f32
        };
        (0..length).map(weight).collect()
    }
}

impl FromStr for Window {
    type Err = WindowError;

    fn from_str(text: &str) -> Result<Self, WindowError> {
        let window = Self::ALL.into_iter().find(|window| window.name() == text);
        window.ok_or_else(|| WindowError { text: text.chars().take(32).collect() })
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_symmetric_around_the_middle_and_largest_there() {
        for window in Window::ALL {
            let weights = window.weights(16);
            for n in 1..16 {
                assert!((weights[n] - weights[16 - n]).abs() < 1e-6, "{window} {n}");
                assert!(weights[n] <= weights[8] + 1e-6, "{window} {n}");
            }
            assert!((weights[8] - 1.0).abs() < 1e-6, "{window}");
            assert_eq!(window.name().parse(), Ok(window));
        }
        assert_eq!(Window::Hann.weights(4), [0.0, 0.5, 1.0, 0.5]);
        assert!("Hann ".parse::<Window>().is_err());
    }
}
