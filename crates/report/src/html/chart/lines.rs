//! Curves, each with the interval it may lie in.

use super::axis::{Area, Frame};
use super::colour;
use crate::topo::svg::canvas::{Canvas, Picture, Rect};

/// One curve.
#[derive(Debug, Clone, Default)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
    /// From where to where values are normal: place, low, high.
    pub interval: Vec<(f64, f64, f64)>,
    /// From where to where single measurements were: place, low, high. Drawn as a bar at each place, so that an interval stays visible.
    pub spread: Vec<(f64, f64, f64)>,
}

/// A chart of curves.
#[derive(Debug, Clone)]
pub struct Lines<'a> {
    /// The axes.
    pub frame: Frame<'a>,
    /// The curves.
    pub series: &'a [Series],
    /// Ranges of the horizontal axis with a name, such as regimes.
    pub spans: &'a [(f64, f64, String)],
}

/// Draws curves.
pub fn lines(chart: &Lines<'_>) -> Picture {
    // A series keeps its colour where another one has nothing to draw.
    let drawn = |it: &(usize, &Series)| !it.1.points.is_empty() || !it.1.interval.is_empty();
    let names: Vec<(String, String)> =
        chart.series.iter().enumerate().filter(drawn).map(|(at, it)| (it.name.clone(), colour(at))).collect();
    let all = || chart.series.iter();
    let across =
        all().flat_map(|it| it.points.iter().map(|it| it.0).chain(it.interval.iter().map(|it| it.0)));
    let up = all().flat_map(|it| {
        let ranges = it.interval.iter().chain(&it.spread);
        it.points.iter().map(|it| it.1).chain(ranges.flat_map(|it| [it.1, it.2]))
    });
    // Names of ranges stand above the frame, where no curve crosses them.
    let strip = if chart.spans.is_empty() { 0.0 } else { 20.0 };
    let (mut canvas, area) = chart.frame.begin(&names, [strip, 320.0], across, up);
    for (from, to, _) in chart.spans.iter().step_by(2) {
        let (from, to) = (area.x(*from), area.x(*to));
        let Rect { y, height, .. } = area.frame;
        let range = Rect { x: from, y: y - strip, width: (to - from).max(0.0), height: height + strip };
        canvas.rect(range, 0.0, "tint");
    }
    chart.frame.axes(&area, &mut canvas);
    for (at, series) in chart.series.iter().enumerate() {
        bands(series, &area, &colour(at), &mut canvas);
    }
    let [x, y] = [chart.frame.x.show, chart.frame.y.show];
    // Where points touch each other, dots would hide the line.
    let dense = |it: &Series| it.points.len() > 100;
    for (at, series) in chart.series.iter().enumerate() {
        canvas.path(&area.path(series.points.iter().copied()), &format!("line {}", colour(at)));
        for (place, low, high) in &series.spread {
            let (x, low, high) = (area.x(*place), area.y(*low), area.y(*high));
            let cap = |y: f64| format!("M{:.1} {y:.1}H{:.1}", x - 4.0, x + 4.0);
            let bar = format!("M{x:.1} {low:.1}V{high:.1}{}{}", cap(low), cap(high));
            canvas.path(&bar, &format!("spread {}", colour(at)));
        }
        for it in series.points.iter().filter(|_| !dense(series)) {
            let name = format!("{}: {} at {}", series.name, y(it.1), x(it.0));
            canvas.named(&name, |canvas| {
                canvas.circle((area.x(it.0), area.y(it.1)), 3.0, &format!("dot {}", colour(at)));
            });
        }
    }
    for (from, to, name) in chart.spans {
        let middle = f64::midpoint(area.x(*from), area.x(*to));
        canvas.words((middle, area.frame.y - 6.0), "soft over m", name);
    }
    chart.frame.finish(canvas, &area)
}

/// The interval, interrupted where a point of the curve has none; at a single point it is a line.
fn bands(series: &Series, area: &Area, colour: &str, canvas: &mut Canvas) {
    let has_none = |from: f64, to: f64| {
        let inside = |it: &&(f64, f64)| it.0 > from && it.0 < to;
        series.points.iter().find(inside).is_some()
    };
    for run in series.interval.chunk_by(|one, next| !has_none(one.0, next.0)) {
        match run {
            [(at, low, high)] => {
                canvas.path(
                    &area.path([(*at, *low), (*at, *high)].into_iter()),
                    &format!("line range {colour}"),
                );
            }
            _ => {
                let high = run.iter().map(|it| (it.0, it.2));
                let low = run.iter().rev().map(|it| (it.0, it.1));
                canvas.path(&format!("{}Z", area.path(high.chain(low))), &format!("band {colour}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Lines, Series, lines};
    use crate::html::chart::{Axis, Frame, Scale};

    const AXIS: Axis<'_> = Axis { label: "axis", scale: Scale::Linear, show: |it| it.to_string() };

    #[test]
    fn an_interval_does_not_cross_points_without_one() {
        let series = Series {
            name: "a".to_owned(),
            points: vec![(1.0, 2.0), (2.0, 2.0), (3.0, 2.0), (4.0, 2.0)],
            interval: vec![(1.0, 1.0, 3.0), (3.0, 1.0, 3.0), (4.0, 1.0, 3.0)],
            spread: Vec::new(),
        };
        let frame = Frame { title: "t", about: "a", x: AXIS, y: AXIS };
        let text = lines(&Lines { frame, series: &[series], spans: &[] }).inline("id");
        assert_eq!(text.matches("class=\"band").count(), 1, "from 3 to 4: {text}");
        assert_eq!(text.matches("class=\"line range").count(), 1, "at 1: {text}");
    }

    #[test]
    fn names_are_text_and_the_picture_is_xml() {
        let hostile = "</svg><script>alert(1)</script>\"'&";
        let series = Series {
            name: hostile.to_owned(),
            points: vec![(1.0, 2.0), (4.0, 3.0)],
            interval: vec![(1.0, 1.0, 3.0), (4.0, 2.0, 4.0)],
            spread: vec![(1.0, 1.5, 2.5)],
        };
        let axis = Axis { label: hostile, scale: Scale::Octaves, show: |it| it.to_string() };
        let chart = Lines {
            frame: Frame { title: hostile, about: hostile, x: axis, y: axis },
            series: &[series],
            spans: &[(1.0, 2.0, hostile.to_owned())],
        };
        let text = lines(&chart).inline("id");
        assert!(!text.contains("<script"));
        assert_eq!(
            roxmltree::Document::parse(&text)
                .unwrap()
                .descendants()
                .filter(|it| it.has_tag_name(("http://www.w3.org/2000/svg", "circle")))
                .count(),
            2
        );
    }
}
