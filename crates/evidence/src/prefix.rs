//! The beginning of an NCCL line.
//!
//! ```text
//! INFO   [TS]HOST:PID:TID [DEV] NCCL INFO MSG
//! WARN   [TS]HOST:PID:TID [DEV] FILE:LINE NCCL WARN MSG          up to 2.30.4
//! WARN   [TS]HOST:PID:TID [DEV] FILE:LINE (FUNC) NCCL WARN MSG   2.30.7
//! CALL   [TS]HOST:PID:TID NCCL CALL MSG
//! TRACE  [TS]HOST:PID:TID [DEV] MILLIS FUNC:LINE NCCL TRACE MSG
//! ```
//! (NCCL `src/debug.cc`.) Launchers, `kubectl` and loggers put their own text
//! before it, so the anchor ` NCCL INFO ` is found first and the rest is
//! read from there to the left.

use memchr::{memchr, memmem, memrchr};

/// The level of an NCCL line. There is no ERROR level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Ordinary.
    Info,
    /// Something failed.
    Warn,
    /// An API call (TRACE level).
    Call,
    /// A debug build's trace.
    Trace,
}

/// An NCCL line, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'a> {
    /// Its level.
    pub level: Level,
    /// `HOST:PID:TID`, empty where it was cut away.
    pub thread: &'a [u8],
    /// What precedes the thread: a timestamp, a launcher's label, nothing.
    pub before: &'a [u8],
    /// `FILE:LINE` of a warning.
    pub location: &'a [u8],
    /// The message.
    pub message: &'a [u8],
}

/// A thread's name taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thread<'a> {
    /// The host, cut at its first dot by NCCL.
    pub host: &'a str,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
}

/// Finds the anchor of NCCL lines.
#[derive(Debug)]
pub struct Anchor(memmem::Finder<'static>);

impl Default for Anchor {
    fn default() -> Self {
        Self(memmem::Finder::new(b"NCCL "))
    }
}

impl Anchor {
    /// Takes `line` apart, if it is an NCCL line.
    pub fn split<'a>(&self, line: &'a [u8]) -> Option<Line<'a>> {
        let mut from = 0;
        loop {
            let at = from + self.0.find(line.get(from..)?)?;
            let rest = line.get(at + 5..)?;
            let level = match rest {
                [b'I', b'N', b'F', b'O', b' ', ..] => Some((Level::Info, 5)),
                [b'W', b'A', b'R', b'N', b' ', ..] => Some((Level::Warn, 5)),
                [b'C', b'A', b'L', b'L', b' ', ..] => Some((Level::Call, 5)),
                [b'T', b'R', b'A', b'C', b'E', b' ', ..] => Some((Level::Trace, 6)),
                _ => None,
            };
            // `NCCL INFO` inside a word or a quotation is not the anchor.
            let stands_free =
                at == 0 || matches!(line.get(at - 1), Some(b' ' | b'\t' | b'"' | b'|' | b':' | b']' | b'>'));
            if let (Some((level, skip)), true) = (level, stands_free) {
                let (thread, before, location) = head(line.get(..at)?.trim_ascii_end());
                return Some(Line { level, thread, before, location, message: rest.get(skip..)? });
            }
            from = at + 5;
        }
    }
}

/// Takes a line of NCCL 2.3 and before apart, which has no `NCCL`: `HOST:PID:TID [DEV] INFO MSG`.
pub(crate) fn old(line: &[u8]) -> Option<Line<'_>> {
    for (anchor, level) in [(&b" INFO "[..], Level::Info), (b" WARN ", Level::Warn)] {
        let window = line.get(..line.len().min(400))?;
        let Some(at) = memmem::find(window, anchor) else { continue };
        let front = line.get(..at)?;
        // With a device; a warning has its place in the source after it.
        let close = memrchr(b']', front)?;
        let (thread, before, location) = head(front);
        let placed = match level {
            Level::Warn => !location.is_empty() && memchr(b':', location).is_some(),
            _ => close + 1 == at,
        };
        // `10:11:12 [0] INFO` is a time.
        let named = memchr(b':', thread)
            .and_then(|it| thread.get(..it))
            .is_some_and(|it| it.iter().any(u8::is_ascii_alphabetic));
        if named && placed {
            return Some(Line { level, thread, before, location, message: line.get(at + anchor.len()..)? });
        }
    }
    None
}

/// `HOST:PID:TID [DEV] FILE:LINE (FUNC)` to (thread, before it, location).
fn head(head: &[u8]) -> (&[u8], &[u8], &[u8]) {
    let none: &[u8] = &[];
    // With a device: the last `[digits]` closes the thread's part.
    let (left, location) = match memrchr(b'[', head) {
        Some(open) => {
            let inside = head.get(open + 1..).unwrap_or_default();
            match memchr(b']', inside) {
                Some(close) if close > 0 && is_number(inside.get(..close).unwrap_or_default()) => (
                    head.get(..open.saturating_sub(1)).unwrap_or_default(),
                    inside.get(close + 1..).unwrap_or_default(),
                ),
                _ => (head, none),
            }
        }
        None => (head, none),
    };
    match thread_start(left) {
        Some(start) => {
            let (before, thread) = left.split_at(start);
            (thread, before, location.trim_ascii())
        }
        None => {
            // No thread: `[1] NCCL INFO`, `init.cc:903 NCCL WARN`.
            let location = if location.is_empty() && memchr(b'[', head).is_none() { head } else { location };
            (none, left, location.trim_ascii())
        }
    }
}

fn is_number(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

/// Where `HOST:PID:TID` begins, if `left` ends with one.
fn thread_start(left: &[u8]) -> Option<usize> {
    let tid = memrchr(b':', left)?;
    if !is_number(left.get(tid + 1..)?) {
        return None;
    }
    let pid = memrchr(b':', left.get(..tid)?)?;
    if !is_number(left.get(pid + 1..tid)?) {
        return None;
    }
    let host = left.get(..pid)?;
    let length = host
        .iter()
        .rev()
        .take_while(|it| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'_' | b'.'))
        .count();
    let start = pid - length;
    // A colour code just before the host: `ESC[36mhost`.
    let colour = host.get(..start)?.ends_with(b"\x1b[").then(|| memchr(b'm', host.get(start..)?)).flatten();
    let start = colour.map_or(start, |it| start + it + 1);
    (start < pid).then_some(start)
}

/// Reads `HOST:PID:TID`.
pub fn thread(text: &[u8]) -> Option<Thread<'_>> {
    let text = str::from_utf8(text).ok()?;
    let (rest, tid) = text.rsplit_once(':')?;
    let (host, pid) = rest.rsplit_once(':')?;
    Some(Thread { host, pid: pid.parse().ok()?, tid: tid.parse().ok()? })
}

/// The time in the text before a line, as it is written there.
///
/// Understood are `2025-10-16 22:16:08`, the same with `T`, fractions and a
/// zone, `10/16/2025 22:16:08`, and the glog form of PyTorch, `E1129 11:56:57.642513817`.
pub fn time(before: &[u8]) -> Option<&str> {
    let text = str::from_utf8(before.get(..before.len().min(400))?).ok()?;
    let bytes = text.as_bytes();
    let digits =
        |from: usize, n: usize| bytes.get(from..from + n).is_some_and(|it| it.iter().all(u8::is_ascii_digit));
    let mut colon = 0;
    while let Some(next) = memchr(b':', bytes.get(colon..)?) {
        let at = colon + next;
        colon = at + 1;
        // hh:mm:ss around this colon
        if at < 2
            || !digits(at - 2, 2)
            || !digits(at + 1, 2)
            || bytes.get(at + 3) != Some(&b':')
            || !digits(at + 4, 2)
        {
            continue;
        }
        let mut end = at + 6;
        if matches!(bytes.get(end), Some(b'.' | b',')) {
            end += 1;
            while bytes.get(end).is_some_and(u8::is_ascii_digit) {
                end += 1;
            }
        }
        let hours = at - 2;
        let date = hours >= 11
            && digits(hours - 11, 4)
            && matches!(bytes.get(hours - 7), Some(b'-' | b'/'))
            && digits(hours - 6, 2)
            && digits(hours - 3, 2);
        let year_last = hours >= 11
            && digits(hours - 5, 4)
            && bytes.get(hours - 6) == Some(&b'/')
            && digits(hours - 8, 2)
            && bytes.get(hours - 9) == Some(&b'/')
            && digits(hours - 11, 2);
        // glog: `E1129 11:56:57`, and with one digit for the month `E321 02:07:08`
        let start = if date || year_last {
            hours - 11
        } else if hours >= 5 && digits(hours - 5, 4) {
            hours - 5
        } else if hours >= 5
            && digits(hours - 4, 3)
            && bytes.get(hours - 5).is_some_and(u8::is_ascii_uppercase)
        {
            hours - 4
        } else {
            hours
        };
        return text.get(start..end);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{Anchor, Level, thread, time};

    #[track_caller]
    fn check(line: &str, want_thread: &str, location: &str, message: &str) {
        let anchor = Anchor::default();
        let line = anchor.split(line.as_bytes()).expect("an NCCL line");
        assert_eq!(str::from_utf8(line.thread), Ok(want_thread));
        assert_eq!(str::from_utf8(line.location), Ok(location));
        assert_eq!(str::from_utf8(line.message), Ok(message));
    }

    #[test]
    fn reads_every_form() {
        check("node-0:191:726 [0] NCCL INFO Using network IB", "node-0:191:726", "", "Using network IB");
        check(
            "[2025-10-16 22:16:08] node-a:1929:1937 [0] nccl_net_ofi_rdma_init:7978 NCCL WARN NET/OFI x",
            "node-a:1929:1937",
            "nccl_net_ofi_rdma_init:7978",
            "NET/OFI x",
        );
        check(
            "h:1:2 [0] misc/socket.cc:49 (ncclSocket) NCCL WARN w",
            "h:1:2",
            "misc/socket.cc:49 (ncclSocket)",
            "w",
        );
        check("h:1:2 NCCL CALL ncclAllReduce(1)", "h:1:2", "", "ncclAllReduce(1)");
        check("h:1:2 [3] 12.5 commAlloc:12 NCCL TRACE t", "h:1:2", "12.5 commAlloc:12", "t");
    }

    #[test]
    fn reads_through_launchers() {
        for before in [
            "[1,3]<stdout>:",
            "[1,3]<stderr>: ",
            "0: ",
            "[rank0]: ",
            "10.0.0.10: ",
            "[trainer3]:",
            "2025-01-02T03:04:05.123456789Z stdout F ",
            "[pod/llama-0/trainer] ",
            "(RayWorker pid=33, ip=10.0.0.1) ",
            "(worker_fn pid=12) \u{1b}[36m",
            "worker-0 | ",
        ] {
            check(&format!("{before}n1:10:20 [7] NCCL INFO m"), "n1:10:20", "", "m");
        }
    }

    #[test]
    fn reads_cut_lines() {
        check("[1] NCCL INFO NET/Plugin", "", "", "NET/Plugin");
        check("NCCL INFO NET/Plugin", "", "", "NET/Plugin");
        check("misc/ibvwrap.cc:63 NCCL WARN Failed", "", "misc/ibvwrap.cc:63", "Failed");
        check("[0] misc/ibvwrap.cc:63 NCCL WARN Failed", "", "misc/ibvwrap.cc:63", "Failed");
        check(":1:2 [0] NCCL INFO x", "", "", "x");
    }

    #[test]
    fn leaves_other_lines_alone() {
        let anchor = Anchor::default();
        for line in ["", "NCCL", "NCCL version 2.21.5+cuda12.4", "see the NCCL documentation", "xNCCL INFO y"]
        {
            assert_eq!(anchor.split(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn reads_the_oldest_form() {
        let line = super::old(b"[1,0]<stdout>:h:1:2 [0] INFO NET/Socket : 1 interfaces found").unwrap();
        assert_eq!((line.thread, line.message), (&b"h:1:2"[..], &b"NET/Socket : 1 interfaces found"[..]));
        let line = super::old(b"h:1:2 [0] misc/ibvwrap.cu:60 WARN Failed").unwrap();
        assert_eq!((line.level, line.location), (Level::Warn, &b"misc/ibvwrap.cu:60"[..]));
        for line in ["2025-05-05 10:11:12 [0] INFO x", "h:1:2 INFO x", "h:1:2 [0] a WARN x", "[1] INFO x"] {
            assert_eq!(super::old(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn levels() {
        let anchor = Anchor::default();
        assert_eq!(anchor.split(b"h:1:1 [0] NCCL WARN x").unwrap().level, Level::Warn);
    }

    #[test]
    fn takes_threads_apart() {
        let it = thread(b"node-a:12:34").unwrap();
        assert_eq!((it.host, it.pid, it.tid), ("node-a", 12, 34));
        assert!(thread(b"node-a:12").is_none());
        assert!(thread(b"node-a:99999999999:1").is_none());
    }

    #[test]
    fn finds_times() {
        for (text, want) in [
            ("[2025-10-16 22:16:08] ", Some("2025-10-16 22:16:08")),
            ("2025-01-02T03:04:05.12Z stdout F ", Some("2025-01-02T03:04:05.12")),
            ("[rank7]:[E1129 11:56:57.642513817 ProcessGroupNCCL.cpp:1834]", Some("1129 11:56:57.642513817")),
            ("[rank1]:[E321 02:07:08.1 x]", Some("321 02:07:08.1")),
            ("[rank0]: ", None),
            ("12:34:56 x", Some("12:34:56")),
            ("10/16/2025 22:16:08 - INFO - a", Some("10/16/2025 22:16:08")),
        ] {
            assert_eq!(time(text.as_bytes()), want, "{text}");
        }
    }
}
