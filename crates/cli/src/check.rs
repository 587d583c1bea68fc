//! `plumb topo --check`: what a log says NCCL decided, compared with what is predicted.

use std::io::{self, Write};

use job::{Description, Job};
use report::Style;
use report::decide::{Check, Verdict};
use rules::decisions::{Given, Logs};

use crate::args::{self, Colour, PageFormat};
use crate::{CLEAN, FINDINGS, UNDECIDED, complain, doctor, input, texts, topo};

pub(crate) fn run(args: &args::Topo, colour: Colour, out: &mut impl Write) -> io::Result<u8> {
    let check = match check(args) {
        Ok(it) => it,
        Err(reason) => {
            complain(&format!("error: {reason}"));
            return Ok(UNDECIDED);
        }
    };
    match args.format {
        PageFormat::Json => report::decide::check_json(&check, out)?,
        PageFormat::Text | PageFormat::Html => {
            let style =
                Style { colour: doctor::coloured(colour), width: doctor::width(), verbose: args.verbose };
            report::decide::check_text(&check, style, out)?;
        }
    }
    Ok(match check.verdict {
        Verdict::Same => CLEAN,
        Verdict::Different => FINDINGS,
        Verdict::Undecided => UNDECIDED,
    })
}

fn check(args: &args::Topo) -> Result<Check, String> {
    let texts = texts::all(&args.check, topo::MOST)?;
    let described = match &args.xml {
        Some(path) => {
            let name = input::name(path);
            let text = topo::contents(path).map_err(|error| format!("{name}: {error}"))?;
            Some(Description::of_text(&name, &text, args.instance, None)?)
        }
        None => None,
    };
    let given = Given {
        described,
        instance: args.instance,
        gpu: args.gpu,
        nccl: args.nccl,
        plugin: args.plugin,
        environment: args.env.clone(),
        layout: args.layout(),
    };
    let case = evidence::read_texts(texts.iter().map(|it| (it.0.as_str(), it.1.as_slice())));
    let job = Job::of_case(&case);
    let logs = Logs::new(&texts, &job);
    Ok(Check::new(logs.version(&given), logs.check(&given)))
}
