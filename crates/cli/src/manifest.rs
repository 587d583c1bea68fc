//! `plumb manifest`: a right manifest, written.

use std::io::{self, Write};

use rules::manifest::{self, Kind, Request};

use crate::{CLEAN, UNDECIDED, args, complain};

pub(crate) fn run(args: &args::Manifest, out: &mut impl Write) -> io::Result<u8> {
    let Some(kind) = Kind::find(&args.kind) else {
        let kinds: Vec<&str> = Kind::ALL.iter().map(|it| it.name()).collect();
        complain(&format!("error: `{}` is no kind: {}", args.kind, kinds.join(", ")));
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
        ..Request::new(kind, args.instance.clone(), args.nodes)
    };
    match manifest::write(&request) {
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
