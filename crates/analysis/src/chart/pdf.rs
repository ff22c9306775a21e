//! Figures as PDF 1.4: one page, vectors, and the font Helvetica that every reader has.

use std::fmt::Write;

use super::draw::{draw, size};
use super::{Anchor, Canvas, Colour, Figure};

/// The size of letters in points.
const LETTERS: f64 = 11.0;

/// The PDF document of a figure.
pub fn pdf(figure: &Figure) -> Vec<u8> {
    let (width, height) = size(figure);
    let mut page = Page { height, content: String::new(), images: Vec::new() };
    draw(figure, &mut page);
    let names = (0..page.images.len()).map(|number| format!("/I{number} {} 0 R ", number + 6));
    let images: String = names.collect();
    let mut objects: Vec<Vec<u8>> = vec![
        b"<< /Type /Catalog /Pages 2 0 R >>".to_vec(),
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>".to_vec(),
        format!(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {width} {height}] /Contents 4 0 R \
             /Resources << /Font << /F 5 0 R >> /XObject << {images}>> >> >>"
        )
        .into_bytes(),
        stream("", page.content.as_bytes()),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"
            .to_vec(),
    ];
    for (columns, pixels) in &page.images {
        let head = format!(
            "/Type /XObject /Subtype /Image /Width {columns} /Height {} /ColorSpace /DeviceRGB /BitsPerComponent 8 ",
            pixels.len() / columns
        );
        objects.push(stream(&head, pixels.as_flattened()));
    }
    file(&objects)
}

fn stream(head: &str, bytes: &[u8]) -> Vec<u8> {
    let mut object = format!("<< {head}/Length {} >>\nstream\n", bytes.len()).into_bytes();
    object.extend(bytes);
    object.extend(b"\nendstream");
    object
}

/// The file of numbered objects: header, objects, their offsets, trailer.
fn file(objects: &[Vec<u8>]) -> Vec<u8> {
    let mut file = b"%PDF-1.4\n".to_vec();
    let mut offsets = String::new();
    for (number, object) in objects.iter().enumerate() {
        let _ = writeln!(offsets, "{:010} 00000 n ", file.len());
        file.extend(format!("{} 0 obj\n", number + 1).into_bytes());
        file.extend(object);
        file.extend(b"\nendobj\n");
    }
    let (count, at) = (objects.len() + 1, file.len());
    let table = format!("xref\n0 {count}\n0000000000 65535 f \n{offsets}");
    let trailer = format!("trailer\n<< /Size {count} /Root 1 0 R >>\nstartxref\n{at}\n%%EOF\n");
    file.extend((table + &trailer).into_bytes());
    file
}

struct Page {
    height: f64,
    content: String,
    images: Vec<(usize, Vec<Colour>)>,
}

fn colour([red, green, blue]: Colour) -> String {
    let share = |part: u8| f64::from(part) / 255.0;
    format!("{:.3} {:.3} {:.3}", share(red), share(green), share(blue))
}

impl Canvas for Page {
    fn line(&mut self, points: &[(f64, f64)], ink: Colour, width: f64) {
        let _ = writeln!(self.content, "{} RG {width} w 1 j", colour(ink));
        for (number, (x, y)) in points.iter().enumerate() {
            let step = if number == 0 { 'm' } else { 'l' };
            let _ = writeln!(self.content, "{x:.2} {:.2} {step}", self.height - y);
        }
        self.content += "S\n";
    }

    fn fill(&mut self, [x, y, width, height]: [f64; 4], ink: Colour) {
        let bottom = self.height - y - height.max(0.0);
        let (width, height) = (width.max(0.0), height.max(0.0));
        let _ = writeln!(
            self.content,
            "{} rg {x:.2} {bottom:.2} {width:.2} {height:.2} re f",
            colour(ink)
        );
    }

    fn text(&mut self, (x, y): (f64, f64), text: &str, anchor: Anchor, ink: Colour) {
        let width = text.chars().map(width_of).sum::<f64>() * LETTERS;
        let x = match anchor {
            Anchor::Start => x,
            Anchor::Middle => x - width / 2.0,
            Anchor::End => x - width,
        };
        let text = text.chars().map(letter).collect::<String>();
        let (ink, y) = (colour(ink), self.height - y);
        let _ =
            writeln!(self.content, "BT {ink} rg /F {LETTERS} Tf {x:.2} {y:.2} Td ({text}) Tj ET");
    }

    fn image(&mut self, [x, y, width, height]: [f64; 4], columns: usize, pixels: &[Colour]) {
        let (number, bottom) = (self.images.len(), self.height - y - height);
        let _ = writeln!(
            self.content,
            "q {width:.2} 0 0 {height:.2} {x:.2} {bottom:.2} cm /I{number} Do Q"
        );
        self.images.push((columns, pixels.to_vec()));
    }
}

/// A letter within a string of PDF. The upper half of WinAnsi is that of Unicode, as far as it is used here.
fn letter(letter: char) -> String {
    match letter {
        '(' | ')' | '\\' => format!("\\{letter}"),
        ' '..='~' => letter.to_string(),
        '\u{a1}'..='\u{ff}' => format!("\\{:03o}", letter as u32),
        _ => "?".to_owned(),
    }
}

/// The width of a letter of Helvetica, as a share of its height: digits exactly, others in classes.
fn width_of(letter: char) -> f64 {
    match letter {
        'i' | 'j' | 'l' | '\'' | '|' => 0.22,
        '.' | ',' | ':' | ';' | ' ' | '/' | '!' | 't' | 'f' | 'I' => 0.278,
        '(' | ')' | '-' | 'r' => 0.333,
        'm' | 'M' | 'W' | '%' => 0.85,
        'A'..='Z' => 0.68,
        _ => 0.556,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::figure;
    use super::*;

    #[test]
    fn the_table_of_objects_points_at_each() {
        let file = pdf(&figure());
        // Each byte a letter, so that offsets are those of the file.
        let ascii = |byte: &u8| if byte.is_ascii() { char::from(*byte) } else { '?' };
        let text: String = file.iter().map(ascii).collect();
        let at: usize =
            text.rsplit("startxref\n").next().unwrap().lines().next().unwrap().parse().unwrap();
        let mut lines = text[at..].lines().skip(1);
        let count: usize = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        for (number, line) in lines.skip(1).take(count - 1).enumerate() {
            let offset: usize = line[..10].parse().unwrap();
            assert!(text[offset..].starts_with(&format!("{} 0 obj\n", number + 1)), "{line}");
        }
        assert!(text.contains(r"(a \(figure\) \\ of \265 and \351) Tj"));
    }
}
