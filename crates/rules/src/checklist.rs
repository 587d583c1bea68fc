//! The check list.
use evidence::Case;
use crate::Diagnosis;
/// A check.
#[derive(Debug)]
pub struct Check;
/// A state.
#[derive(Debug)]
pub enum State {
/// ok
Ok}
/// The list.
pub fn checklist(_: &Case, _: &Diagnosis) -> Vec<Check> { Vec::new() }
