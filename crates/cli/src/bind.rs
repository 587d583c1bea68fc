//! `plumb topo --bind`: CPUs, NUMA node and NIC of each rank, and what to paste.

use std::io::{self, Write};

use ::manifest::bind::{Binding, Launcher};
use job::machine;
use nccl::Decisions;
use report::Style;
use report::bind::{Bind, BindParts};

use crate::args::{self, Colour, PageFormat};
use crate::{CLEAN, UNDECIDED, complain, doctor, topo};

pub(crate) fn run(
    args: &args::Topo,
    launcher: Launcher,
    colour: Colour,
    out: &mut impl Write,
) -> io::Result<u8> {
    let bind = match answer(args, launcher) {
        Ok(bind) => bind,
        Err(reason) => {
            complain(&format!("error: {reason}"));
            return Ok(UNDECIDED);
        }
    };
    match args.format {
        PageFormat::Json => bind.json(out)?,
        PageFormat::Text | PageFormat::Html => {
            let style =
                Style { colour: doctor::coloured(colour), width: doctor::width(), verbose: args.verbose };
            bind.text(style, out)?;
        }
    }
    Ok(CLEAN)
}

fn answer(args: &args::Topo, launcher: Launcher) -> Result<Bind, String> {
    let read = topo::read(args)?;
    let job = topo::job(args, &read)?;
    let machine = &job.machines[0].value;
    let layout = job.layout.as_ref().map(|it| it.value).unwrap_or_default();
    let seen = machine::seen_by_nccl(machine);
    let decisions =
        Decisions::new(&seen, &job.effective_settings(), &layout).map_err(|error| error.to_string())?;
    if machine.hidden.wiring {
        return Err(format!(
            "{}: it shows neither CPUs nor NUMA nodes nor NICs: give `nvidia-smi topo -m` or NCCL's topology XML \
             (NCCL_TOPO_DUMP_FILE), add --instance NAME, or run this on the machine",
            read.source
        ));
    }
    let bind = Bind::new(BindParts {
        machine,
        seen_by_nccl: &seen,
        survey: &decisions.survey(&seen),
        source: &read.source,
        binding: &Binding::new(machine, &layout),
        launcher,
    });
    if bind.blocks.is_empty() {
        return Err(format!(
            "{}: it does not show which CPUs are near the GPUs: there is nothing to paste. Add --instance NAME, or run this on \
             the machine",
            read.source
        ));
    }
    Ok(bind)
}
