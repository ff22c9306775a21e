//! Figures as PNG: pixels, with smooth lines, and the font of embedded-graphics.

use std::convert::Infallible;

use embedded_graphics::Drawable;
use embedded_graphics::Pixel;
use embedded_graphics::draw_target::DrawTarget;
use embedded_graphics::geometry::{OriginDimensions, Point, Size};
use embedded_graphics::mono_font::MonoTextStyle;
use embedded_graphics::mono_font::iso_8859_1::FONT_9X15;
use embedded_graphics::pixelcolor::{Rgb888, RgbColor};
use embedded_graphics::text::{Alignment, Text};

use super::draw::{draw, size};
use super::{Anchor, Canvas, Colour, Figure};

/// Pixels of a point.
const SCALE: f64 = 1.5;

/// The PNG file of a figure.
pub fn png(figure: &Figure) -> Vec<u8> {
    let (width, height) = size(figure);
    let mut canvas = Pixels::new((width * SCALE) as usize, (height * SCALE) as usize);
    draw(figure, &mut canvas);
    encode(canvas.columns, &canvas.pixels)
}

/// The PNG file of pixels.
pub fn encode(columns: usize, pixels: &[Colour]) -> Vec<u8> {
    let rows = pixels.len() / columns.max(1);
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, columns as u32, rows as u32);
    encoder.set_color(png::ColorType::Rgb);
    let written = encoder
        .write_header()
        .and_then(|mut writer| writer.write_image_data(pixels[..rows * columns].as_flattened()));
    written.expect("memory takes every byte, and the figure has a size");
    file
}

struct Pixels {
    columns: usize,
    pixels: Vec<Colour>,
}

impl Pixels {
    fn new(columns: usize, rows: usize) -> Self {
        Self { columns, pixels: vec![[255; 3]; columns * rows] }
    }

    fn rows(&self) -> usize {
        self.pixels.len() / self.columns
    }

    /// Covers a share of a pixel.
    fn cover(&mut self, x: i64, y: i64, colour: Colour, share: f64) {
        let (Ok(column), Ok(row)) = (usize::try_from(x), usize::try_from(y)) else { return };
        if column < self.columns && row < self.rows() {
            let pixel = &mut self.pixels[row * self.columns + column];
            for (old, new) in pixel.iter_mut().zip(colour) {
                let mixed = f64::from(*old) + (f64::from(new) - f64::from(*old)) * share;
                *old = mixed.round() as u8;
            }
        }
    }

    /// A line of some width: each pixel is covered by its distance from the line.
    fn stroke(&mut self, from: (f64, f64), to: (f64, f64), colour: Colour, width: f64) {
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let squared = (dx * dx + dy * dy).max(f64::MIN_POSITIVE);
        let reach = width / 2.0 + 1.0;
        let steep = dy.abs() > dx.abs();
        let along = |point: (f64, f64)| if steep { (point.1, point.0) } else { point };
        let ((a, b), (c, d)) = (along(from), along(to));
        let (begin, end) = ((a.min(c) - reach).floor() as i64, (a.max(c) + reach).ceil() as i64);
        let limit = self.columns.max(self.rows()) as i64;
        for main in begin.max(0)..=end.min(limit) {
            let share = if c == a { 0.0 } else { ((main as f64 - a) / (c - a)).clamp(0.0, 1.0) };
            let middle = b + (d - b) * share;
            for side in (middle - 2.0 * reach).floor() as i64..=(middle + 2.0 * reach).ceil() as i64
            {
                let (x, y) = if steep { (side, main) } else { (main, side) };
                let (px, py) = (x as f64 - from.0, y as f64 - from.1);
                let nearest = ((px * dx + py * dy) / squared).clamp(0.0, 1.0);
                let distance = (px - dx * nearest).hypot(py - dy * nearest);
                let covered = (width / 2.0 + 0.5 - distance).clamp(0.0, 1.0);
                if covered > 0.0 {
                    self.cover(x, y, colour, covered);
                }
            }
        }
    }
}

impl Canvas for Pixels {
    fn line(&mut self, points: &[(f64, f64)], colour: Colour, width: f64) {
        for pair in points.windows(2) {
            let [from, to] = [pair[0], pair[1]].map(|(x, y)| (x * SCALE, y * SCALE));
            self.stroke(from, to, colour, width * SCALE * 0.8);
        }
    }

    fn fill(&mut self, area: [f64; 4], colour: Colour) {
        let [x, y, width, height] = area.map(|side| side * SCALE);
        for row in y.round() as i64..(y + height).round() as i64 {
            for column in x.round() as i64..(x + width).round() as i64 {
                self.cover(column, row, colour, 1.0);
            }
        }
    }

    fn text(&mut self, (x, y): (f64, f64), text: &str, anchor: Anchor, colour: Colour) {
        let [red, green, blue] = colour;
        let style = MonoTextStyle::new(&FONT_9X15, Rgb888::new(red, green, blue));
        let alignment = match anchor {
            Anchor::Start => Alignment::Left,
            Anchor::Middle => Alignment::Center,
            Anchor::End => Alignment::Right,
        };
        let at = Point::new((x * SCALE) as i32, (y * SCALE) as i32);
        let drawn = Text::with_alignment(text, at, style, alignment).draw(self);
        drawn.unwrap_or_else(|never| match never {});
    }

    fn image(&mut self, area: [f64; 4], columns: usize, pixels: &[Colour]) {
        let [left, top, width, height] = area.map(|side| side * SCALE);
        let rows = pixels.len() / columns.max(1);
        let (wide, high) = (width.round() as usize, height.round() as usize);
        for row in 0..high {
            for column in 0..wide {
                let pixel = pixels[row * rows / high * columns + column * columns / wide];
                let (x, y) = (left.round() as i64 + column as i64, top.round() as i64 + row as i64);
                self.cover(x, y, pixel, 1.0);
            }
        }
    }
}

impl OriginDimensions for Pixels {
    fn size(&self) -> Size {
        Size::new(self.columns as u32, self.rows() as u32)
    }
}

impl DrawTarget for Pixels {
    type Color = Rgb888;
    type Error = Infallible;

    fn draw_iter<I: IntoIterator<Item = Pixel<Rgb888>>>(
        &mut self,
        pixels: I,
    ) -> Result<(), Infallible> {
        for Pixel(Point { x, y }, colour) in pixels {
            self.cover(x.into(), y.into(), [colour.r(), colour.g(), colour.b()], 1.0);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::figure;
    use super::*;

    #[test]
    fn a_figure_is_a_png_of_its_size_with_its_colours() {
        let file = png(&figure());
        let mut reader = png::Decoder::new(std::io::Cursor::new(&file)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((info.width, info.height), (1440, ((36.0 + 2.0 * 230.0) * SCALE) as u32));
        for colour in [super::super::COLOURS[0], super::super::COLOURS[1]] {
            assert!(pixels.chunks(3).any(|pixel| pixel == colour), "{colour:?}");
        }
    }

    #[test]
    fn lines_outside_the_picture_are_cut() {
        let mut pixels = Pixels::new(10, 10);
        pixels.stroke((-1e4, 5.0), (1e4, 5.0), [0; 3], 1.0);
        pixels.stroke((5.0, -1e4), (5.0, 1e4), [0; 3], 1.0);
        assert_eq!(pixels.pixels[55], [0; 3]);
        assert_eq!(pixels.pixels[0], [255; 3]);
    }
}
