//! The elements of an SVG, written one after the other.

use std::io;

use crate::markup::escaped;

/// A rectangle.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Rect {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

impl Rect {
    pub(crate) fn right(self) -> f64 {
        self.x + self.width
    }

    pub(crate) fn bottom(self) -> f64 {
        self.y + self.height
    }

    pub(crate) fn centre(self) -> f64 {
        self.x + self.width / 2.0
    }

    /// The same, elsewhere.
    pub(crate) fn moved(self, (x, y): Point) -> Self {
        Self { x: self.x + x, y: self.y + y, ..self }
    }
}

/// A place: to the right, and down.
pub(crate) type Point = (f64, f64);

/// A finished picture, for a file or for a page.
#[derive(Debug, Clone, PartialEq)]
pub struct Picture {
    size: [f64; 2],
    pub(crate) title: String,
    about: String,
    pub(crate) style: &'static str,
    body: String,
    /// Whether parts of it can have the focus.
    interactive: bool,
}

impl Picture {
    /// As a file that needs nothing else.
    pub(crate) fn document(&self, out: &mut impl io::Write) -> io::Result<()> {
        let [width, height] = self.size.map(short);
        writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" role=\"img\" \
             aria-labelledby=\"title about\" style=\"max-width:100%;height:auto\">"
        )?;
        writeln!(out, "<title id=\"title\">{}</title>", escaped(&self.title))?;
        writeln!(out, "<desc id=\"about\">{}</desc>", escaped(&self.about))?;
        write!(
            out,
            "<style>\n{}</style>\n<rect class=\"paper\" width=\"{width}\" height=\"{height}\"/>\n{}</svg>\n",
            self.style, self.body
        )
    }

    /// As an element of a page, which has the style, with ids of its own.
    pub(crate) fn inline(&self, id: &str) -> String {
        let [width, height] = self.size.map(short);
        // What is inside an image cannot have the focus.
        let role = if self.interactive { "group" } else { "img" };
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
             role=\"{role}\" aria-labelledby=\"{id}-title {id}-about\">\n<title id=\"{id}-title\">{}</title>\n\
             <desc id=\"{id}-about\">{}</desc>\n<rect class=\"paper\" width=\"{width}\" height=\"{height}\"/>\n{}</svg>\n",
            escaped(&self.title),
            escaped(&self.about),
            // Every picture of a page has ids of its own.
            self.body
                .replace("id=\"tip-", &format!("id=\"{id}-tip-"))
                .replace("url(#tip-", &format!("url(#{id}-tip-"))
        )
    }
}

/// The text of an SVG that is being drawn.
#[derive(Debug, Default)]
pub(crate) struct Canvas {
    pub(crate) text: String,
    /// Whether devices can have the focus, for a page.
    pub(crate) interactive: bool,
}

impl Canvas {
    /// The picture as a document of this width and height, on paper, with what a screen reader says.
    pub(crate) fn document(
        self,
        size: [f64; 2],
        names: [&str; 2],
        style: &'static str,
        out: &mut impl io::Write,
    ) -> io::Result<()> {
        self.picture(size, names, style).document(out)
    }

    /// The finished picture: its width and height, its title and what a screen reader says, the style of its classes.
    pub(crate) fn picture(self, size: [f64; 2], [title, about]: [&str; 2], style: &'static str) -> Picture {
        let (title, about) = (title.to_owned(), about.to_owned());
        Picture { size, title, about, style, body: self.text, interactive: self.interactive }
    }

    pub(crate) fn rect(&mut self, it: Rect, radius: f64, class: &str) {
        let [x, y, width, height, radius] = [it.x, it.y, it.width, it.height, radius].map(short);
        self.text.push_str(&format!(
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"{radius}\"/>\n"
        ));
    }

    pub(crate) fn line(&mut self, from: Point, to: Point, class: &str) {
        self.path(&format!("M{} {}L{} {}", short(from.0), short(from.1), short(to.0), short(to.1)), class);
    }

    pub(crate) fn path(&mut self, path: &str, class: &str) {
        self.text.push_str(&format!("<path class=\"{class}\" d=\"{path}\"/>\n"));
    }

    pub(crate) fn circle(&mut self, (x, y): Point, radius: f64, class: &str) {
        let [x, y, radius] = [x, y, radius].map(short);
        self.text.push_str(&format!("<circle class=\"{class}\" cx=\"{x}\" cy=\"{y}\" r=\"{radius}\"/>\n"));
    }

    /// A text that begins, is centred or ends at a place, as its class says.
    pub(crate) fn words(&mut self, (x, y): Point, class: &str, words: &str) {
        let [x, y] = [x, y].map(short);
        self.text
            .push_str(&format!("<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>\n", escaped(words)));
    }

    /// The same within a width; where it is cut, a browser shows the whole text.
    pub(crate) fn fitted(&mut self, at: Point, class: &str, words: &str, room: f64) {
        let short = fitting(words, room);
        if short == words {
            self.words(at, class, words);
        } else {
            self.named(words, |canvas| canvas.words(at, class, &short));
        }
    }

    /// What a browser shows for what is drawn inside.
    pub(crate) fn named(&mut self, title: &str, draw: impl FnOnce(&mut Self)) {
        self.text.push_str(&format!("<g><title>{}</title>\n", escaped(title)));
        draw(self);
        self.text.push_str("</g>\n");
    }

    /// The same for a device of a machine: on a page it can have the focus, and the script shows its paths.
    pub(crate) fn device(
        &mut self,
        title: &str,
        (machine, name): (usize, &str),
        rect: Rect,
        draw: impl FnOnce(&mut Self),
    ) {
        if !self.interactive {
            return self.named(title, draw);
        }
        self.text.push_str(&format!(
            "<g class=\"device\" tabindex=\"0\" role=\"img\" aria-label=\"{}\" data-machine=\"{machine}\" data-device=\"{}\">\n",
            escaped(title),
            escaped(name)
        ));
        draw(self);
        self.words((rect.centre(), rect.y + 3.0), "badge m", "");
        self.text.push_str("</g>\n");
    }
}

/// A number with one digit after the point at most.
pub(crate) fn short(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or_else(|| text.clone(), ToOwned::to_owned)
}

/// A path along points, with round corners.
pub(crate) fn rounded(points: &[Point], radius: f64) -> String {
    let Some(first) = points.first() else { return String::new() };
    let mut path = format!("M{} {}", short(first.0), short(first.1));
    for it in points.windows(3) {
        let (before, corner, after) = (it[0], it[1], it[2]);
        let (a, b) = (towards(corner, before, radius), towards(corner, after, radius));
        path.push_str(&format!(
            "L{} {}Q{} {} {} {}",
            short(a.0),
            short(a.1),
            short(corner.0),
            short(corner.1),
            short(b.0),
            short(b.1)
        ));
    }
    if let Some(last) = points.last().filter(|_| points.len() > 1) {
        path.push_str(&format!("L{} {}", short(last.0), short(last.1)));
    }
    path
}

/// A point some way from one towards another, but not beyond the middle.
fn towards(from: Point, to: Point, way: f64) -> Point {
    let (x, y) = (to.0 - from.0, to.1 - from.1);
    let length = x.hypot(y);
    if length < 0.01 {
        return from;
    }
    let part = way.min(length / 2.0) / length;
    (from.0 + x * part, from.1 + y * part)
}

/// About how wide a text of 12 pixels is.
pub(crate) fn length(text: &str) -> f64 {
    text.chars().map(|it| if it.is_ascii_uppercase() { 8.2 } else { 6.7 }).sum()
}

/// A text that fits, cut if need be.
pub(crate) fn fitting(text: &str, room: f64) -> String {
    if length(text) <= room {
        return text.to_owned();
    }
    let mut used = length("…");
    let short: String = text
        .chars()
        .take_while(|it| {
            used += length(it.encode_utf8(&mut [0; 4]));
            used <= room
        })
        .collect();
    format!("{short}…")
}

/// A text as one line, or as two where one is not wide enough.
pub(crate) fn in_two(text: &str, width: f64) -> Vec<&str> {
    if length(text) <= width {
        return vec![text];
    }
    let mut spaces = text.rmatch_indices(' ').map(|it| it.0);
    let cut = spaces.find(|it| text.get(..*it).is_some_and(|it| length(it) <= width));
    match cut.and_then(|it| text.split_at_checked(it)) {
        Some((first, second)) => vec![first, second.trim_start()],
        None => vec![text],
    }
}

#[cfg(test)]
mod tests {
    use super::{escaped, fitting, rounded, short};

    #[test]
    fn nothing_in_a_name_is_markup() {
        assert_eq!(escaped("<a b='c'>&\u{0}\u{ffff}\u{1b}x\u{202e}"), "&lt;a b=&#39;c&#39;&gt;&amp;x");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([short(3.0), short(2.25), short(-0.5)], ["3", "2.2", "-0.5"]);
    }

    #[test]
    fn corners_are_round() {
        assert_eq!(rounded(&[(0.0, 0.0), (0.0, 20.0), (20.0, 20.0)], 6.0), "M0 0L0 14Q0 20 6 20L20 20");
        assert_eq!(rounded(&[(1.0, 1.0), (1.0, 1.0), (1.0, 1.0)], 6.0), "M1 1L1 1Q1 1 1 1L1 1");
        assert_eq!(rounded(&[], 6.0), "");
    }

    #[test]
    fn long_names_are_cut() {
        assert_eq!(fitting("rdmap16s27", 80.0), "rdmap16s27");
        assert!(fitting(&"x".repeat(99), 80.0).ends_with('…'));
    }
}
