//! How far the model of training is from published runs, and the fit of its constants to them.
//!
//! `cargo run --release -p forecast --example training > docs/accuracy-training.md` makes the page, `-- fit [FILE]` prints fitted
//! constants, `-- show [FAMILY] [FILE]` prints every run with its parts, `-- score FILE [CONSTANTS]` prints the errors over another file of runs, with
//! constants that `-- fit` printed, and `-- speed` says how many layouts are predicted in a second.

use std::env;
use std::io::{self, Write as _};

use forecast::training::Calibration;

pub(crate) mod fit;
pub(crate) mod page;
pub(crate) mod rows;
pub(crate) mod show;

#[allow(dead_code, reason = "the test of the model takes the rest of this file")]
fn main() -> io::Result<()> {
    let rows = rows::published();
    let published = Calibration::published();
    let mut out = io::stdout().lock();
    let mut args = env::args().skip(1);
    let text = match args.next().as_deref() {
        Some("fit") => {
            let rows = match args.next() {
                Some(file) => rows::read(&std::fs::read_to_string(file)?).into_iter().flatten().collect(),
                None => rows,
            };
            let (fitted, constants) = fit::all(&rows);
            constants.iter().try_for_each(|(name, value)| writeln!(out, "{name} = {value:.4}"))?;
            show::summary(&rows, &fitted)
        }
        Some("show") => {
            let family = args.next();
            let rows = match args.next() {
                Some(file) => rows::read(&std::fs::read_to_string(file)?).into_iter().flatten().collect(),
                None => rows,
            };
            show::all(&rows, family.as_deref(), &published)
        }
        Some("score") => {
            let text = std::fs::read_to_string(args.next().unwrap_or_default())?;
            let published = match args.next() {
                Some(constants) => fit::read(&std::fs::read_to_string(constants)?),
                None => published,
            };
            let all = rows::read(&text);
            let wrong = all.iter().filter(|it| it.is_err()).count();
            let rows: Vec<rows::Row> = all.into_iter().flatten().collect();
            format!("{}{wrong} rows are not a job\n", show::summary(&rows, &published))
        }
        Some("speed") => show::speed(),
        Some("summary") => show::summary(&rows, &published),
        _ => page::page(&rows),
    };
    out.write_all(text.as_bytes())
}
