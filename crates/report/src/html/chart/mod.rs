//! Charts as SVG: lines with an interval, stacked bars, points. A picture without a table leaves out who cannot see it: views show the
//! numbers beside it.

mod axis;
mod bars;
mod lines;
mod scatter;
mod waterfall;

pub use axis::{Axis, Frame, Scale};
pub use bars::{Bar, Bars, bars};
pub use lines::{Lines, Series, lines};
pub use scatter::{Dot, Dots, scatter};
pub use waterfall::{Step, waterfall};

use crate::topo::svg::canvas::{Canvas, Rect, length};

pub(super) const STYLE: &str = concat!(include_str!("chart.css"), include_str!("../../predict/kinds.css"));
const WIDTH: f64 = 900.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 24.0;
/// Classes of colours: `s0` and so on.
const COLOURS: usize = 8;

/// A patch of colour and its name, one after the other. The height they take.
fn legend(names: &[(String, String)], top: f64, canvas: &mut Canvas) -> f64 {
    let (mut x, mut y) = (LEFT, top + 14.0);
    for (name, class) in names {
        let wide = length(name) + 44.0;
        if x + wide > WIDTH - RIGHT && x > LEFT {
            (x, y) = (LEFT, y + 20.0);
        }
        canvas.rect(Rect { x, y: y - 10.0, width: 14.0, height: 12.0 }, 2.0, &format!("fill {class}"));
        canvas.words((x + 20.0, y), "", name);
        x += wide;
    }
    if names.is_empty() { 0.0 } else { y + 12.0 - top }
}

/// The class of the colour of a place in a list.
pub(super) fn colour(at: usize) -> String {
    format!("s{}", at % COLOURS)
}
