//! The picture of a machine, or of several with a ring or tree on top, as SVG.
//!
//! One file that needs nothing else: no font, no script. Colours follow the reader's light or dark mode.

pub(crate) mod canvas;
mod layout;
mod legend;
mod machine;
mod routes;

use std::io::{self, Write};

use super::Topo;
use crate::text::{clean, counted, wrap};
use canvas::{Canvas, Point, Rect, escaped, short};
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

/// Writes the picture.
pub fn svg(topo: &Topo, out: &mut impl Write) -> io::Result<()> {
    let gpus = super::tree::gpus(topo).len();
    let overlay = topo.overlay.as_ref();
    let drawn = overlay.map_or(1, |it| it.nodes.clamp(1, MACHINES));
    let routes = Routes::new(overlay, gpus, drawn);
    let plan = Plan::new(topo, routes.aisle());
    let inside = routes.below(&plan);
    let grid = Grid::new(topo, &plan, &routes, drawn, inside);

    let width = grid.width.max(NARROWEST);
    let mut canvas = Canvas::default();
    let top = title(topo, width, &mut canvas) + 20.0;
    let at = |it: &Point| (it.0 + MARGIN, it.1 + top);
    let machines: Vec<Point> = grid.machines.iter().map(at).collect();
    let network = grid.network.moved((MARGIN, top));

    if network.height > 0.0 {
        canvas.rect(network, 10.0, "network");
        let more = match overlay.map_or(0, |it| it.nodes.saturating_sub(drawn)) {
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
    routes.draw(topo, &Ground { plan: &plan, machines: &machines, network }, &mut canvas);
    let bottom = top + grid.height.max(24.0);
    let end = legend::draw(topo, &plan, &routes, (MARGIN, bottom + 28.0), width, &mut canvas);

    let (width, height) = (short(width + 2.0 * MARGIN), short(end + MARGIN));
    let name = topo.name.as_deref().map_or_else(|| topo.summary.clone(), clean);
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         role=\"img\" aria-labelledby=\"title about\" style=\"max-width:100%;height:auto\">"
    )?;
    writeln!(out, "<title id=\"title\">{}</title>", escaped(&name))?;
    writeln!(out, "<desc id=\"about\">{}</desc>", escaped(&description(topo)))?;
    write!(out, "<style>\n{STYLE}</style>\n")?;
    writeln!(
        out,
        "<defs><marker id=\"tip\" viewBox=\"0 0 10 10\" refX=\"8\" refY=\"5\" markerWidth=\"4.4\" \
         markerHeight=\"4.4\" orient=\"auto\"><path class=\"tip\" d=\"M0 0L10 5L0 10z\"/></marker></defs>"
    )?;
    writeln!(out, "<rect class=\"paper\" width=\"{width}\" height=\"{height}\"/>")?;
    out.write_all(canvas.text.as_bytes())?;
    writeln!(out, "</svg>")
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
fn description(topo: &Topo) -> String {
    let mut text = clean(&topo.summary);
    if let Some(overlay) = &topo.overlay {
        let edges = counted(overlay.edges.len(), "connection");
        text.push_str(&format!(". {} with {edges} on top", clean(&overlay.name)));
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
    fn new(topo: &Topo, plan: &Plan, routes: &Routes<'_>, drawn: u32, inside: f64) -> Self {
        let count = drawn as usize;
        let name = if drawn > 1 { NAME } else { 0.0 };
        let high = name + plan.height + machine::below(topo, plan, inside);
        let in_a_row = |it: usize, side: f64| float(it) * (plan.width + 2.0 * side) + float(it - 1) * BETWEEN;
        let most = (1..=count).rev().find(|it| in_a_row(*it, routes.side(1)) <= WIDEST).unwrap_or(1);
        let rows = count.div_ceil(most);
        let columns = count.div_ceil(rows);
        let side = routes.side(rows);
        let wide = plan.width + 2.0 * side;
        let width = in_a_row(columns, side);
        // The network is above one row, and in the middle of several.
        let before = if rows == 1 { 0 } else { rows.div_ceil(2) };
        let mut y = 0.0;
        let mut network = Rect::default();
        let mut machines = Vec::new();
        for row in 0..=rows {
            if row == before {
                network = Rect { x: 0.0, y, width, height: routes.network() };
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
