//! The rendezvous of a job: an address and a token, known to all ranks or published by rank 0 in a key-value store.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs as _};
use std::time::Duration;

use rustix::rand::{GetRandomFlags, getrandom};

use crate::{Error, KeyValueStore, RankIdentity};

/// Longest text in a key-value store. PMI-1 guarantees 256 bytes and hydra gives 1024.
pub(crate) const MAX_TEXT: usize = 480;

/// How ranks learn the address of rank 0.
pub enum Rendezvous {
    /// Every rank knows it from its environment.
    Fixed(Endpoint),
    /// Rank 0 chooses it and publishes it in the key-value store of the process manager.
    KeyValueStore(Box<dyn KeyValueStore>),
}

/// Where rank 0 listens, and the token that ranks prove to each other.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// A name or an address, without brackets.
    pub host: String,
    /// The TCP port; 0 only in a job of one rank, which nobody connects to.
    pub port: u16,
    /// The job's token.
    pub token: String,
}

/// Where rank 0 has to listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenAddress {
    /// `None`: the address of the interface that the user chose, or of the default route.
    pub address: Option<IpAddr>,
    /// 0: any free port.
    pub port: u16,
}

/// The listener that rank 0 has opened.
#[derive(Debug)]
pub struct Opened<L> {
    /// Handed back in [`Bootstrap::Listen`].
    pub listener: L,
    /// Where the other ranks connect to.
    pub address: SocketAddr,
}

/// What a rank does after the rendezvous.
#[derive(Debug)]
pub enum Bootstrap<L> {
    /// Rank 0: accept the other ranks.
    Listen {
        /// The listener that rank 0 has opened.
        listener: L,
        /// The token that the other ranks have to prove.
        token: String,
    },
    /// All other ranks: connect to rank 0.
    Connect(Endpoint),
}

impl Endpoint {
    /// Reads `host:port` or `[v6]:port`.
    pub(crate) fn parse(address: &str, token: String) -> Option<Self> {
        let (host, port) = address.rsplit_once(':')?;
        let port = port.parse::<u16>().ok().filter(|it| *it > 0)?;
        let host = match host.strip_prefix('[') {
            Some(inner) => inner.strip_suffix(']')?,
            None if host.contains(':') => return None,
            None => host,
        };
        let allowed = |it: u8| it.is_ascii_alphanumeric() || b".:-_%".contains(&it);
        let valid = !host.is_empty() && host.len() <= 253 && host.bytes().all(allowed);
        valid.then(|| Self { host: host.to_owned(), port, token })
    }

    /// `host:port`, with brackets around an IPv6 address.
    pub fn address(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// The value for a key-value store, one word. The token is left out if every rank has it from `PLUMB_TOKEN`.
    fn to_value(address: SocketAddr, token: Option<&str>) -> String {
        format!("{address}/{}", token.unwrap_or_default())
    }

    /// Reads the value of a key-value store; `own` is the token of `PLUMB_TOKEN`, which takes precedence.
    fn from_value(value: &str, own: Option<&str>) -> Option<Self> {
        let (address, published) = value.split_once('/')?;
        let good = published.len() <= 128 && published.bytes().all(|it| it.is_ascii_alphanumeric());
        let token = own.or((good && !published.is_empty()).then_some(published))?;
        Self::parse(address, token.to_owned())
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({})", self.address())
    }
}

impl fmt::Debug for Rendezvous {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(endpoint) => endpoint.fmt(f),
            Self::KeyValueStore(store) => write!(f, "KeyValueStore({})", store.name()),
        }
    }
}

impl RankIdentity {
    /// Gives all ranks the address of rank 0, which calls `open` to listen there.
    ///
    /// With a key-value store every rank has to call this: rank 0 waits for the others, up to `timeout`.
    pub fn rendezvous<L, E: From<Error>>(
        self,
        timeout: Duration,
        open: impl FnOnce(ListenAddress) -> Result<Opened<L>, E>,
    ) -> Result<Bootstrap<L>, E> {
        let one_host = self.is_one_host();
        match self.rendezvous {
            Rendezvous::Fixed(endpoint) if self.rank == 0 => {
                let address = own_address(&endpoint.host, one_host);
                let Opened { listener, .. } = open(ListenAddress { address, port: endpoint.port })?;
                Ok(Bootstrap::Listen { listener, token: endpoint.token })
            }
            Rendezvous::Fixed(endpoint) => Ok(Bootstrap::Connect(endpoint)),
            Rendezvous::KeyValueStore(store) if self.rank == 0 => {
                let address = one_host.then_some(IpAddr::V4(Ipv4Addr::LOCALHOST));
                let Opened { listener, address } = open(ListenAddress { address, port: 0 })?;
                let (value, token) = match self.token {
                    Some(token) => (Endpoint::to_value(address, None), token),
                    None => {
                        let token = random_token()?;
                        (Endpoint::to_value(address, Some(&token)), token)
                    }
                };
                store.publish(&value, timeout)?;
                Ok(Bootstrap::Listen { listener, token })
            }
            Rendezvous::KeyValueStore(store) => {
                let protocol = store.name();
                let value = store.fetch(timeout)?;
                let endpoint = Endpoint::from_value(&value, self.token.as_deref()).ok_or_else(|| {
                    Error::kvs(protocol, "the value that rank 0 published is not HOST:PORT and a token")
                })?;
                Ok(Bootstrap::Connect(endpoint))
            }
        }
    }
}

/// The local address that `host` resolves to. `None` if it belongs to another machine, does not resolve yet, or is
/// loopback (as a machine's own name is on many systems) although ranks of other hosts will connect.
pub(crate) fn own_address(host: &str, one_host: bool) -> Option<IpAddr> {
    let literal = host.parse::<IpAddr>().ok();
    let found: Vec<SocketAddr> = (host, 0).to_socket_addrs().ok()?.collect();
    found
        .iter()
        .map(SocketAddr::ip)
        .filter(|it| one_host || literal == Some(*it) || !it.is_loopback())
        .find(|it| TcpListener::bind((*it, 0)).is_ok())
}

/// 128 random bits as text.
pub(crate) fn random_token() -> Result<String, Error> {
    let mut bytes = [0_u8; 16];
    // The kernel fills up to 256 bytes at once.
    match rustix::io::retry_on_intr(|| getrandom(&mut bytes, GetRandomFlags::empty())) {
        Ok(16) => Ok(format!("{:032x}", u128::from_ne_bytes(bytes))),
        Ok(count) => Err(Error::start("cannot make a token", format!("{count} of 16 random bytes"))),
        Err(error) => Err(Error::start("cannot make a token", error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for good in ["node1:29500", "10.0.0.1:1", "[::1]:80", "[fe80::1%eth0]:80", "a-b.c_d.svc:65535"] {
            assert_eq!(Endpoint::parse(good, String::new()).expect(good).address(), good);
        }
        for wrong in
            ["", "node1", "node1:", ":1", "node1:0", "node1:65536", "::1:80", "[::1:80", "a b:1", "a/b:1"]
        {
            assert!(Endpoint::parse(wrong, String::new()).is_none(), "{wrong}");
        }
    }

    #[test]
    fn a_value_has_address_and_token() {
        let value = Endpoint::to_value("[::1]:80".parse().expect("an address"), Some("abc"));
        let endpoint = Endpoint::from_value(&value, None).expect("an endpoint");
        assert_eq!((endpoint.host.as_str(), endpoint.port, endpoint.token.as_str()), ("::1", 80, "abc"));
        assert_eq!(Endpoint::from_value(&value, Some("own")).expect("an endpoint").token, "own");
        let bare = Endpoint::to_value("10.0.0.1:1".parse().expect("an address"), None);
        assert_eq!(Endpoint::from_value(&bare, Some("own")).expect("an endpoint").token, "own");
        assert_eq!(Endpoint::from_value(&bare, None), None);
        assert_eq!(Endpoint::from_value("h:1", Some("own")), None);
        assert_eq!(Endpoint::from_value("h:1/a b", None), None);
    }

    #[test]
    fn a_token_is_not_shown() {
        let endpoint = Endpoint::parse("h:1", "secret".to_owned()).expect("an endpoint");
        assert!(!format!("{endpoint:?} {:?}", Rendezvous::Fixed(endpoint.clone())).contains("secret"));
    }

    #[test]
    fn tokens_differ() {
        let (one, two) = (random_token().expect("a token"), random_token().expect("a token"));
        assert_eq!(one.len(), 32);
        assert_ne!(one, two);
    }

    #[test]
    fn rank_zero_listens_on_its_own_address() {
        assert_eq!(own_address("127.0.0.1", false), Some(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        assert!(own_address("localhost", true).is_some_and(|it| it.is_loopback()));
        assert_eq!(own_address("localhost", false), None);
        assert_eq!(own_address("192.0.2.77", false), None);
        assert_eq!(own_address("no.such.host.invalid", false), None);
    }
}
