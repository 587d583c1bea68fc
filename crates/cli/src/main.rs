//! tmp
mod input;
fn main() {
    let paths: Vec<_> = std::env::args_os().skip(1).map(Into::into).collect();
    let t = std::time::Instant::now();
    let inputs = input::read(&paths);
    let tally = inputs.case.sources.tally();
    println!("{:?} {} processes {} comms {} sightings, understood {}/{}", t.elapsed(), inputs.case.processes.len(), inputs.case.communicators.len(), inputs.case.sightings.len(), tally.understood(), tally.told());
}
