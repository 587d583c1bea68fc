//! What the colours and lines mean.

use super::canvas::{Canvas, Point, Rect, length};
use super::layout::{Plan, RAILS, float};
use super::machine::colour;
use super::routes::{Routes, class, pointed};
use crate::topo::{Topo, TopoFamily};

/// A line of the legend.
const LINE: f64 = 26.0;
/// A sign, and the room between it and its words.
const SIGN: f64 = 30.0;

/// What is drawn before the words.
enum Sign {
    Line(&'static str),
    Route(&'static str),
    Box(&'static str),
    Rails(usize),
}

/// Draws signs from a place on, between two borders. The place behind them.
fn draw(items: Vec<(Sign, String)>, from: Point, (left, right): (f64, f64), canvas: &mut Canvas) -> Point {
    let mut at = from;
    for (sign, words) in items {
        let long = match sign {
            Sign::Rails(count) => float(count) * 18.0 + 8.0,
            _ => SIGN + 8.0,
        };
        let needs = long + length(&words);
        if at.0 > left && at.0 + needs > right {
            at = (left, at.1 + LINE);
        }
        let middle = at.1 - 4.0;
        match sign {
            Sign::Line(class) => canvas.path(&format!("M{:.1} {middle:.1}h{SIGN:.1}", at.0), class),
            Sign::Route(class) => pointed(&format!("M{:.1} {middle:.1}h{SIGN:.1}", at.0), class, canvas),
            Sign::Box(class) => {
                canvas.rect(Rect { x: at.0, y: middle - 8.0, width: SIGN, height: 16.0 }, 4.0, class);
            }
            Sign::Rails(count) => {
                for number in 0..count {
                    let swatch =
                        Rect { x: at.0 + float(number) * 18.0, y: middle - 7.0, width: 14.0, height: 14.0 };
                    canvas.rect(swatch, 3.0, &format!("nic {}", colour(Some(number))));
                    canvas.rect(swatch, 3.0, &format!("tint {}", colour(Some(number))));
                }
            }
        }
        canvas.words((at.0 + long, at.1), "soft", &words);
        at.0 += needs + 26.0;
    }
    at
}

/// What the boxes and lines of a machine mean.
pub(super) fn of_machine(topo: &Topo, plan: &Plan, from: Point, right: f64, canvas: &mut Canvas) -> Point {
    draw(machine(topo, plan), from, (from.0, right), canvas)
}

/// What the lines of a ring or tree mean, in a line of their own. The lower end.
pub(super) fn of_routes(
    (routes, name): (&Routes<'_>, &str),
    (left, above): Point,
    right: f64,
    canvas: &mut Canvas,
) -> f64 {
    let mut items: Vec<(Sign, String)> = Vec::new();
    for family in routes.families() {
        let words = match family {
            TopoFamily::P2p => "GPU to GPU (P2P)",
            TopoFamily::Shm => "through shared memory (SHM)",
            TopoFamily::Net => "through NICs and network (NET)",
            other @ (TopoFamily::CollNet | TopoFamily::Inside) => other.name(),
        };
        items.push((Sign::Route(class(family)), format!("{name}: {words}")));
    }
    if routes.has_changes() {
        items.push((Sign::Line("route p2p changed"), "thick: not so in the other state".to_owned()));
    }
    if items.is_empty() {
        return above;
    }
    draw(items, (left, above + LINE), (left, right), canvas).1
}

fn machine(topo: &Topo, plan: &Plan) -> Vec<(Sign, String)> {
    let mut items = Vec::new();
    if !plan.gpus.is_empty() {
        items.push((Sign::Box("gpu"), "GPU".to_owned()));
    }
    match plan.nics.iter().filter_map(|it| it.rail).max().map_or(0, |it| it + 1) {
        0 => {}
        1 => items.push((Sign::Rails(1), "NIC".to_owned())),
        many => items.push((Sign::Rails(many.min(RAILS)), "NICs, one colour per rail".to_owned())),
    }
    if !plan.switches.is_empty() {
        items.push((Sign::Box("switch"), "PCIe switch".to_owned()));
    }
    if !plan.gpus.is_empty() || !plan.nics.is_empty() {
        items.push((Sign::Line("pcie"), "PCIe".to_owned()));
    }
    if plan.cpus.len() > 1 {
        items.push((Sign::Line("socket-link"), "between NUMA nodes".to_owned()));
    }
    if topo.nvswitch.is_some() {
        items.push((Sign::Line("nvlink w5"), "NVLink".to_owned()));
    } else if !topo.nvlinks.is_empty() {
        items.push((Sign::Line("nvlink w3"), "NVLink, with the number of links".to_owned()));
    }
    items
}
