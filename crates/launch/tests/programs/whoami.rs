//! Finds its place, meets the other ranks and says so.
//!
//! `mpirun -np 3 whoami`, `srun -n3 whoami`, `torchrun --nproc-per-node 3 --no-python whoami`: each rank prints one
//! line, and all lines end with the same address and a check of the same token.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

use launch::{Met, Place, Start, start};

const TIMEOUT: Duration = Duration::from_secs(30);

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let Some(place) = Place::find(&|name| std::env::var(name).ok())? else {
        return Err("no launcher: see the first lines of this program".into());
    };
    if let Some(plan) = Start::here(&place) {
        return Ok(ExitCode::from(start(&plan)?.code()));
    }
    let (rank, size, launcher) = (place.rank, place.size, place.launcher);
    let (local_rank, local_size) = (place.local_rank, place.local_size);
    let meeting = format!("{:?}", place.meeting);
    let meeting = meeting.split('(').next().unwrap_or_default();
    let met = place.meet::<TcpListener, Box<dyn Error>>(TIMEOUT, |listen| {
        let address = listen.address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let door = TcpListener::bind((address, listen.port))?;
        let address = door.local_addr()?.to_string();
        Ok((door, address))
    })?;
    let token = match met {
        Met::Open(door, token) => {
            for _ in 1..size {
                let (mut guest, _) = door.accept()?;
                let mut shown = vec![0; token.len()];
                guest.read_exact(&mut shown)?;
                if shown != token.as_bytes() {
                    return Err("a guest has another token".into());
                }
                guest.write_all(b"welcome")?;
            }
            token
        }
        Met::At(point) => {
            let mut host = loop {
                match TcpStream::connect(point.address()) {
                    Ok(host) => break host,
                    // Rank 0 may still be on its way, if nobody told when it is there.
                    Err(_) if meeting == "Point" => std::thread::yield_now(),
                    Err(error) => return Err(error.into()),
                }
            };
            host.write_all(point.token.as_bytes())?;
            let mut answer = [0; 7];
            host.read_exact(&mut answer)?;
            point.token
        }
    };
    let mark = token.bytes().fold(0_u32, |sum, it| sum.wrapping_mul(31).wrapping_add(it.into()));
    let line = format!(
        "rank {rank} of {size}, local {local_rank:?} of {local_size:?}, by {launcher}, over {meeting}, token {mark:08x}\n"
    );
    // In one piece, so that lines of ranks stay whole.
    let mut out = if std::env::var_os("WHOAMI_STDERR").is_some() {
        Box::new(std::io::stderr()) as Box<dyn std::io::Write>
    } else {
        Box::new(std::io::stdout())
    };
    out.write_all(line.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
