//! Lines as they were written: what a terminal wrapped is joined, what lost its line end is split, what another line
//! landed in is put together again.
//!
//! The beginning of a file shows whether this is needed. Most files come through untouched, line by line.

use std::collections::{BTreeMap, BTreeSet};

use memchr::{memchr_iter, memmem, memrchr};

use crate::prefix::{self, Anchor, Level, Line};
use crate::source::Spot;
use crate::strip::{self, Marks};
use crate::{plain, signals};

/// How much of a file's beginning is looked at.
const HEAD: usize = 256 * 1024;
/// A joined line is not longer than this.
const LONGEST: usize = 16 * 1024;
/// Terminals have these widths; other widths count if several lines have them.
static USUAL: &[usize] = &[80, 100, 120, 132, 160];

/// A line to be read.
#[derive(Debug)]
pub(crate) struct Whole<'a> {
    pub(crate) text: &'a [u8],
    /// Where it begins.
    pub(crate) spot: Spot,
    /// How many lines of the input it is.
    pub(crate) lines: u32,
    /// Its end is missing.
    pub(crate) cut: bool,
}

/// Whether the lines of a file need to be put together again.
pub fn is_broken(file: &[u8]) -> bool {
    !Mender::new(file, true).is_idle(file)
}

/// How the lines of a file were broken.
#[derive(Debug, Default)]
pub(crate) struct Mender {
    pub(crate) marks: Marks,
    /// Lines go on in the next one at this column.
    wrapped: Option<usize>,
    /// Lines end at this column, and their rest is lost.
    cut: Option<usize>,
    /// Lines run into each other.
    glued: bool,
    /// Hosts of lines that begin where a line begins.
    hosts: Vec<Box<[u8]>>,
    anchor: Anchor,
    /// The beginning of a line that may go on.
    held: Option<Held>,
}

#[derive(Debug)]
struct Held {
    text: Vec<u8>,
    spot: Spot,
    lines: u32,
    why: Why,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    /// The line has the width of the terminal.
    Full,
    /// Another line landed in it. The text ends with a word of which the other host's name is the end, if it is not known.
    Torn { sure: bool },
}

impl Mender {
    /// Learns from the first lines of a region. Only the `beginning` of a file shows its width.
    pub(crate) fn new(bytes: &[u8], beginning: bool) -> Self {
        let head = bytes.get(..bytes.len().min(HEAD)).unwrap_or_default();
        let mut it = Self { marks: Marks::of(head), ..Self::default() };
        it.learn_hosts(head);
        if beginning {
            it.learn_width(bytes, head);
        }
        it
    }

    /// Unlearns the width at which lines are cut, where a longer line shows that they are not.
    pub(crate) fn unlearn(&mut self, bytes: &[u8]) {
        if let Some(width) = self.cut
            && bytes.split(|it| *it == b'\n').any(|it| it.len() > width && columns(it) > width)
        {
            self.cut = None;
        }
    }

    /// Whether the lines of `bytes` are as they were written.
    pub(crate) fn is_idle(&self, bytes: &[u8]) -> bool {
        self.wrapped.is_none()
            && self.cut.is_none()
            && !self.glued
            && self.held.is_none()
            && !self.hides_warning(bytes)
    }

    /// Whether a warning begins inside another NCCL line. This costs next to nothing, and a lost warning much.
    fn hides_warning(&self, bytes: &[u8]) -> bool {
        memmem::find_iter(bytes, b" NCCL WARN ").take(64).any(|at| {
            let before = bytes.get(..at).unwrap_or_default();
            let line = before.get(memrchr(b'\n', before).map_or(0, |it| it + 1)..).unwrap_or_default();
            self.anchor.split(line).is_some()
        })
    }

    fn learn_hosts(&mut self, head: &[u8]) {
        // Names that other text runs into, by process: what they have in common at their end is the name.
        let mut fused: BTreeMap<Vec<u8>, Vec<Vec<u8>>> = BTreeMap::new();
        for line in head.split(|it| *it == b'\n') {
            for (number, head) in heads(&self.anchor, line).iter().enumerate() {
                let (host, process) = head.name(line);
                let before = line.get(..head.thread).unwrap_or_default();
                if number == 0 && (before.is_empty() || strip::bare(line).len() + before.len() <= line.len())
                {
                    if !self.hosts.iter().any(|it| **it == *host) && self.hosts.len() < 1000 {
                        self.hosts.push(host.into());
                    }
                } else {
                    self.glued |= number > 0;
                    fused.entry(process.to_vec()).or_default().push(host.to_vec());
                }
            }
        }
        let mut common: Vec<Box<[u8]>> = Vec::new();
        for names in fused.values() {
            let Some(first) = names.first() else { continue };
            let same = |n: usize| {
                names.iter().all(|it| it.ends_with(first.get(first.len() - n..).unwrap_or_default()))
            };
            let length = (0..=first.len()).rev().find(|&n| same(n)).unwrap_or(0);
            let distinct = names.iter().any(|it| it != first);
            // Two names of one thread: something ran into at least one of them.
            self.glued |= distinct;
            if distinct && length > 1 {
                common.push(first.get(first.len() - length..).unwrap_or_default().into());
            }
        }
        let runs_into = |name: &Vec<u8>, host: &[u8]| name.len() > host.len() && name.ends_with(host);
        let mut names = fused.values().flatten();
        self.glued |= names.any(|name| self.hosts.iter().any(|host| runs_into(name, host)));
        common.sort();
        for host in common {
            if !self.hosts.iter().any(|it| host.ends_with(it)) {
                self.hosts.push(host);
            }
        }
    }

    fn learn_width(&mut self, bytes: &[u8], head: &[u8]) {
        let lines: Vec<&[u8]> = head.split(|it| *it == b'\n').map(without_return).collect();
        let Some(width) = lines.iter().map(|it| columns(it)).max() else { return };
        let full: Vec<usize> =
            (0..lines.len()).filter(|&at| lines.get(at).is_some_and(|it| columns(it) == width)).collect();
        if !(60..=300).contains(&width) || (full.len() < 2 && !USUAL.contains(&width)) {
            return;
        }
        // A longer line after what was looked at.
        let mut last = 0;
        for end in memchr_iter(b'\n', bytes) {
            if end - last > width * 4 {
                return;
            }
            last = end + 1;
        }
        // Ranks repeat a line, and most lines begin with a capital letter or a bracket.
        let goes_on = |at: &&usize| {
            let (line, next) = (lines.get(**at), lines.get(**at + 1));
            let nccl = line.is_some_and(|it| self.anchor.split(it).is_some());
            let rest = |it: &u8| (nccl || !it.is_ascii_uppercase()) && !b"[({<#*=".contains(it);
            next.is_some_and(|next| {
                line != Some(next) && next.first().is_some_and(rest) && !self.begins(next)
            })
        };
        let is_text = |at: &&usize| lines.get(**at).is_some_and(|it| !plain::is_tabular(it));
        let texts = full.iter().filter(is_text).count();
        let wrapped = full.iter().filter(is_text).filter(goes_on).count();
        // The longest message of every rank has one length, too; a terminal cuts all that are longer.
        let message = |at: &usize| {
            let line = lines.get(*at).copied().unwrap_or_default();
            let text = self.anchor.split(line).map_or(line, |it| it.message);
            text.iter().filter(|it| it.is_ascii_alphabetic()).take(30).copied().collect::<Vec<u8>>()
        };
        let messages: BTreeSet<Vec<u8>> = full.iter().map(message).collect();
        let terminal = USUAL.contains(&width) || messages.len() > 1;
        if terminal && wrapped > 0 && wrapped * 3 >= texts * 2 {
            self.wrapped = Some(width);
        } else if USUAL.contains(&width) {
            self.cut = Some(width);
        }
    }

    /// Whether `line` is the beginning of a line, and not the rest of another.
    fn begins(&self, line: &[u8]) -> bool {
        let inner = line.trim_ascii_start();
        if inner.is_empty()
            || line.starts_with(b"  ")
            || line.starts_with(b"\t")
            || plain::is_structured(line)
        {
            return true;
        }
        // A short label could as well be the rest of a sentence.
        if self.anchor.split(line).is_some()
            || prefix::old(line).is_some()
            || line.len() - strip::bare(line).len() > 3
        {
            return true;
        }
        // `RuntimeError: `, `torch.distributed.DistBackendError: `
        let word =
            inner.iter().take_while(|it| it.is_ascii_alphanumeric() || matches!(it, b'.' | b'_')).count();
        let (word, rest) = inner.split_at(word);
        rest.starts_with(b":") && (word.ends_with(b"Error") || word.ends_with(b"Exception"))
    }

    /// Takes the next line of the input and passes on what is complete.
    pub(crate) fn take(&mut self, line: &[u8], spot: Spot, out: &mut impl FnMut(Whole<'_>)) {
        let line = without_return(line);
        if let Some(mut held) = self.held.take() {
            let goes_on =
                !self.begins(line) && held.text.len() + line.len() < LONGEST && !held.text.ends_with(line);
            match held.why {
                Why::Full if goes_on => {
                    held.text.extend_from_slice(line);
                    held.lines += 1;
                    if self.wrapped == Some(columns(line)) {
                        self.held = Some(held);
                        return;
                    }
                    self.pass(&held.text, held.spot, held.lines, out);
                    return;
                }
                Why::Torn { sure } if goes_on => {
                    if let Some(text) = joined(&held.text, line, sure) {
                        self.pass(&text, held.spot, held.lines + 1, out);
                        return;
                    }
                    self.pass(&held.text, held.spot, held.lines, out);
                }
                _ => self.pass(&held.text, held.spot, held.lines, out),
            }
        }
        if self.wrapped.is_some_and(|it| it == columns(line)) && !plain::is_tabular(line) {
            self.held = Some(Held { text: line.to_vec(), spot, lines: 1, why: Why::Full });
            return;
        }
        self.pass(line, spot, 1, out);
    }

    /// The end of the region.
    pub(crate) fn end(&mut self, out: &mut impl FnMut(Whole<'_>)) {
        if let Some(held) = self.held.take() {
            self.pass(&held.text, held.spot, held.lines, out);
        }
    }

    /// Passes a line on, in parts where another one begins inside it.
    fn pass(&mut self, line: &[u8], spot: Spot, lines: u32, out: &mut impl FnMut(Whole<'_>)) {
        let cut = self.cut.is_some_and(|it| columns(line) == it) || line.ends_with("…".as_bytes());
        let heads = heads(&self.anchor, line);
        let mut rest = 0;
        let mut torn = None;
        for (number, head) in heads.iter().enumerate() {
            let (host, _) = head.name(line);
            let known = self.hosts.iter().filter(|it| host.ends_with(it)).max_by_key(|it| it.len());
            let name = known.map_or(host.len(), |it| it.len());
            let start = head.thread + host.len() - name;
            let before = line.get(..start).unwrap_or_default();
            // Before the first one stands what launchers add, unless a word runs into the name.
            if start == 0 || (number == 0 && (name == host.len() || strip::bare(before).is_empty())) {
                continue;
            }
            let part = line.get(rest..start).unwrap_or_default();
            if torn.is_none() {
                torn = Some((part.to_vec(), known.is_some()));
            } else {
                out(Whole { text: part, spot, lines: 1, cut: false });
            }
            rest = start;
        }
        let last = line.get(rest..).unwrap_or_default();
        out(Whole { text: last, spot, lines, cut });
        if let Some((text, sure)) = torn
            && !text.trim_ascii().is_empty()
        {
            self.held = Some(Held { text, spot, lines: 0, why: Why::Torn { sure } });
        }
    }
}

/// The line that `rest` completes, if it does.
fn joined(torn: &[u8], rest: &[u8], sure: bool) -> Option<Vec<u8>> {
    let book = signals::book();
    let whole = [torn, rest].concat();
    let more = book.find(&whole).len();
    let apart = book.find(torn).len() + book.find(rest).len();
    if more > apart || (sure && more == apart && book.find(rest).is_empty()) {
        return Some(whole);
    }
    None
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// How many characters `line` has.
fn columns(line: &[u8]) -> usize {
    without_return(line).iter().filter(|it| **it & 0xC0 != 0x80).count()
}

/// Where an NCCL line begins: `HOST:PID:TID [DEV]`.
#[derive(Debug, Clone, Copy)]
struct Head {
    /// Where the host's name begins, with all letters before it.
    thread: usize,
    end: usize,
}

impl Head {
    /// The host and `:PID:TID`.
    fn name<'a>(&self, line: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        let name = line.get(self.thread..self.end).unwrap_or_default();
        name.split_at(name.iter().position(|it| *it == b':').unwrap_or(name.len()))
    }
}

fn heads(anchor: &Anchor, line: &[u8]) -> Vec<Head> {
    let mut heads = Vec::new();
    let mut from = 0;
    while let Some(text) = line.get(from..)
        && let Some(Line { level, thread, before, message, .. }) = anchor.split(text)
    {
        if !thread.is_empty() && matches!(level, Level::Info | Level::Warn) {
            let start = from + before.len();
            heads.push(Head { thread: start, end: start + thread.len() });
        }
        from = line.len() - message.len();
        if heads.len() > 16 {
            break;
        }
    }
    heads
}

#[cfg(test)]
mod tests {
    use super::Mender;
    use crate::source::Spot;

    fn mend(text: &str) -> Vec<String> {
        let mut mender = Mender::new(text.as_bytes(), true);
        if mender.is_idle(text.as_bytes()) {
            return text.lines().map(Into::into).collect();
        }
        let mut all = Vec::new();
        for (at, line) in (0..).zip(text.lines()) {
            let spot = Spot { region: 0, line: at };
            mender.take(line.as_bytes(), spot, &mut |it| {
                all.push(String::from_utf8_lossy(it.text).into_owned());
            });
        }
        mender.end(&mut |it| all.push(String::from_utf8_lossy(it.text).into_owned()));
        all
    }

    const LONG: &str = "node-a:4289:4343 [0] NCCL INFO comm 0x7f0000000000 rank 0 nranks 4 cudaDev 0 busId 1000 - Init COMPLETE";

    #[test]
    fn wrapped_lines_are_joined() {
        let (first, second) = LONG.split_at(80);
        let text = format!("{first}\n{second}\nnode-a:1:2 [0] NCCL INFO x\n{first}\n{second}");
        assert_eq!(mend(&text), [LONG, "node-a:1:2 [0] NCCL INFO x", LONG]);
    }

    #[test]
    fn a_longer_line_later_shows_that_none_was_cut() {
        let line = format!("{}\n", "x".repeat(80));
        let mut mender = Mender::new(line.as_bytes(), true);
        mender.unlearn(line.as_bytes());
        assert!(!mender.is_idle(line.as_bytes()));
        mender.unlearn(format!("{line}y{line}").as_bytes());
        assert!(mender.is_idle(line.as_bytes()));
    }

    #[test]
    fn lines_of_one_length_are_not() {
        let text = format!("{LONG}\n{LONG}\n{LONG}");
        assert_eq!(mend(&text), [LONG; 3]);
        let rows = "   134217728      33554432     float     sum      -1    631.9  212.41    0.00      0     0.51  26.30    0.00      0\n".repeat(4);
        assert_eq!(mend(&rows).len(), 4);
    }

    #[test]
    fn the_longest_line_of_every_rank_is_not_joined() {
        let line = |rank| format!("node-{rank}:1:2 [0] NCCL INFO {} rank {rank}", "long ".repeat(30));
        let text = format!("{}\nstep 1/5: x\n{}\nstep 1/5: x", line(0), line(1));
        assert_eq!(mend(&text).len(), 4);
    }

    #[test]
    fn repeated_lines_are_not_joined() {
        let line = "Detected ZeRO Offload and non-DeepSpeed optimizers: this combination should work";
        assert_eq!(line.len(), 80);
        assert_eq!(mend(&format!("{line}\n{line}\n{line}\nstep 1")).len(), 4);
    }

    #[test]
    fn lines_run_together_are_split() {
        let text = "node-a:1:2 [0] NCCL INFO via P2P/CUMEMnode-b:3:4 [1] NCCL INFO Connected all trees\nnode-b:3:4 [1] NCCL INFO x";
        assert_eq!(
            mend(text),
            [
                "node-b:3:4 [1] NCCL INFO Connected all trees",
                "node-a:1:2 [0] NCCL INFO via P2P/CUMEM",
                "node-b:3:4 [1] NCCL INFO x"
            ]
        );
    }

    #[test]
    fn a_torn_line_is_put_together() {
        let text = "node-b:3:4 [1] NCCL INFO x\nnode-a:1:2 [0] misc/socket.cc:4 NCCL WARN Call to connode-b:3:4 [1] NCCL INFO Connected all trees\nnect failed: Connection refused\n";
        assert_eq!(
            mend(text),
            [
                "node-b:3:4 [1] NCCL INFO x",
                "node-b:3:4 [1] NCCL INFO Connected all trees",
                "node-a:1:2 [0] misc/socket.cc:4 NCCL WARN Call to connect failed: Connection refused"
            ]
        );
    }
}
