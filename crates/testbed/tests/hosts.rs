//! Hosts with links that are slow or lose packets.

use testbed::{Host, Hosts, Running, need};

/// Megabits per second that one host sends to another over TCP, by the time that 4 MB take.
fn rate(from: &Host, to: &Host, address: &str) -> f64 {
    let receive = "import socket,sys; s=socket.create_server(('',9)); print('ready',flush=True); c,_=s.accept()\nwhile c.recv(1<<20): pass\nc.close()";
    let send = "import socket,sys,time; c=socket.create_connection((sys.argv[1],9)); t=time.time(); \
                c.sendall(bytes(4000000)); c.shutdown(1); c.recv(1); print(32/(time.time()-t))";
    let receiver = Running::start(to.command("python3").args(["-c", receive]));
    receiver.line(|it| it == "ready");
    from.run("python3", &["-c", send, address]).trim().parse().expect("a number")
}

#[test]
fn links_are_slow_where_they_should_be() {
    need("tc");
    let hosts = Hosts::new(4);
    hosts.limit_all("400mbit");
    hosts.limit(2, "100mbit");
    hosts.limit_link(3, 4, "50mbit", "400mbit");
    let between = |from: usize, to: usize, low: f64, high: f64| {
        let rate = rate(&hosts[from], &hosts[to], &format!("10.77.0.{to}"));
        assert!((low..high).contains(&rate), "h{from} to h{to}: {rate} Mbit/s");
    };
    between(1, 3, 200.0, 450.0);
    between(1, 2, 50.0, 120.0);
    between(2, 1, 50.0, 120.0);
    between(3, 4, 20.0, 65.0);
    between(4, 3, 20.0, 65.0);
    between(4, 1, 200.0, 450.0);
}

#[test]
fn packets_are_lost() {
    let hosts = Hosts::new(2);
    hosts.lose(2, 500);
    let send = "import socket; s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\nfor _ in range(400): s.sendto(b'x',('10.77.0.2',9))";
    hosts[1].run("python3", &["-c", send]);
    let rules = hosts[2].run("nft", &["list", "ruleset"]);
    let dropped =
        rules.split("counter packets ").nth(1).and_then(|it| it.split(' ').next()).expect("a counter");
    let dropped: u32 = dropped.parse().expect("a number");
    assert!((120..290).contains(&dropped), "{dropped} of 400 packets: {rules}");
}

#[test]
fn hosts_have_files_of_their_own() {
    let hosts = Hosts::new(2);
    hosts[1].run("touch", &["/tmp/one", "/var/tmp/two"]);
    assert_eq!(hosts.temporary_files(1), ["one", "two"]);
    assert!(hosts.temporary_files(2).is_empty());
    assert_eq!(hosts[2].run("hostname", &[]), "h2\n");
    let settings = hosts.ssh();
    let name = hosts.head().run("ssh", &["-F", &settings, "h2", "hostname"]);
    assert_eq!(name, "h2\n");
}
