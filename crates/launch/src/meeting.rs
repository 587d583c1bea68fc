//! Where ranks meet: an address and a token, known before or told over a board.

use std::fmt;
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs as _};
use std::time::Duration;

use crate::{Board, Error, Place};

/// Longest text that goes over a board. PMI-1 guarantees 256 bytes and hydra gives 1024.
pub(crate) const MAX_TEXT: usize = 480;

/// How ranks learn where to meet.
pub enum Meeting {
    /// All know it already.
    Fixed(Point),
    /// Rank 0 chooses, and tells the others over a board of the process manager.
    Board(Box<dyn Board>),
}

/// A meeting point, and the token that proves that one belongs there.
#[derive(Clone, PartialEq, Eq)]
pub struct Point {
    /// A name or an address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The job's token.
    pub token: String,
}

/// Where rank 0 should listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listen {
    /// The address; none: the one of the interface that the user chose, or that the default route takes.
    pub address: Option<IpAddr>,
    /// The port; 0: any.
    pub port: u16,
}

/// What a rank knows after meeting.
#[derive(Debug)]
pub enum Met<D> {
    /// Rank 0: what it opened, and the token that the others will show.
    Open(D, String),
    /// The others: where rank 0 listens, and the token to show.
    At(Point),
}

impl Point {
    /// Reads `host:port` or `[v6]:port`.
    pub(crate) fn parse(address: &str, token: String) -> Option<Self> {
        let (host, port) = address.rsplit_once(':')?;
        let port = port.parse::<u16>().ok().filter(|it| *it > 0)?;
        let host = match host.strip_prefix('[') {
            Some(inner) => inner.strip_suffix(']')?,
            None if host.contains(':') => return None,
            None => host,
        };
        let fine = |it: u8| it.is_ascii_alphanumeric() || b".:-_%".contains(&it);
        let good = !host.is_empty() && host.len() <= 253 && host.bytes().all(fine);
        good.then(|| Self { host: host.to_owned(), port, token })
    }

    /// `host:port`, with brackets around an IPv6 address.
    pub fn address(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// One word for a board. The token is left out if all know it from `PLUMB_TOKEN`.
    fn text(address: &str, token: Option<&str>) -> String {
        format!("{address}/{}", token.unwrap_or_default())
    }

    /// Reads what came over a board.
    fn read(text: &str, own: Option<&str>) -> Option<Self> {
        let (address, told) = text.split_once('/')?;
        let good = told.len() <= 128 && told.bytes().all(|it| it.is_ascii_alphanumeric());
        let token = own.or((good && !told.is_empty()).then_some(told))?;
        Self::parse(address, token.to_owned())
    }
}

impl fmt::Debug for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Point({})", self.address())
    }
}

impl fmt::Debug for Meeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(point) => point.fmt(f),
            Self::Board(board) => write!(f, "Board({})", board.name()),
        }
    }
}

impl Place {
    /// Brings the ranks together. Rank 0 opens its door with `open`, which returns what it opened and the address
    /// (`host:port`) that the others reach it at; the others learn that address.
    ///
    /// With a board, every rank has to call this: rank 0 waits for the others, up to `timeout`.
    pub fn meet<D, E: From<Error>>(
        self,
        timeout: Duration,
        open: impl FnOnce(Listen) -> Result<(D, String), E>,
    ) -> Result<Met<D>, E> {
        let alone = self.is_one_host();
        match self.meeting {
            Meeting::Fixed(point) if self.rank == 0 => {
                let address = own_address(&point.host, alone);
                let (door, _) = open(Listen { address, port: point.port })?;
                Ok(Met::Open(door, point.token))
            }
            Meeting::Fixed(point) => Ok(Met::At(point)),
            Meeting::Board(board) if self.rank == 0 => {
                let address = alone.then_some(IpAddr::V4(Ipv4Addr::LOCALHOST));
                let (door, address) = open(Listen { address, port: 0 })?;
                let (told, token) = match self.token {
                    Some(token) => (None, token),
                    None => {
                        let token = random_token()?;
                        (Some(token.clone()), token)
                    }
                };
                board.publish(&Point::text(&address, told.as_deref()), timeout)?;
                Ok(Met::Open(door, token))
            }
            Meeting::Board(board) => {
                let name = board.name();
                let text = board.fetch(timeout)?;
                let point = Point::read(&text, self.token.as_deref())
                    .ok_or_else(|| Error::board(name, "rank 0 told no address that can be read"))?;
                Ok(Met::At(point))
            }
        }
    }
}

/// The address of this machine that `host` stands for. None where the name leads elsewhere, nowhere yet, or only to
/// loopback (as a machine's own name does on many systems) although ranks of other machines will come.
fn own_address(host: &str, alone: bool) -> Option<IpAddr> {
    let spelled = host.parse::<IpAddr>().ok();
    let found: Vec<SocketAddr> = (host, 0).to_socket_addrs().ok()?.collect();
    found
        .iter()
        .map(SocketAddr::ip)
        .filter(|it| alone || spelled == Some(*it) || !it.is_loopback())
        .find(|it| TcpListener::bind((*it, 0)).is_ok())
}

/// 128 bits from the system, as text.
pub(crate) fn random_token() -> Result<String, Error> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut it| it.read_exact(&mut bytes))
        .map_err(|error| Error::start("cannot read /dev/urandom", error))?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for good in ["node1:29500", "10.0.0.1:1", "[::1]:80", "[fe80::1%eth0]:80", "a-b.c_d.svc:65535"] {
            assert_eq!(Point::parse(good, String::new()).expect(good).address(), good);
        }
        for wrong in
            ["", "node1", "node1:", ":1", "node1:0", "node1:65536", "::1:80", "[::1:80", "a b:1", "a/b:1"]
        {
            assert!(Point::parse(wrong, String::new()).is_none(), "{wrong}");
        }
    }

    #[test]
    fn a_board_carries_address_and_token() {
        let text = Point::text("[::1]:80", Some("abc"));
        let point = Point::read(&text, None).expect("a point");
        assert_eq!((point.host.as_str(), point.port, point.token.as_str()), ("::1", 80, "abc"));
        assert_eq!(Point::read(&text, Some("own")).expect("a point").token, "own");
        let bare = Point::text("h:1", None);
        assert_eq!(Point::read(&bare, Some("own")).expect("a point").token, "own");
        assert_eq!(Point::read(&bare, None), None);
        assert_eq!(Point::read("h:1", Some("own")), None);
        assert_eq!(Point::read("h:1/a b", None), None);
    }

    #[test]
    fn a_token_is_not_shown() {
        let point = Point::parse("h:1", "secret".to_owned()).expect("a point");
        assert!(!format!("{point:?} {:?}", Meeting::Fixed(point.clone())).contains("secret"));
    }

    #[test]
    fn tokens_differ() {
        let (one, two) = (random_token().expect("a token"), random_token().expect("a token"));
        assert_eq!(one.len(), 32);
        assert_ne!(one, two);
    }

    #[test]
    fn rank_zero_listens_where_the_name_leads() {
        assert_eq!(own_address("127.0.0.1", false), Some(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        assert!(own_address("localhost", true).is_some_and(|it| it.is_loopback()));
        assert_eq!(own_address("localhost", false), None);
        assert_eq!(own_address("192.0.2.77", false), None);
        assert_eq!(own_address("no.such.host.invalid", false), None);
    }
}
