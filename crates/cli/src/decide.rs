//! `plumb topo --decide`: what NCCL decides for a job.

use std::io::{self, Write};

use answer::decide::{Asked, Question};
use job::Description;
use report::Style;
use report::decide::Decide;

use crate::args::{self, Colour, PageFormat};
use crate::{CLEAN, UNDECIDED, complain, doctor, input, topo, topo_page};

pub(crate) fn run(args: &args::Topo, colour: Colour, out: &mut impl Write) -> io::Result<u8> {
    let answered = topo::read(args).and_then(|it| asked(args, &it)).and_then(|it| answer(args, it));
    let (asked, decide) = match answered {
        Ok(it) => it,
        Err(reason) => {
            complain(&format!("error: {reason}"));
            return Ok(UNDECIDED);
        }
    };
    match args.format {
        PageFormat::Html => topo_page::decided(args, &asked, &decide, out)?,
        PageFormat::Json => report::decide::json(&decide, out)?,
        PageFormat::Text if args.lines => report::decide::lines(&decide, out)?,
        PageFormat::Text => {
            let changes = decide.what_if.is_some();
            let style =
                Style { colour: doctor::coloured(colour), width: doctor::width(), verbose: args.verbose };
            if changes {
                report::decide::what_if_text(&decide, style, out)?;
            } else {
                report::decide::text(&decide, style, out)?;
            }
        }
    }
    Ok(CLEAN)
}

/// The job whose decisions are asked for.
fn asked(args: &args::Topo, read: &Description) -> Result<Asked, String> {
    let file = args.file.as_ref().or(args.cluster.as_ref()).map(|it| input::name(it));
    Asked::new(&topo::job(args, read)?, read, args.plugin, file)
}

fn answer(args: &args::Topo, asked: Asked) -> Result<(Asked, Decide), String> {
    let question = Question { rank: args.rank, what_if: &args.what_if, collective: args.collective };
    let decide = asked.answer(question)?;
    Ok((asked, decide))
}
