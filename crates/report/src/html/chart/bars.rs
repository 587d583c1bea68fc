//! Bars of parts, one below the other: where the time goes.

use super::axis::{Scale, Ticks, numbers};
use super::{RIGHT, STYLE, WIDTH, colour, legend};
use crate::topo::svg::canvas::{Canvas, Picture, Rect, fitting, length};

/// One bar.
#[derive(Debug, Clone, Default)]
pub struct Bar {
    /// Its name, at its left.
    pub name: String,
    /// Its parts with their values, in order. A name has one colour in all bars.
    pub parts: Vec<(String, f64)>,
    /// From where to where single measurements lie.
    pub spread: Option<[f64; 2]>,
}

/// A chart of bars.
pub struct Bars<'a> {
    /// What it shows.
    pub title: &'a str,
    /// The same in a sentence with its numbers, for a screen reader.
    pub about: &'a str,
    /// Writes a value with its unit.
    pub show: &'a dyn Fn(f64) -> String,
    /// The bars.
    pub bars: &'a [Bar],
    /// A value with a name, such as the memory of a GPU.
    pub limit: Option<(f64, &'a str)>,
    /// Parts that have the colour of another picture: their name and the class of that colour. Others have one by their order.
    pub colours: &'a [(&'a str, &'a str)],
}

const HIGH: f64 = 26.0;

/// Draws stacked bars.
pub fn bars(chart: &Bars<'_>) -> Picture {
    let Bars { show, bars, limit, .. } = chart;
    let mut canvas = Canvas::default();
    let names = names(chart);
    let total = |it: &Bar| it.parts.iter().map(|it| it.1.max(0.0)).sum::<f64>();
    let far = |it: &Bar| it.spread.map_or(0.0, |it| it[1]).max(total(it));
    let ticks = Ticks::new(Scale::Linear, bars.iter().map(far).chain(limit.map(|it| it.0)));
    let left = bars.iter().map(|it| length(&it.name) + 20.0).fold(40.0, f64::max).min(220.0);
    let room = WIDTH - left - RIGHT - 70.0;
    // What stands beside a bar needs no legend.
    let legend =
        if bars.iter().any(|it| it.parts.len() > 1) { legend(&names, 8.0, &mut canvas) } else { 0.0 };
    let top = legend + if limit.is_some() { 30.0 } else { 16.0 };
    let bottom = bars.iter().fold(top, |y, _| y + HIGH + 10.0);
    for (it, number) in ticks.at.iter().zip(numbers(&ticks.at, show)) {
        let x = left + ticks.share(*it) * room;
        canvas.line((x, top), (x, bottom), "grid");
        canvas.words((x, bottom + 16.0), "soft m", &number);
    }
    let mut y = top;
    for bar in *bars {
        canvas.words((left - 10.0, y + 17.0), "e", &fitting(&bar.name, left - 16.0));
        let mut sum = 0.0;
        for (name, value) in &bar.parts {
            let (from, to) = (ticks.share(sum), ticks.share(sum + value.max(0.0)));
            sum += value.max(0.0);
            let class = names.iter().find(|it| it.0 == *name).map_or("s0", |it| &it.1);
            let wide = (to - from) * room;
            let text = show(*value);
            let part = if *name == bar.name { String::new() } else { format!("{name} ") };
            canvas.named(&format!("{}: {part}{text}", bar.name), |canvas| {
                canvas.rect(
                    Rect { x: left + from * room, y, width: wide, height: HIGH },
                    0.0,
                    &format!("fill {class}"),
                );
            });
        }
        let mut end = left + ticks.share(sum) * room;
        if let Some(range) = bar.spread.filter(|it| it[0] < it[1]) {
            let [low, high] = range.map(|it| left + ticks.share(it) * room);
            let middle = y + HIGH / 2.0;
            canvas.named(&format!("{}: {} to {}", bar.name, show(range[0]), show(range[1])), |canvas| {
                canvas.line((low, middle), (high, middle), "whisker");
                for x in [low, high] {
                    canvas.line((x, middle - HIGH / 4.0), (x, middle + HIGH / 4.0), "whisker");
                }
            });
            end = end.max(high);
        }
        canvas.words((end + 8.0, y + 17.0), "", &show(sum));
        y += HIGH + 10.0;
    }
    if let Some((value, name)) = limit {
        let x = left + ticks.share(*value) * room;
        canvas.line((x, top - 8.0), (x, bottom), "mark");
        canvas.words((x, top - 12.0), "m", &format!("{name}: {}", show(*value)));
    }
    canvas.picture([WIDTH, bottom + 26.0], [chart.title, chart.about], STYLE)
}

/// Parts that can be seen, each with the class of its colour.
fn names(chart: &Bars<'_>) -> Vec<(String, String)> {
    let mut names: Vec<(String, String)> = Vec::new();
    for (name, _) in chart.bars.iter().flat_map(|it| &it.parts).filter(|it| it.1 > 0.0) {
        if names.iter().all(|it| it.0 != *name) {
            let own = chart.colours.iter().find(|it| it.0 == *name).map(|it| it.1.to_owned());
            names.push((name.clone(), own.unwrap_or_else(|| colour(names.len()))));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::{Bar, Bars, bars};

    fn part(name: &str, value: f64) -> (String, f64) {
        (name.to_owned(), value)
    }

    #[test]
    fn odd_values_and_names_are_drawn() {
        let bar = Bar {
            name: "<b>".to_owned(),
            parts: vec![part("<i>", 1.0), part("x", f64::NAN), part("y", -2.0)],
            spread: Some([f64::NAN, f64::INFINITY]),
        };
        let chart = Bars {
            title: "t",
            about: "a",
            show: &|it| format!("{it} s"),
            bars: &[bar, Bar::default()],
            limit: Some((3.0, "<u>")),
            colours: &[],
        };
        let text = bars(&chart).inline("id");
        assert!(
            roxmltree::Document::parse(&text).is_ok() && !text.contains("<b>") && !text.contains("\"NaN\""),
            "{text}"
        );
    }

    #[test]
    fn the_legend_has_what_can_be_seen_in_its_own_colour() {
        let bar = Bar {
            name: "bar".to_owned(),
            parts: vec![part("empty", 0.0), part("known", 1.0), part("other", 2.0)],
            spread: Some([2.0, 4.0]),
        };
        let chart = Bars {
            title: "t",
            about: "a",
            show: &|it| format!("{it:.1} s"),
            bars: &[bar],
            limit: None,
            colours: &[("known", "gather")],
        };
        let text = bars(&chart).inline("id");
        assert!(text.contains("fill gather") && !text.contains(">empty<"), "{text}");
        assert!(text.contains("<title>bar: 2.0 s to 4.0 s</title>"), "{text}");
    }
}
