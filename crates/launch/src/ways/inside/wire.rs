//! What the processes of a launcher say to each other: a mutual proof of the job's token, then lines.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use hmac::{Hmac, Mac as _};
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::Sha256;

const NONCE: usize = 16;
const PROOF: usize = 32;

/// How long the other side may take for its part of a handshake.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest line.
const LINE: usize = 16 << 10;

/// Each side proves with its own word, so that no proof can be sent back.
#[derive(Clone, Copy)]
enum Side {
    Driver = 1,
    Follower = 2,
}

/// The side that accepted: rank 0.
pub(super) fn accept(stream: &mut TcpStream, token: &str) -> io::Result<()> {
    limit(stream)?;
    let theirs: [u8; NONCE] = read(stream)?;
    let ours = nonce()?;
    stream.write_all(&ours)?;
    stream.write_all(&proof(Side::Driver, token, &theirs, &ours))?;
    let answer: [u8; PROOF] = read(stream)?;
    check(Side::Follower, token, &theirs, &ours, &answer)
}

/// The side that connected.
pub(super) fn connect(stream: &mut TcpStream, token: &str) -> io::Result<()> {
    limit(stream)?;
    let ours = nonce()?;
    stream.write_all(&ours)?;
    let theirs: [u8; NONCE] = read(stream)?;
    let answer: [u8; PROOF] = read(stream)?;
    check(Side::Driver, token, &ours, &theirs, &answer)?;
    stream.write_all(&proof(Side::Follower, token, &ours, &theirs))
}

/// A line, read byte by byte: what follows it belongs to somebody else.
pub(super) fn line(stream: &mut TcpStream) -> io::Result<String> {
    let mut bytes = Vec::new();
    loop {
        let [byte] = read(stream)?;
        match byte {
            b'\n' => return String::from_utf8(bytes).map_err(|_| io::ErrorKind::InvalidData.into()),
            byte if bytes.len() < LINE => bytes.push(byte),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

fn limit(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_read_timeout(Some(PATIENCE))
}

fn read<const N: usize>(stream: &mut TcpStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn nonce() -> io::Result<[u8; NONCE]> {
    let mut bytes = [0; NONCE];
    match rustix::io::retry_on_intr(|| getrandom(&mut bytes, GetRandomFlags::empty()))? {
        NONCE => Ok(bytes),
        _ => Err(io::ErrorKind::Other.into()),
    }
}

fn code(side: Side, token: &str, first: &[u8], second: &[u8]) -> Option<Hmac<Sha256>> {
    // HMAC accepts a key of any length; `None` never happens.
    let mut code = Hmac::<Sha256>::new_from_slice(token.as_bytes()).ok()?;
    code.update(b"plumb launch 1");
    code.update(&[side as u8]);
    code.update(first);
    code.update(second);
    Some(code)
}

fn proof(side: Side, token: &str, first: &[u8], second: &[u8]) -> [u8; PROOF] {
    code(side, token, first, second).map_or([0; PROOF], |it| it.finalize().into_bytes().into())
}

fn check(side: Side, token: &str, first: &[u8], second: &[u8], proof: &[u8]) -> io::Result<()> {
    let right = code(side, token, first, second).is_some_and(|it| it.verify_slice(proof).is_ok());
    let wrong = || io::Error::new(io::ErrorKind::PermissionDenied, "the other side has another token");
    if right { Ok(()) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn both(one: &'static str, other: &'static str) -> (io::Result<()>, io::Result<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("an address");
        let follower = std::thread::spawn(move || {
            let mut stream = TcpStream::connect(address).expect("a listener");
            connect(&mut stream, one)
        });
        let (mut stream, _) = listener.accept().expect("a follower");
        let driver = accept(&mut stream, other);
        drop(stream);
        (driver, follower.join().expect("a thread"))
    }

    #[test]
    fn both_prove_the_token() {
        assert!(matches!(both("secret", "secret"), (Ok(()), Ok(()))));
        assert!(matches!(both("secret", "another"), (Err(_), Err(_))));
    }
}
