//! Ranks are threads; the sockets are real.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::hello::{Hello, LENGTH};
use super::*;
use crate::link::Links;
use crate::wait::{AbortFlag, WaitPolicy};

const KEY: [u8; 32] = [9; 32];

fn waiter(timeout: Duration) -> Waiter {
    Waiter { abort_flag: Arc::new(AbortFlag::default()), policy: WaitPolicy::Yield, timeout }
}

fn long_wait() -> Waiter {
    waiter(Duration::from_secs(60))
}

/// The networks of a job of `size` ranks on a loopback address.
fn job(size: usize, address: &str) -> Vec<Network> {
    let listeners: Vec<DataListener> = (0..size)
        .map(|_| {
            DataListener::open(Interface::choose(Some(address), true).expect("loopback")).expect("a port")
        })
        .collect();
    let addresses: Vec<Vec<u8>> = listeners.iter().map(DataListener::address_bytes).collect();
    listeners
        .into_iter()
        .enumerate()
        .map(|(rank, listener)| {
            Network::new(listener, rank, KEY, addresses.iter().map(|it| ("here", it.as_slice())))
                .expect("addresses")
        })
        .collect()
}

fn streams(channel: u32, size: usize) -> Streams {
    Streams::new(channel, size).expect("a channel")
}

/// Two ranks that are connected.
fn pair(address: &str) -> (Streams, Streams) {
    let mut ranks = job(2, address).into_iter();
    let (mut low, mut high) = (ranks.next().expect("rank 0"), ranks.next().expect("rank 1"));
    let (mut a, mut b) = (streams(0, 2), streams(0, 2));
    // Connecting needs only the listening socket of the other side.
    high.connect(&mut b, &[0], &long_wait()).expect("a connection");
    low.connect(&mut a, &[1], &long_wait()).expect("an answer");
    (a, b)
}

fn open_connection(network: &Network) -> TcpStream {
    TcpStream::connect(network.job.peers[network.job.rank].address).expect("an open port")
}

fn send_all(streams: &mut Streams, peer: usize, bytes: &[u8]) {
    let mut done = 0;
    while done < bytes.len() {
        done += streams.send(peer, &bytes[done..]).expect("an open stream");
    }
}

fn receive_all(streams: &mut Streams, peer: usize, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let mut done = 0;
    while done < length {
        done += streams.receive(peer, &mut bytes[done..]).expect("an open stream");
    }
    bytes
}

/// The next error of a stream.
fn ending(streams: &mut Streams, peer: usize) -> io::ErrorKind {
    loop {
        if let Err(error) = streams.receive(peer, &mut [0; 16]) {
            return error.kind();
        }
    }
}

#[test]
fn ranks_connect_in_any_order() {
    for size in 2..=9 {
        for turn in 0..size {
            thread::scope(|scope| {
                for (rank, mut network) in job(size, "127.0.0.1").into_iter().enumerate() {
                    scope.spawn(move || {
                        let mut streams = streams(0, size);
                        // Upwards, downwards, from the middle; one by one or all at once.
                        let mut order: Vec<usize> = (0..size).collect();
                        order.rotate_left((turn * (rank + 1)) % size);
                        if (rank + turn).is_multiple_of(2) {
                            order.reverse();
                        }
                        let parts = if (rank + turn).is_multiple_of(3) { size } else { 1 + turn % size };
                        for peers in order.chunks(parts) {
                            network.connect(&mut streams, peers, &long_wait()).expect("connections");
                        }
                        let others = order.iter().copied().filter(|it| *it != rank);
                        for peer in others.clone() {
                            send_all(&mut streams, peer, &[u8::try_from(rank).expect("small"), 77]);
                        }
                        for peer in others {
                            let wanted = [u8::try_from(peer).expect("small"), 77];
                            assert_eq!(receive_all(&mut streams, peer, 2), wanted);
                        }
                    });
                }
            });
        }
    }
}

#[test]
fn channels_are_streams_of_their_own() {
    let mut ranks = job(3, "::1");
    let mut high: Vec<Streams> = (0..4).map(|it| streams(it, 3)).collect();
    for streams in high.iter_mut().rev() {
        ranks[2].connect(streams, &[0, 1], &long_wait()).expect("connections");
        send_all(streams, 0, &[u8::try_from(streams.channel()).expect("small")]);
    }
    for channel in 0..4 {
        let mut low = streams(channel, 3);
        ranks[0].connect(&mut low, &[2], &long_wait()).expect("arrived long ago");
        assert_eq!(receive_all(&mut low, 2, 1), [u8::try_from(channel).expect("small")]);
        assert!(!low.is_connected(1));
    }
    assert!(Streams::new(hello::CHANNELS, 3).is_err());
}

#[test]
fn other_programs_are_rejected_and_delay_no_rank() {
    let mut ranks = job(3, "127.0.0.1");
    let silent = open_connection(&ranks[0]);
    let mut scanner = open_connection(&ranks[0]);
    scanner.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("a port that takes it");
    let mut slow = open_connection(&ranks[0]);
    let hello = Hello { from: 1, to: 0, channel: 0 };
    slow.write_all(&hello.write(&KEY)[..LENGTH - 1]).expect("a port that takes it");
    let gone = open_connection(&ranks[0]);
    drop(gone);
    let forged = [
        Hello { from: 1, to: 0, channel: 0 }.write(&[8; 32]),
        Hello { from: 0, to: 0, channel: 0 }.write(&KEY),
        Hello { from: 3, to: 0, channel: 0 }.write(&KEY),
        Hello { from: usize::MAX, to: 0, channel: 0 }.write(&KEY),
        Hello { from: 2, to: 1, channel: 0 }.write(&KEY),
        Hello { from: 2, to: 0, channel: hello::CHANNELS }.write(&KEY),
    ]
    .map(|hello| {
        let mut socket = open_connection(&ranks[0]);
        socket.write_all(&hello).expect("a port that takes it");
        socket
    });
    let mut high = streams(0, 3);
    ranks[1].connect(&mut high, &[0], &long_wait()).expect("a connection");
    let mut low = streams(0, 3);
    ranks[0].connect(&mut low, &[1], &long_wait()).expect("rank 1, not the connections before it");
    send_all(&mut high, 0, b"it is me");
    assert_eq!(receive_all(&mut low, 1, 8), b"it is me");
    // Invalid hellos are rejected; connections without a complete hello stay for a while.
    while ranks[0].pending.rejected < 2 + forged.len() {
        ranks[0].wait(&[]).expect("connections");
    }
    for mut socket in forged {
        assert!(socket.read(&mut [0]).map_or(true, |it| it == 0));
    }
    drop((silent, slow));
}

#[test]
fn silent_connections_make_room_for_a_rank() {
    crate::session::raise_file_limit(2048);
    let mut ranks = job(2, "127.0.0.1");
    let silent: Vec<TcpStream> = (0..300).map(|_| open_connection(&ranks[0])).collect();
    let (mut low, mut high) = (streams(0, 2), streams(0, 2));
    ranks[1].connect(&mut high, &[0], &long_wait()).expect("a connection");
    ranks[0].connect(&mut low, &[1], &long_wait()).expect("rank 1 behind the silent connections");
    assert!(ranks[0].pending.rejected > 0);
    drop(silent);
}

#[test]
fn the_first_of_two_equal_hellos_is_kept() {
    let mut ranks = job(2, "127.0.0.1");
    let (mut low, mut high) = (streams(0, 2), streams(0, 2));
    ranks[1].connect(&mut high, &[0], &long_wait()).expect("a connection");
    let mut again = open_connection(&ranks[0]);
    again.write_all(&Hello { from: 1, to: 0, channel: 0 }.write(&KEY)).expect("a port that takes it");
    ranks[0].connect(&mut low, &[1], &long_wait()).expect("rank 1");
    send_all(&mut low, 1, b"you");
    assert_eq!(receive_all(&mut high, 0, 3), b"you");
}

#[test]
fn a_closed_stream_ends_after_its_last_byte() {
    for address in ["127.0.0.1", "::1"] {
        let (mut a, mut b) = pair(address);
        send_all(&mut a, 1, b"last");
        drop(a);
        assert_eq!(receive_all(&mut b, 0, 4), b"last");
        assert_eq!(ending(&mut b, 0), io::ErrorKind::UnexpectedEof);
        assert_eq!(b.receive(0, &mut []).expect("an empty receive"), 0);
    }
}

#[test]
fn sending_to_a_closed_stream_is_an_error_without_a_signal() {
    let (mut a, mut b) = pair("127.0.0.1");
    let socket: TcpStream = b.release(0).into();
    socket.shutdown(Shutdown::Both).expect("an open socket");
    drop(socket);
    let error = loop {
        if let Err(error) = a.send(1, b"anyone?") {
            break error;
        }
    };
    assert!(matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset), "{error}");
}

#[test]
fn a_reset_stream_says_so() {
    let (mut a, mut b) = pair("127.0.0.1");
    let socket = a.release(1);
    sockopt::set_socket_linger(&socket, Some(Duration::ZERO)).expect("an option of every socket");
    drop(socket);
    assert_eq!(ending(&mut b, 0), io::ErrorKind::ConnectionReset);
}

#[test]
fn streams_without_a_connection_are_errors() {
    let (mut a, _) = pair("127.0.0.1");
    for peer in [0, 2, usize::MAX] {
        assert_eq!(a.send(peer, b"x").expect_err("nobody").kind(), io::ErrorKind::NotConnected);
        assert_eq!(a.receive(peer, &mut [0]).expect_err("nobody").kind(), io::ErrorKind::NotConnected);
    }
}

#[test]
fn much_goes_both_ways_through_tiny_buffers() {
    const LENGTH: usize = 4 << 20;
    let (a, b) = pair("127.0.0.1");
    let byte = |at: usize, rank: usize| u8::try_from((at * 31 + at / 997 + rank) % 251).expect("small");
    thread::scope(|scope| {
        for (rank, mut streams) in [a, b].into_iter().enumerate() {
            scope.spawn(move || {
                let peer = 1 - rank;
                let socket = streams.release(peer);
                sockopt::set_socket_send_buffer_size(&socket, 4096).expect("an option of every socket");
                sockopt::set_socket_recv_buffer_size(&socket, 1 << 17).expect("an option of every socket");
                streams.add(peer, socket).expect("its old place");
                let sent: Vec<u8> = (0..LENGTH).map(|at| byte(at, rank)).collect();
                let mut came = vec![0; LENGTH];
                let (mut out, mut inwards) = (0, 0);
                while out < LENGTH || inwards < LENGTH {
                    out += streams.send(peer, &sent[out..]).expect("an open stream");
                    inwards += streams.receive(peer, &mut came[inwards..]).expect("an open stream");
                }
                assert!(came.iter().enumerate().all(|(at, it)| *it == byte(at, peer)));
            });
        }
    });
}

#[test]
fn connections_inside_a_machine_are_not_paced() {
    let (a, _b) = pair("127.0.0.1");
    let mut a = a;
    let socket = a.release(1);
    assert_eq!(sockopt::tcp_congestion(&socket).expect("an option of every socket"), "reno");
    assert!(sockopt::tcp_nodelay(&socket).expect("an option of every socket"));
}

#[test]
fn a_peer_that_does_not_connect_is_named() {
    let mut ranks = job(2, "127.0.0.1");
    let mut scanner = open_connection(&ranks[0]);
    scanner.write_all(b"hello?\n").expect("a port that takes it");
    let error = ranks[0]
        .connect(&mut streams(0, 2), &[1], &waiter(Duration::from_millis(500)))
        .expect_err("rank 1 does not connect");
    assert_eq!(
        error.to_string(),
        "rank 1 on here: it did not connect from 127.0.0.1; is this rank reachable over that network? \
         Connections rejected because they do not belong to the job: 1 (connecting)"
    );
    assert_eq!(error.cause, Cause::Silent);
}

#[test]
fn a_peer_whose_port_is_closed_is_named() {
    let mut ranks = job(2, "127.0.0.1");
    let mut high = ranks.pop().expect("rank 1");
    let address = ranks[0].job.peers[0].address;
    drop(ranks);
    // A process that another test starts has our sockets until it becomes another program.
    let until = Instant::now() + Duration::from_secs(60);
    while TcpStream::connect(address).is_ok() {
        assert!(Instant::now() < until, "{address} stays open");
        thread::yield_now();
    }
    let error = high.connect(&mut streams(0, 2), &[0], &long_wait()).expect_err("nobody listens");
    assert_eq!((error.cause, error.rank), (Cause::Reset, Some(0)));
    assert!(error.detail.starts_with(&format!("no data connection with {address}: ")), "{error}");
    let error = high.connect(&mut streams(0, 2), &[5], &waiter(Duration::ZERO)).expect_err("no such rank");
    assert_eq!(error.cause, Cause::Usage);
}

#[test]
fn an_abort_ends_the_wait() {
    let mut ranks = job(2, "127.0.0.1");
    let waiter = long_wait();
    let verdict = Error::new(Cause::Died, "all_reduce", "its process ended").of(1, "here");
    thread::scope(|scope| {
        let abort_flag = waiter.abort_flag.clone();
        let error = verdict.clone();
        scope.spawn(move || abort_flag.raise(error));
        assert_eq!(ranks[0].connect(&mut streams(0, 2), &[1], &waiter), Err(verdict));
    });
}
