//! What the colours and lines mean.

use super::canvas::{Canvas, Point, Rect, length};
use super::layout::{Plan, RAILS, float};
use super::machine::colour;
use super::routes::Routes;
use crate::text::clean;
use crate::topo::{Topo, TopoFamily};

/// A line of the legend.
const LINE: f64 = 26.0;
/// A sign, and the room between it and its words.
const SIGN: f64 = 30.0;

/// What is drawn before the words.
enum Sign {
    Line(&'static str),
    Box(&'static str),
    Rails(usize),
}

/// Draws the legend from a place on, as wide as allowed. Its lower end.
pub(super) fn draw(
    topo: &Topo,
    plan: &Plan,
    routes: &Routes<'_>,
    (left, top): Point,
    width: f64,
    canvas: &mut Canvas,
) -> f64 {
    let mut at = (left, top);
    for (sign, words) in items(topo, plan, routes) {
        let long = match sign {
            Sign::Rails(count) => float(count) * 18.0 + 8.0,
            _ => SIGN + 8.0,
        };
        let needs = long + length(&words);
        if at.0 > left && at.0 + needs > left + width {
            at = (left, at.1 + LINE);
        }
        let middle = at.1 - 4.0;
        match sign {
            Sign::Line(class) => {
                let tip = if class.starts_with("route") { " marker-end=\"url(#tip)\"" } else { "" };
                canvas.text.push_str(&format!(
                    "<path class=\"{class}\" d=\"M{:.1} {middle:.1}h{SIGN:.1}\"{tip}/>\n",
                    at.0
                ));
            }
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
    at.1
}

fn items(topo: &Topo, plan: &Plan, routes: &Routes<'_>) -> Vec<(Sign, String)> {
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
    let name = topo.overlay.as_ref().map(|it| clean(&it.name)).unwrap_or_default();
    for family in routes.families() {
        let words = match family {
            TopoFamily::P2p => "GPU to GPU (P2P)",
            TopoFamily::Shm => "through shared memory (SHM)",
            TopoFamily::Net => "through NICs and network (NET)",
            other @ (TopoFamily::CollNet | TopoFamily::Inside) => other.name(),
        };
        let class = if family == TopoFamily::Shm { "route shm" } else { "route" };
        items.push((Sign::Line(class), format!("{name}: {words}")));
    }
    items
}
