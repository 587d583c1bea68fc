//! `plumb env`: the environment to set, to leave alone and to remove.

use std::io::{self, Write};

use evidence::submission::Submission;
use fabric::instance;
use report::{Env, Style};

use crate::args::{self, Colour, EnvFormat};
use crate::{CLEAN, UNDECIDED, complain, doctor, lint};

pub(crate) fn run(args: &args::Env, colour: Colour, out: &mut impl Write) -> io::Result<u8> {
    let machine = match args.instance.as_deref().map(|name| (name, instance::find(name))) {
        Some((name, None)) => {
            let near = fabric::catalogue::suggest(name);
            let hint = if near.is_empty() {
                String::new()
            } else {
                format!("; did you mean {}?", near.join(" or "))
            };
            complain(&format!("error: `{name}` is no instance type that plumb knows{hint}"));
            return Ok(UNDECIDED);
        }
        Some((_, found)) => found,
        None => None,
    };
    let mut files: Vec<Submission> = Vec::new();
    for path in &args.job {
        match lint::open(path) {
            Ok(file) => files.push(file),
            Err((name, trouble)) => {
                complain(&format!("error: {name}:{}:{}: {}", trouble.line, trouble.column, trouble.text));
                return Ok(UNDECIDED);
            }
        }
    }
    let advice = rules::lint::recommend(machine, args.nccl, args.plugin, &files);
    let env = Env::new(args.instance.as_deref(), args.nccl, args.plugin, &advice);
    match args.format {
        EnvFormat::Text => {
            let style =
                Style { colour: doctor::coloured(colour), width: doctor::width(), verbose: args.verbose };
            env.text(style, out)?;
        }
        EnvFormat::Sh => env.sh(out)?,
        EnvFormat::Yaml => env.yaml(out)?,
        EnvFormat::Json => env.json(out)?,
        EnvFormat::Dockerfile => env.dockerfile(out)?,
    }
    Ok(CLEAN)
}
