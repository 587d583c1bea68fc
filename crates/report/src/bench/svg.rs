//! The plot as SVG: bus bandwidth and time over size, with regimes and what is normal. One file that needs nothing else.

use std::io::{self, Write};

use bench::Record;
use bench::record::{Fit, Measure, Row};

use crate::expect::{shown, time};
use crate::text::{bytes, clean, counted};
use crate::topo::svg::canvas::{Canvas, Rect, short};

const STYLE: &str = include_str!("style.css");
const WIDTH: f64 = 900.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 24.0;

/// A panel: its position and its ranges.
struct Panel {
    frame: Rect,
    sizes: (f64, f64),
    values: (f64, f64),
}

impl Panel {
    fn new(top: f64, height: f64, sizes: (f64, f64), values: impl Iterator<Item = f64>) -> Self {
        let (mut low, mut high) = (f64::MAX, f64::MIN);
        for it in values.filter(|it| *it > 0.0 && it.is_finite()) {
            (low, high) = (low.min(it), high.max(it));
        }
        if low > high {
            (low, high) = (1.0, 10.0);
        }
        // Whole decades, and no more than 7 of them.
        let (low, high) = (low.log10().floor(), (high * 1.05).log10().ceil());
        let low = low.max(high - 7.0).min(high - 1.0);
        let frame = Rect { x: LEFT, y: top, width: WIDTH - LEFT - RIGHT, height };
        Self { frame, sizes, values: (10_f64.powf(low), 10_f64.powf(high)) }
    }

    fn x(&self, size: f64) -> f64 {
        let share = (size / self.sizes.0).ln() / (self.sizes.1 / self.sizes.0).ln();
        self.frame.x + self.frame.width * share.clamp(0.0, 1.0)
    }

    fn y(&self, value: f64) -> f64 {
        let share = (value / self.values.0).ln() / (self.values.1 / self.values.0).ln();
        self.frame.bottom() - self.frame.height * share.clamp(0.0, 1.0)
    }

    /// Frame, lines of the grid and their numbers.
    fn grid(&self, title: &str, label: impl Fn(f64) -> String, canvas: &mut Canvas) {
        let mut value = self.values.0;
        while value <= self.values.1 * 1.001 {
            let y = self.y(value);
            canvas.line((self.frame.x, y), (self.frame.right(), y), "grid");
            canvas.words((self.frame.x - 8.0, y + 4.0), "soft e", &label(value));
            value *= 10.0;
        }
        let octaves = (self.sizes.1 / self.sizes.0).log2();
        let step = if octaves > 18.0 {
            8.0
        } else if octaves > 8.0 {
            4.0
        } else {
            2.0
        };
        let mut size = self.sizes.0;
        while size <= self.sizes.1 * 1.001 {
            let x = self.x(size);
            canvas.line((x, self.frame.y), (x, self.frame.bottom()), "grid");
            canvas.words((x, self.frame.bottom() + 17.0), "soft m", &bytes(whole(size)));
            size *= step;
        }
        canvas.rect(self.frame, 0.0, "edge");
        canvas.words((self.frame.x, self.frame.y - 8.0), "h2", title);
    }

    fn curve(&self, points: &[(f64, f64)], class: &str, canvas: &mut Canvas) {
        let path: Vec<String> = points
            .iter()
            .enumerate()
            .map(|(i, it)| {
                format!("{}{} {}", if i == 0 { 'M' } else { 'L' }, short(self.x(it.0)), short(self.y(it.1)))
            })
            .collect();
        if path.len() > 1 {
            canvas.path(&path.concat(), &format!("line {class}"));
        }
        for it in points {
            let dot = Rect { x: self.x(it.0) - 2.5, y: self.y(it.1) - 2.5, width: 5.0, height: 5.0 };
            canvas.rect(dot, 2.5, &format!("dot {class}"));
        }
    }
}

/// Writes the picture of the first series.
pub fn svg(bench: &Record, out: &mut impl Write) -> io::Result<()> {
    let first = bench.results.first().map(Row::series);
    let rows: Vec<&Row> = bench
        .results
        .iter()
        .filter(|it| Some(it.series()) == first && it.cycle == 0 && it.bytes > 0)
        .collect();
    let ends = rows.first().zip(rows.last()).map_or((1, 2), |(a, b)| (a.bytes, b.bytes));
    let sizes = (real(ends.0), real(ends.1.max(ends.0.saturating_mul(2))));
    let curve = |in_place: bool, value: &dyn Fn(&Measure) -> f64| -> Vec<(f64, f64)> {
        rows.iter()
            .filter_map(|row| Some((real(row.bytes), value(row.measure(in_place)?))))
            .filter(|it| it.1 > 0.0)
            .collect()
    };
    let rates = [false, true].map(|it| curve(it, &|it| it.rate(bench.ranks)));
    let times = [false, true].map(|it| curve(it, &|it| it.median_us));
    let normal: Vec<(f64, f64, f64)> =
        rows.iter().filter_map(|row| row.expected.map(|it| (real(row.bytes), it.low, it.high))).collect();

    let mut canvas = Canvas::default();
    let kind = first.map(|it| [Some(it.0), it.1].into_iter().flatten().collect::<Vec<_>>().join(" "));
    let title = format!("{} {}", bench.collective, kind.unwrap_or_default());
    let hosts = if bench.hosts > 1 { format!(" on {} hosts", bench.hosts) } else { String::new() };
    let about = format!(
        "{}{hosts}, {} engine, {}",
        counted(bench.ranks, "rank"),
        bench.engine_name(),
        clean(&bench.version)
    );
    canvas.words((LEFT, 34.0), "h1", &title);
    canvas.words((LEFT, 54.0), "soft", &about);
    legend(bench, !rates[1].is_empty(), !normal.is_empty(), &mut canvas);

    let fit =
        bench.fits.iter().find(|it| Some((it.data_type.as_str(), it.operation.as_deref(), it.root)) == first);
    let all = rates.iter().flatten().map(|it| it.1).chain(normal.iter().flat_map(|it| [it.1, it.2]));
    let upper = Panel::new(112.0, 300.0, sizes, all);
    let whiskers =
        rows.iter().filter_map(|it| it.out_of_place.as_ref()).flat_map(|it| [it.p10_us, it.p99_us]);
    let lower = Panel::new(490.0, 220.0, sizes, times.iter().flatten().map(|it| it.1).chain(whiskers));
    for panel in [&upper, &lower] {
        regimes(fit, panel, &mut canvas);
    }
    let what = if bench.ranks > 1 { "bus bandwidth, GB/s" } else { "bandwidth, GB/s" };
    upper.grid(what, shown, &mut canvas);
    lower.grid("time of a call: median, p10 to p99", time, &mut canvas);
    band(&upper, &normal, &mut canvas);
    for row in &rows {
        let Some(it) = &row.out_of_place else { continue };
        let x = lower.x(real(row.bytes));
        canvas.line((x, lower.y(it.p10_us)), (x, lower.y(it.p99_us)), "bar a");
    }
    for (i, class) in ["a", "b"].into_iter().enumerate().rev() {
        upper.curve(&rates[i], class, &mut canvas);
        lower.curve(&times[i], class, &mut canvas);
    }
    marks(fit, &upper, &mut canvas);

    let about = format!("Bus bandwidth and time by size: {about}");
    canvas.document([WIDTH, 750.0], [&title, &about], STYLE, out)
}

fn legend(bench: &Record, in_place: bool, normal: bool, canvas: &mut Canvas) {
    let mut x = LEFT;
    let y = 78.0;
    for (name, class, there) in [("out of place", "a", true), ("in place", "b", in_place)] {
        if there {
            canvas.line((x, y - 4.0), (x + 26.0, y - 4.0), &format!("line {class}"));
            canvas.words((x + 33.0, y), "", name);
            x += 130.0;
        }
    }
    if normal {
        canvas.rect(Rect { x, y: y - 11.0, width: 26.0, height: 13.0 }, 2.0, "normal");
        let machine = bench.machine.as_deref().map(clean).unwrap_or_default();
        canvas.words((x + 33.0, y), "", &format!("normal on {machine}"));
    }
}

/// Mixed sizes have a white background; each regime has a tint and its name.
fn regimes(fit: Option<&Fit>, panel: &Panel, canvas: &mut Canvas) {
    let Some(fit) = fit else { return };
    let frame = panel.frame;
    if let Some(it) = fit.latency_to_bytes {
        let width = panel.x(real(it)) - frame.x;
        canvas.rect(Rect { width, ..frame }, 0.0, "tint");
        canvas.words((frame.x + width / 2.0, frame.y + 16.0), "soft m", "latency");
    }
    if let Some(it) = fit.bandwidth_from_bytes {
        let x = panel.x(real(it));
        canvas.rect(Rect { x, width: frame.right() - x, ..frame }, 0.0, "tint");
        canvas.words((f64::midpoint(x, frame.right()), frame.y + 16.0), "soft m", "bandwidth");
    }
}

/// What is normal, from size to size.
fn band(panel: &Panel, normal: &[(f64, f64, f64)], canvas: &mut Canvas) {
    if normal.len() < 2 {
        return;
    }
    let up = normal.iter().map(|it| (it.0, it.2));
    let down = normal.iter().rev().map(|it| (it.0, it.1));
    let path: Vec<String> = up
        .chain(down)
        .enumerate()
        .map(|(i, it)| {
            format!("{}{} {}", if i == 0 { 'M' } else { 'L' }, short(panel.x(it.0)), short(panel.y(it.1)))
        })
        .collect();
    canvas.path(&format!("{}Z", path.concat()), "normal");
}

/// Half of the bandwidth, and the bandwidth.
fn marks(fit: Option<&Fit>, panel: &Panel, canvas: &mut Canvas) {
    let Some((rate, half)) = fit.and_then(|it| Some((it.bandwidth?, it.half_bytes))) else { return };
    let y = panel.y(rate);
    canvas.line((panel.frame.x, y), (panel.frame.right(), y), "mark");
    canvas.words((panel.frame.x + 8.0, y - 5.0), "soft", &format!("{} GB/s at large sizes", shown(rate)));
    if let Some(half) = half {
        let (x, y) = (panel.x(half), panel.y(rate / 2.0));
        canvas.line((x, panel.frame.bottom()), (x, y), "mark");
        canvas.line((panel.frame.x, y), (x, y), "mark");
        canvas.words((panel.frame.x + 8.0, y + 15.0), "soft", "half of it");
    }
}

#[expect(clippy::cast_precision_loss, reason = "a place on an axis")]
fn real(bytes: u64) -> f64 {
    bytes as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "made of a u64")]
fn whole(size: f64) -> u64 {
    size.round() as u64
}
