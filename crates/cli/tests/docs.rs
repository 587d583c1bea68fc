//! Samples in README.md and docs/ are what the binary prints.
//!
//! A comment before a fenced block names the command: `<!-- made by: plumb doctor cases/p4d-4-pods -->`. A line `...` in the block stands
//! for any number of lines. A first line `$ plumb ...` shows the command. What cannot be made again, such as measured times, says when and
//! where it was recorded: `<!-- recorded: 2026-11-15, virtual machine with 2 cores -->`.
//!
//! To write the blocks anew: `PLUMB_UPDATE_DOCS=1 cargo test -p plumb --test docs`, then read `git diff`. The parts that a block shows
//! are found again by their first and last lines, so wording and line breaks may change.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[expect(dead_code, reason = "other tests use the rest")]
mod common;

use std::fs;
use std::ops::Range;
use std::path::PathBuf;

use common::{plumb, root};

/// How alike two lines must be for one to be the new form of the other.
const ALIKE: f64 = 0.5;

/// A fenced block.
#[derive(Debug)]
struct Block {
    /// The lines between the fences, counted from 0.
    lines: Range<usize>,
    indent: usize,
    language: String,
    mark: Mark,
}

#[derive(Debug, PartialEq)]
enum Mark {
    MadeBy(Vec<String>),
    Recorded,
    None,
}

/// The fenced blocks of a page.
fn blocks(page: &[&str]) -> Vec<Block> {
    let mut found = Vec::new();
    let mut mark = Mark::None;
    let mut at = 0;
    while let Some(line) = page.get(at) {
        let text = line.trim_start();
        if let Some(language) = text.strip_prefix("```") {
            let start = at + 1;
            let end =
                page[start..].iter().position(|it| it.trim() == "```").expect("a fence is closed") + start;
            let mark = std::mem::replace(&mut mark, Mark::None);
            let indent = line.len() - text.len();
            found.push(Block { lines: start..end, indent, language: language.to_owned(), mark });
            at = end;
        } else if let Some(comment) = text.strip_prefix("<!-- ").and_then(|it| it.strip_suffix(" -->")) {
            if let Some(command) = comment.strip_prefix("made by: plumb ") {
                mark = Mark::MadeBy(words(command));
            } else if comment.starts_with("recorded: ") {
                mark = Mark::Recorded;
            }
        } else if !text.is_empty() {
            assert_eq!(mark, Mark::None, "line {}: the mark of a block stands right before it", at + 1);
        }
        at += 1;
    }
    found
}

/// The words of a command; single quotes keep blanks.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (at, part) in command.split('\'').enumerate() {
        if at % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

/// The lines of a block, cut where it leaves something out. A block that begins or ends with `...` has an empty part there.
fn parts<'a>(lines: &[&'a str]) -> Vec<Vec<&'a str>> {
    lines.split(|it| it.trim() == "...").map(<[&str]>::to_vec).collect()
}

/// Whether the parts stand in the output, in their order; the first at its beginning, the last at its end. Blank lines beside `...` do not
/// count.
fn is_shown(parts: &[Vec<&str>], output: &[&str]) -> bool {
    if let [whole] = parts {
        return whole == output;
    }
    let mut at = 0;
    for (number, part) in parts.iter().enumerate() {
        let part = trimmed(part, number, parts.len());
        let found = if number == 0 {
            output.starts_with(part).then_some(0)
        } else if number + 1 == parts.len() {
            output[at..].ends_with(part).then(|| output.len() - part.len())
        } else {
            (at..=output.len().saturating_sub(part.len())).find(|it| output[*it..].starts_with(part))
        };
        let Some(found) = found else { return false };
        at = found + part.len();
    }
    true
}

/// Without the blank lines at the sides where something is left out.
fn trimmed<'a, 'b>(mut part: &'b [&'a str], number: usize, parts: usize) -> &'b [&'a str] {
    while number > 0 && part.first().is_some_and(|it| it.is_empty()) {
        part = &part[1..];
    }
    while number + 1 < parts && part.last().is_some_and(|it| it.is_empty()) {
        part = &part[..part.len() - 1];
    }
    part
}

/// The same parts of a new output: each goes from the line most like its first to the line most like its last.
fn renewed<'a>(parts: &[Vec<&'a str>], output: &[&'a str]) -> Result<Vec<Vec<&'a str>>, String> {
    if parts.len() == 1 {
        return Ok(vec![output.to_vec()]);
    }
    let mut at = 0;
    let mut renewed = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        let kept = trimmed(part, number, parts.len());
        let (Some(first), Some(last)) = (kept.first(), kept.last()) else {
            renewed.push(part.clone());
            continue;
        };
        let start = if number == 0 { 0 } else { most_alike(first, output, at, 0)? };
        let end = if number + 1 == parts.len() {
            output.len()
        } else {
            most_alike(last, output, start, kept.len() - 1)? + 1
        };
        let offset = kept.as_ptr() as usize - part.as_ptr() as usize;
        let before = offset / size_of::<&str>();
        let mut lines = part[..before].to_vec();
        lines.extend(&output[start..end]);
        lines.extend(&part[before + kept.len()..]);
        renewed.push(lines);
        at = end;
    }
    Ok(renewed)
}

/// How alike two lines are. Lines that begin with the same two words (`ok network`, `= fix:`) may go on in other words.
fn alike(a: &str, b: &str) -> f64 {
    let same_beginning = a.split_whitespace().take(2).eq(b.split_whitespace().take(2)) && !a.is_empty();
    strsim::sorensen_dice(a, b) + if same_beginning { ALIKE } else { 0.0 }
}

/// The line from `from` on that is most like `line`; of equal ones the nearest to `from + expected`.
fn most_alike(line: &str, output: &[&str], from: usize, expected: usize) -> Result<usize, String> {
    let score = |at: usize| (alike(line, output[at]), (from + expected).abs_diff(at));
    let best = (from..output.len()).max_by(|a, b| {
        let (a, b) = (score(*a), score(*b));
        a.0.total_cmp(&b.0).then(b.1.cmp(&a.1))
    });
    best.filter(|it| score(*it).0 >= ALIKE).ok_or_else(|| format!("the output has no line like {line:?}"))
}

fn pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md")];
    let docs = fs::read_dir(root().join("docs")).unwrap().map(|it| it.unwrap().path());
    pages.extend(docs.filter(|it| it.extension().is_some_and(|it| it == "md")));
    pages.sort();
    pages
}

#[test]
fn samples_are_what_plumb_prints() {
    let update = std::env::var_os("PLUMB_UPDATE_DOCS").is_some_and(|it| !it.is_empty());
    let (mut samples, mut wrong) = (0, Vec::new());
    for path in pages() {
        let text = fs::read_to_string(&path).unwrap();
        let page: Vec<&str> = text.lines().collect();
        let mut new: Vec<String> = page.iter().map(|it| (*it).to_owned()).collect();
        // From the last to the first, so that the numbers of the lines before stay.
        for block in blocks(&page).into_iter().rev() {
            let Mark::MadeBy(arguments) = &block.mark else { continue };
            samples += 1;
            let at = format!("{}:{}", path.file_name().unwrap().to_string_lossy(), block.lines.start);
            let answer = plumb(arguments);
            let output: Vec<&str> = answer.stdout.lines().collect();
            assert!(!output.is_empty(), "{at}: plumb {arguments:?} prints nothing: {}", answer.stderr);
            let all: Vec<&str> = page[block.lines.clone()]
                .iter()
                .map(|it| it.get(block.indent..).unwrap_or_default())
                .collect();
            let prompt = usize::from(all.first().is_some_and(|it| it.starts_with("$ plumb ")));
            if prompt == 1 {
                assert_eq!(&words(all[0])[2..], arguments, "{at}: the comment names another command");
            }
            let parts = parts(&all[prompt..]);
            if is_shown(&parts, &output) {
                continue;
            }
            if !update {
                wrong.push(format!("{at}: plumb {} prints something else", arguments.join(" ")));
                continue;
            }
            match renewed(&parts, &output) {
                Ok(parts) => {
                    let body = parts.join(&"...");
                    let indented = all[..prompt].iter().chain(&body).map(|it| {
                        if it.is_empty() {
                            String::new()
                        } else {
                            format!("{}{it}", " ".repeat(block.indent))
                        }
                    });
                    new.splice(block.lines, indented.collect::<Vec<_>>());
                }
                Err(why) => wrong.push(format!("{at}: {why}; edit the block")),
            }
        }
        let new = new.join("\n") + "\n";
        if update && new != text {
            fs::write(&path, new).unwrap();
        }
    }
    assert!(samples >= 5, "{samples} samples");
    assert!(
        wrong.is_empty(),
        "{}\nTo write them anew: PLUMB_UPDATE_DOCS=1 cargo test -p plumb --test docs, then read git diff",
        wrong.join("\n")
    );
}

#[test]
fn every_block_of_output_says_where_it_is_from() {
    for path in pages() {
        let text = fs::read_to_string(&path).unwrap();
        for block in blocks(&text.lines().collect::<Vec<_>>()) {
            assert!(
                !block.language.is_empty() || block.mark != Mark::None,
                "{}:{}: write `<!-- made by: plumb ... -->` or `<!-- recorded: DATE, MACHINE -->` before it, or name the language",
                path.display(),
                block.lines.start
            );
        }
    }
}

#[test]
fn every_page_and_schema_is_in_the_index() {
    let docs = root().join("docs");
    let (index, json) = (
        fs::read_to_string(docs.join("README.md")).unwrap(),
        fs::read_to_string(docs.join("json.md")).unwrap(),
    );
    for entry in fs::read_dir(&docs).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            name == "README.md" || index.contains(&format!("]({name})")),
            "docs/README.md does not link {name}"
        );
        if name.ends_with(".schema.json") {
            assert!(json.contains(&format!("]({name})")), "docs/json.md does not link {name}");
        }
    }
}

#[test]
fn parts_are_compared() {
    let output = ["a", "b", "", "c", "d"];
    for (block, shown) in [
        (&["a", "b", "", "c", "d"][..], true),
        (&["a", "...", "d"], true),
        (&["a", "b", "", "..."], true),
        (&["...", "c", "..."], true),
        (&["...", "c", "d"], true),
        (&["b", "..."], false),
        (&["a", "...", "c"], false),
        (&["a", "...", "d", "...", "c", "..."], false),
        (&["a", "b"], false),
    ] {
        assert_eq!(is_shown(&parts(block), &output), shown, "{block:?}");
    }
}

#[test]
fn parts_are_found_again() {
    let old = ["verdict: 2 errors", "...", "  ok       network  TCP sockets chosen", "..."];
    let new = [
        "verdict: two errors",
        "",
        "  ok       driver   CUDA",
        "  ok       network  TCP sockets, chosen by all",
        "end",
    ];
    let found = renewed(&parts(&old), &new).unwrap();
    assert_eq!(found.join(&"..."), [new[0], "...", new[3], "..."]);
    assert!(is_shown(&found, &new));
    let reworded = ["verdict: 3 errors", "...", "  ok       network  what it was called before", "..."];
    assert_eq!(renewed(&parts(&reworded), &new).unwrap()[1], [new[3]]);
    assert!(renewed(&parts(&["verdict:", "...", "nothing like it", "..."]), &new).is_err());
}

#[test]
fn marks_are_read() {
    let page = ["<!-- made by: plumb explain 'a line' -->", "", "  ```", "  x", "  ```", "```sh", "y", "```"];
    let found = blocks(&page);
    assert_eq!(found[0].mark, Mark::MadeBy(vec!["explain".into(), "a line".into()]));
    assert_eq!((found[0].lines.clone(), found[0].indent), (3..4, 2));
    assert_eq!((&found[1].mark, found[1].language.as_str()), (&Mark::None, "sh"));
}
