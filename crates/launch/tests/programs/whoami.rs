//! Detects its rank, connects to rank 0 and prints both.
//!
//! `mpirun -np 3 whoami`, `srun -n3 whoami`, `torchrun --nproc-per-node 3 --no-python whoami`: each rank prints one
//! line, and all lines end with the same checksum of the token.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

use launch::{Bootstrap, Opened, RankIdentity, Start, start};

const TIMEOUT: Duration = Duration::from_secs(30);

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let Some(identity) = RankIdentity::detect(&|name| std::env::var(name).ok())? else {
        return Err("no launcher: see the first lines of this example".into());
    };
    if let Some(plan) = Start::here(&identity) {
        return Ok(ExitCode::from(start(&plan)?.code()));
    }
    let (rank, size, launcher) = (identity.rank, identity.size, identity.launcher);
    let (local_rank, local_size) = (identity.local_rank, identity.local_size);
    let rendezvous = format!("{:?}", identity.rendezvous);
    let rendezvous = rendezvous.split('(').next().unwrap_or_default();
    let bootstrap = identity.rendezvous::<TcpListener, Box<dyn Error>>(TIMEOUT, |listen| {
        let address = listen.address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let listener = TcpListener::bind((address, listen.port))?;
        let address = listener.local_addr()?;
        Ok(Opened { listener, address })
    })?;
    let token = match bootstrap {
        Bootstrap::Listen { listener, token } => {
            for _ in 1..size {
                let (mut peer, _) = listener.accept()?;
                let mut received = vec![0; token.len()];
                peer.read_exact(&mut received)?;
                if received != token.as_bytes() {
                    return Err("a peer has another token".into());
                }
                peer.write_all(b"welcome")?;
            }
            token
        }
        Bootstrap::Connect(endpoint) => {
            let mut stream = loop {
                match TcpStream::connect(endpoint.address()) {
                    Ok(stream) => break stream,
                    // With a fixed endpoint rank 0 may not listen yet.
                    Err(_) if rendezvous == "Endpoint" => std::thread::yield_now(),
                    Err(error) => return Err(error.into()),
                }
            };
            stream.write_all(endpoint.token.as_bytes())?;
            let mut answer = [0; 7];
            stream.read_exact(&mut answer)?;
            endpoint.token
        }
    };
    let checksum = token.bytes().fold(0_u32, |sum, it| sum.wrapping_mul(31).wrapping_add(it.into()));
    let line = format!(
        "rank {rank} of {size}, local {local_rank:?} of {local_size:?}, by {launcher}, over {rendezvous}, token \
         {checksum:08x}\n"
    );
    // One write, so that the lines of ranks do not mix.
    let mut out = if std::env::var_os("WHOAMI_STDERR").is_some() {
        Box::new(std::io::stderr()) as Box<dyn std::io::Write>
    } else {
        Box::new(std::io::stdout())
    };
    out.write_all(line.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
