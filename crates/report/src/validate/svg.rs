//! The matrix of machines as a picture: one square for each pair, coloured by its share of what is normal.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::matrix::Cell;
use super::text::short_names;
use super::{Matrix, Validate, bandwidth, fine_percent, percent};
use crate::markup::escaped;
use crate::topo::svg::canvas::{Canvas, Picture, Rect, short};

const STYLE: &str = include_str!("style.css");
const MARGIN: f64 = 24.0;
/// The width of the squares together, where there are enough machines to fill it.
const ACROSS: f64 = 1000.0;
/// The same on a page, which it should not be wider than.
const ON_PAGE: f64 = 900.0;
const LARGEST: f64 = 34.0;
/// Machines of a picture that have a row each; more are drawn in blocks.
const MACHINES: usize = 64;
/// Blocks of a picture at most.
const BLOCKS: usize = 50;
/// Smaller squares cannot be told apart.
const SMALLEST: f64 = 9.0;
/// Pairs of a page that all have a title.
const TITLED: usize = 1000;
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
            // A square for each of a million pairs opens in no browser: blocks, and a row for each machine that is named.
            Some(matrix) if self.order(matrix).len() > MACHINES => {
                let (mut rows, blocks, each) = self.blocks(&self.order(matrix));
                rows.extend(blocks.iter().cloned());
                let of = format!("; each square is the lowest of {each} machines in a row or column");
                self.grid(matrix, [&rows, &blocks], Some(&of)).document(out)
            }
            Some(matrix) => self.draw(matrix, true).document(out),
            None => Ok(()),
        }
    }

    /// The picture of the matrix; on a page without the verdict above it.
    fn draw(&self, matrix: &Matrix, with_head: bool) -> Picture {
        let names = short_names(&self.hosts);
        let accused = self.accused();
        let line = |host: usize| Line {
            name: names.get(host).cloned().unwrap_or_default(),
            hosts: vec![host],
            accused: accused.contains(&host),
        };
        let lines: Vec<Line> = self.order(matrix).into_iter().map(line).collect();
        self.grid(matrix, [&lines, &lines], with_head.then_some(""))
    }

    /// The pictures of the matrix for a page, each with what its squares are. One, as long as its squares can be told apart; otherwise the
    /// machines that are named against blocks of machines, and blocks against blocks.
    pub(crate) fn pictures(&self, matrix: &Matrix) -> Vec<(String, Picture)> {
        let order = self.order(matrix);
        if order.len() <= MACHINES {
            let what = "Each square is a pair of machines, coloured by its share.".to_owned();
            return vec![(what, self.draw(matrix, false))];
        }
        let (rows, blocks, each) = self.blocks(&order);
        let accused = self.accused();
        let mut all = Vec::new();
        if !rows.is_empty() {
            let more = match accused.len() - rows.len() {
                0 => String::new(),
                more => format!("; {more} more are not drawn"),
            };
            let what = format!(
                "The machines that are named, each against {each} machines in a square: the lowest share of them{more}."
            );
            all.push((what, self.grid(matrix, [&rows, &blocks], None)));
        }
        let what = format!(
            "All {} machines, {each} in a row or column: each square is the lowest share of the pairs between them.",
            order.len()
        );
        all.push((what, self.grid(matrix, [&blocks, &blocks], None)));
        all
    }

    /// The machines that are named, blocks of all machines, and how many a block has.
    fn blocks(&self, order: &[usize]) -> (Vec<Line>, Vec<Line>, usize) {
        let names = short_names(&self.hosts);
        let name = |host: &usize| names.get(*host).cloned().unwrap_or_default();
        let accused = self.accused();
        let each = order.len().div_ceil(BLOCKS);
        let block = |hosts: &[usize]| Line {
            name: match hosts {
                [first, .., last] => format!("{}..{}", name(first), name(last)),
                _ => hosts.iter().map(name).collect(),
            },
            hosts: hosts.to_vec(),
            accused: hosts.iter().any(|it| accused.contains(it)),
        };
        let blocks: Vec<Line> = order.chunks(each).map(block).collect();
        let rows: Vec<Line> = order
            .iter()
            .filter(|it| accused.contains(it))
            .take(BLOCKS)
            .map(|it| Line { name: name(it), hosts: vec![*it], accused: true })
            .collect();
        (rows, blocks, each)
    }

    /// Machines that findings name, in order.
    fn accused(&self) -> Vec<usize> {
        let named = |name: &String| self.findings.iter().any(|it| it.accuses(name));
        (0..self.hosts.len()).filter(|it| self.hosts.get(*it).is_some_and(named)).collect()
    }

    /// `about`: in a file, which has the verdict above it, what its title adds.
    fn grid(&self, matrix: &Matrix, [rows, columns]: [&[Line]; 2], about: Option<&str>) -> Picture {
        let with_head = about.is_some();
        let across = if with_head { ACROSS } else { ON_PAGE };
        let side = (across / float(columns.len().max(1))).clamp(SMALLEST, LARGEST);
        let longest = rows.iter().chain(columns).map(|it| it.name.chars().count()).max().unwrap_or(1);
        let label = (float(longest) * CHARACTER).min(220.0) + 10.0;
        let head = if with_head { 92.0 } else { 8.0 };
        let (left, top) = (MARGIN + label, head + 36.0 + label);
        let mut canvas = Canvas::default();
        let title =
            format!("{}: share of {}{}", matrix.test, bandwidth(matrix.normal), about.unwrap_or_default());
        if with_head {
            canvas.words((MARGIN, 34.0), "h1", &title);
            canvas.words((MARGIN, 56.0), "soft", &self.text);
            canvas.words((MARGIN, 74.0), "soft", &self.source);
        }
        let cells: BTreeMap<[usize; 2], &Cell> = matrix.pairs.iter().map(|it| (it.hosts, it)).collect();
        let squares: Vec<Vec<Square<'_>>> = rows
            .iter()
            .map(|row| columns.iter().map(|column| Square::new(row, column, &cells)).collect())
            .collect();
        let of_named = squares.iter().flatten().any(|it| matches!(it, Square::NotMeasured { named: true }));
        let legend = legend(head, &mut canvas, [of_named, matrix.pairs.iter().any(|it| it.lossy)]);
        let small = if side < 12.0 { " small" } else { "" };
        let (wide, high) = (side * float(columns.len()), side * float(rows.len()));
        if !with_head {
            // One area instead of a square for each of thousands of pairs that were not measured.
            canvas.rect(Rect { x: left, y: top, width: wide, height: high }, 0.0, "none");
        }
        let class = |it: &Line| if it.accused { "bad" } else { "host" };
        for (at, row) in rows.iter().enumerate() {
            let middle = top + side * (float(at) + 0.5) + 3.5;
            canvas.words((left - 6.0, middle), &format!("{} e{small}", class(row)), &row.name);
        }
        for (at, column) in columns.iter().enumerate() {
            // Column names stand upright.
            canvas.text.push_str(&format!(
                "<text class=\"{}{small}\" transform=\"translate({} {}) rotate(-90)\">{}</text>\n",
                class(column),
                short(left + side * (float(at) + 0.5) + 3.5),
                short(top - 6.0),
                escaped(&column.name)
            ));
        }
        let gap = if side > 14.0 { 1.0 } else { 0.5 };
        for (down, line) in squares.iter().enumerate() {
            for (right, square) in line.iter().enumerate() {
                let (x, y) = (left + side * float(right), top + side * float(down));
                let place = Rect { x, y, width: side - gap, height: side - gap };
                match square {
                    Square::Itself => canvas.rect(place, 0.0, "self"),
                    // The eye finds the row and the column of a machine that is named.
                    Square::NotMeasured { named: true } => canvas.rect(place, 0.0, "of-bad"),
                    Square::NotMeasured { .. } if !with_head => {}
                    Square::NotMeasured { .. } => canvas.rect(place, 0.0, "none"),
                    // A title for each of thousands of normal pairs would say nothing.
                    Square::Measured(it) if it.is_normal() && (with_head || matrix.pairs.len() > TITLED) => {
                        pair(&mut canvas, place, it);
                    }
                    Square::Measured(it) => {
                        canvas.named(&it.title(&self.hosts), |canvas| pair(canvas, place, it));
                    }
                }
            }
        }
        let paper = [(left + wide + MARGIN).max(legend).max(760.0), top + high + MARGIN];
        canvas.picture(paper, [&title, &self.text], STYLE)
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

/// A row or a column: a machine, or several.
#[derive(Clone)]
struct Line {
    name: String,
    hosts: Vec<usize>,
    accused: bool,
}

/// What a row and a column have in common.
enum Square<'a> {
    /// A machine and itself.
    Itself,
    /// No pair of them was measured; whether one is a machine that is named.
    NotMeasured {
        named: bool,
    },
    Measured(Pairs<'a>),
}

impl<'a> Square<'a> {
    fn new(row: &Line, column: &Line, cells: &BTreeMap<[usize; 2], &'a Cell>) -> Self {
        if let ([one], [other]) = (&row.hosts[..], &column.hosts[..])
            && one == other
        {
            return Self::Itself;
        }
        let mut found: Option<Pairs<'a>> = None;
        for one in &row.hosts {
            for other in column.hosts.iter().filter(|it| *it != one) {
                let Some(cell) = cells.get(&[*one.min(other), *one.max(other)]) else { continue };
                let known =
                    found.get_or_insert(Pairs { worst: cell, count: 0, slow: 0, failed: 0, lossy: false });
                // A failure is worse than every share.
                if cell.share.unwrap_or(-1.0) < known.worst.share.unwrap_or(-1.0) {
                    known.worst = cell;
                }
                known.count += 1;
                known.slow += usize::from(cell.slow);
                known.failed += cell.failed;
                known.lossy |= cell.lossy;
            }
        }
        match found {
            Some(it) => Self::Measured(it),
            // Blocks that were not measured are white, named or not: most of their machines are not.
            None => Self::NotMeasured {
                named: row.accused && row.hosts.len() == 1 || column.accused && column.hosts.len() == 1,
            },
        }
    }
}

/// Pairs of one square.
struct Pairs<'a> {
    worst: &'a Cell,
    count: usize,
    slow: usize,
    /// Measurements that failed.
    failed: usize,
    lossy: bool,
}

impl Pairs<'_> {
    fn is_normal(&self) -> bool {
        self.worst.share.is_some_and(|it| it >= COLOURS[1].0) && self.failed == 0 && !self.lossy
    }

    fn title(&self, hosts: &[String]) -> String {
        let [one, other] = self.worst.hosts.map(|it| hosts.get(it).map_or("?", String::as_str));
        let rate = self.worst.share.map_or_else(|| "failed".to_owned(), class_percent);
        let lost = self.worst.resent.filter(|_| self.worst.lossy).map(fine_percent);
        let lost = lost.map(|it| format!(", {it} sent again")).unwrap_or_default();
        let more = match self.count {
            1 if self.worst.fails_at_times() => {
                format!(", {} of {} measurements failed", self.worst.failed, self.worst.runs)
            }
            1 => String::new(),
            count => format!("; {} of {count} pairs slow", self.slow),
        };
        format!("{one} - {other}: {rate}{lost}{more}")
    }
}

/// `82 %`; not rounded up to a number that has another colour.
pub(crate) fn class_percent(share: f64) -> String {
    let text = percent(share);
    let down = (100.0 * share).floor();
    if colour(Some((100.0 * share).round() / 100.0)) == colour(Some(share)) {
        text
    } else {
        format!("{down} %")
    }
}

#[expect(clippy::cast_precision_loss, reason = "machines and characters, not billions of them")]
fn float(count: usize) -> f64 {
    count as f64
}

/// The square of a pair, with a dot where it loses packets, otherwise with its share where there is room.
fn pair(canvas: &mut Canvas, square: Rect, pairs: &Pairs<'_>) {
    let side = square.width;
    let class = colour(pairs.worst.share);
    canvas.rect(square, 0.0, class);
    if pairs.lossy {
        let inset = if side < NUMBERED { 1.0 } else { side / 4.0 };
        let width = side - 2.0 * inset;
        let dot = Rect { x: square.x + inset, y: square.y + inset, width, height: width };
        canvas.rect(dot, width / 2.0, "lossy");
    } else if side + 1.0 >= NUMBERED {
        let text = pairs.worst.share.map_or_else(|| "x".to_owned(), class_percent);
        let place = (square.x + side / 2.0 + 0.5, square.y + side / 2.0 + 4.0);
        let failed = if pairs.worst.fails_at_times() { "x" } else { "" };
        canvas.words(place, &format!("in m {class}t"), &format!("{}{failed}", text.trim_end_matches(" %")));
    }
}

/// What the colours mean. Its right end.
fn legend(y: f64, canvas: &mut Canvas, [of_named, lossy]: [bool; 2]) -> f64 {
    let at_least = "at least";
    canvas.words((MARGIN, y + 12.5), "soft", at_least);
    let mut x = MARGIN + float(at_least.len()) * CHARACTER + 8.0;
    let mut entry = |class: &str, text: &str| {
        canvas.rect(Rect { x, y, width: 16.0, height: 16.0 }, 2.0, class);
        canvas.words((x + 22.0, y + 12.5), "soft", text);
        x += 22.0 + float(text.chars().count()) * CHARACTER + 14.0;
    };
    for (least, class) in COLOURS {
        entry(class, &format!("{:.0} %", 100.0 * least));
    }
    entry("s0", "less");
    entry("failed", "failed");
    entry("none", "not measured");
    if of_named {
        entry("of-bad", "not measured, of a named machine");
    }
    if lossy {
        entry("lossy", "loses packets");
    }
    x
}

#[cfg(test)]
mod tests {
    use super::class_percent;

    #[test]
    fn a_number_never_contradicts_its_colour() {
        let shares = [0.966, 0.9701, 0.7999, 0.796, 0.784, 0.8994, 0.2499];
        assert_eq!(shares.map(class_percent), ["96 %", "97 %", "79 %", "79 %", "78 %", "89 %", "24 %"]);
    }
}
