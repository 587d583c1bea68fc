//! Points: one quantity against another.

use super::axis::Frame;
use super::colour;
use crate::topo::svg::canvas::Picture;

/// One point.
#[derive(Debug, Clone, Default)]
pub struct Dot {
    /// From left to right.
    pub x: f64,
    /// From the bottom up.
    pub y: f64,
    /// What a browser shows for it.
    pub name: String,
    /// Its kind, which has a colour: a place in [`Dots::kinds`].
    pub kind: usize,
    /// Whether it has a ring around it.
    pub marked: bool,
}

/// A chart of points.
#[derive(Debug, Clone)]
pub struct Dots<'a> {
    /// The axes.
    pub frame: Frame<'a>,
    /// The names of kinds; those without a point are not in the legend.
    pub kinds: &'a [&'a str],
    /// The points.
    pub dots: &'a [Dot],
    /// A line through some of them, such as those that nothing beats.
    pub line: &'a [(f64, f64)],
    /// A limit of the horizontal axis with its name, such as the memory of a GPU.
    pub limit: Option<(f64, &'a str)>,
}

/// Draws points.
pub fn scatter(chart: &Dots<'_>) -> Picture {
    let drawn = |kind: &usize| chart.dots.iter().any(|it| it.kind == *kind);
    let names: Vec<(String, String)> = chart
        .kinds
        .iter()
        .enumerate()
        .filter(|(at, _)| drawn(at))
        .map(|(at, it)| ((*it).to_owned(), colour(at)))
        .collect();
    let across = chart.dots.iter().map(|it| it.x).chain(chart.limit.map(|it| it.0));
    let up = chart.dots.iter().map(|it| it.y);
    let (mut canvas, area) = chart.frame.begin(&names, [0.0, 360.0], across, up);
    chart.frame.axes(&area, &mut canvas);
    if let Some((value, name)) = chart.limit {
        let x = area.x(value);
        canvas.line((x, area.frame.y), (x, area.frame.bottom()), "mark");
        canvas.words((x - 6.0, area.frame.y + 16.0), "soft e", name);
    }
    if chart.line.len() > 1 {
        canvas.path(&area.path(chart.line.iter().copied()), "line thin s1");
    }
    for it in chart.dots {
        let place = (area.x(it.x), area.y(it.y));
        canvas.named(&it.name, |canvas| {
            canvas.circle(place, 4.5, &format!("dot {}", colour(it.kind)));
            if it.marked {
                canvas.circle(place, 8.0, "mark");
            }
        });
    }
    chart.frame.finish(canvas, &area)
}

#[cfg(test)]
mod tests {
    use super::{Dot, Dots, scatter};
    use crate::html::chart::{Axis, Frame, Scale};

    #[test]
    fn the_legend_names_what_is_drawn() {
        let axis = Axis { label: "axis", scale: Scale::Linear, show: |it: f64| it.to_string() };
        let chart = Dots {
            frame: Frame { title: "t", about: "a", x: axis, y: axis },
            kinds: &["drawn", "left out"],
            dots: &[Dot { x: 1.0, y: 1.0, ..Dot::default() }],
            line: &[],
            limit: None,
        };
        let text = scatter(&chart).inline("id");
        assert!(text.contains(">drawn<") && !text.contains("left out"), "{text}");
    }
}
