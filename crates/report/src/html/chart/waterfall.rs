//! From one value to another, step by step: what explains a difference.

use super::axis::{Scale, Ticks, numbers};
use super::{RIGHT, STYLE, WIDTH};
use crate::topo::svg::canvas::{Canvas, Picture, Rect, in_two, length};

/// What is added on the way.
#[derive(Debug, Clone, Default)]
pub struct Step {
    /// Why.
    pub name: String,
    /// How much; may be negative.
    pub value: f64,
    /// Whether it is explained.
    pub known: bool,
}

/// Draws the way from the value of the first name to that of the second; `show` writes a value with its unit.
pub fn waterfall(
    title: &str,
    about: &str,
    show: &dyn Fn(f64) -> String,
    (start, ends): (f64, [&str; 2]),
    steps: &[Step],
) -> Picture {
    const HIGH: f64 = 26.0;
    let mut canvas = Canvas::default();
    let end = start + steps.iter().map(|it| it.value).sum::<f64>();
    let mut sum = start;
    let mut sums = vec![start, end];
    for it in steps {
        sum += it.value;
        sums.push(sum);
    }
    let ticks = Ticks::new(Scale::Linear, sums.iter().copied());
    let names = || ends.iter().copied().chain(steps.iter().map(|it| it.name.as_str()));
    let left = names().map(|it| length(it) + 20.0).fold(40.0, f64::max).min(430.0);
    let room = WIDTH - left - RIGHT - 90.0;
    let at = |value: f64| left + ticks.share(value) * room;
    let top = 12.0;
    let bottom = (0..steps.len() + 2).fold(top, |y, _| y + HIGH + 8.0);
    for (it, number) in ticks.at.iter().zip(numbers(&ticks.at, show)) {
        canvas.line((at(*it), top), (at(*it), bottom), "grid");
        canvas.words((at(*it), bottom + 16.0), "soft m", &number);
    }
    let mut y = top;
    let mut row = |name: &str, (from, to): (f64, f64), class: &str, text: &str, canvas: &mut Canvas| {
        let lines = in_two(name, left - 16.0);
        let mut at_line = y + if lines.len() > 1 { 10.0 } else { 17.0 };
        for line in lines {
            canvas.fitted((left - 10.0, at_line), "e", line, left - 16.0);
            at_line += 14.0;
        }
        let (low, high) = (at(from.min(to)), at(from.max(to)));
        canvas.named(&format!("{name}: {text}"), |canvas| {
            canvas.rect(
                Rect { x: low, y, width: (high - low).max(1.5), height: HIGH },
                0.0,
                &format!("fill {class}"),
            );
        });
        canvas.words((high + 8.0, y + 17.0), "", text);
        y += HIGH + 8.0;
    };
    row(ends[0], (0.0, start), "s0", &show(start), &mut canvas);
    let mut sum = start;
    for it in steps {
        let next = sum + it.value;
        let class = match (it.known, it.value < 0.0) {
            (false, _) => "s7",
            (true, true) => "s2",
            (true, false) => "s1",
        };
        let sign = if it.value < 0.0 { "-" } else { "+" };
        row(&it.name, (sum, next), class, &format!("{sign}{}", show(it.value.abs())), &mut canvas);
        sum = next;
    }
    row(ends[1], (0.0, end), "s0", &show(end), &mut canvas);
    canvas.picture([WIDTH, bottom + 26.0], [title, about], STYLE)
}

#[cfg(test)]
mod tests {
    use super::{Step, waterfall};

    #[test]
    fn a_long_name_has_two_lines() {
        let name = "all-gather of the parameters and reduce-scatter of the gradients between the nodes of a group of ranks";
        let steps = [Step { name: name.to_owned(), value: 2.0, known: true }];
        let text = waterfall("t", "a", &|it| format!("{it} s"), (1.0, ["a", "b"]), &steps).inline("id");
        assert!(text.contains("ranks</text>"), "{text}");
        assert!(!text.contains('\u{2026}') && !text.contains("...</text>"), "{text}");
    }

    #[test]
    fn odd_values_and_names_are_drawn() {
        let step = |value| Step { name: "<b>".to_owned(), value, known: value > 0.0 };
        let steps = [step(2.0), step(-5.0), step(f64::NAN)];
        let text = waterfall("t", "a", &|it| format!("{it} s"), (1.0, ["<i>", "x"]), &steps).inline("id");
        assert!(
            roxmltree::Document::parse(&text).is_ok() && !text.contains("<b>") && !text.contains("\"NaN\""),
            "{text}"
        );
    }
}
