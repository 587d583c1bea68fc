//! The same for people.

use std::io::{self, Write};

use forecast::plan::{AS_FAST, Other, Reason};
use forecast::training::{Framework, Job, Recompute, Run, Seconds};

use super::table::{self, Row};
use super::{Layout, Loser, Plan};
use crate::expect::shown;
use crate::text::{Style, wrap};

/// Runners-up that are shown, and settings changed.
const ROWS: usize = 6;
/// Layouts of the front that are shown, each with at most this share of the memory of the one before.
const FRONT: (usize, f64) = (5, 0.8);

/// A layout in words.
pub(super) fn layout(run: &Run, dp: u64) -> String {
    let mut text = format!("tp {} x pp {} x dp {dp}", run.tp, run.pp);
    for (label, value) in [("vpp", run.vpp), ("cp", run.cp), ("ep", run.ep)] {
        if value > 1 {
            text.push_str(&format!(", {label} {value}"));
        }
    }
    match (run.framework, run.zero) {
        (_, 0) => {}
        (Framework::Megatron, 1) => text.push_str(", distributed optimizer"),
        (_, zero) => text.push_str(&format!(", ZeRO-{zero}")),
    }
    text.push_str(match (run.offload.params, run.offload.optimizer) {
        (true, true) => ", parameters and optimizer on the host",
        (true, false) => ", parameters on the host",
        (false, true) => ", optimizer on the host",
        (false, false) => "",
    });
    text.push_str(&format!(", micro-batches of {}", run.micro_batch));
    text.push_str(match run.recompute {
        Recompute::None => "",
        Recompute::Selective => ", selective recomputation",
        Recompute::Full => ", full recomputation",
    });
    text
}

/// Why a layout is not the best.
pub(super) fn why(job: &Job, other: &Other) -> String {
    let memory = &other.choice.step.memory;
    if !other.choice.fits {
        if memory.host_available.is_some_and(|it| memory.host.0 > it.0) {
            return format!(
                "does not fit: offloaded states need {} GiB of each node's {}",
                shown(memory.host.0),
                shown(memory.host_available.map_or(0.0, |it| it.0))
            );
        }
        return format!(
            "does not fit: {} of {} GiB",
            shown(memory.total().0),
            shown(job.cluster.gpu.memory.0)
        );
    }
    if other.ratio < 1.0 {
        return "too little faster to be sure of it, and needs more memory".to_owned();
    }
    let reasons: Vec<String> = other.reasons.iter().map(reason).collect();
    if reasons.is_empty() { "as fast, and needs more memory".to_owned() } else { reasons.join("; ") }
}

/// `pipeline bubble 9 % instead of 3 %`, both of the best layout's step.
fn reason(reason: &Reason) -> String {
    let digits = usize::from(reason.here - reason.best < 0.02);
    let percent = |it: f64| format!("{:.digits$} %", 100.0 * it);
    if reason.best < 5e-5 {
        return format!("{} {}", reason.kind.describe(), percent(reason.here));
    }
    format!("{} {} instead of {}", reason.kind.describe(), percent(reason.here), percent(reason.best))
}

/// `35,412`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

impl Plan {
    /// For people.
    pub fn text(&self, style: Style, out: &mut impl Write) -> io::Result<()> {
        let bold = |text: &str| if style.colour { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() };
        let Some(best) = &self.best else { return self.nothing(style, out) };
        for line in wrap(&self.choice(best), style.width) {
            writeln!(out, "{}", bold(&line))?;
        }
        writeln!(out, "{}", bold(&self.takes(best)))?;
        for line in wrap(&self.gain(best), style.width) {
            writeln!(out, "{line}")?;
        }
        writeln!(out)?;
        self.facts(style.width, out)?;
        self.tables(best, style.width, out)
    }

    fn choice(&self, best: &Layout) -> String {
        format!("{}: {}", if self.fixed.is_empty() { "best" } else { "best of these" }, best.text)
    }

    fn takes(&self, best: &Layout) -> String {
        format!(
            "{} per step, between {} and {}; {} of {} GiB of each GPU",
            best.time,
            Seconds(best.interval_s[0]),
            Seconds(best.interval_s[1]),
            shown(best.memory_gib),
            shown(self.memory_gib.available)
        )
    }

    /// The answer in a sentence.
    pub(crate) fn headline(&self) -> String {
        match &self.best {
            Some(best) => format!("{}; {}", self.choice(best), self.takes(best)),
            None => self.too_small(),
        }
    }

    /// That no layout fits.
    fn too_small(&self) -> String {
        match &self.least {
            Some(least) => format!(
                "no layout fits: the smallest needs {} GiB, {} of {} may be used",
                shown(least.memory_gib),
                shown(self.memory_gib.limit),
                shown(self.memory_gib.available)
            ),
            None => "no layout fits".to_owned(),
        }
    }

    /// What the best layout gains over that of the job.
    pub(crate) fn gain(&self, best: &Layout) -> String {
        let Some(own) = &self.own else { return String::new() };
        let Some(layout) = &own.layout else {
            let rule = own.impossible.as_deref().unwrap_or_default();
            return format!("the layout of the job is impossible: {rule}");
        };
        let Some(gain) = own.gain else {
            return format!(
                "the layout of the job does not fit: {} of {} GiB ({})",
                shown(layout.memory_gib),
                shown(self.memory_gib.available),
                layout.text
            );
        };
        let time = layout.time;
        if layout.text == best.text && layout.sequence_parallel == best.sequence_parallel {
            "this is the layout of the job".to_owned()
        } else if gain.abs() < 0.005 {
            format!("as fast as the layout of the job: {time} with {}", layout.text)
        } else if gain < 0.0 && -gain < AS_FAST && best.memory_gib < layout.memory_gib {
            format!(
                "the layout of the job is too little faster to be sure of it, and needs more memory: {time} with {}, {} GiB",
                layout.text,
                shown(layout.memory_gib)
            )
        } else if gain < 0.0 {
            format!(
                "{:.0} % slower than the layout of the job, which is not searched: {time} with {}, {} GiB",
                -100.0 * gain,
                layout.text,
                shown(layout.memory_gib)
            )
        } else {
            format!("{:.0} % less time than the layout of the job: {time} with {}", 100.0 * gain, layout.text)
        }
    }

    fn facts(&self, width: usize, out: &mut impl Write) -> io::Result<()> {
        let job = [("job", self.job.clone())];
        for (label, text) in job.into_iter().chain(self.rows()) {
            for (i, part) in wrap(&text, width.saturating_sub(12).max(30)).into_iter().enumerate() {
                writeln!(out, "  {:<9} {part}", if i == 0 { label } else { "" })?;
            }
        }
        Ok(())
    }

    /// What there is to know about the best layout and the search, each with a label.
    pub(crate) fn rows(&self) -> Vec<(&'static str, String)> {
        let mut rows = Vec::new();
        if let Some(best) = &self.best {
            rows.push((
                "speed",
                format!(
                    "{} tokens/s per GPU; {} TFLOP/s per GPU, MFU {:.0} %",
                    shown(best.tokens_per_s_per_gpu),
                    shown(best.model_tflops_per_gpu),
                    100.0 * best.mfu
                ),
            ));
        }
        if let Some(text) = &self.bottleneck {
            rows.push(("limit", text.clone()));
        }
        if let Some(over) = &self.over {
            rows.push((
                "memory",
                format!(
                    "with twice the memory {} would take {} ({}) and need {} GiB",
                    over.layout.text,
                    over.layout.time,
                    table::slower(over.ratio),
                    shown(over.layout.memory_gib)
                ),
            ));
        }
        if let Some(less) = &self.less_bandwidth {
            let percent = 100.0 * (1.0 - less.bandwidth);
            let time = Seconds(less.step_time_s);
            let text = match &less.best {
                None => format!("still the best with {percent:.0} % less bandwidth between GPUs: {time}"),
                Some(_) if less.loss < AS_FAST => {
                    format!(
                        "still as fast as the best with {percent:.0} % less bandwidth between GPUs: {time}"
                    )
                }
                Some(other) => format!(
                    "with {percent:.0} % less bandwidth between GPUs it takes {time}; {} would then be {:.1} % faster: {}",
                    other.text,
                    100.0 * less.loss / (1.0 + less.loss),
                    other.time
                ),
            };
            rows.push(("robust", text));
        }
        let fixed =
            if self.fixed.is_empty() { String::new() } else { format!(" with {}", self.fixed.join(", ")) };
        let free = 100.0 * (1.0 - self.memory_gib.limit / self.memory_gib.available);
        rows.push((
            "searched",
            format!(
                "{} layouts{fixed}; {} fit with {free:.0} % of GPU memory kept free",
                count(self.searched),
                count(self.fitting)
            ),
        ));
        rows.extend(self.notes.iter().map(|it| ("note", it.clone())));
        rows
    }

    fn tables<'a>(&'a self, best: &'a Layout, width: usize, out: &mut impl Write) -> io::Result<()> {
        let mut front: Vec<&Layout> = Vec::new();
        for it in &self.front {
            if front.last().is_none_or(|last| it.memory_gib <= FRONT.1 * last.memory_gib)
                && front.len() < FRONT.0
            {
                front.push(it);
            }
        }
        let tables = [
            ("runners-up: the best with another tp, pp, cp, ep or ZeRO", &self.runners_up),
            ("the best layout with one setting changed", &self.changes),
        ];
        let mut all = vec![best];
        for (_, losers) in tables {
            all.extend(losers.iter().take(ROWS).map(|it| &it.layout));
        }
        all.extend(&front);
        for (title, losers) in tables {
            let row = |it: &'a Loser| Row { layout: &it.layout, ratio: it.ratio, why: &it.why };
            let rows: Vec<Row<'_>> = losers.iter().take(ROWS).map(row).collect();
            table::write(title, &all, &rows, width, out)?;
        }
        if front.len() > 1 {
            let rows: Vec<Row<'_>> = front
                .iter()
                .map(|it| Row { layout: it, ratio: it.step_time_s / best.step_time_s, why: "" })
                .collect();
            table::write("time against memory: the fastest with less memory each", &all, &rows, width, out)?;
        }
        Ok(())
    }

    /// No layout fits.
    fn nothing(&self, style: Style, out: &mut impl Write) -> io::Result<()> {
        let head = self.too_small();
        writeln!(out, "{}", if style.colour { format!("\x1b[1m{head}\x1b[0m") } else { head })?;
        writeln!(out)?;
        if let Some(least) = &self.least {
            let text = format!("{}: {} per step", least.text, least.time);
            for (i, part) in wrap(&text, style.width.saturating_sub(12).max(30)).into_iter().enumerate() {
                writeln!(out, "  {:<9} {part}", if i == 0 { "smallest" } else { "" })?;
            }
            if least.host_gib > 0.0 {
                writeln!(out, "  {:<9} {} GiB of each node", "host", shown(least.host_gib))?;
            }
        }
        let fixed =
            if self.fixed.is_empty() { String::new() } else { format!(" with {}", self.fixed.join(", ")) };
        writeln!(out, "  {:<9} {} layouts{fixed}", "searched", count(self.searched))?;
        writeln!(out, "  {:<9} more nodes, GPUs with more memory, or a shorter `seq`", "needs")
    }

    /// The process groups of the best layout.
    pub fn group_table(&self, width: usize, out: &mut impl Write) -> io::Result<()> {
        if self.groups.is_empty() {
            return Ok(());
        }
        let names = self.groups.iter().map(|it| it.group.len()).max().unwrap_or(0).max(6);
        writeln!(out, "\n  {:<names$} {:>6} {:>7}  {:<22} link", "group", "ranks", "groups", "the first")?;
        for it in &self.groups {
            let start =
                format!("  {:<names$} {:>6} {:>7}  {:<22} ", it.group, it.size, count(it.count), first(it));
            let indent = start.chars().count();
            for (i, line) in wrap(&it.link, width.saturating_sub(indent).max(24)).into_iter().enumerate() {
                if i == 0 { writeln!(out, "{start}{line}")? } else { writeln!(out, "{:indent$}{line}", "")? }
            }
        }
        writeln!(out, "\n  ranks are numbered tp, cp, dp, pp, and fill one node after the other")
    }
}

/// `0-7`, `0, 8, 16 ... 120`.
fn first(group: &super::Group) -> String {
    let last = (group.size - 1) * group.stride;
    match (group.stride, group.size) {
        (1, _) => format!("0-{last}"),
        (_, ..=4) => group.first.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
        (stride, _) => format!("0, {stride}, {} ... {last}", 2 * stride),
    }
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn long_numbers_are_grouped() {
        assert_eq!(
            ["7", "999", "1,000", "6,582,816"],
            [7, 999, 1000, 6_582_816].map(count).each_ref().map(String::as_str)
        );
    }
}
