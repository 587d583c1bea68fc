//! The text output of `plumb topo --check`.

use std::io::{self, Write};

use rules::decisions::Difference;

use super::check::{Check, KindCount, Verdict};
use super::text::Page;
use crate::Style;
use crate::text::{clean, counted, cut};

/// How many differences the first screen shows.
const SHOWN: usize = 4;

/// Writes the answer.
pub fn check_text(check: &Check, style: Style, out: &mut impl Write) -> io::Result<()> {
    let page = Page { style: Style { width: style.width.clamp(40, 160), ..style } };
    let lines = |n: usize| counted(n, "line");
    let head = match check.verdict {
        Verdict::Same => {
            let only = if check.settings.is_empty() {
                String::new()
            } else {
                let set = if check.settings.len() == 1 { "was" } else { "were" };
                format!(" if {} {set} set", clean(&check.settings.join(" and ")))
            };
            format!("NCCL decided as predicted{only}: {} compared, all equal", lines(check.compared))
        }
        Verdict::Different => {
            format!(
                "NCCL decided otherwise than predicted: {} of {} differ",
                check.different,
                lines(check.compared)
            )
        }
        Verdict::Undecided => "not enough in the log to check what NCCL decided".to_owned(),
    };
    page.bold(&head, out)?;
    if let (Some(nccl), Some(ranks)) = (&check.nccl, check.ranks) {
        let seen = match check.communicators.len() {
            1 => format!("{} of {ranks} ranks, NCCL {nccl}", check.ranks_compared),
            n => format!("{n} communicators of up to {ranks} ranks, NCCL {nccl}"),
        };
        let source =
            check.source.as_deref().map(|it| format!("; machine from {}", clean(it))).unwrap_or_default();
        crate::text::wrap(&format!("{seen}{source}"), page.style.width)
            .iter()
            .try_for_each(|it| writeln!(out, "{it}"))?;
    }
    let shown = if style.verbose { check.differences.len() } else { check.differences.len().min(SHOWN) };
    for it in &check.differences[..shown] {
        difference(&page, it, out)?;
    }
    if shown < check.differences.len() {
        writeln!(out, "\n{}: -v shows them", counted(check.differences.len() - shown, "other difference"))?;
    }
    writeln!(out)?;
    if check.verdict != Verdict::Undecided {
        let kind = |it: &KindCount| match it.different {
            0 => format!("{} {}", it.kind, it.compared),
            n => format!("{} {} ({n} differ)", it.kind, it.compared),
        };
        let kinds: Vec<String> = check.kinds.iter().map(kind).collect();
        page.row("compared", &kinds.join(", "), out)?;
    }
    for it in &check.missing {
        page.row("missing", &clean(it), out)?;
    }
    if !check.missing.is_empty() {
        page.row("do", "run with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,TUNING", out)?;
    }
    check.notes.iter().try_for_each(|it| page.row("note", &clean(it), out))
}

fn difference(page: &Page, it: &Difference, out: &mut impl Write) -> io::Result<()> {
    let line = it.line.map(|it| format!(":{it}")).unwrap_or_default();
    let place = match it.line {
        Some(_) => format!("{}{line}", clean(&it.file)),
        None => format!("{}: not printed", clean(&it.file)),
    };
    page.heading(&format!("{} of {}, {place}", it.kind, ranks(&it.ranks)), out)?;
    let (nccl, plumb) = excerpt(it.nccl.as_deref(), it.plumb.as_deref(), page.style.width.saturating_sub(13));
    writeln!(out, "  NCCL       {nccl}")?;
    writeln!(out, "  predicted  {plumb}")
}

/// Both lines, from shortly before the first character that differs where they are too long.
fn excerpt(nccl: Option<&str>, plumb: Option<&str>, room: usize) -> (String, String) {
    let none = "(no such line)".to_owned();
    let (Some(one), Some(other)) = (nccl, plumb) else {
        let shown = |it: Option<&str>| it.map_or_else(|| none.clone(), |it| cut(&clean(it), room));
        return (shown(nccl), shown(plumb));
    };
    let (one, other) = (clean(one), clean(other));
    let common = one.chars().zip(other.chars()).take_while(|it| it.0 == it.1).count();
    let from = if one.chars().count().max(other.chars().count()) > room && common > room / 2 {
        common - room / 3
    } else {
        0
    };
    let part = |it: &str| {
        let rest: String = it.chars().skip(from).collect();
        let lead = if from > 0 { "..." } else { "" };
        cut(&format!("{lead}{rest}"), room)
    };
    (part(&one), part(&other))
}

/// `rank 0`, `ranks 0-7`, `ranks 0, 3 and 12 more`.
fn ranks(all: &[u32]) -> String {
    match all {
        [one] => format!("rank {one}"),
        [first, .., last] if last - first == u32::try_from(all.len() - 1).unwrap_or(0) => {
            format!("ranks {first}-{last}")
        }
        _ => {
            let shown: Vec<String> = all.iter().take(3).map(ToString::to_string).collect();
            let more = all.len().saturating_sub(3);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("ranks {}{more}", shown.join(", "))
        }
    }
}
