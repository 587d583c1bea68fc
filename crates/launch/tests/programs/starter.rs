//! `starter RANKS GRACE_MS PROGRAM ARGUMENTS...` starts ranks on this host and exits as they do.

use std::process::ExitCode;
use std::time::Duration;

use launch::{Start, start};

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let mut number = || -> Option<u32> { arguments.next()?.to_str()?.parse().ok() };
    let (Some(ranks), Some(grace)) = (number(), number()) else {
        return Err("usage: starter RANKS GRACE_MS PROGRAM ARGUMENTS...".into());
    };
    let plan = Start {
        command: Some(arguments.collect()),
        grace: Duration::from_millis(grace.into()),
        ..Start::new(usize::try_from(ranks)?)
    };
    let outcome = start(&plan)?;
    Ok(ExitCode::from(outcome.code()))
}
