//! The answer of a command as one HTML file that needs nothing else: no network, no font, no library.
//!
//! A page is made from the same model as every other format, through [`View`]. It holds the JSON of the model and the text answer, so that
//! the command can read its page again ([`Kept`]). The same model gives the same bytes: there is no date in it.
//!
//! Nothing of the input can become markup: [`Html`] writes texts and values of attributes escaped, names of elements and attributes are
//! literals, and a Content-Security-Policy names the only style and the only script that run.

mod bench;
pub mod chart;
mod compare;
mod decide;
mod doctor;
mod element;
mod env;
mod expect;
mod kept;
mod lint;
mod node;
mod page;
pub mod parts;
mod plan;
mod predict;
mod theme;
mod topo;
mod validate;

use std::io::{self, Write};

use crate::Style;
use crate::text::bytes;

pub use bench::ComparisonPage;
pub use decide::DecidePage;
pub use doctor::ticket;
pub use element::Html;
pub use kept::{BROWSER_PAGE, Kept, Unreadable, command_of, is_browser_page, is_page};
pub use page::{Page, Tone};
pub use plan::PlanPage;
pub use predict::PredictPage;
pub use topo::TopoPage;

pub use crate::topo::svg::canvas::Picture;

/// A model that can be shown as a page.
pub trait View {
    /// The page, without what [`write()`] adds to it.
    fn page(&self) -> Page;

    /// The JSON, as `--format json` writes it.
    fn to_json(&self, out: &mut Vec<u8>) -> io::Result<()>;

    /// The text answer.
    fn to_text(&self, style: Style, out: &mut Vec<u8>) -> io::Result<()>;
}

/// Writes the page of a model.
pub fn write(view: &impl View, out: &mut impl Write) -> io::Result<()> {
    let mut json = Vec::new();
    view.to_json(&mut json)?;
    let text = |width: usize, verbose: bool| {
        let mut text = Vec::new();
        view.to_text(Style { colour: false, width, verbose }, &mut text)?;
        Ok::<String, io::Error>(String::from_utf8_lossy(&text).into_owned())
    };
    let texts = kept::Texts { narrow: text(80, false)?, short: text(100, false)?, verbose: text(100, true)? };
    view.page().write(&String::from_utf8_lossy(&json), texts, out)
}

/// Sizes of messages, from left to right.
fn size_axis() -> chart::Axis<'static> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size that an axis shows")]
    let show = |it: f64| bytes(it.max(0.0).round() as u64);
    chart::Axis { label: "size", scale: chart::Scale::Octaves, show }
}
