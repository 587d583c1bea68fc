//! `remote ssh SSH SETTINGS PLUMB HOSTS SCRIPT` and, in an allocation of Slurm, `remote srun PLUMB SCRIPT` run a script on
//! hosts, print what it prints, and say how each ended. A signal ends it in order.

use std::io::Write as _;
use std::time::Duration;

use launch::{Request, Srun, SrunOptions, Ssh, SshOptions, Stop, Task, Way, hosts_of_list, hosts_of_slurm};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or("usage: see the first lines of this program");
    // Before any thread.
    let stop = Stop::on_signals()?;
    let (mut way, hosts): (Box<dyn Way>, _) = match next()?.as_str() {
        "ssh" => {
            let options = SshOptions {
                program: next()?.into(),
                arguments: vec!["-F".into(), next()?.into()],
                plumb: Some(next()?.into()),
                ..SshOptions::default()
            };
            (Box::new(Ssh::new(options)?), hosts_of_list(&next()?)?)
        }
        "srun" => {
            let options = SrunOptions { plumb: Some(next()?.into()), ..SrunOptions::default() };
            (Box::new(Srun::new(options)?), hosts_of_slurm(&|name| std::env::var(name).ok())?)
        }
        _ => return Err("usage: see the first lines of this program".into()),
    };
    let script = next()?;
    let mut out = std::io::stdout();
    way.place(&hosts, &stop, &mut |_| ())?;
    let tasks = hosts.iter().map(|it| Task::plumb(it.clone(), [&script])).collect();
    let request = Request { at_once: true, ..Request::new("a script", tasks, Duration::from_secs(3600)) };
    way.run(&request, &stop, &mut |it| {
        let _ = write!(out, "{}{} {}\n", it.text(), it.host, it.how);
    })?;
    for host in way.clean() {
        writeln!(out, "{host} did not confirm")?;
    }
    Ok(())
}
