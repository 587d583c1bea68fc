//! What the ranks exchange before NCCL starts: who is on which GPU, who cannot take part, and NCCL's unique id.

use serde::{Deserialize, Serialize};

use super::library::{UniqueId, Version};
use crate::failure::{Cause, Exchange, Failure};
use crate::run::Device;

/// Characters of a text that came from another rank or from NCCL.
const LONGEST: usize = 500;

/// What a rank sends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PeerInfo {
    /// The number of its GPU among those it sees.
    pub(super) device: usize,
    /// The GPU's bus address.
    pub(super) bus: String,
    /// The GPU's name.
    pub(super) name: String,
    /// NCCL's release.
    pub(super) nccl: [u32; 3],
    /// `NCCL_HOSTID`, if it is set.
    pub(super) host_id: Option<String>,
    /// NCCL's unique id, from rank 0.
    pub(super) unique_id: Option<Vec<u8>>,
}

/// A rank's own part, or why it cannot take part.
pub(super) type Sent = Result<PeerInfo, Cause>;

/// The GPUs of all ranks, from what they sent. One rank that cannot take part ends it for all, with the same failure.
///
/// `members` are the hosts and processes of the ranks, in order.
pub(super) fn read(parts: &[Vec<u8>], members: &[(String, u32)]) -> Result<(Vec<Device>, UniqueId), Failure> {
    let host = |rank: usize| members.get(rank).map(|it| it.0.as_str());
    let of = |rank: usize, cause: Cause| Failure::new(cause).of(rank, host(rank)).during("NCCL setup");
    let mut peers = Vec::new();
    for (rank, part) in parts.iter().enumerate() {
        match serde_json::from_slice::<Sent>(part) {
            Ok(Ok(peer)) => peers.push(peer),
            Ok(Err(cause)) => return Err(of(rank, cause)),
            Err(_) => return Err(of(rank, Cause::BadExchange { problem: Exchange::Gpu })),
        }
    }
    let Some(first) = peers.first() else {
        return Err(Cause::BadExchange { problem: Exchange::RankMissing }.into());
    };
    if let Some((rank, other)) = peers.iter().enumerate().find(|(_, it)| it.nccl != first.nccl) {
        let [rank0, other] = [first.nccl, other.nccl].map(|it| version(it).to_string());
        return Err(of(rank, Cause::NcclReleasesDiffer { rank0, other }));
    }
    let gpu = |rank: usize, peer: &PeerInfo| {
        (host(rank).map(str::to_owned), peer.host_id.clone(), peer.bus.clone())
    };
    for (rank, peer) in peers.iter().enumerate() {
        let shares = |other: &usize| peers.get(*other).is_some_and(|it| gpu(*other, it) == gpu(rank, peer));
        if let Some(other) = (0..rank).find(shares) {
            let other_host = host(other).map(str::to_owned);
            return Err(of(rank, Cause::GpuShared { other, other_host, bus: plain(&peer.bus) }));
        }
    }
    let unique_id = first.unique_id.as_deref().and_then(|it| <[u8; 128]>::try_from(it).ok()).map(UniqueId);
    let unique_id = unique_id.ok_or_else(|| of(0, Cause::BadExchange { problem: Exchange::UniqueId }))?;
    let devices = peers
        .iter()
        .enumerate()
        .map(|(rank, peer)| {
            let (host, pid) = members.get(rank).cloned().unwrap_or_default();
            Device {
                rank,
                pid,
                host,
                device: peer.device,
                bus: Some(plain(&peer.bus)),
                name: plain(&peer.name),
            }
        })
        .collect();
    Ok((devices, unique_id))
}

fn version([major, minor, patch]: [u32; 3]) -> Version {
    Version { major, minor, patch }
}

/// A text of another rank, made fit for a terminal.
pub(super) fn plain(text: &str) -> String {
    text.chars().filter(|it| !it.is_control()).take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(bus: &str) -> PeerInfo {
        PeerInfo {
            device: 0,
            bus: bus.into(),
            name: "NVIDIA H200".into(),
            nccl: [2, 28, 9],
            host_id: None,
            unique_id: Some(vec![7; 128]),
        }
    }

    fn check(sent: &[Sent]) -> Result<(Vec<Device>, UniqueId), Failure> {
        let parts: Vec<Vec<u8>> = sent.iter().map(|it| serde_json::to_vec(it).expect("plain data")).collect();
        let members: Vec<(String, u32)> = (0..sent.len()).map(|_| ("a".to_owned(), 1)).collect();
        read(&parts, &members)
    }

    #[test]
    fn all_ranks_are_listed() {
        let (devices, unique_id) =
            check(&[Ok(peer("0000:1b:00.0")), Ok(peer("0000:2b:00.0"))]).expect("both can");
        assert_eq!(unique_id, UniqueId([7; 128]));
        assert_eq!(
            devices.iter().map(|it| it.bus.as_deref()).collect::<Vec<_>>(),
            [Some("0000:1b:00.0"), Some("0000:2b:00.0")]
        );
    }

    #[test]
    fn all_ranks_learn_why_one_cannot_take_part() {
        let failure = check(&[Ok(peer("x")), Err(Cause::NoGpu)]).expect_err("one cannot");
        assert_eq!(failure, Failure::new(Cause::NoGpu).of(1, Some("a")).during("NCCL setup"));
    }

    #[test]
    fn the_same_gpu_twice_is_refused_unless_the_hosts_differ_for_nccl() {
        let failure = check(&[Ok(peer("x")), Ok(peer("x"))]).expect_err("one GPU");
        let shared = Cause::GpuShared { other: 0, other_host: Some("a".into()), bus: "x".into() };
        assert_eq!((failure.cause, failure.rank), (shared, Some(1)));
        let named = |it: &str| PeerInfo { host_id: Some(it.into()), ..peer("x") };
        assert!(check(&[Ok(named("one")), Ok(named("two"))]).is_ok());
    }

    #[test]
    fn different_releases_are_refused() {
        let old = PeerInfo { nccl: [2, 27, 3], ..peer("y") };
        let failure = check(&[Ok(peer("x")), Ok(old)]).expect_err("they differ");
        let differ = Cause::NcclReleasesDiffer { rank0: "2.28.9".into(), other: "2.27.3".into() };
        assert_eq!((failure.cause, failure.rank), (differ, Some(1)));
    }

    #[test]
    fn garbage_is_refused() {
        let members = [("a".to_owned(), 1)];
        let problem =
            |result: Result<_, Failure>| result.map(|_: (_, UniqueId)| ()).expect_err("garbage").cause;
        let bad = |problem| Cause::BadExchange { problem };
        assert_eq!(problem(read(&[vec![0xff; 40]], &members)), bad(Exchange::Gpu));
        assert_eq!(problem(read(&[], &[])), bad(Exchange::RankMissing));
        let short = PeerInfo { unique_id: Some(vec![1; 3]), ..peer("x") };
        assert_eq!(problem(check(&[Ok(short)])), bad(Exchange::UniqueId));
    }
}
