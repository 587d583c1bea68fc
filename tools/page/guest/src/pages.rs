//! Reports of plumb among the dropped files.

use std::io::Read as _;

use answer::{Files as _, whole};
use report::html::{BROWSER_PAGE, Kept, command_of, is_browser_page};

use crate::ask::{Question, Reply, WIDTH, What};
use crate::dropped::Dropped;

/// The largest report that is read.
const MOST: u64 = 256 << 20;

/// The answer of a report that was dropped alone, as text: its markup is not this page's. Several reports are runs to compare, and no logs.
pub(crate) fn shown(question: &Question, files: &Dropped<'_>) -> Option<Result<Reply, String>> {
    let mut commands = Vec::new();
    for it in &question.files {
        let head = whole(Box::new(files.open(&it.name).ok()?)).ok()?.head().to_vec();
        if question.files.len() == 1 && is_browser_page(&head) {
            return Some(Err(format!("{}: {BROWSER_PAGE}, not a log", it.name)));
        }
        commands.push(command_of(&head)?);
    }
    match (question.files.as_slice(), &question.what) {
        ([], _) => None,
        ([one], _) => Some(again(&one.name, files)),
        (_, What::Compare { .. }) => None,
        (several, _) => Some(Err(format!(
            "the {} files are reports of plumb ({}), each a whole answer, not logs: give one, or choose compare",
            several.len(),
            commands.join(", ")
        ))),
    }
}

fn again(name: &str, files: &Dropped<'_>) -> Result<Reply, String> {
    let named = |reason: String| format!("{name}: {reason}");
    let mut text = String::new();
    let source = files.open(name).and_then(|it| whole(Box::new(it)));
    source
        .and_then(|it| it.take(MOST).read_to_string(&mut text))
        .map_err(|error| named(error.to_string()))?;
    let kept = Kept::read(&text).map_err(|error| named(error.to_string()))?;
    Ok(Reply {
        notes: vec![format!(
            "{name} is a report of plumb {}: this is its text; open the file itself to see it with its pictures.",
            kept.command
        )],
        text: kept.text(WIDTH, false).to_owned(),
        json: kept.json,
        ..Reply::default()
    })
}
