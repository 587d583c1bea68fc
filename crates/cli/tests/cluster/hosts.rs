//! Hosts on one machine: each has its own network, name, processes and shared memory, and a cable to a switch.
//!
//! A host lives as long as its first process, which ends when this test does, however that ends. With it go all
//! processes, mounts and interfaces of the host. Outside nothing changes, so runs beside each other do not meet.

use std::ffi::OsStr;
use std::fs;
use std::io::PipeWriter;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use testbed::{Folder, LIMIT, Node, Running, Slurm, need, output, program, unlaunched, until};

/// The first process of a host: `sh -c INIT NAME HOSTS_FILE`. It collects orphans and waits for its input to end.
const INIT: &str = "set -e; hostname $0; mount --bind $1 /etc/hosts; mount -t tmpfs none /run; mkdir /run/sshd; \
    mount -t tmpfs none /dev/shm; ip link set lo up; echo ready; exec 3<&0; cat <&3 >/dev/null & wait $!";

/// Hosts `h1`, `h2`, ..., each with `eth0`, at 10.77.0.N and `fd77::N`.
///
/// What is dropped goes in this order: daemons end with their hosts, and files when nobody writes them any more.
pub(crate) struct Hosts {
    all: Vec<Host>,
    switch: Host,
    slurm: Option<Slurm>,
    folder: Folder,
}

/// One of them.
pub(crate) struct Host {
    pub(crate) name: String,
    /// Its first process, as seen from outside.
    pid: u32,
    /// The parent of that.
    init: Running,
    /// The input of its first process, which ends when this is closed.
    life: Option<PipeWriter>,
}

impl Hosts {
    pub(crate) fn new(count: usize) -> Self {
        static SERIAL: AtomicUsize = AtomicUsize::new(0);
        let user = fs::metadata("/proc/self").expect("/proc").uid();
        assert!(user == 0, "hosts are made of namespaces, which takes root: run these tests as root");
        need("ip");
        let folder = Folder::new(&format!("hosts{}", SERIAL.fetch_add(1, Ordering::Relaxed)));
        let names: Vec<String> =
            (1..=count).map(|it| format!("10.77.0.{it} h{it}\nfd77::{it} h{it}\n")).collect();
        let file = folder.file("names");
        fs::write(&file, format!("127.0.0.1 localhost\n{}", names.concat())).expect("a file");
        let switch = Host::new("switch", &file);
        switch.ip("link add bridge up type bridge");
        let all = (1..=count).map(|it| Host::new(&format!("h{it}"), &file)).collect();
        let this = Self { all, switch, slurm: None, folder };
        this.connect("eth0", "10.77.0", 24);
        for (i, host) in this.iter() {
            host.ip(&format!("addr add fd77::{i}/64 dev eth0 nodad"));
        }
        this
    }

    /// A cable from every host to the switch, at addresses that end with the host's number.
    pub(crate) fn connect(&self, interface: &str, subnet: &str, bits: u8) {
        for (i, host) in self.iter() {
            let port = format!("{interface}.{i}");
            self.switch.ip(&format!(
                "link add {port} up master bridge type veth peer name {interface} netns {}",
                host.pid
            ));
            host.ip(&format!("addr add {subnet}.{i}/{bits} dev {interface}"));
            host.ip(&format!("link set {interface} up"));
        }
    }

    /// Limits what every host sends.
    pub(crate) fn shape(&self, rate: &str) {
        for (_, host) in self.iter() {
            run(host
                .command(need("tc"))
                .args(["qdisc", "add", "dev", "eth0", "root", "tbf"])
                .args(["rate", rate, "burst", "32kb", "latency", "50ms"]));
        }
    }

    /// A file of this bed, which all hosts see.
    pub(crate) fn file(&self, name: &str) -> String {
        self.folder.file(name).to_str().expect("a path").to_owned()
    }

    /// Opens every host to ssh from the others. Returns the path of the client's settings.
    pub(crate) fn ssh(&self) -> String {
        let key = self.file("key");
        run(program(need("ssh-keygen")).args(["-q", "-t", "ed25519", "-N", "", "-f", &key]));
        let daemon = self.file("sshd.conf");
        let settings = format!(
            "HostKey {key}\nAuthorizedKeysFile {key}.pub\nUsePAM no\nStrictModes no\nPidFile none\n\
             PermitRootLogin yes\n"
        );
        fs::write(&daemon, settings).expect("settings");
        for (i, host) in self.iter() {
            // It goes into the background when it listens.
            run(host.command(need("sshd")).args(["-f", &daemon, "-E", &self.file(&format!("sshd.{i}"))]));
        }
        let client = self.file("ssh.conf");
        let settings = format!(
            "Host *\n User root\n IdentityFile {key}\n IdentitiesOnly yes\n StrictHostKeyChecking no\n \
             UserKnownHostsFile /dev/null\n LogLevel ERROR\n BatchMode yes\n"
        );
        fs::write(&client, settings).expect("settings");
        client
    }

    /// The same with Slurm, whose nodes they are; the controller is on the first.
    pub(crate) fn with_slurm(count: usize) -> Self {
        let mut this = Self::new(count);
        let node = |(i, host): (usize, &Host)| Node {
            name: host.name.clone(),
            host: host.name.clone(),
            address: format!("10.77.0.{i}"),
            port: 6818,
        };
        let nodes: Vec<Node> = this.iter().map(node).collect();
        let on = |index: usize, program: &Path| this.all[index].command(program);
        this.slurm = Some(Slurm::start(this.folder.path(), &nodes, 6817, &on));
        this
    }

    /// `srun`, from the first host.
    pub(crate) fn srun(&self) -> Command {
        self.slurm.as_ref().expect("hosts with Slurm").of(self[1].command(need("srun")))
    }

    /// No process of plumb is left on any of them, or will be in a moment.
    #[track_caller]
    pub(crate) fn are_left(&self) {
        for host in &self.all {
            until(&format!("no plumb on {}", host.name), || host.processes("plumb").is_empty());
        }
    }

    /// With their numbers, from 1.
    fn iter(&self) -> impl Iterator<Item = (usize, &Host)> {
        (1..).zip(&self.all)
    }
}

impl std::ops::Index<usize> for Hosts {
    type Output = Host;

    /// By its number, from 1.
    fn index(&self, number: usize) -> &Host {
        &self.all[number - 1]
    }
}

impl Host {
    fn new(name: &str, names: &Path) -> Self {
        let (input, life) = std::io::pipe().expect("a pipe");
        let mut unshare = program(need("unshare"));
        unshare
            .args(["--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
            .args(["sh", "-c", INIT, name])
            .arg(names)
            .stdin(input);
        let init = Running::start(&mut unshare);
        init.line(|it| it == "ready");
        let parent = init.pid();
        let children =
            fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
        let pid = children.trim().parse().expect("unshare has one child");
        Self { name: name.to_owned(), pid, init, life: Some(life) }
    }

    /// A program on this host, without the variables of a launcher that this test may run in.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = unlaunched(need("nsenter"));
        command.arg(format!("--target={}", self.pid));
        command.args(["--net", "--uts", "--ipc", "--mount", "--pid"]).arg(program);
        command
    }

    /// Runs `ip` with these words.
    pub(crate) fn ip(&self, words: &str) -> String {
        // Numbers of processes are those outside: the network alone.
        let mut command = program(need("nsenter"));
        command.arg(format!("--target={}", self.pid)).arg("--net").arg(need("ip")).args(words.split(' '));
        run(&mut command)
    }

    /// Bytes that have left through an interface.
    pub(crate) fn sent(&self, interface: &str) -> u64 {
        let text = self.ip(&format!("-j -s link show {interface}"));
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON of ip");
        value[0]["stats64"]["tx"]["bytes"].as_u64().expect("bytes")
    }

    /// The processes of this name, by their numbers outside.
    pub(crate) fn processes(&self, name: &str) -> Vec<u32> {
        let namespace = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let here = namespace(self.pid);
        assert!(here.is_some(), "the host {} is gone", self.name);
        let entries = fs::read_dir("/proc").expect("/proc").flatten();
        let pids = entries.filter_map(|it| it.file_name().to_str()?.parse().ok());
        let named =
            |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|it| it.trim_end() == name);
        pids.filter(|pid| named(pid) && namespace(*pid) == here).collect()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.life.take());
        // It ends when all processes of the host have.
        let _ = self.init.status_within(LIMIT);
    }
}

#[track_caller]
fn run(command: &mut Command) -> String {
    let output = output(command);
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}
