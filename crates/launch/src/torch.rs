//! torchrun, and other launchers that set PyTorch's variables.

use crate::identity::{Detected, RendezvousSource};
use crate::variables::Variables;
use crate::{Endpoint, Error, Launcher};

/// A rank of torchrun, which alone sets `TORCHELASTIC_RUN_ID`.
///
/// torchrun's own store listens on `MASTER_PORT`, so the rendezvous is at the next port (at 65534 for 65535). The number
/// of restarts is part of the job id: a rank left over from before a restart cannot join the new job.
pub(crate) fn torchrun(variables: Variables<'_>) -> Result<Option<Detected>, Error> {
    let Some(run) = variables.text("TORCHELASTIC_RUN_ID") else { return Ok(None) };
    let launcher = Launcher::Torch;
    let mark = "TORCHELASTIC_RUN_ID";
    let rank = variables.required(launcher, mark, "RANK")?;
    let size = variables.required(launcher, mark, "WORLD_SIZE")?;
    let restarts = variables.number("TORCHELASTIC_RESTART_COUNT")?.unwrap_or(0);
    let missing = |missing| Error::Missing { launcher, found: mark, missing };
    let host = master_address(variables)?.ok_or(missing("MASTER_ADDR"))?;
    let port = variables.port("MASTER_PORT")?.ok_or(missing("MASTER_PORT"))?;
    let next = port.checked_add(1).unwrap_or(port - 1);
    Ok(Some(Detected {
        job_id: format!("torchrun-{run}-{restarts}"),
        sources: vec![RendezvousSource::Fixed { host, port: next }],
        ..common(variables, rank, size)?
    }))
}

/// A rank whose `RANK` and `WORLD_SIZE` were set by hand or by another launcher. Nothing listens on `MASTER_PORT` yet.
pub(crate) fn rank_and_world_size(variables: Variables<'_>) -> Result<Option<Detected>, Error> {
    let (Some(rank), Some(size)) = (variables.number("RANK")?, variables.number("WORLD_SIZE")?) else {
        return Ok(None);
    };
    let host = master_address(variables)?;
    let port = variables.port("MASTER_PORT")?;
    let mut found = common(variables, rank, size)?;
    if let (Some(host), Some(port)) = (host, port) {
        found.job_id = format!("torch-{host}-{port}");
        found.sources = vec![RendezvousSource::Fixed { host, port }];
    }
    Ok(Some(found))
}

/// The error of `RANK` without `WORLD_SIZE`, if no other launcher is found.
pub(crate) fn rank_without_world_size(variables: Variables<'_>) -> Option<Error> {
    (variables.text("RANK").is_some() && variables.text("WORLD_SIZE").is_none()).then_some(Error::Missing {
        launcher: Launcher::Torch,
        found: "RANK",
        missing: "WORLD_SIZE",
    })
}

/// `MASTER_ADDR`, validated.
pub(crate) fn master_address(variables: Variables<'_>) -> Result<Option<String>, Error> {
    variables.text("MASTER_ADDR").map(|it| host("MASTER_ADDR", &it)).transpose()
}

/// A host name or address, with or without brackets.
pub(crate) fn host(name: &str, text: &str) -> Result<String, Error> {
    let bare = text.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(text);
    let address = if bare.contains(':') { format!("[{bare}]:1") } else { format!("{bare}:1") };
    match Endpoint::parse(&address, String::new()) {
        Some(endpoint) => Ok(endpoint.host),
        None => Err(Error::variable(name, text, "a host name or an address")),
    }
}

fn common(variables: Variables<'_>, rank: usize, size: usize) -> Result<Detected, Error> {
    Ok(Detected {
        launcher: Launcher::Torch,
        rank,
        size,
        local_rank: variables.number("LOCAL_RANK")?,
        local_size: variables.number("LOCAL_WORLD_SIZE")?,
        ranks_to_start: 1,
        job_id: "torch".to_owned(),
        sources: Vec::new(),
        advice: "RANK and WORLD_SIZE are set; set MASTER_ADDR to the host of rank 0 and MASTER_PORT to a free port there",
    })
}
