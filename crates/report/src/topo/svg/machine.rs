//! One machine with its boxes and links.

use super::canvas::{Canvas, Point, Rect, fitting, short};
use super::layout::{PILE, Part, Plan, RAILS, float};
use crate::text::counted;
use crate::topo::words::bandwidth;
use crate::topo::{Topo, tree};

/// The distance from the GPUs to the NVSwitches.
const DROP: f64 = 14.0;
/// The height of the NVSwitches.
pub(super) const PLANE: f64 = 34.0;

/// The class with the colour of a rail.
pub(super) fn colour(rail: Option<usize>) -> String {
    rail.map_or_else(|| "other".to_owned(), |it| format!("r{}", it % RAILS))
}

/// The height below the sockets for NVLink, where `routes` is the height for a ring or tree.
pub(super) fn below(topo: &Topo, plan: &Plan, routes: f64) -> f64 {
    if plan.gpus.is_empty() {
        0.0
    } else if topo.nvswitch.is_some() {
        DROP + PLANE + routes
    } else {
        let deepest = arcs(topo, plan, routes).iter().map(|it| it.depth).reduce(f64::max);
        deepest.map_or(0.0, |it| it * 0.75 - 4.0).max(routes)
    }
}

/// Draws it.
pub(super) fn draw(topo: &Topo, plan: &Plan, (number, routes): (usize, f64), at: Point, canvas: &mut Canvas) {
    plan.frames.iter().for_each(|it| canvas.rect(it.moved(at), 12.0, "frame"));
    for pair in plan.cpus.windows(2) {
        let (one, next) = (pair[0].rect.moved(at), pair[1].rect.moved(at));
        let y = one.y + one.height / 2.0;
        canvas.named("the link between the NUMA nodes", |it| {
            it.line((one.right(), y), (next.x, y), "socket-link");
        });
    }
    if topo.nvswitch.is_some() {
        plane(topo, plan, routes, at, canvas);
    }
    for it in plan.switches.iter().chain(&plan.gpus).chain(&plan.nics) {
        canvas.line((at.0 + it.lane, at.1 + it.above), (at.0 + it.lane, at.1 + it.rect.y), "pcie");
    }
    for it in &plan.cpus {
        canvas.named(&it.title, |canvas| {
            let rect = it.rect.moved(at);
            canvas.rect(rect, 6.0, "cpu");
            let words = it.lines.first().map_or("", String::as_str);
            canvas.words((rect.x + 12.0, rect.y + 19.0), "soft", &fitting(words, rect.width - 24.0));
        });
    }
    for it in &plan.switches {
        canvas.named(&it.title, |canvas| {
            let rect = it.rect.moved(at);
            canvas.rect(rect, 6.0, "switch");
            // A narrow box shows only its link.
            let whole = it.lines.first().map_or("", String::as_str);
            let words = if super::canvas::length(whole) > rect.width - 12.0 {
                whole.split_once(" · ").map_or(whole, |it| it.1)
            } else {
                whole
            };
            canvas.words((rect.centre(), rect.y + 19.0), "soft m", &fitting(words, rect.width - 12.0));
        });
    }
    for it in &plan.gpus {
        let it = it.with_rank(rank_on(plan, it, number));
        let rect = it.rect.moved(at);
        canvas.device(&it.title, (number, &it.name), rect, |canvas| device(&it, rect, "gpu", canvas));
    }
    for it in &plan.nics {
        let rail = colour(it.rail);
        let rect = it.rect.moved(at);
        canvas.device(&it.title, (number, &it.name), rect, |canvas| {
            if it.count > 1 {
                // Several NICs at one switch are drawn as a stack.
                for step in [PILE, PILE / 2.0] {
                    canvas.rect(rect.moved((step, step)), 6.0, &format!("nic pile {rail}"));
                }
            }
            canvas.rect(rect, 6.0, &format!("nic {rail}"));
            device(it, rect, &format!("tint {rail}"), canvas);
        });
    }
    if topo.nvswitch.is_none() {
        mesh(topo, plan, routes, at, canvas);
    }
}

/// The rank of a GPU on a machine. Ranks count on from machine to machine, if those of the described one are a whole block;
/// otherwise only its own are known, and it is the first.
fn rank_on(plan: &Plan, gpu: &Part, machine: usize) -> Option<u32> {
    let mut ranks: Vec<u32> = plan.gpus.iter().filter_map(|it| it.rank).collect();
    ranks.sort_unstable();
    let (first, count) = (*ranks.first()?, u32::try_from(plan.gpus.len()).ok()?);
    let is_block = first % count == 0 && ranks.iter().copied().eq(first..first.saturating_add(count));
    if !is_block {
        return gpu.rank.filter(|_| machine == 0);
    }
    let before = u32::try_from(machine).ok()?.checked_mul(count)?;
    (gpu.rank? - first).checked_add(before)
}

fn device(part: &Part, rect: Rect, class: &str, canvas: &mut Canvas) {
    canvas.rect(rect, 6.0, class);
    let middle = rect.y + rect.height / 2.0;
    let first = middle - float(part.lines.len().saturating_sub(1)) * 8.0 + 4.5;
    for (at, line) in part.lines.iter().enumerate() {
        let class = match (at, class) {
            (0, "gpu") => "b m",
            (0, _) => "m",
            _ => "soft m",
        };
        let y = first + float(at) * 16.0;
        canvas.words((rect.centre(), y), class, &fitting(line, rect.width - 4.0));
    }
}

/// The NVSwitches: a band below all GPUs.
fn plane(topo: &Topo, plan: &Plan, routes: f64, at: Point, canvas: &mut Canvas) {
    let Some(switch) = &topo.nvswitch else { return };
    let y = at.1 + plan.height + DROP;
    for it in &plan.gpus {
        let rect = it.rect.moved(at);
        canvas.path(&format!("M{} {}V{}", short(rect.centre()), short(rect.bottom()), short(y)), "nvlink w5");
    }
    let speed = switch.bandwidth.map(|it| format!(", {} one way", bandwidth(it))).unwrap_or_default();
    let words = format!("NVSwitch: {}{speed} for each GPU", counted(switch.links as usize, "link"));
    canvas.named(&words, |canvas| {
        canvas.rect(Rect { x: at.0, y, width: plan.width, height: PLANE + routes }, 8.0, "plane");
        let place = (at.0 + plan.width / 2.0, y + routes + 21.5);
        canvas.words(place, "m", &fitting(&words, plan.width - 16.0));
    });
}

/// An NVLink between two GPUs, as an arc below them.
struct Arc {
    from: f64,
    to: f64,
    depth: f64,
    count: u32,
    title: String,
}

/// Below the room for a ring or tree.
fn arcs(topo: &Topo, plan: &Plan, routes: f64) -> Vec<Arc> {
    let names = tree::gpus(topo);
    let find = |name: &str| names.iter().position(|it| *it == name).filter(|it| *it < plan.gpus.len());
    let pairs = topo.nvlinks.iter().filter_map(|it| Some((it, find(&it.from)?, find(&it.to)?)));
    let pairs: Vec<_> = pairs.filter(|it| it.1 != it.2).collect();
    let longest = pairs.iter().map(|it| it.1.abs_diff(it.2)).max().unwrap_or(1);
    // Far pairs go deeper, and all together not too deep.
    let step = 34.0_f64.min(280.0 / float(longest));
    let arc = |(link, from, to): (&crate::topo::TopoNvlink, usize, usize)| {
        let (low, high) = (from.min(to), from.max(to));
        let speed = link.bandwidth.map(|it| format!(", {} one way", bandwidth(it))).unwrap_or_default();
        Arc {
            from: plan.gpus[low].rect.centre(),
            to: plan.gpus[high].rect.centre(),
            depth: 34.0 + routes * 4.0 / 3.0 + float(high - low) * step,
            count: link.count,
            title: format!("{} to {}: {}{speed}", link.from, link.to, counted(link.count as usize, "NVLink")),
        }
    };
    pairs.into_iter().map(arc).collect()
}

fn mesh(topo: &Topo, plan: &Plan, routes: f64, at: Point, canvas: &mut Canvas) {
    let top = at.1 + plan.gpus.first().map_or(0.0, |it| it.rect.bottom());
    let all = arcs(topo, plan, routes);
    for arc in &all {
        let (from, to) = (at.0 + arc.from, at.0 + arc.to);
        let spread = (to - from) * 0.12;
        let low = short(top + arc.depth);
        let path = format!(
            "M{} {}C{} {low} {} {low} {} {}",
            short(from),
            short(top),
            short(from + spread),
            short(to - spread),
            short(to),
            short(top)
        );
        let class = format!("nvlink w{}", arc.count.clamp(1, 4) + 1);
        canvas.named(&arc.title, |it| it.path(&path, &class));
    }
    for arc in &all {
        let y = top + arc.depth * 0.75 + 4.5;
        canvas.words((at.0 + f64::midpoint(arc.from, arc.to), y), "count m", &format!("{}", arc.count));
    }
}
