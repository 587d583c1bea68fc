//! Logs for tests of rules about decisions.

/// Two p4d.24xlarge with this many channels and a variable.
pub(crate) fn p4d(channels: u32, name: &str, value: &str) -> String {
    job("instance-type: p4d.24xlarge\n", "Libfabric", 2, channels, name, value)
}

/// One DGX H100 with a variable.
pub(crate) fn hgx(name: &str, value: &str) -> String {
    job("instance-type: dgx-h100\n", "IB", 1, 24, name, value)
}

fn job(machine: &str, network: &str, nodes: u32, channels: u32, name: &str, value: &str) -> String {
    let mut text = machine.to_owned();
    let ranks = nodes * 8;
    for rank in 0..ranks {
        let id = format!("h{}:{rank}:{rank} [{}] NCCL INFO", rank / 8, rank % 8);
        let local = rank % 8;
        text.push_str(&format!(
            "{id} NCCL version 2.28.9+cuda13.0\n\
             {id} {name} set by environment to {value}\n\
             {id} Using network {network}\n\
             {id} ncclCommInitRank comm 0x{rank}1 rank {rank} nranks {ranks} cudaDev {local} nvmlDev {local} busId {local}01c0 commId 0x2 - Init START\n\
             {id} comm 0x{rank}1 rank {rank} nRanks {ranks} nNodes {nodes} localRanks 8 localRank {local} MNNVL 0\n\
             {id} {channels} coll channels, {channels} collnet channels, 0 nvls channels, {channels} p2p channels, 2 p2p channels per peer\n\
             {id} ncclCommInitRank comm 0x{rank}1 rank {rank} nranks {ranks} cudaDev {local} nvmlDev {local} busId {local}01c0 commId 0x2 - Init COMPLETE\n",
        ));
    }
    text
}
