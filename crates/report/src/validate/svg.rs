//! The matrix of machines as a picture: one square for each pair, coloured by its share of what is normal.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::text::short_names;
use super::{Matrix, Validate, percent};
use crate::expect::shown;
use crate::topo::svg::canvas::{Canvas, Rect, escaped, short};

const STYLE: &str = include_str!("style.css");
const MARGIN: f64 = 24.0;
/// The width of the squares together, where there are enough machines to fill it.
const ACROSS: f64 = 1000.0;
const LARGEST: f64 = 34.0;
/// Smaller squares cannot be told apart.
const SMALLEST: f64 = 9.0;
/// From this size on a square has room for a number.
const NUMBERED: f64 = 22.0;
/// The advance of a character, at 11 and 9 pixels.
const CHARACTER: f64 = 6.6;
/// The least share of each colour, with its class; below the last it is `s0`.
const COLOURS: [(f64, &str); 6] =
    [(0.97, "s6"), (0.9, "s5"), (0.8, "s4"), (0.65, "s3"), (0.5, "s2"), (0.25, "s1")];

fn colour(share: Option<f64>) -> &'static str {
    let Some(share) = share else { return "failed" };
    COLOURS.iter().find(|it| share >= it.0).map_or("s0", |it| it.1)
}

impl Validate {
    /// Writes the picture of the matrix, where there is one.
    pub fn svg(&self, out: &mut impl Write) -> io::Result<()> {
        match &self.matrix {
            Some(matrix) => self.draw(matrix, out),
            None => Ok(()),
        }
    }

    fn draw(&self, matrix: &Matrix, out: &mut impl Write) -> io::Result<()> {
        let order = self.order(matrix);
        let names = short_names(&self.hosts);
        let name = |host: usize| names.get(host).map_or("?", String::as_str);
        let whole = |host: usize| self.hosts.get(host).map_or("?", String::as_str);
        #[expect(clippy::cast_precision_loss, reason = "machines, not billions of them")]
        let count = order.len().max(1) as f64;
        let side = (ACROSS / count).clamp(SMALLEST, LARGEST);
        #[expect(clippy::cast_precision_loss, reason = "characters of a name")]
        let longest = order.iter().map(|it| name(*it).chars().count()).max().unwrap_or(1) as f64;
        let label = (longest * CHARACTER).min(220.0) + 10.0;
        let (left, top) = (MARGIN + label, 128.0 + label);
        let mut canvas = Canvas::default();
        let title = format!("{}: share of {} GB/s", matrix.test, shown(matrix.normal));
        canvas.words((MARGIN, 34.0), "h1", &title);
        canvas.words((MARGIN, 56.0), "soft", &self.text);
        canvas.words((MARGIN, 74.0), "soft", &self.source);
        legend(&mut canvas);
        let accused: Vec<&str> = self.findings.iter().flat_map(|it| &it.hosts).map(String::as_str).collect();
        let small = if side < 12.0 { " small" } else { "" };
        let cells: BTreeMap<[usize; 2], Option<f64>> =
            matrix.pairs.iter().map(|it| (it.hosts, it.share)).collect();
        let mut y = top;
        for row in &order {
            let class = if accused.contains(&whole(*row)) { "bad" } else { "host" };
            let middle = y + side / 2.0 + 3.5;
            canvas.words((left - 6.0, middle), &format!("{class} e{small}"), name(*row));
            let place = left + (y - top) + side / 2.0 + 3.5;
            // Column names stand upright.
            canvas.text.push_str(&format!(
                "<text class=\"{class}{small}\" transform=\"translate({} {}) rotate(-90)\">{}</text>\n",
                short(place),
                short(top - 6.0),
                escaped(name(*row))
            ));
            let mut x = left;
            for column in &order {
                let key = if row < column { [*row, *column] } else { [*column, *row] };
                let gap = if side > 14.0 { 1.0 } else { 0.5 };
                let square = Rect { x, y, width: side - gap, height: side - gap };
                match cells.get(&key) {
                    _ if row == column => canvas.rect(square, 0.0, "self"),
                    None => canvas.rect(square, 0.0, "none"),
                    Some(share) => {
                        let draw = |canvas: &mut Canvas| {
                            canvas.rect(square, 0.0, colour(*share));
                            if side >= NUMBERED {
                                let text =
                                    share.map_or_else(|| "x".to_owned(), |it| format!("{:.0}", 100.0 * it));
                                canvas.words(
                                    (x + side / 2.0, middle),
                                    &format!("in m {}t", colour(*share)),
                                    &text,
                                );
                            }
                        };
                        // A title for each of thousands of normal pairs would say nothing.
                        if share.is_some_and(|it| it >= COLOURS[1].0) {
                            draw(&mut canvas);
                        } else {
                            let rate = share.map_or_else(|| "failed".to_owned(), percent);
                            canvas.named(&format!("{} - {}: {rate}", whole(*row), whole(*column)), draw);
                        }
                    }
                }
                x += side;
            }
            y += side;
        }
        let paper = [(left + side * count + MARGIN).max(760.0), y + MARGIN];
        canvas.document(paper, [&title, &self.text], STYLE, out)
    }

    /// Machines that were measured; those of one group beside each other.
    fn order(&self, matrix: &Matrix) -> Vec<usize> {
        let mut hosts: Vec<usize> = matrix.pairs.iter().flat_map(|it| it.hosts).collect();
        hosts.sort_unstable();
        hosts.dedup();
        let split = self.splits.iter().find(|it| it.test == matrix.test);
        let group = |host: &usize| {
            let name = self.hosts.get(*host)?;
            split?.groups.iter().position(|it| it.contains(name))
        };
        hosts.sort_by_key(|it| (group(it), *it));
        hosts
    }
}

fn legend(canvas: &mut Canvas) {
    let mut x = MARGIN;
    let mut entry = |class: &str, text: &str| {
        canvas.rect(Rect { x, y: 92.0, width: 16.0, height: 16.0 }, 2.0, class);
        canvas.words((x + 22.0, 104.5), "soft", text);
        #[expect(clippy::cast_precision_loss, reason = "characters of a label")]
        let room = text.chars().count() as f64 * CHARACTER;
        x += 22.0 + room + 14.0;
    };
    for (at, (least, class)) in COLOURS.iter().enumerate() {
        let text = if at == 0 { "97 % or more".to_owned() } else { format!("{:.0} %", 100.0 * least) };
        entry(class, &text);
    }
    entry("s0", "less");
    entry("failed", "failed");
    entry("none", "not measured");
}
