//! The first bytes of a data connection: rank, channel, and a proof that it belongs to the job.
//!
//! The key itself is not sent: another process may listen on the port of a rank that has died.

use hmac::{Hmac, Mac};
use sha2::Sha256;

/// With the version of the format.
const MAGIC: [u8; 8] = *b"PLUMBtc1";
const NAMES: usize = MAGIC.len() + 3 * 4;
pub(super) const LENGTH: usize = NAMES + 32;
/// The most channels.
pub(crate) const CHANNELS: u32 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) channel: u32,
}

impl Hello {
    /// The bytes to send, with a proof of `key`.
    pub(super) fn write(self, key: &[u8; 32]) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        let (names, proof) = bytes.split_at_mut(NAMES);
        let words = [number(self.from), number(self.to), self.channel].map(u32::to_le_bytes);
        names[..MAGIC.len()].copy_from_slice(&MAGIC);
        names[MAGIC.len()..].copy_from_slice(words.as_flattened());
        proof.copy_from_slice(&prove(key, names).finalize().into_bytes());
        bytes
    }

    /// Reads a hello; `None` if it does not prove `key`.
    pub(super) fn read(bytes: &[u8; LENGTH], key: &[u8; 32]) -> Option<Self> {
        let (names, proof) = bytes.split_at_checked(NAMES)?;
        let words = names.strip_prefix(&MAGIC)?.as_chunks::<4>().0;
        let &[from, to, channel] = words else { return None };
        prove(key, names).verify_slice(proof).ok()?;
        let channel = u32::from_le_bytes(channel);
        let rank = |it| usize::try_from(u32::from_le_bytes(it)).ok();
        (channel < CHANNELS).then_some(Self { from: rank(from)?, to: rank(to)?, channel })
    }
}

/// Whether `bytes` can be the beginning of a hello.
pub(super) fn plausible(bytes: &[u8]) -> bool {
    bytes.iter().zip(MAGIC).all(|(a, b)| *a == b)
}

fn number(rank: usize) -> u32 {
    u32::try_from(rank).unwrap_or(u32::MAX)
}

fn prove(key: &[u8; 32], names: &[u8]) -> Hmac<Sha256> {
    // A block of SHA-256: HMAC itself fills a shorter key with zeros.
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let mut proof = <Hmac<Sha256> as Mac>::new(&block.into());
    proof.update(names);
    proof
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_is_read_with_the_key_only() {
        let hello = Hello { from: 3, to: 1, channel: 2 };
        let bytes = hello.write(&[7; 32]);
        assert_eq!(Hello::read(&bytes, &[7; 32]), Some(hello));
        assert_eq!(Hello::read(&bytes, &[8; 32]), None);
        for at in 0..LENGTH {
            let mut changed = bytes;
            changed[at] ^= 1;
            assert_eq!(Hello::read(&changed, &[7; 32]), None, "byte {at}");
        }
    }

    #[test]
    fn channels_have_a_bound() {
        let bytes = Hello { from: 3, to: 1, channel: CHANNELS }.write(&[7; 32]);
        assert_eq!(Hello::read(&bytes, &[7; 32]), None);
    }

    #[test]
    fn other_bytes_are_not_plausible() {
        assert!(
            plausible(b"")
                && plausible(b"PLU")
                && plausible(&Hello { from: 0, to: 0, channel: 0 }.write(&[0; 32]))
        );
        assert!(!plausible(b"GET / HTTP/1.1") && !plausible(&[0]));
    }
}
