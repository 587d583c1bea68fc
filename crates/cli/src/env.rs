//! `plumb env`: the variables to set, to leave unset and to remove.

use std::io::{self, Write};
use std::path::Path;

use ::manifest::environment::{self, Action, Recommendation};
use evidence::submission::Submission;
use report::{Env, Style};
use rules::lint::{Given, Objection};

use crate::args::{self, Colour, EnvFormat, FailOn};
use crate::page::{self, Form};
use crate::{CLEAN, UNDECIDED, complain, doctor, input, lint};

pub(crate) fn run(args: &args::Env, colour: Colour, out: &mut impl Write) -> io::Result<u8> {
    if let Some(path) = &args.page {
        return again(path, args, out);
    }
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
    let given = match lint::given(&args.hardware) {
        Ok(given) => Given { nccl: args.nccl, plugin: args.plugin, ..given },
        Err(reason) => {
            complain(&format!("error: {reason}"));
            return Ok(UNDECIDED);
        }
    };
    let name = given.instance.map(|it| it.name);
    let objections = rules::lint::objections(&files, &given).into_iter().map(answer_to).collect();
    let advice = environment::recommend(given.instance, args.nccl, args.plugin, objections);
    let mut env = Env::new(name, args.nccl, args.plugin, &advice);
    env.gpu = given.gpu.map(|it| it.name.clone());
    report::Redactor::secrets().of_files(&files).env(&mut env);
    env.checked = (!files.is_empty()).then(|| files.iter().map(|it| it.settings.len()).sum());
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
        EnvFormat::Html => report::html::write(&env, out)?,
    }
    Ok(CLEAN)
}

/// An earlier answer.
fn again(path: &Path, args: &args::Env, out: &mut impl Write) -> io::Result<u8> {
    let form = match args.format {
        EnvFormat::Text => Form::Text { verbose: args.verbose },
        EnvFormat::Json => Form::Json,
        EnvFormat::Html => Form::Html,
        EnvFormat::Sh | EnvFormat::Yaml | EnvFormat::Dockerfile => {
            complain("error: a page is shown again as text, json or html");
            return Ok(UNDECIDED);
        }
    };
    match page::only(&[path.to_path_buf()], "env") {
        Some(read) => page::show(read, form, FailOn::Error, out),
        None => {
            let name = input::name(path);
            complain(&format!(
                "error: {name}: is not a page of plumb env; --job {name} checks the settings of a file"
            ));
            Ok(UNDECIDED)
        }
    }
}

/// Another value where lint names one, otherwise none.
fn answer_to(Objection { name, value, instead, reason, source }: Objection) -> Recommendation {
    match instead {
        Some(instead) => {
            let reason = format!("Instead of {}: {reason}", value.unwrap_or_default());
            Recommendation { name, value: Some(instead), action: Action::Set, reason, source }
        }
        None => Recommendation { name, value, action: Action::Remove, reason, source },
    }
}
