//! How far the model of training is from published runs, and the fit of its constants to them.
//!
//! `cargo run --release -p forecast --example training > docs/accuracy-training.md` makes the page, `-- fit` prints fitted
//! constants, `-- show [FAMILY]` prints every run, and `-- score FILE` prints the errors over another file of runs.

use std::env;
use std::io::{self, Write as _};

use forecast::training::Calibration;

pub(crate) mod fit;
pub(crate) mod page;
pub(crate) mod rows;

#[allow(dead_code, reason = "the test of the model takes the rest of this file")]
fn main() -> io::Result<()> {
    let rows = rows::published();
    let mut out = io::stdout().lock();
    let mut args = env::args().skip(1);
    match args.next().as_deref() {
        Some("fit") => {
            let (fitted, constants) = fit::all(&rows);
            constants.iter().try_for_each(|(name, value)| writeln!(out, "{name} = {value:.4}"))?;
            out.write_all(page::summary(&rows, &fitted).as_bytes())?;
            out.write_all(page::show(&rows, None, &fitted).as_bytes())
        }
        Some("without") => {
            for (family, fitted) in fit::leave_one_out(&rows) {
                let own: Vec<rows::Row> =
                    rows::published().into_iter().filter(|it| it.family == family).collect();
                out.write_all(page::summary(&own, &fitted).as_bytes())?;
            }
            Ok(())
        }
        Some("show") => {
            out.write_all(page::show(&rows, args.next().as_deref(), &Calibration::published()).as_bytes())
        }
        Some("score") => {
            let text = std::fs::read_to_string(args.next().unwrap_or_default())?;
            out.write_all(page::summary(&rows::read(&text), &Calibration::published()).as_bytes())
        }
        Some("summary") => out.write_all(page::summary(&rows, &Calibration::published()).as_bytes()),
        _ => out.write_all(page::page(&rows).as_bytes()),
    }
}
