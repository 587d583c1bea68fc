//! One rank of plumb's engine: the protocol of `benches/peers/allreduce.c`.

use std::error::Error;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use collective::{Communicator, Operation, Options, Rendezvous, RendezvousListener, Token, Transport};
use rustix::time::{ClockId, clock_gettime};

use crate::limits;

/// Serves `MODE SOCKET FOLDER RANK RANKS` until the socket closes.
pub(crate) fn serve(mut words: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    let mut word = || words.next().ok_or("rank MODE SOCKET FOLDER RANK RANKS");
    let (mode, socket, folder) = (word()?, word()?, word()?);
    let (rank, ranks): (usize, usize) = (word()?.parse()?, word()?.parse()?);
    // As the launchers of the peers do.
    if ranks <= std::thread::available_parallelism().map_or(1, usize::from) {
        limits::pin(rank);
    }
    let registered = mode == "registered";
    let transport = if mode == "tcp" { Transport::Tcp } else { Transport::Shm };
    let mut communicator = join(Path::new(&folder), rank, ranks, transport)?;
    // Where there are not as many cores as ranks, as `plumb bench` does.
    communicator.bind();
    for _ in 0..10 {
        communicator.all_reduce(&[1.0_f32], &mut [0.0], Operation::Sum)?;
    }

    let mut out = UnixStream::connect(socket)?;
    let lines = BufReader::new(out.try_clone()?).lines();
    writeln!(out, "{rank} {}", std::process::id())?;
    for line in lines {
        let line = line?;
        let mut numbers = line.split_whitespace().map(str::parse::<usize>);
        let mut number = || numbers.next().ok_or("BYTES ITERATIONS BATCHES");
        let (count, iterations, batches) = (number()?? / size_of::<f32>(), number()??, number()??);
        let start = cpu();
        let (right, times) = if registered {
            let mut send = communicator.buffer::<f32>(count)?;
            let mut receive = communicator.buffer::<f32>(count)?;
            measure(&mut communicator, &mut send, &mut receive, iterations, batches)?
        } else {
            let (mut send, mut receive) = (vec![1.0; count], vec![1.0; count]);
            measure(&mut communicator, &mut send, &mut receive, iterations, batches)?
        };
        let mut answer =
            format!("{} {}", if right { "ok" } else { "wrong" }, cpu().saturating_sub(start).as_micros());
        for time in times {
            answer.push_str(&format!(" {}", time.as_nanos()));
        }
        writeln!(out, "{answer}")?;
    }
    communicator.leave()?;
    Ok(())
}

/// Checks one call, then times batches after one batch of warm-up.
#[expect(clippy::float_cmp, reason = "sums of small whole numbers are exact")]
fn measure(
    communicator: &mut Communicator,
    send: &mut [f32],
    receive: &mut [f32],
    iterations: usize,
    batches: usize,
) -> Result<(bool, Vec<Duration>), collective::Error> {
    let (rank, ranks) = (communicator.rank(), communicator.size());
    for (place, it) in send.iter_mut().enumerate() {
        *it = (place % 7 + 1 + rank) as f32;
    }
    receive.fill(0.0);
    communicator.all_reduce(send, receive, Operation::Sum)?;
    let expected = |place: usize| (ranks * (place % 7 + 1) + ranks * (ranks - 1) / 2) as f32;
    let right = receive.iter().enumerate().all(|(place, it)| *it == expected(place));
    let mut times = Vec::with_capacity(batches);
    for batch in 0..=batches {
        let start = Instant::now();
        for _ in 0..iterations {
            communicator.all_reduce(send, receive, Operation::Sum)?;
        }
        if batch > 0 {
            times.push(start.elapsed());
        }
    }
    Ok((right, times))
}

/// Rank 0 listens and writes its port to a file.
fn join(
    folder: &Path,
    rank: usize,
    ranks: usize,
    transport: Transport,
) -> Result<Communicator, Box<dyn Error>> {
    let address = folder.join("address");
    let rendezvous = if rank == 0 {
        let listener = RendezvousListener::bind(IpAddr::V4(Ipv4Addr::LOCALHOST), 0)?;
        let unfinished = folder.join("address.new");
        std::fs::write(&unfinished, listener.address().port().to_string())?;
        std::fs::rename(unfinished, address)?;
        Rendezvous::Listen(listener)
    } else {
        let start = Instant::now();
        while !address.exists() && start.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(2));
        }
        Rendezvous::Connect {
            host: Ipv4Addr::LOCALHOST.to_string(),
            port: std::fs::read_to_string(address)?.parse()?,
        }
    };
    // Only the ranks know the name of the folder.
    let token = Token::new(&folder.display().to_string())?;
    let mut options = Options::new(rank, ranks, rendezvous, token);
    options.transport = Some(transport);
    options.network = Some("lo".into());
    Ok(Communicator::join(options)?)
}

/// CPU time of this process.
fn cpu() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}
