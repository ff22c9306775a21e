//! Figures as SVG 1.1.

use std::fmt::Write;

use data_encoding::BASE64;

use super::draw::{draw, size};
use super::{Anchor, Canvas, Colour, Figure, raster};

/// The SVG document of a figure.
pub fn svg(figure: &Figure) -> String {
    let (width, height) = size(figure);
    let mut canvas = Svg { body: String::new() };
    draw(figure, &mut canvas);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" xmlns:xlink=\"http://www.w3.org/1999/xlink\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n<title>{}</title>\n{}</svg>\n",
        escaped(&figure.title),
        canvas.body
    )
}

struct Svg {
    body: String,
}

fn hex([red, green, blue]: Colour) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

fn escaped(text: &str) -> String {
    let fine = |c: &char| !c.is_control();
    let text: String = text.chars().filter(fine).collect();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

impl Canvas for Svg {
    fn line(&mut self, points: &[(f64, f64)], colour: Colour, width: f64) {
        let points = points.iter().fold(String::new(), |mut text, (x, y)| {
            let _ = write!(text, "{x:.1},{y:.1} ");
            text
        });
        let (points, colour) = (points.trim_end(), hex(colour));
        let _ = writeln!(
            self.body,
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"/>"
        );
    }

    fn fill(&mut self, [x, y, width, height]: [f64; 4], colour: Colour) {
        let (width, height, colour) = (width.max(0.0), height.max(0.0), hex(colour));
        let _ = writeln!(
            self.body,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>"
        );
    }

    fn text(&mut self, (x, y): (f64, f64), text: &str, anchor: Anchor, colour: Colour) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let (text, colour) = (escaped(text), hex(colour));
        let _ = writeln!(
            self.body,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\">{text}</text>"
        );
    }

    fn image(&mut self, [x, y, width, height]: [f64; 4], columns: usize, pixels: &[Colour]) {
        let png = BASE64.encode(&raster::encode(columns, pixels));
        let _ = writeln!(
            self.body,
            "<image x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" preserveAspectRatio=\"none\" \
             style=\"image-rendering:pixelated\" xlink:href=\"data:image/png;base64,{png}\"/>"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::figure;
    use super::*;

    #[test]
    fn texts_cannot_leave_their_element() {
        let svg = svg(&figure());
        assert!(svg.contains(">0 &lt;&amp;&gt;</text>"), "{svg}");
        assert_eq!(
            svg.matches("<polyline").count(),
            svg.matches("/>").count() - svg.matches("<rect").count() - 2
        );
        assert!(svg.contains("data:image/png;base64,iVBORw0KGgo"));
    }
}
