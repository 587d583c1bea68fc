//! What the ranks tell each other before NCCL starts: who is on which GPU, who cannot, and where to meet.

use serde::{Deserialize, Serialize};

use super::library::{UniqueId, Version};
use crate::engine::{Device, Failure};

/// Letters of a text that came from another rank.
const LONGEST: usize = 500;

/// A rank's own part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Card {
    /// The number of its GPU among those it sees.
    pub(super) device: usize,
    /// The GPU's bus address.
    pub(super) bus: String,
    /// The GPU's name.
    pub(super) name: String,
    /// NCCL's release.
    pub(super) nccl: [u32; 3],
    /// What it gave NCCL for its host's name, if anything.
    pub(super) host_id: Option<String>,
    /// Where to meet, from rank 0.
    pub(super) meeting: Option<Vec<u8>>,
}

/// A rank's card, or why it has none.
pub(super) type Told = Result<Card, String>;

/// The cards of all ranks, from what they sent; one rank that cannot take part ends it for all, with the same sentence.
///
/// `members` are the hosts and processes of the ranks, in order.
pub(super) fn read(parts: &[Vec<u8>], members: &[(String, u32)]) -> Result<(Vec<Device>, UniqueId), Failure> {
    let place = |rank: usize| match members.get(rank) {
        Some((host, _)) => format!("rank {rank} on {host}"),
        None => format!("rank {rank}"),
    };
    let mut cards = Vec::new();
    for (rank, part) in parts.iter().enumerate() {
        match serde_json::from_slice::<Told>(part) {
            Ok(Ok(card)) => cards.push(card),
            Ok(Err(why)) => return Err(Failure(format!("{}: {}", place(rank), plain(&why)))),
            Err(_) => {
                return Err(Failure(format!("{}: it sent what is no description of a GPU", place(rank))));
            }
        }
    }
    let Some(first) = cards.first() else { return Err(Failure("there are no ranks".into())) };
    if let Some((rank, other)) = cards.iter().enumerate().find(|(_, it)| it.nccl != first.nccl) {
        return Err(Failure(format!(
            "{} has NCCL {} and {} has NCCL {}: all ranks need the same",
            place(0),
            version(first.nccl),
            place(rank),
            version(other.nccl)
        )));
    }
    let machine = |rank: usize, card: &Card| {
        (members.get(rank).map(|it| it.0.clone()), card.host_id.clone(), card.bus.clone())
    };
    for (rank, card) in cards.iter().enumerate() {
        if let Some(other) = (0..rank)
            .find(|it| cards.get(*it).is_some_and(|it_card| machine(*it, it_card) == machine(rank, card)))
        {
            return Err(Failure(format!(
                "{} and {} are on the same GPU, {}: NCCL needs one for each (use fewer ranks, or look at CUDA_VISIBLE_DEVICES)",
                place(other),
                place(rank),
                plain(&card.bus)
            )));
        }
    }
    let meeting = first.meeting.as_deref().and_then(|it| <[u8; 128]>::try_from(it).ok()).map(UniqueId);
    let meeting = meeting.ok_or_else(|| Failure(format!("{}: it did not say where to meet", place(0))))?;
    let devices = cards
        .iter()
        .enumerate()
        .map(|(rank, card)| {
            let (host, pid) = members.get(rank).cloned().unwrap_or_default();
            Device {
                rank,
                pid,
                host,
                device: card.device,
                bus: Some(plain(&card.bus)),
                name: plain(&card.name),
            }
        })
        .collect();
    Ok((devices, meeting))
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

    fn card(bus: &str) -> Card {
        Card {
            device: 0,
            bus: bus.into(),
            name: "NVIDIA H200".into(),
            nccl: [2, 28, 9],
            host_id: None,
            meeting: Some(vec![7; 128]),
        }
    }

    fn check(told: &[Told]) -> Result<(Vec<Device>, UniqueId), String> {
        let parts: Vec<Vec<u8>> = told.iter().map(|it| serde_json::to_vec(it).expect("plain data")).collect();
        let members: Vec<(String, u32)> = (0..told.len()).map(|_| ("a".to_owned(), 1)).collect();
        read(&parts, &members).map_err(|it| it.0)
    }

    #[test]
    fn all_ranks_are_listed() {
        let (devices, meeting) =
            check(&[Ok(card("0000:1b:00.0")), Ok(card("0000:2b:00.0"))]).expect("both can");
        assert_eq!(meeting, UniqueId([7; 128]));
        assert_eq!(
            devices.iter().map(|it| it.bus.as_deref()).collect::<Vec<_>>(),
            [Some("0000:1b:00.0"), Some("0000:2b:00.0")]
        );
    }

    #[test]
    fn one_rank_without_a_gpu_is_named_to_all() {
        let told = check(&[Ok(card("x")), Err("libcuda.so.1 is not\u{1b}[31m on this machine".into())]);
        assert_eq!(told.expect_err("one cannot"), "rank 1 on a: libcuda.so.1 is not[31m on this machine");
    }

    #[test]
    fn the_same_gpu_twice_is_refused_unless_the_hosts_differ_for_nccl() {
        let told = check(&[Ok(card("x")), Ok(card("x"))]).expect_err("one GPU");
        assert!(told.contains("rank 0 on a and rank 1 on a are on the same GPU"), "{told}");
        let named = |it: &str| Card { host_id: Some(it.into()), ..card("x") };
        assert!(check(&[Ok(named("one")), Ok(named("two"))]).is_ok());
    }

    #[test]
    fn different_releases_are_refused() {
        let old = Card { nccl: [2, 27, 3], ..card("y") };
        let told = check(&[Ok(card("x")), Ok(old)]).expect_err("they differ");
        assert_eq!(
            told,
            "rank 0 on a has NCCL 2.28.9 and rank 1 on a has NCCL 2.27.3: all ranks need the same"
        );
    }

    #[test]
    fn garbage_is_refused() {
        let members = [("a".to_owned(), 1)];
        assert!(read(&[vec![0xff; 40]], &members).is_err());
        assert!(read(&[], &[]).is_err());
        let short = Card { meeting: Some(vec![1; 3]), ..card("x") };
        assert!(check(&[Ok(short)]).expect_err("no id").contains("where to meet"));
    }
}
