//! The picture of a machine, or of several with a ring or tree on top, as SVG.
//!
//! One file that needs nothing else: no font, no script. Colours follow the reader's light or dark mode.

pub(crate) mod canvas;
mod layout;
mod legend;
mod machine;
mod routes;

use std::io::{self, Write};

use super::{Topo, TopoOverlay};
use crate::markup::escaped;
use crate::text::{clean, counted, wrap};
use canvas::{Canvas, Picture, Point, Rect};
use layout::{Plan, float};
use routes::{Ground, Routes};

/// Machines that are drawn; the number of the others is shown.
const MACHINES: u32 = 4;
/// Around the picture.
const MARGIN: f64 = 28.0;
/// A picture is not narrower, so that its title has room.
const NARROWEST: f64 = 620.0;
/// The widest row of machines.
const WIDEST: f64 = 2400.0;
/// The name above a machine, where there are several.
const NAME: f64 = 26.0;
/// Between two machines, besides what runs there.
const BETWEEN: f64 = 36.0;

const STYLE: &str = include_str!("svg/style.css");

/// Where a picture is shown.
#[derive(Debug, Clone, Copy)]
struct Frame {
    /// Machines that are drawn; the number of the others is shown.
    machines: u32,
    /// The widest row of machines.
    widest: f64,
    /// On a page the machine stands in its heading, and devices can have the focus.
    on_page: bool,
}

/// Writes the picture.
pub fn svg(topo: &Topo, out: &mut impl Write) -> io::Result<()> {
    let frame = Frame { machines: MACHINES, widest: WIDEST, on_page: false };
    draw(topo, topo.overlay.as_slice(), frame).document(out)
}

/// Machines that are drawn on a page.
pub(crate) const ON_PAGE: u32 = 2;

/// The picture for a page. Rings and trees lie on top of each other, of which the script shows one, at first the first.
pub(crate) fn picture(topo: &Topo, overlays: &[TopoOverlay]) -> Picture {
    let frame = Frame { machines: ON_PAGE, widest: 1200.0, on_page: true };
    draw(topo, overlays, frame)
}

fn draw(topo: &Topo, overlays: &[TopoOverlay], frame: Frame) -> Picture {
    let gpus = super::tree::gpus(topo).len();
    let nodes = overlays.iter().map(|it| it.nodes).max().unwrap_or(1).max(1);
    let drawn = nodes.min(frame.machines);
    let mut routes: Vec<Routes<'_>> = overlays.iter().map(|it| Routes::new(Some(it), gpus, drawn)).collect();
    if routes.is_empty() {
        routes.push(Routes::new(None, gpus, drawn));
    }
    let most = |of: &dyn Fn(&Routes<'_>) -> f64| routes.iter().map(of).fold(0.0, f64::max);
    let plan = Plan::new(topo, most(&|it| it.aisle()));
    let inside = most(&|it| it.below(&plan));
    let grid = Grid::new(topo, &plan, &routes, (drawn, frame.widest), inside);

    let width = grid.width.max(NARROWEST);
    let mut canvas = Canvas { interactive: frame.on_page, ..Canvas::default() };
    routes::tips(&mut canvas);
    let top = if frame.on_page { 8.0 } else { title(topo, width, &mut canvas) + 20.0 };
    let at = |it: &Point| (it.0 + MARGIN, it.1 + top);
    let machines: Vec<Point> = grid.machines.iter().map(at).collect();
    let network = grid.network.moved((MARGIN, top));

    if network.height > 0.0 {
        canvas.rect(network, 10.0, "network");
        let more = match nodes - drawn {
            0 => String::new(),
            it => format!(", and {}", counted(it as usize, "more machine")),
        };
        // Clear of what runs at the side of the machines.
        let place = (machines.first().map_or(network.x, |it| it.0) + 2.0, network.y + 18.0);
        canvas.words(place, "soft", &format!("network{more}"));
    }
    for (number, place) in machines.iter().enumerate() {
        if drawn > 1 {
            canvas.words((place.0 + 2.0, place.1 - 9.0), "b", &format!("machine {number}"));
        }
        machine::draw(topo, &plan, (number, inside), *place, &mut canvas);
    }
    if plan.frames.is_empty() {
        canvas.words((MARGIN, top + 16.0), "soft", "Its devices are not known.");
    }
    let bottom = top + grid.height.max(24.0);
    let right = MARGIN + width;
    let legend = legend::of_machine(topo, &plan, (MARGIN, bottom + 28.0), right, &mut canvas).1;
    let mut end = legend;
    let ground = Ground { plan: &plan, machines: &machines, network };
    for (number, (overlay, routes)) in overlays.iter().zip(&routes).enumerate() {
        let name = clean(&overlay.name);
        let layers = frame.on_page;
        if layers {
            let off = if number == 0 { "" } else { " off" };
            canvas.text.push_str(&format!(
                "<g class=\"layer{off}\" data-layer=\"{number}\" role=\"group\" aria-label=\"{}\">\n",
                escaped(&name)
            ));
        }
        routes.draw(topo, &ground, &mut canvas);
        end = legend::of_routes((routes, &name), (MARGIN, legend), right, &mut canvas).max(end);
        if layers {
            canvas.text.push_str("</g>\n");
        }
    }
    let name = topo.name.as_deref().map_or_else(|| topo.summary.clone(), clean);
    canvas.picture([width + 2.0 * MARGIN, end + MARGIN], [&name, &description(topo, overlays)], STYLE)
}

/// Name, summary and source. The height it takes.
fn title(topo: &Topo, width: f64, canvas: &mut Canvas) -> f64 {
    let mut y = MARGIN;
    if let Some(name) = topo.name.as_deref().map(clean).filter(|it| !it.is_empty()) {
        y += 20.0;
        canvas.words((MARGIN, y), "h1", &canvas::fitting(&name, width / 2.0));
        y += 8.0;
    }
    let over = topo.overlay.as_ref().map(|it| {
        let drawn = if it.nodes > MACHINES { format!(", {MACHINES} of them drawn") } else { String::new() };
        format!("{} over {}{drawn}", clean(&it.name), counted(it.nodes as usize, "machine"))
    });
    let texts = [(clean(&topo.summary), "h2", 8.4), (over.unwrap_or_default(), "h2", 8.4)];
    let texts = texts.into_iter().chain([(format!("from {}", clean(&topo.source)), "soft", 7.2)]);
    for (text, class, letter) in texts.filter(|it| !it.0.is_empty() && it.0 != "from ") {
        let room = (20..400).rev().find(|it| f64::from(*it) * letter <= width).unwrap_or(20);
        for line in wrap(&text, usize::try_from(room).unwrap_or(20)) {
            y += 20.0;
            canvas.words((MARGIN, y), class, &canvas::fitting(&line, width));
        }
    }
    y
}

/// The description of the picture for screen readers.
fn description(topo: &Topo, overlays: &[TopoOverlay]) -> String {
    let mut text = clean(&topo.summary);
    match overlays {
        [] => {}
        [overlay] => {
            let edges = counted(overlay.edges.len(), "connection");
            text.push_str(&format!(". {} with {edges} on top", clean(&overlay.name)));
        }
        many => text.push_str(&format!(". {} rings and trees, one of them on top", many.len())),
    }
    topo.notes.iter().for_each(|it| text.push_str(&format!(". {}", clean(it).trim_end_matches('.'))));
    text.push('.');
    text
}

/// Where machines and network stand, without title.
struct Grid {
    width: f64,
    height: f64,
    machines: Vec<Point>,
    network: Rect,
}

impl Grid {
    fn new(
        topo: &Topo,
        plan: &Plan,
        routes: &[Routes<'_>],
        (drawn, widest): (u32, f64),
        inside: f64,
    ) -> Self {
        let count = drawn as usize;
        let name = if drawn > 1 { NAME } else { 0.0 };
        let high = name + plan.height + machine::below(topo, plan, inside);
        let side_of = |rows: usize| routes.iter().map(|it| it.side(rows)).fold(0.0, f64::max);
        let in_a_row = |it: usize, side: f64| float(it) * (plan.width + 2.0 * side) + float(it - 1) * BETWEEN;
        let most = (1..=count).rev().find(|it| in_a_row(*it, side_of(1)) <= widest).unwrap_or(1);
        let rows = count.div_ceil(most);
        let columns = count.div_ceil(rows);
        let side = side_of(rows);
        let wide = plan.width + 2.0 * side;
        let width = in_a_row(columns, side);
        // The network is above one row, and in the middle of several.
        let before = if rows == 1 { 0 } else { rows.div_ceil(2) };
        let mut y = 0.0;
        let high_of_network = routes.iter().map(Routes::network).fold(0.0, f64::max);
        let mut network = Rect::default();
        let mut machines = Vec::new();
        for row in 0..=rows {
            if row == before {
                network = Rect { x: 0.0, y, width, height: high_of_network };
                y += if network.height > 0.0 { network.height + 20.0 } else { 0.0 };
            }
            if row < rows {
                let here = (row * columns..count.min((row + 1) * columns)).enumerate();
                machines.extend(here.map(|(at, _)| (side + float(at) * (wide + BETWEEN), y + name)));
                y += high + 24.0;
            }
        }
        Self { width, height: y - 24.0, machines, network }
    }
}
