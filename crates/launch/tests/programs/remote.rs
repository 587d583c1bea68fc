//! Runs a script on hosts, prints what it prints, and says how each ended. A signal ends it in order.
//!
//! - `remote ssh SSH SETTINGS PLUMB HOSTS SCRIPT`
//! - `remote srun PLUMB SCRIPT` in an allocation of Slurm
//! - `remote inside SCRIPT` as the program of a launcher

use std::io::Write as _;
use std::time::Duration;

use launch::{
    Client, Host, Inside, Joined, Program, RankIdentity, Request, Srun, Ssh, Stop, Task, Way, hosts_of_list,
    hosts_of_slurm,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or("usage: see the first lines of this program");
    // Before any thread.
    let stop = Stop::on_signals()?;
    let kind = next()?;
    let inside = kind == "inside";
    let (mut way, hosts): (Box<dyn Way>, _) = match kind.as_str() {
        "ssh" => {
            let options = Client {
                program: next()?.into(),
                arguments: vec!["-F".into(), next()?.into()],
                plumb: Some(next()?.into()),
                ..Client::ssh()
            };
            (Box::new(Ssh::new(options)?), hosts_of_list(&next()?)?)
        }
        "srun" => {
            let options = Client { plumb: Some(next()?.into()), ..Client::srun() };
            (Box::new(Srun::new(options)?), hosts_of_slurm(&|name| std::env::var(name).ok())?)
        }
        "inside" => {
            let identity = RankIdentity::detect(&|name| std::env::var(name).ok())?.ok_or("no launcher")?;
            match Inside::join(identity, Duration::from_secs(60))? {
                Joined::Driver(way) => {
                    let hosts = way.hosts();
                    (Box::new(way), hosts)
                }
                Joined::Followed => return Ok(()),
            }
        }
        _ => return Err("usage: see the first lines of this program".into()),
    };
    let script = next()?;
    let mut out = std::io::stdout();
    way.place(&hosts, &stop, &mut |_| ())?;
    let task = |host: &Host| Task {
        program: if inside { Program::Other("sh".into()) } else { Program::Plumb },
        arguments: if inside { vec!["-c".into(), (&script).into()] } else { vec![(&script).into()] },
        ..Task::plumb(host.clone(), [""])
    };
    let tasks = hosts.iter().map(task).collect();
    let request = Request { at_once: true, ..Request::new("a script", tasks, Duration::from_secs(3600)) };
    way.run(&request, &stop, &mut |it| {
        let _ = writeln!(out, "{}{} {}", it.text(), it.host, it.how);
    })?;
    for host in way.clean() {
        writeln!(out, "{host} did not confirm")?;
    }
    Ok(())
}
