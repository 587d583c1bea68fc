//! `plumb env`: the variables to set, to leave unset and to remove.

use std::io::{self, Write};

use ::manifest::environment::{self, Action, Recommendation};
use evidence::submission::Submission;
use report::{Env, Style};
use rules::lint::{Given, Objection};

use crate::args::{self, Colour, EnvFormat};
use crate::{CLEAN, UNDECIDED, complain, doctor, lint};

pub(crate) fn run(args: &args::Env, colour: Colour, out: &mut impl Write) -> io::Result<u8> {
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
    let name = args.instance.map(|it| it.name);
    let given = Given { nccl: args.nccl, plugin: args.plugin, libfabric: None, instance: args.instance };
    let remove = rules::lint::objections(&files, &given).into_iter().map(removal).collect();
    let advice = environment::recommend(args.instance, args.nccl, args.plugin, remove);
    let env = Env::new(name, args.nccl, args.plugin, &advice);
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

fn removal(Objection { name, value, reason, source }: Objection) -> Recommendation {
    Recommendation { name, value, action: Action::Remove, reason, source }
}
