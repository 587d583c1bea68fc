//! The verdict.
use evidence::Case;
use crate::Diagnosis;
/// x
#[derive(Debug)]
pub enum Level {
/// x
Ok}
/// x
#[derive(Debug)]
pub struct Verdict;
/// x
pub fn verdict(_: &Case, _: &Diagnosis) -> Verdict { Verdict }
