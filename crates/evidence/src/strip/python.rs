//! What Python's logging puts before a message.
//!
//! ```text
//! [INFO|trainer.py:2128] 2025-05-05 10:11:12,345 >> TEXT                          transformers
//! [INFO|2025-05-05 10:11:12] llamafactory.data.loader:143 >> TEXT                 LLaMA-Factory
//! [transformers] TEXT                                                             transformers 5
//! INFO:transformers.trainer:TEXT                                                  logging.basicConfig
//! [2025-05-05 10:11:12,345] [INFO] [utils.py:785:see_memory_usage] [Rank 0] TEXT  DeepSpeed
//! [2025-05-05 10:11:12,345] [INFO] [axolotl.train:120] [PID:1000] [RANK:0] TEXT   Axolotl
//! [NeMo I 2025-05-05 10:11:12 nemo_logging:381] TEXT                              NeMo
//! [titan] 2025-05-05 10:11:12,345 - root - INFO - TEXT                            torchtitan
//! 2025-05-05 10:11:12.345 | INFO     | __main__:main:12 - TEXT                    loguru
//! ```
//! `05/05/2025 10:11:12 - INFO - transformers.trainer - TEXT` is a time like any other.

use memchr::{memchr, memmem};

use super::{LEVELS, after_blank, after_time, time};

/// What follows a label in brackets.
pub(super) fn bracketed<'a>(start: &'a [u8], window: &[u8]) -> Option<&'a [u8]> {
    let close = memchr(b']', window)?;
    let inside = window.get(1..close)?;
    let rest = start.get(close + 1..)?;
    if let Some(bar) = memchr(b'|', inside)
        && LEVELS.contains(&inside.get(..bar)?)
    {
        let source = inside.get(bar + 1..)?;
        if !is_place(source) && !time(source).is_some_and(<[u8]>::is_empty) {
            return None;
        }
        return Some(after_arrow(rest).unwrap_or_else(|| after_time(rest)));
    }
    if let Some(nemo) = inside.strip_prefix(b"NeMo ") {
        time(nemo.get(1..)?.strip_prefix(b" ")?)?;
        return Some(after_blank(rest));
    }
    let inner = rest.strip_prefix(b" ")?;
    let names_rank = [&b"Rank "[..], b"RANK ", b"RANK:", b"PID:"]
        .iter()
        .any(|it| inside.strip_prefix(*it).is_some_and(is_digits));
    // `[node-0:1234] ` is Open MPI's, and what follows it is about that process.
    let is_source = memmem::find(inside, b".py:").is_some() && is_place(inside);
    if inside == b"transformers" || names_rank || is_source {
        return Some(inner);
    }
    if LEVELS.contains(&inside) {
        return None;
    }
    let follows_time = is_name(inside) && inner.first().is_some_and(u8::is_ascii_digit);
    follows_time.then(|| time(inner)).flatten().map(after_time)
}

/// The place of a line of DeepSpeed and Axolotl, behind the level: `[utils.py:785:see_memory_usage] `.
pub(super) fn after_level(text: &[u8]) -> Option<&[u8]> {
    let inside = text.strip_prefix(b"[")?;
    let close = memchr(b']', inside.get(..inside.len().min(120))?)?;
    is_place(inside.get(..close)?).then(|| inside.get(close + 1..)?.strip_prefix(b" ")).flatten()
}

/// `INFO:transformers.trainer:`, and `INFO 2025-05-05 10:11:12,345 `.
pub(super) fn level_and_name<'a>(start: &'a [u8], window: &[u8]) -> Option<&'a [u8]> {
    let letters = window.iter().take(9).take_while(|it| it.is_ascii_alphabetic()).count();
    if !LEVELS.contains(&window.get(..letters)?) {
        return None;
    }
    let rest = start.get(letters..)?;
    if let Some(dated) = rest.strip_prefix(b" ") {
        return time(dated).map(after_time);
    }
    let rest = rest.strip_prefix(b":")?;
    let name = memchr(b':', rest.get(..rest.len().min(120))?)?;
    is_name(rest.get(..name)?).then(|| rest.get(name + 1..)).flatten()
}

/// loguru: ` | INFO     | __main__:main:12 - `
pub(super) fn between_bars(text: &[u8]) -> Option<&[u8]> {
    let rest = text.strip_prefix(b" | ")?;
    let bar = memchr(b'|', rest.get(..rest.len().min(12))?)?;
    LEVELS.contains(&rest.get(..bar)?.trim_ascii_end()).then_some(())?;
    let rest = rest.get(bar + 1..)?.strip_prefix(b" ")?;
    let dash = memmem::find(rest.get(..rest.len().min(160))?, b" - ")?;
    memchr(b' ', rest.get(..dash)?).is_none().then(|| rest.get(dash + 3..)).flatten()
}

/// ` 2025-05-05 10:11:12,345 >> `, ` llamafactory.data.loader:143 >> `
fn after_arrow(rest: &[u8]) -> Option<&[u8]> {
    let window = rest.get(..rest.len().min(120))?;
    let arrow = memmem::find(window, b" >> ")?;
    let between = window.get(..arrow)?.trim_ascii();
    let is_label = between.is_empty() || is_place(between) || time(between).is_some_and(<[u8]>::is_empty);
    is_label.then(|| rest.get(arrow + 4..)).flatten()
}

/// `trainer.py:2128`, `logging.py:96:log_dist`, `llamafactory.data.loader:143`
fn is_place(text: &[u8]) -> bool {
    let mut parts = text.splitn(3, |it| *it == b':');
    parts.next().is_some_and(is_name)
        && parts.next().is_some_and(is_digits)
        && parts.next().is_none_or(is_name)
}

/// The name of a module, a logger or a function.
fn is_name(text: &[u8]) -> bool {
    let is_of_name =
        |it: &u8| it.is_ascii_alphanumeric() || matches!(it, b'_' | b'.' | b'-' | b'<' | b'>' | b'/');
    !text.is_empty() && text.iter().all(is_of_name)
}

fn is_digits(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}
