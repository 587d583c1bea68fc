//! What `plumb explain` prints.

use std::io::{self, Write};

use explain::{Explanation, Kind, Section};

use crate::text::{clean, wrap};

/// The widest output: longer lines are hard to read.
const WIDEST: usize = 100;

/// Writes explanations one below the other: headings and their paragraphs in two columns.
pub fn explanations(all: &[Explanation], width: usize, out: &mut impl Write) -> io::Result<()> {
    let width = width.clamp(40, WIDEST);
    for (number, it) in all.iter().enumerate() {
        if number > 0 {
            writeln!(out)?;
        }
        writeln!(out, "{}", clean(&it.title))?;
        if it.kind == Kind::Term {
            writeln!(out)?;
            for line in it.sections.iter().flat_map(|it| &it.paragraphs).flat_map(|it| wrap(it, width - 2)) {
                writeln!(out, "{line}")?;
            }
        } else {
            columns(it, width, out)?;
        }
    }
    Ok(())
}

fn columns(it: &Explanation, width: usize, out: &mut impl Write) -> io::Result<()> {
    let heading = if it.kind == Kind::Variable { "source" } else { "sources" };
    let sources = Section { heading, paragraphs: it.sources.clone() };
    let sections: Vec<&Section> =
        it.sections.iter().chain((!it.sources.is_empty()).then_some(&sources)).collect();
    let column = sections.iter().map(|it| it.heading.len()).max().unwrap_or_default();
    let room = width.saturating_sub(column + 4);
    for Section { heading, paragraphs } in sections {
        let mut heading = *heading;
        for paragraph in paragraphs {
            // With several paragraphs, indent continuation lines so that they do not look like the next paragraph.
            let deeper = if paragraphs.len() > 1 { "  " } else { "" };
            for (number, line) in wrap(paragraph, room - deeper.len()).iter().enumerate() {
                let deeper = if number == 0 { "" } else { deeper };
                writeln!(out, "  {heading:column$}  {deeper}{line}")?;
                heading = "";
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use explain::{Explanation, Kind, Section, explain};
    use fabric::{catalogue, gpu};

    use super::{WIDEST, explanations};

    fn written(all: &[Explanation]) -> String {
        let mut out = Vec::new();
        explanations(all, WIDEST, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn two_columns() {
        let section = |heading, texts: &[&str]| Section {
            heading,
            paragraphs: texts.iter().map(|it| (*it).to_owned()).collect(),
        };
        let it = Explanation {
            kind: Kind::Gpu,
            title: "X (GPU)\u{1b}[2J".to_owned(),
            sections: vec![section("memory", &["80 GB"]), section("notes", &["one", "two"])],
            sources: vec!["somewhere".to_owned()],
        };
        let one = "X (GPU)[2J\n  memory   80 GB\n  notes    one\n           two\n  sources  somewhere\n";
        assert_eq!(written(std::slice::from_ref(&it)), one);
        assert_eq!(written(&[it.clone(), it]), format!("{one}\n{one}"));
    }

    #[test]
    fn no_answer_is_wider_than_a_terminal() {
        for asked in catalogue::names().chain(gpu::all().iter().map(|it| it.name.as_str())) {
            let text = written(&explain(asked));
            // Only a word too long for its column may stick out: a path of a source.
            let wide = text.lines().filter(|it| it.chars().count() > WIDEST);
            for line in wide {
                assert!(line.trim().rsplit("  ").next().is_some_and(|it| !it.contains(' ')), "{line}");
            }
            assert!(!text.lines().any(|it| it.ends_with(' ')), "{text}");
        }
    }
}
