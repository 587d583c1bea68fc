//! `plumb manifest`: writes a manifest or script that lint accepts.

use std::io::{self, Write};

use ::manifest::{Kind, Request};

use crate::{CLEAN, UNDECIDED, args, complain};

pub(crate) fn run(args: &args::Manifest, out: &mut impl Write) -> io::Result<u8> {
    let Some(kind) = Kind::find(&args.kind) else {
        let kinds: Vec<&str> = Kind::ALL.iter().map(|it| it.name()).collect();
        complain(&format!("error: `{}` is not a kind: {}", args.kind, kinds.join(", ")));
        return Ok(UNDECIDED);
    };
    let request = Request {
        gpus: args.gpus,
        image: args.image.clone(),
        name: args.name.clone(),
        namespace: args.namespace.clone(),
        zone: args.zone.clone(),
        queue: args.queue.clone(),
        nccl_tests: args.nccl_tests,
        command: args.command.clone(),
        ..Request::new(kind, args.instance, args.nodes)
    };
    match ::manifest::write(&request) {
        Ok(text) => {
            out.write_all(text.as_bytes())?;
            Ok(CLEAN)
        }
        Err(reason) => {
            complain(&format!("error: {reason}"));
            Ok(UNDECIDED)
        }
    }
}
