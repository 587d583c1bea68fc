//! What launchers, collectors and terminals put around a line.
//!
//! NCCL lines are found by their anchor, whatever stands before it. Everything else, tables and matrices included, is
//! looked at again without the labels, times and quoting marks that `layers` takes off one after the other.

mod python;

use std::borrow::Cow;

use memchr::{memchr, memchr2, memmem};

/// How far into a line the end of a label is looked for.
const WINDOW: usize = 300;
/// More labels than this are not labels.
const DEPTH: usize = 64;

/// How the lines of a file were changed on their way, as far as its beginning shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// `&gt;` stands for `>`.
    pub(crate) html: bool,
    /// Colour codes lost their escape byte: `[31m`.
    pub(crate) bare_colours: bool,
    /// All letters are small.
    pub(crate) lower: bool,
}

impl Marks {
    pub(crate) fn of(beginning: &[u8]) -> Self {
        let head = beginning.get(..beginning.len().min(256 * 1024)).unwrap_or_default();
        let has = |text: &[u8]| memmem::find(head, text).is_some();
        let html = has(b"&gt;") || has(b"&lt;") || has(b"&quot;") || has(b"&#39;");
        // An escape byte belongs to every code of a file, or to none.
        let bare_colours = has(b"[0m") && memchr(0x1b, head).is_none() && !has(b"\\u001b");
        let lower = (has(b" nccl info ") || has(b" nccl warn ") || has(b"nccl "))
            && !head.iter().any(u8::is_ascii_uppercase);
        Self { html, bare_colours, lower }
    }
}

/// The line itself: without colour codes, without the JSON that container runtimes and log collectors write around it,
/// without what Ray adds to its end, with `&gt;` as `>`.
pub(crate) fn unwrap(line: &[u8], marks: Marks) -> Cow<'_, [u8]> {
    let mut line = Cow::Borrowed(line);
    if line.first() == Some(&b'{')
        && let Some(inner) = from_json(&line)
    {
        line = Cow::Owned(inner);
    }
    if memchr(0x1b, &line).is_some() {
        line = Cow::Owned(without_colours(&line));
    }
    if marks.bare_colours && memchr(b'[', &line).is_some() {
        line = Cow::Owned(without_bare_colours(&line));
    }
    if marks.html && memchr(b'&', &line).is_some() {
        line = Cow::Owned(unescape_html(&line));
    }
    if marks.lower {
        line = Cow::Owned(super::letters::restore(&line));
    }
    if let Some(b'(' | b'>' | b' ') = line.first()
        && let Some(at) = memmem::find(&line, b" [repeated ")
        && let Some(rest) = line.get(at..)
        && memmem::find(rest.get(..rest.len().min(60)).unwrap_or_default(), b"x across cluster]").is_some()
    {
        match &mut line {
            Cow::Borrowed(all) => line = Cow::Borrowed(all.get(..at).unwrap_or_default()),
            Cow::Owned(all) => all.truncate(at),
        }
    }
    line
}

/// Fields that hold the line, in the JSON of docker, fluentd, Loki and `CloudWatch`.
static TEXTS: &[&[u8]] = &[b"log", b"message", b"msg", b"line", b"MESSAGE", b"body", b"textPayload"];
/// Fields that hold its time.
static TIMES: &[&[u8]] = &[b"time", b"timestamp", b"@timestamp", b"ts"];

/// The text of a line of JSON, with its time before it if that is text. `None` for other JSON.
fn from_json(line: &[u8]) -> Option<Vec<u8>> {
    let mut rest = line.get(1..)?;
    let mut depth = 1;
    let mut text: Option<Vec<u8>> = None;
    let mut time: Option<Vec<u8>> = None;
    // Strings are walked over one after the other; a name is a string before a colon.
    while depth > 0 {
        let Some(at) = rest.iter().position(|it| matches!(it, b'"' | b'{' | b'}')) else { break };
        let byte = *rest.get(at)?;
        rest = rest.get(at + 1..)?;
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {
                let end = string_end(rest);
                let name = rest.get(..end)?;
                rest = rest.get(end + 1..).unwrap_or_default();
                let value = rest.trim_ascii_start();
                let Some(value) = value.strip_prefix(b":") else { continue };
                let Some(value) = value.trim_ascii_start().strip_prefix(b"\"") else {
                    rest = value;
                    continue;
                };
                let end = string_end(value);
                let inner = value.get(..end)?;
                rest = value.get(end + 1..).unwrap_or_default();
                if depth == 1 && text.is_none() && TEXTS.contains(&name) {
                    text = Some(unescape_json(inner));
                } else if depth == 1 && time.is_none() && TIMES.contains(&name) && inner.len() < 40 {
                    time = Some(unescape_json(inner));
                }
            }
        }
    }
    let text = text?;
    let time = time.filter(|it| it.first().is_some_and(u8::is_ascii_digit) && memchr(b':', it).is_some());
    Some(match time {
        Some(mut time) => {
            time.push(b' ');
            time.extend_from_slice(&text);
            time
        }
        None => text,
    })
}

/// Where the string ends that `text` is inside of, or where `text` does.
fn string_end(text: &[u8]) -> usize {
    let mut at = 0;
    while let Some(next) = text.get(at..).and_then(|it| memchr2(b'"', b'\\', it)) {
        at += next;
        if text.get(at) == Some(&b'"') {
            return at;
        }
        at += 2;
    }
    text.len()
}

fn unescape_json(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.iter().copied();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match rest.next() {
            Some(b'n' | b'r') | None => {}
            Some(b't') => out.push(b'\t'),
            Some(b'u') => {
                let code: Vec<u8> = rest.by_ref().take(4).collect();
                let code = str::from_utf8(&code).ok().and_then(|it| u32::from_str_radix(it, 16).ok());
                let letter = code.and_then(char::from_u32).unwrap_or(' ');
                out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
            }
            Some(other) => out.push(other),
        }
    }
    out
}

fn without_colours(line: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(line.len());
    let mut rest = line.iter().copied();
    while let Some(byte) = rest.next() {
        if byte != 0x1b {
            out.push(byte);
        } else if rest.next() == Some(b'[') {
            // `[36m`
            let _ = rest.find(u8::is_ascii_alphabetic);
        }
    }
    out
}

fn without_bare_colours(line: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = memchr(b'[', rest) {
        let (before, code) = rest.split_at(at);
        out.extend_from_slice(before);
        let length =
            code.iter().skip(1).take(12).take_while(|it| it.is_ascii_digit() || **it == b';').count();
        let is_code =
            length > 0 && code.get(length + 1) == Some(&b'm') && code.get(length + 2) != Some(&b']');
        if is_code {
            rest = code.get(length + 2..).unwrap_or_default();
        } else {
            out.push(b'[');
            rest = code.get(1..).unwrap_or_default();
        }
    }
    out.extend_from_slice(rest);
    out
}

static ENTITIES: &[(&[u8], u8)] = &[
    (b"&gt;", b'>'),
    (b"&lt;", b'<'),
    (b"&quot;", b'"'),
    (b"&#34;", b'"'),
    (b"&#39;", b'\''),
    (b"&#x27;", b'\''),
    (b"&apos;", b'\''),
    (b"&amp;", b'&'),
    (b"&nbsp;", b' '),
];

fn unescape_html(line: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = memchr(b'&', rest) {
        let (before, entity) = rest.split_at(at);
        out.extend_from_slice(before);
        let known = ENTITIES.iter().find(|it| entity.starts_with(it.0));
        let (text, byte) = known.copied().unwrap_or((b"&", b'&'));
        out.push(byte);
        rest = entity.get(text.len()..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
    out
}

/// The line without its first label, without its first two, and so on.
pub(crate) fn layers(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = line;
    std::iter::from_fn(move || {
        rest = label(rest)?;
        Some(rest)
    })
    .take(DEPTH)
}

/// The line without any label.
pub fn bare(line: &[u8]) -> &[u8] {
    layers(line).last().unwrap_or(line)
}

/// What follows the first label of `line`, if it begins with one.
fn label(line: &[u8]) -> Option<&[u8]> {
    let start = line.trim_ascii_start();
    let window = start.get(..start.len().min(WINDOW))?;
    let first = *start.first()?;
    let found = match first {
        b'[' => bracketed(start, window).or_else(|| python::bracketed(start, window)),
        b'(' => ray(start, window),
        b'>' => start.get(1..).map(after_blank),
        b'`' => start.strip_prefix(b"```"),
        b'0'..=b'9' => time(start).map(after_time).or_else(|| task(start)).or_else(|| located(start, window)),
        b'A'..=b'Z' | b'a'..=b'z' | b'/' | b'.' => glog(start, window)
            .or_else(|| python::level_and_name(start, window))
            .or_else(|| syslog(start))
            .or_else(|| located(start, window))
            .or_else(|| host(start, window))
            .or_else(|| pod(start, window)),
        _ => None,
    }?;
    (found.len() < line.len()).then_some(found)
}

fn after_blank(text: &[u8]) -> &[u8] {
    text.strip_prefix(b" ").unwrap_or(text)
}

/// `[1,0]<stdout>:`, `[pod/NAME/CONTAINER] `, `[rank0]: `, `[2025-05-05 10:11:12] `, `[INFO] `, `[3] `.
fn bracketed<'a>(start: &'a [u8], window: &[u8]) -> Option<&'a [u8]> {
    let close = memchr(b']', window)?;
    let inside = window.get(1..close)?;
    let rest = start.get(close + 1..)?;
    if rest.starts_with(b"<std") {
        let colon = memchr(b':', rest.get(..rest.len().min(16))?)?;
        let rest = rest.get(colon + 1..)?;
        // Only prterun writes a blank of its own.
        return Some(if memchr(b'@', inside).is_some() { after_blank(rest) } else { rest });
    }
    if let Some(rest) = rest.strip_prefix(b":") {
        return is_numbered_word(inside).then(|| after_blank(rest));
    }
    // glog behind a label of PyTorch: `[E1129 11:56:57.642513817 ProcessGroupNCCL.cpp:1834] `
    if glog(inside, inside).is_some()
        || inside.starts_with(b"pod/")
        || time(inside).is_some_and(<[u8]>::is_empty)
    {
        return Some(after_time(rest));
    }
    let is_rank = !inside.is_empty() && inside.len() <= 6 && inside.iter().all(u8::is_ascii_digit);
    if LEVELS.contains(&inside) {
        return rest.strip_prefix(b" ").map(|it| python::after_level(it).unwrap_or(it));
    }
    is_rank.then(|| rest.strip_prefix(b" ")).flatten()
}

/// `rank3`, `default3`, `trainer0|0`
fn is_numbered_word(text: &[u8]) -> bool {
    let letters = text.iter().take_while(|it| it.is_ascii_alphabetic()).count();
    let digits = text.get(letters..).unwrap_or_default();
    letters > 0 && !digits.is_empty() && digits.iter().all(|it| it.is_ascii_digit() || *it == b'|')
}

static LEVELS: &[&[u8]] = &[
    b"INFO",
    b"WARN",
    b"WARNING",
    b"ERROR",
    b"DEBUG",
    b"CRITICAL",
    b"FATAL",
    b"TRACE",
    b"info",
    b"warn",
    b"warning",
    b"error",
    b"debug",
];

/// `(TrainWorker pid=4000, ip=10.0.0.1) `
fn ray<'a>(start: &'a [u8], window: &[u8]) -> Option<&'a [u8]> {
    let close = memchr(b')', window)?;
    let inside = window.get(..close)?;
    memmem::find(inside, b"pid=")?;
    start.get(close + 1..).map(after_blank)
}

/// What follows `2025-05-05 10:11:12`, the same with `T`, fractions and a zone, `05/05/2025 10:11:12`, or a bare `10:11:12`.
fn time(text: &[u8]) -> Option<&[u8]> {
    let digits =
        |from: usize, n: usize| text.get(from..from + n).is_some_and(|it| it.iter().all(u8::is_ascii_digit));
    let byte = |at: usize| text.get(at).copied();
    let dated = digits(0, 4)
        && matches!(byte(4), Some(b'-' | b'/'))
        && digits(5, 2)
        && matches!(byte(7), Some(b'-' | b'/'))
        && digits(8, 2)
        && matches!(byte(10), Some(b'T' | b' '));
    // `%m/%d/%Y`, as the example scripts of transformers and accelerate have it.
    let year_last = digits(0, 2)
        && byte(2) == Some(b'/')
        && digits(3, 2)
        && byte(5) == Some(b'/')
        && digits(6, 4)
        && byte(10) == Some(b' ');
    let at = if dated || year_last { 11 } else { 0 };
    if !(digits(at, 2)
        && byte(at + 2) == Some(b':')
        && digits(at + 3, 2)
        && byte(at + 5) == Some(b':')
        && digits(at + 6, 2))
    {
        return None;
    }
    let mut end = at + 8;
    if matches!(byte(end), Some(b'.' | b',')) {
        end += 1;
        while digits(end, 1) {
            end += 1;
        }
    }
    if byte(end) == Some(b'Z') {
        end += 1;
    } else if matches!(byte(end), Some(b'+' | b'-')) && digits(end + 1, 2) {
        end += 3;
        end += usize::from(byte(end) == Some(b':'));
        end += if digits(end, 2) { 2 } else { 0 };
    }
    // `12:34:56:78` is something else.
    (!matches!(byte(end), Some(b':' | b'0'..=b'9'))).then(|| text.get(end..)).flatten()
}

/// After a time: ` stderr F `, ` - INFO - stdout - `, ` job-1/default/9f8e7d `, `: `.
fn after_time(text: &[u8]) -> &[u8] {
    for stream in [&b" stdout "[..], b" stderr "] {
        if let Some(rest) = text.strip_prefix(stream)
            && let [b'F' | b'P', b' ', inner @ ..] = rest
        {
            return inner;
        }
    }
    if let Some(inner) = python::between_bars(text) {
        return inner;
    }
    let mut rest = text;
    if let Some(after) = rest.strip_prefix(b":").or_else(|| rest.strip_prefix(b"|")) {
        rest = after;
    }
    // Names and levels between dashes.
    for _ in 0..5 {
        let window = rest.get(..rest.len().min(100)).unwrap_or_default();
        let Some(inner) = window.strip_prefix(b" - ") else { break };
        match memmem::find(inner, b" - ")
            .filter(|&end| inner.get(..end).is_some_and(|it| memchr(b' ', it).is_none()))
        {
            Some(end) => rest = rest.get(3 + end..).unwrap_or_default(),
            None => {
                rest = rest.get(3..).unwrap_or_default();
                return without_level(rest);
            }
        }
    }
    let rest = after_blank(rest);
    // The name of a stream.
    let word = rest.iter().take(120).take_while(|it| !it.is_ascii_whitespace()).count();
    if let Some(name) = rest.get(..word)
        && name.first().is_some_and(u8::is_ascii_alphanumeric)
        && memchr(b'/', name).is_some()
        && let Some(inner) = rest.get(word..).and_then(|it| it.strip_prefix(b" "))
    {
        return inner;
    }
    without_level(rest)
}

/// `INFO `, `INFO: `, `[INFO] `
fn without_level(text: &[u8]) -> &[u8] {
    let word = text.iter().take(10).take_while(|it| it.is_ascii_alphabetic()).count();
    match text.get(..word) {
        Some(level) if LEVELS.contains(&level) => {
            let rest = text.get(word..).unwrap_or_default();
            let rest = rest.strip_prefix(b":").unwrap_or(rest);
            rest.strip_prefix(b" ").unwrap_or(text)
        }
        _ => text,
    }
}

/// srun --label: `0: text`
fn task(start: &[u8]) -> Option<&[u8]> {
    let digits = start.iter().take(7).take_while(|it| it.is_ascii_digit()).count();
    (digits < 7).then(|| start.get(digits..)?.strip_prefix(b": ")).flatten()
}

/// `I0505 10:11:12.345678 1234 file.cc:123] text`
fn glog<'a>(start: &'a [u8], window: &[u8]) -> Option<&'a [u8]> {
    let (level, rest) = start.split_first()?;
    let digits = rest.iter().take_while(|it| it.is_ascii_digit()).count();
    if !matches!(level, b'I' | b'W' | b'E' | b'F') || !(3..=4).contains(&digits) {
        return None;
    }
    time(rest.get(digits..)?.strip_prefix(b" ")?)?;
    match memchr(b']', window) {
        Some(close) => start.get(close + 1..).map(after_blank),
        None => Some(&[]),
    }
}

/// `May 05 10:11:12 node-a docker[1234]: text`, and Open MPI's `Sun Nov 15 02:56:23 2026[1,0]<stdout>:text`.
fn syslog(start: &[u8]) -> Option<&[u8]> {
    static MONTHS: &[&[u8]] =
        &[b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
    static DAYS: &[&[u8]] = &[b"Sun ", b"Mon ", b"Tue ", b"Wed ", b"Thu ", b"Fri ", b"Sat "];
    let dated = DAYS.iter().find_map(|it| start.strip_prefix(*it)).unwrap_or(start);
    MONTHS.contains(&dated.get(..3)?).then_some(())?;
    let day = dated.get(3..)?.strip_prefix(b" ")?.trim_ascii_start();
    let digits = day.iter().take(3).take_while(|it| it.is_ascii_digit()).count();
    let rest = time(day.get(digits..)?.strip_prefix(b" ")?)?;
    let rest = rest.strip_prefix(b" ")?;
    let year = rest.iter().take_while(|it| it.is_ascii_digit()).count();
    if year == 4 && rest.get(4) == Some(&b'[') {
        return rest.get(4..);
    }
    // Host and program.
    let window = rest.get(..rest.len().min(120))?;
    let colon = memmem::find(window, b": ")?;
    let names = window.get(..colon)?;
    (memchr::memchr_iter(b' ', names).count() <= 1).then(|| rest.get(colon + 2..)).flatten()
}

/// grep -n: `worker-3.log:123:text`
fn located<'a>(start: &'a [u8], window: &[u8]) -> Option<&'a [u8]> {
    let colon = window.iter().position(|it| *it == b':' || it.is_ascii_whitespace())?;
    let name = window.get(..colon)?;
    if !name.iter().any(|it| matches!(it, b'.' | b'/')) || window.get(colon) != Some(&b':') {
        return None;
    }
    let rest = start.get(colon + 1..)?;
    let digits = rest.iter().take(10).take_while(|it| it.is_ascii_digit()).count();
    let rest = rest.get(digits..)?.strip_prefix(b":")?;
    (digits > 0).then_some(rest)
}

/// pdsh, clush and docker compose: `node-a: text`, `worker-0  | text`.
fn host<'a>(start: &'a [u8], window: &[u8]) -> Option<&'a [u8]> {
    let word =
        window.iter().take_while(|it| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'_' | b'.')).count();
    let rest = start.get(word..)?;
    if let Some(rest) = rest.strip_prefix(b": ") {
        return Some(rest);
    }
    // `AllReduce |` begins a row of a table.
    if window.get(..word)?.iter().any(u8::is_ascii_uppercase) {
        return None;
    }
    let rest = rest.strip_prefix(b" ")?.trim_ascii_start().strip_prefix(b"|")?;
    rest.strip_prefix(b" ").or_else(|| rest.is_empty().then_some(rest))
}

/// stern: `llama-worker-0 trainer text`
fn pod<'a>(start: &'a [u8], window: &[u8]) -> Option<&'a [u8]> {
    let mut words = window.splitn(3, |it| *it == b' ');
    let (pod, container) = (words.next()?, words.next()?);
    words.next()?;
    let is_name = |it: &[u8]| {
        !it.is_empty()
            && it.iter().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || *it == b'-')
            && it.first().is_some_and(u8::is_ascii_lowercase)
    };
    let is_pod = is_name(pod) && memchr(b'-', pod).is_some() && pod.iter().any(u8::is_ascii_digit);
    (is_pod && is_name(container)).then(|| start.get(pod.len() + container.len() + 2..)).flatten()
}

#[cfg(test)]
mod tests {
    use super::{Marks, bare, unwrap};

    #[test]
    fn labels_come_off() {
        for label in [
            "[1,0]<stdout>:",
            "        [1,0]<stdout>:",
            "[1,mpirank:3,algo-1]<stderr>:",
            "[prterun-node-a-4711@1,3]<stderr>: ",
            "Sun Nov 15 02:56:23 2026[1,0]<stdout>:",
            "[rank0]: ",
            "[default3]:",
            "[trainer0|0]:",
            "0: ",
            "  3: ",
            "[3] ",
            "node-1: ",
            "node-1: [default3]:",
            "[pod/a-0/trainer] ",
            "[pod/a-0/trainer] 2025-01-02T03:04:05.12Z ",
            "2025-01-02T03:04:05.12Z stderr F ",
            "2025-01-02T03:04:05.123000+00:00 job-1/default/9f8e7d ",
            "2025-05-05 10:11:12,345 - INFO - stdout - ",
            "2025-05-05 10:11:12,345 - __main__ - INFO - ",
            "2025-05-05 10:11:12,345 INFO ",
            "05/05/2025 10:11:12 - INFO - transformers.trainer - ",
            "05/05/2025 10:11:12 - WARNING - __main__ - ",
            "[INFO|trainer.py:2128] 2025-05-05 10:11:12,345 >> ",
            "[WARNING|logging.py:314] 2025-05-05 10:11:12,345 >> ",
            "[INFO|trainer.py:2128] ",
            "[INFO|2025-05-05 10:11:12] llamafactory.data.loader:143 >> ",
            "[INFO|2025-05-05 10:11:12] ",
            "[rank0]:[INFO|trainer.py:2128] 2025-05-05 10:11:12,345 >> ",
            "INFO:transformers.trainer:",
            "WARNING:__main__:",
            "[transformers] ",
            "[titan] 2025-05-05 10:11:12,345 - root - INFO - ",
            "[2025-05-05 10:11:12,345] [INFO] [utils.py:785:see_memory_usage] ",
            "[2025-05-05 10:11:12,345] [INFO] [axolotl.train.train:120] [PID:1000] [RANK:0] ",
            "[2025-05-05 10:11:12,345] [INFO] [logging.py:96:log_dist] [Rank 0] ",
            "[NeMo I 2025-05-05 10:11:12 nemo_logging:381] ",
            "2025-05-05 10:11:12.345 | INFO     | __main__:main:12 - ",
            "INFO 2025-05-05 10:11:12,345 ",
            "[2025-05-05 10:11:12] ",
            "10:11:12 ",
            "I0505 10:11:12.345678 1234 file.cc:123] ",
            "[rank1]:[E1129 11:56:57.642513817 ProcessGroupNCCL.cpp:1834] ",
            "May 05 10:11:12 node-a docker[1234]: ",
            "worker-3.log:123:",
            "logs/worker-3.log:123:",
            "(TrainWorker pid=4000, ip=10.0.0.1) ",
            "llama-worker-0 trainer ",
            "worker-0  | ",
            "> > ",
        ] {
            for inner in ["   8  2 float", "#  size count", "GPU0 X NV12", "x"] {
                let line = format!("{label}{inner}");
                assert_eq!(String::from_utf8_lossy(bare(line.as_bytes())).trim(), inner.trim(), "{line}");
            }
        }
    }

    #[test]
    fn other_lines_have_no_label() {
        for line in [
            "",
            "   8  2  float  sum  -1  45.8  0.00  0.00  0",
            "#  Rank  0 Group  0 Pid   1887 on   worker-1 device  0",
            "        GPU0    GPU1    NIC0    CPU Affinity",
            "GPU0     X      NV12    PXB     0-23,48-71      0",
            "  AllReduce |        0         0",
            "  File \"train.py\", line 3, in <module>",
            "<system version=\"1\">",
            "[12345.678901] NVRM: Xid",
            "[INFO|x",
            "[node-0:1234] *** Process received signal ***",
            "[loss] 2.1",
            "[cuda|a:1] x",
            "INFO:a b:c",
            "NOTE:transformers.trainer:x",
            "the quick brown fox",
            "fe80::1%eth0",
        ] {
            assert_eq!(bare(line.as_bytes()), line.as_bytes(), "{line}");
        }
    }

    #[track_caller]
    fn unwrapped(line: &str, marks: Marks) -> String {
        String::from_utf8_lossy(&unwrap(line.as_bytes(), marks)).into_owned()
    }

    #[test]
    fn wrappings_are_taken_off() {
        for (line, want) in [
            (r#"{"log":"a \"b\" \u001b[36mc\n","stream":"stderr"}"#, "a \"b\" c"),
            (
                r#"{"log":"a\n","stream":"stderr","time":"2025-05-05T10:11:12.1Z"}"#,
                "2025-05-05T10:11:12.1Z a",
            ),
            (r#"{"timestamp": 1746439872000, "ingestionTime": 1, "message": "a\tb"}"#, "a\tb"),
            (r#"{"kubernetes": {"message": "no"}, "stream": "stderr", "message": "a"}"#, "a"),
            (r#"{"size": 8, "x": "y"}"#, r#"{"size": 8, "x": "y"}"#),
            ("{'loss': 1.2}", "{'loss': 1.2}"),
            ("{\"log\":\"cut", "cut"),
            ("\u{1b}[36mnode-0\u{1b}[0m:1", "node-0:1"),
            ("(W pid=1) a [repeated 7x across cluster] (Ray deduplicates", "(W pid=1) a"),
            ("[31m &gt;", "[31m &gt;"),
        ] {
            assert_eq!(unwrapped(line, Marks::default()), want, "{line}");
        }
    }

    #[test]
    fn marks_of_a_file() {
        let marks = Marks::of(b"[31mNCCL WARN x[0m\n");
        assert_eq!(marks, Marks { bare_colours: true, ..Marks::default() });
        assert_eq!(unwrapped("[31mNCCL [1;32mWARN[0m a[3] [32m]", marks), "NCCL WARN a[3] [32m]");
        let marks = Marks::of(b"0[0] -&gt; 1[1]\n");
        assert_eq!(marks, Marks { html: true, ..Marks::default() });
        assert_eq!(unwrapped("0 -&gt; 1 &amp;lt; &#39;a&#39; & b", marks), "0 -> 1 &lt; 'a' & b");
    }
}
