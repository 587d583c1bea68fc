//! The same for people.

use std::collections::BTreeMap;
use std::io::{self, Write};

use rules::Severity;

use super::{Accused, Validate, list, percent};
use crate::Doctor;
use crate::expect::shown;
use crate::text::{Style, width, wrap};

/// Characters of a column's name: `100` fits, and longer names are cut at their beginning.
const NAME: [usize; 2] = [3, 8];

/// Machines whose matrix is shown where nothing is slow.
const SMALL: usize = 16;

/// Findings beyond the first that are named with what they are.
const MORE: usize = 4;

impl Validate {
    /// For people.
    pub fn text(&self, style: Style, out: &mut impl Write) -> io::Result<()> {
        let bold = |text: &str| if style.colour { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() };
        for line in wrap(&self.text, style.width) {
            writeln!(out, "{}", bold(&line))?;
        }
        writeln!(out, "{}", self.source)?;
        let most = if style.verbose { usize::MAX } else { 4 };
        let groups = self.alike();
        for (it, hosts) in groups.iter().take(most) {
            writeln!(out)?;
            let tests = match it.tests.len() {
                0 => String::new(),
                _ => format!(" ({})", list(&it.tests, 2)),
            };
            let rule = it.rule.as_ref().map(|it| format!("  [{it}]")).unwrap_or_default();
            let head = format!("{}  {}{rule}", it.class.to_uppercase(), super::simulated::out_list(hosts));
            writeln!(out, "  {}", bold(&head))?;
            for line in wrap(&format!("{}{tests}", it.text), style.width.saturating_sub(4)) {
                writeln!(out, "    {line}")?;
            }
            for line in it.remark.iter().flat_map(|it| wrap(it, style.width.saturating_sub(4))) {
                writeln!(out, "    {line}")?;
            }
            for line in it.confidence().iter().flat_map(|it| wrap(it, style.width.saturating_sub(4))) {
                writeln!(out, "    {line}")?;
            }
            for line in self.evidence(it) {
                writeln!(out, "      {line}")?;
            }
            for line in wrap(&format!("-> {}", it.action), style.width.saturating_sub(4)) {
                writeln!(out, "    {line}")?;
            }
            if style.verbose {
                it.references.iter().try_for_each(|it| writeln!(out, "    source: {it}"))?;
            }
        }
        // What else is wrong is not hidden behind names.
        for (it, hosts) in groups.iter().skip(most).take(MORE) {
            let what =
                it.rule.as_ref().map_or_else(|| it.text.clone(), |rule| format!("[{rule}] {}", it.text));
            let what: String = what.split("; ").next().unwrap_or_default().to_owned();
            let text = format!("and {}: {what} (-v)", super::simulated::out_list(hosts));
            writeln!(out)?;
            for line in wrap(&text, style.width.saturating_sub(2)) {
                writeln!(out, "  {line}")?;
            }
        }
        if groups.len() > most.saturating_add(MORE) {
            let more: Vec<String> =
                groups.iter().skip(most + MORE).map(|(_, hosts)| hosts.join(" - ")).collect();
            writeln!(out)?;
            for line in
                wrap(&format!("and {}: {} (-v)", more.len(), list(&more, 40)), style.width.saturating_sub(2))
            {
                writeln!(out, "  {line}")?;
            }
        }
        for it in &self.splits {
            writeln!(out, "\n  {}", bold(&format!("TIER  {}", it.test)))?;
            let text = format!(
                "{} pairs across reach {} of what pairs inside do: another switch, rail or block lies between them",
                it.across,
                percent(it.share)
            );
            for line in wrap(&text, style.width.saturating_sub(4)) {
                writeln!(out, "    {line}")?;
            }
            for (number, group) in it.groups.iter().enumerate() {
                for line in
                    wrap(&format!("group {}: {}", number + 1, list(group, 16)), style.width.saturating_sub(4))
                {
                    writeln!(out, "    {line}")?;
                }
            }
            writeln!(out, "    -> keep a job inside one group, or check the links between these switches")?;
        }
        self.verdicts(style, out)?;
        if self.stages.is_empty() || style.verbose {
            self.stages(out)?;
        }
        self.kinds(style, out)?;
        self.square(style, out)?;
        let most = if style.verbose { usize::MAX } else { 4 };
        for (number, it) in self.not_known.iter().take(most).enumerate() {
            if number == 0 {
                writeln!(out)?;
            }
            for (i, line) in wrap(it, style.width.saturating_sub(13)).into_iter().enumerate() {
                writeln!(out, "  {} {line}", if i == 0 { "not known " } else { "          " })?;
            }
        }
        if self.not_known.len() > most {
            writeln!(out, "  not known  {} more (--format json)", self.not_known.len() - most)?;
        }
        self.outlook(style, out)
    }

    /// Findings with their machines; those of machines of which the same is said are one.
    fn alike(&self) -> Vec<(&Accused, Vec<String>)> {
        let mut groups: Vec<(&Accused, Vec<String>)> = Vec::new();
        for it in &self.findings {
            // What was measured has evidence of its own.
            let same = |known: &&mut (&Accused, Vec<String>)| {
                let said = |it: &Accused| (it.class, it.rule.clone(), it.text.clone(), it.action.clone());
                it.of == 0 && it.hosts.len() == 1 && known.0.of == 0 && said(known.0) == said(it)
            };
            match groups.iter_mut().find(same) {
                Some((_, hosts)) => hosts.extend(it.hosts.iter().cloned()),
                None => groups.push((it, it.hosts.clone())),
            }
        }
        groups
    }

    /// Each stage with its verdict.
    fn verdicts(&self, style: Style, out: &mut impl Write) -> io::Result<()> {
        for (number, it) in self.stages.iter().enumerate() {
            if number == 0 {
                writeln!(out)?;
            }
            let colour = match it.verdict {
                _ if !style.colour => "",
                "ok" => "\x1b[32m",
                "low" | "failed" | "found" | "open" => "\x1b[31m",
                _ => "\x1b[2m",
            };
            let end = if colour.is_empty() { "" } else { "\x1b[0m" };
            let head = format!("  {} {:<9}{colour}{:<15}{end}", it.number, it.name, it.verdict);
            let mut lines = wrap(&it.text, style.width.saturating_sub(28)).into_iter();
            writeln!(out, "{}", format!("{head}{}", lines.next().unwrap_or_default()).trim_end())?;
            for line in lines {
                writeln!(out, "{:28}{line}", "")?;
            }
        }
        Ok(())
    }

    /// Notes, and what to do now.
    fn outlook(&self, style: Style, out: &mut impl Write) -> io::Result<()> {
        let most = if style.verbose { usize::MAX } else { 6 };
        for (number, it) in self.notes.iter().take(most).enumerate() {
            if number == 0 {
                writeln!(out)?;
            }
            for (i, line) in wrap(it, style.width.saturating_sub(8)).into_iter().enumerate() {
                writeln!(out, "  {} {line}", if i == 0 { "note:" } else { "     " })?;
            }
        }
        if self.notes.len() > most {
            writeln!(out, "  note: {} more (-v)", self.notes.len() - most)?;
        }
        if let Some(next) = &self.next {
            writeln!(out, "\n  next: {}", next.text)?;
            writeln!(out, "    {}", next.command)?;
        }
        if let Some(results) = &self.results {
            writeln!(out, "\n  every measurement is in {results}")?;
        }
        Ok(())
    }

    fn stages(&self, out: &mut impl Write) -> io::Result<()> {
        let wide = self.launches.iter().map(|it| it.what.len()).max().unwrap_or(0);
        for (number, it) in self.launches.iter().enumerate() {
            if number == 0 {
                writeln!(out, "\n  launches")?;
            }
            // What failed was not low.
            let mark = if it.ok || it.result.starts_with("failed") { "    " } else { "low " };
            writeln!(out, "  {:>2} {:<8}{:<wide$}  {mark}{}", number + 1, it.stage, it.what, it.result)?;
            for failure in &it.failures {
                writeln!(out, "  {:10} failed: {failure}", "")?;
            }
        }
        Ok(())
    }

    fn kinds(&self, style: Style, out: &mut impl Write) -> io::Result<()> {
        if self.tests.is_empty() {
            return Ok(());
        }
        let most = if style.verbose { usize::MAX } else { 12 };
        let wide = self.tests.iter().take(most).map(|it| it.name.len()).max().unwrap_or(0).max(4);
        let known = self.tests.iter().take(most).any(|it| it.expected.is_some());
        let last = if known { "   expected" } else { "" };
        writeln!(
            out,
            "\n  {:<wide$}  {:>5} {:>6} {:>6} {:>8} {:>8}{last}",
            "test", "runs", "failed", "slow", "normal", "lowest"
        )?;
        for it in self.tests.iter().take(most) {
            let rate = |it: Option<f64>| it.map_or_else(|| "-".to_owned(), shown);
            let expected =
                it.expected.as_ref().map(|it| format!("   {} to {}", shown(it.low), shown(it.high)));
            writeln!(
                out,
                "  {:<wide$}  {:>5} {:>6} {:>6} {:>8} {:>8}{}",
                it.name,
                it.runs,
                it.failed,
                it.slow.saturating_sub(it.failed),
                rate(it.normal),
                rate(it.lowest),
                expected.unwrap_or_default()
            )?;
        }
        if self.tests.len() > most {
            writeln!(out, "  {} more tests (-v)", self.tests.len() - most)?;
        }
        writeln!(
            out,
            "  normal: what most of these runs reach, in GB/s of bus bandwidth; slow: at least 10 % below"
        )?;
        let mut machines: Vec<&str> =
            self.tests.iter().filter_map(|it| it.expected.as_ref()).map(|it| it.machine.as_str()).collect();
        machines.dedup();
        if let Some(machine) = machines.first() {
            writeln!(out, "  expected: what plumb's model gives for {machine}")?;
        }
        Ok(())
    }

    /// Machines whose pairs are slow, as many as fit.
    fn square(&self, style: Style, out: &mut impl Write) -> io::Result<()> {
        let Some(matrix) = &self.matrix else { return Ok(()) };
        let mut slow: BTreeMap<usize, usize> = BTreeMap::new();
        let mut all: BTreeMap<usize, usize> = BTreeMap::new();
        for cell in &matrix.pairs {
            for host in cell.hosts {
                *all.entry(host).or_default() += 1;
                *slow.entry(host).or_default() += usize::from(cell.slow);
            }
        }
        let odd = slow.values().any(|it| *it > 0) || matrix.pairs.iter().any(|it| it.failed > 0);
        // Whoever has a folder of runs wants to see them; a validation of machines that are alike says so in a line.
        let wanted = !self.tests.is_empty() && (style.verbose || all.len() <= SMALL);
        // One or two measurements of each machine make no matrix.
        if !(odd || wanted) || matrix.pairs.len() < 2 * all.len() {
            return Ok(());
        }
        let short = short_names(&self.hosts);
        let label = short.iter().map(|it| width(it)).max().unwrap_or(0);
        let partly = matrix.pairs.iter().any(super::matrix::Cell::fails_at_times);
        let name = label.clamp(NAME[0] + usize::from(partly), NAME[1]);
        let wide = name + 1;
        let room = style.width.saturating_sub(label + 4) / wide;
        let mut shown: Vec<usize> = all.keys().copied().collect();
        if shown.len() > room {
            shown.sort_by_key(|it| (std::cmp::Reverse(slow.get(it).copied().unwrap_or(0)), *it));
            shown.truncate(room);
        }
        // Machines of one group beside each other.
        let group = |host: &usize| {
            let name = self.hosts.get(*host);
            let split = self.splits.iter().find(|it| it.test == matrix.test)?;
            split.groups.iter().position(|it| name.is_some_and(|name| it.contains(name)))
        };
        shown.sort_by_key(|it| (group(it), *it));
        let cells: BTreeMap<[usize; 2], &super::matrix::Cell> =
            matrix.pairs.iter().map(|it| (it.hosts, it)).collect();
        let more = if shown.len() < all.len() {
            format!("; {} of {} machines", shown.len(), all.len())
        } else {
            String::new()
        };
        let some = if partly { ", 99x failed at times" } else { "" };
        writeln!(out, "\n  {}: % of {}{more}; x failed{some}", matrix.test, super::bandwidth(matrix.normal))?;
        write!(out, "  {:label$} ", "")?;
        for column in &shown {
            let whole = short.get(*column).map_or("", String::as_str);
            let tail: String = whole.chars().skip(whole.chars().count().saturating_sub(name)).collect();
            write!(out, "{tail:>wide$}")?;
        }
        writeln!(out)?;
        for row in &shown {
            write!(out, "  {:<label$} ", short.get(*row).map_or("", String::as_str))?;
            for column in &shown {
                let key = if row < column { [*row, *column] } else { [*column, *row] };
                let text = match cells.get(&key) {
                    _ if row == column => ".".to_owned(),
                    None => String::new(),
                    Some(it) => match it.share {
                        None => "x".to_owned(),
                        Some(share) if it.fails_at_times() => format!("{:.0}x", 100.0 * share),
                        Some(share) => format!("{:.0}", 100.0 * share),
                    },
                };
                let colour = match cells.get(&key) {
                    Some(it) if style.colour && row != column && it.fails_at_times() => share_colour(None),
                    Some(it) if style.colour && row != column => share_colour(it.share),
                    _ => "",
                };
                let end = if colour.is_empty() { "" } else { "\x1b[0m" };
                write!(out, "{colour}{text:>wide$}{end}")?;
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

/// What the logs of a fleet's runs report as errors, in a line each.
pub(crate) fn errors(doctor: &Doctor, style: Style, out: &mut impl Write) -> io::Result<()> {
    let all: Vec<_> = doctor.findings.iter().filter(|it| it.severity == Severity::Error).collect();
    let most = if style.verbose { usize::MAX } else { 3 };
    for (number, it) in all.iter().take(most).enumerate() {
        if number == 0 {
            writeln!(out, "\n  errors in these logs (`plumb doctor FILE` explains them)")?;
        }
        for (i, line) in
            wrap(&format!("{}: {}", it.id, it.message), style.width.saturating_sub(6)).iter().enumerate()
        {
            writeln!(out, "    {}{line}", if i == 0 { "" } else { "  " })?;
        }
    }
    if all.len() > most {
        writeln!(out, "    {} more (-v)", all.len() - most)?;
    }
    Ok(())
}

fn share_colour(share: Option<f64>) -> &'static str {
    match share {
        Some(it) if it >= 0.9 => "",
        Some(it) if it >= 0.6 => "\x1b[33m",
        _ => "\x1b[31m",
    }
}

/// Names without what all of them begin with, up to the last character that is not a digit.
pub(super) fn short_names(names: &[String]) -> Vec<String> {
    let Some(first) = names.first() else { return Vec::new() };
    let common = names.iter().fold(first.len(), |known, name| {
        first.bytes().zip(name.bytes()).take(known).take_while(|(a, b)| a == b).count()
    });
    let cut = first.get(..common).map_or(0, |it| it.trim_end_matches(|it: char| it.is_ascii_digit()).len());
    names.iter().map(|it| it.get(cut..).filter(|it| !it.is_empty()).unwrap_or(it).to_owned()).collect()
}
