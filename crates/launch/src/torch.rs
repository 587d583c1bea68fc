//! torchrun, and others that set PyTorch's variables.

use crate::place::{Found, Way};
use crate::variables::Variables;
use crate::{Error, Launcher, Point};

/// A rank of torchrun. `TORCHELASTIC_RUN_ID` is set by it alone.
///
/// torchrun's own store listens on `MASTER_PORT`, so ranks meet at the next port (at the one before for 65535). The
/// number of restarts is part of the identity: a rank that is left over does not meet its successors.
pub(crate) fn torchrun(variables: Variables<'_>) -> Result<Option<Found>, Error> {
    let Some(run) = variables.text("TORCHELASTIC_RUN_ID") else { return Ok(None) };
    let launcher = Launcher::Torch;
    let mark = "TORCHELASTIC_RUN_ID";
    let rank = variables.needed(launcher, mark, "RANK")?;
    let size = variables.needed(launcher, mark, "WORLD_SIZE")?;
    let restarts = variables.number("TORCHELASTIC_RESTART_COUNT")?.unwrap_or(0);
    let missing = |missing| Error::Missing { launcher, found: mark, missing };
    let host = master_address(variables)?.ok_or(missing("MASTER_ADDR"))?;
    let port = variables.port("MASTER_PORT")?.ok_or(missing("MASTER_PORT"))?;
    let next = port.checked_add(1).unwrap_or(port - 1);
    Ok(Some(Found {
        identity: format!("torchrun-{run}-{restarts}"),
        ways: vec![Way::Given(host, next)],
        ..common(variables, rank, size)?
    }))
}

/// A rank whose variables were set by hand, or by another launcher of PyTorch. Nobody listens on `MASTER_PORT` yet.
pub(crate) fn by_hand(variables: Variables<'_>) -> Result<Option<Found>, Error> {
    let (Some(rank), Some(size)) = (variables.number("RANK")?, variables.number("WORLD_SIZE")?) else {
        return Ok(None);
    };
    let host = master_address(variables)?;
    let port = variables.port("MASTER_PORT")?;
    let mut found = common(variables, rank, size)?;
    if let (Some(host), Some(port)) = (host, port) {
        found.identity = format!("torch-{host}-{port}");
        found.ways = vec![Way::Given(host, port)];
    }
    Ok(Some(found))
}

/// The error of `RANK` without `WORLD_SIZE`, where no other launcher is found.
pub(crate) fn half(variables: Variables<'_>) -> Option<Error> {
    (variables.text("RANK").is_some() && variables.text("WORLD_SIZE").is_none()).then_some(Error::Missing {
        launcher: Launcher::Torch,
        found: "RANK",
        missing: "WORLD_SIZE",
    })
}

/// `MASTER_ADDR`, checked.
pub(crate) fn master_address(variables: Variables<'_>) -> Result<Option<String>, Error> {
    variables.text("MASTER_ADDR").map(|it| host("MASTER_ADDR", &it)).transpose()
}

/// A host name or address, with or without brackets.
pub(crate) fn host(name: &str, text: &str) -> Result<String, Error> {
    let bare = text.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(text);
    let address = if bare.contains(':') { format!("[{bare}]:1") } else { format!("{bare}:1") };
    match Point::parse(&address, String::new()) {
        Some(point) => Ok(point.host),
        None => Err(Error::variable(name, text, "a host name or an address")),
    }
}

fn common(variables: Variables<'_>, rank: usize, size: usize) -> Result<Found, Error> {
    Ok(Found {
        launcher: Launcher::Torch,
        rank,
        size,
        local_rank: variables.number("LOCAL_RANK")?,
        local_size: variables.number("LOCAL_WORLD_SIZE")?,
        start_here: 1,
        identity: "torch".to_owned(),
        ways: Vec::new(),
        advice: "RANK and WORLD_SIZE are set; set MASTER_ADDR to the host of rank 0 and MASTER_PORT to a free port there",
    })
}
