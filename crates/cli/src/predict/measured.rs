//! Measured collectives of a file, for the groups of ranks of a job that they fit.

use std::collections::BTreeSet;
use std::path::Path;

use fabric::Collective;
use forecast::training::{Curve, Job};

use crate::{expect, input};

/// Adds the measurements of a file to a job: JSON of `plumb bench` or of nccl-tests, or output of nccl-tests.
pub(crate) fn add(job: &mut Job, path: &Path) -> Result<(), String> {
    let name = input::name(path);
    let curves = if begins_json(path)? { of_json(path)? } else { of_output(path)? };
    if curves.is_empty() {
        return Err(format!(
            "{name}: has no results of a collective: give the JSON of plumb bench, or the output of nccl-tests"
        ));
    }
    job.measured.add(&name, curves);
    Ok(())
}

fn begins_json(path: &Path) -> Result<bool, String> {
    use std::io::Read as _;
    let mut head = Vec::new();
    let read = input::open_whole(path).and_then(|it| it.take(4096).read_to_end(&mut head));
    read.map_err(|error| format!("{}: {error}", input::name(path)))?;
    Ok(head.trim_ascii_start().starts_with(b"{"))
}

fn of_json(path: &Path) -> Result<Vec<Curve>, String> {
    let name = input::name(path);
    let record = bench::read(&expect::read_text(path)?).map_err(|error| format!("{name}: {error}"))?;
    let collective: Collective = record
        .collective
        .parse()
        .map_err(|_| format!("{name}: plumb knows no collective {}", record.collective))?;
    let hosts: BTreeSet<&str> = record.devices.iter().map(|it| it.host.as_str()).collect();
    let nodes = record.hosts.max(hosts.len());
    let points = record
        .results
        .iter()
        .filter_map(|it| Some((it.bytes, it.out_of_place.as_ref().or(it.in_place.as_ref())?.time_us)));
    let ranks = record.ranks.max(record.devices.len());
    Ok(Curve::new(collective, ranks, nodes, points).into_iter().collect())
}

fn of_output(path: &Path) -> Result<Vec<Curve>, String> {
    let inputs = input::read(&[path.to_path_buf()]);
    if let Some(it) = inputs.unreadable.first() {
        return Err(format!("{}: {}", it.name, it.reason));
    }
    let mut curves = Vec::new();
    for table in &inputs.case.tests {
        let Some(collective) = table.collective() else { continue };
        let hosts: BTreeSet<&str> = table.devices.iter().map(|it| &*it.host).collect();
        let points =
            table.rows.iter().filter_map(|it| Some((it.size, it.out_of_place.or(it.in_place)?.time)));
        curves.extend(Curve::new(collective, table.devices.len(), hosts.len(), points));
    }
    Ok(curves)
}
