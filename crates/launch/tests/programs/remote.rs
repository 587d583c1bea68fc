//! `remote SSH SETTINGS PLUMB HOSTS SCRIPT` runs a script on hosts over ssh, and says how each ended. A signal ends it in
//! order.

use std::io::Write as _;
use std::time::Duration;

use launch::{Request, Ssh, SshOptions, Stop, Task, Way as _, hosts_of_list};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or("usage: remote SSH SETTINGS PLUMB HOSTS SCRIPT");
    let options = SshOptions {
        program: next()?.into(),
        arguments: vec!["-F".into(), next()?.into()],
        plumb: Some(next()?.into()),
        ..SshOptions::default()
    };
    let hosts = hosts_of_list(&next()?)?;
    let script = next()?;
    let stop = Stop::on_signals()?;
    let mut way = Ssh::new(options)?;
    let mut out = std::io::stdout();
    way.place(&hosts, &stop, &mut |_| ())?;
    let tasks = hosts.iter().map(|it| Task::plumb(it.clone(), [&script])).collect();
    let request = Request { at_once: true, ..Request::new("a script", tasks, Duration::from_secs(3600)) };
    way.run(&request, &stop, &mut |it| {
        let _ = writeln!(out, "{} {}", it.host, it.how);
    })?;
    for host in way.clean() {
        writeln!(out, "{host} did not confirm")?;
    }
    Ok(())
}
