//! How far the model is from published measurements, and the fit of its constants to them.
//!
//! `cargo run -p forecast --example accuracy > docs/accuracy.md` makes the page, `-- fit` prints fitted constants, `-- spreads` the spreads
//! with which nine of ten measurements lie in their interval, predicted without their publication, `-- points` prints what
//! is expected of each measurement (`-- points FILE NAME=VALUE...`: of another file, with other constants), and `-- sources` prints how many publications measured each regime.

use std::env;
use std::fs;
use std::io::{self, Write as _};

use forecast::Model;

pub(crate) mod fit;
pub(crate) mod page;
pub(crate) mod points;

#[allow(dead_code, reason = "the test of the model takes the rest of this file")]
fn main() -> io::Result<()> {
    let other = env::args().nth(2).map(fs::read_to_string).transpose()?;
    let points = other.map_or_else(points::Points::read, |it| points::Points::of(&it));
    let asked = points.asked();
    let mut out = io::stdout().lock();
    match env::args().nth(1).as_deref() {
        Some("fit") => {
            fit::all(&asked).iter().try_for_each(|(name, value)| writeln!(out, "{name} = {value:.4}"))
        }
        Some("spreads") => {
            fit::spreads(&asked).iter().try_for_each(|(name, value)| writeln!(out, "{name} = {value:.4}"))
        }
        Some("points") => {
            let mut model = Model::published().clone();
            for other in env::args().skip(3) {
                let (name, value) = other.split_once('=').unwrap_or((&other, ""));
                let known = value.parse().is_ok_and(|value| model.set(name, value));
                if !known {
                    return Err(io::Error::other(format!("`{other}` is not a constant with a value")));
                }
            }
            out.write_all(points::table(&asked, &model).as_bytes())
        }
        Some("sources") => points::sources(asked.iter())
            .iter()
            .try_for_each(|(name, count)| writeln!(out, "\"{name}\" = {count}")),
        _ => out.write_all(page::page(&asked).as_bytes()),
    }
}
