//! Hosts on one machine: each has its own network, name, processes, shared memory and temporary files, and a cable to a
//! switch.
//!
//! A host lives as long as its first process, which ends when this test does, however that ends. With it go all
//! processes, mounts and interfaces of the host. Outside nothing changes, so runs beside each other do not meet.

mod shape;
mod ssh;

use std::ffi::OsStr;
use std::fs;
use std::io::PipeWriter;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use ssh::Login;

use crate::{Folder, LIMIT, Node, Running, Slurm, need, output, program, unlaunched, until};

/// The first process of a host: `sh -c INIT NAME BED TMP`. It collects orphans and waits for its input to end. `TMP` is
/// the folder that is `/tmp` there, or empty; the folder of the bed stays where it is.
const INIT: &str = "set -e; hostname $0; mount --bind $1/names /etc/hosts; mount -t tmpfs none /run; mkdir /run/sshd /run/bed; \
    mount -t tmpfs none /dev/shm; mount --bind $1 /run/bed; \
    if [ -n \"$2\" ]; then mount --bind /run/bed/$2 /tmp; mount --bind /run/bed/$2 /var/tmp; mkdir -p $1; mount --bind /run/bed $1; fi; \
    ip link set lo up; echo ready; exec 3<&0; cat <&3 >/dev/null & wait $!";

/// Hosts `h1`, `h2`, ..., each with `eth0`, at 10.77.0.N and `fd77::N`, and a head from which they are reached.
///
/// What is dropped goes in this order: daemons end with their hosts, and files when nobody writes them any more.
pub struct Hosts {
    all: Vec<Host>,
    head: Host,
    slurm: Option<Slurm>,
    folder: Folder,
}

/// One of them.
pub struct Host {
    /// `h1`, or `head`.
    pub name: String,
    /// Its first process, as seen from outside.
    pid: u32,
    /// The parent of that.
    init: Running,
    /// The input of its first process, which ends when this is closed.
    life: Option<PipeWriter>,
}

impl Hosts {
    /// As many hosts, and a head.
    pub fn new(count: usize) -> Self {
        static SERIAL: AtomicUsize = AtomicUsize::new(0);
        let user = fs::metadata("/proc/self").expect("/proc").uid();
        assert!(user == 0, "hosts are made of namespaces, which takes root: run these tests as root");
        need("ip");
        let folder = Folder::new(&format!("hosts{}", SERIAL.fetch_add(1, Ordering::Relaxed)));
        let names: Vec<String> =
            (1..=count).map(|it| format!("10.77.0.{it} h{it}\nfd77::{it} h{it}\n")).collect();
        let names = format!("127.0.0.1 localhost\n10.77.0.254 head\n{}", names.concat());
        fs::write(folder.file("names"), names).expect("a file");
        let head = Host::new("head", folder.path(), "");
        head.ip("link add bridge up type bridge");
        head.ip("addr add 10.77.0.254/24 dev bridge");
        let host = |number: usize| {
            let tmp = format!("tmp.{number}");
            fs::create_dir(folder.file(&tmp)).expect("a folder");
            Host::new(&format!("h{number}"), folder.path(), &tmp)
        };
        let all = (1..=count).map(host).collect();
        let this = Self { all, head, slurm: None, folder };
        this.connect("eth0", "10.77.0", 24);
        for (i, host) in this.iter() {
            host.ip(&format!("addr add fd77::{i}/64 dev eth0 nodad"));
        }
        this
    }

    /// A cable from every host to the switch, at addresses that end with the host's number.
    pub fn connect(&self, interface: &str, subnet: &str, bits: u8) {
        for (i, host) in self.iter() {
            let port = format!("{interface}.{i}");
            self.head.ip(&format!(
                "link add {port} up master bridge type veth peer name {interface} netns {}",
                host.pid
            ));
            host.ip(&format!("addr add {subnet}.{i}/{bits} dev {interface}"));
            host.ip(&format!("link set {interface} up"));
        }
    }

    /// The machine that reaches all hosts and is none of them. Its `/tmp` is that of this machine.
    pub const fn head(&self) -> &Host {
        &self.head
    }

    /// A file of this bed, which all hosts see.
    pub fn file(&self, name: &str) -> String {
        self.folder.file(name).to_str().expect("a path").to_owned()
    }

    /// What lies in the folders for temporary files of a host, `/dev/shm` among them.
    pub fn temporary_files(&self, number: usize) -> Vec<String> {
        let bed = self.folder.path().file_name().expect("a name").to_owned();
        let root = format!("/proc/{}/root", self[number].pid);
        let mut names = Vec::new();
        for folder in ["tmp", "var/tmp", "dev/shm"] {
            let entries = fs::read_dir(format!("{root}/{folder}")).expect("a folder").flatten();
            names.extend(entries.map(|it| it.file_name()).filter(|it| *it != bed));
        }
        names.sort();
        // /var/tmp is /tmp.
        names.dedup();
        names.into_iter().map(|it| it.to_string_lossy().into_owned()).collect()
    }

    /// Leaves 64 KiB of room for temporary files on a host.
    pub fn fill_disk(&self, number: usize) {
        let host = &self[number];
        for folder in ["/tmp", "/var/tmp", "/dev/shm"] {
            host.run("mount", &["-t", "tmpfs", "-o", "size=64k", "none", folder]);
        }
        let bed = self.folder.path().to_str().expect("a path");
        host.run("mkdir", &["-p", bed]);
        host.run("mount", &["--bind", "/run/bed", bed]);
    }

    /// The same with Slurm, whose nodes they are; the controller is on the first.
    pub fn with_slurm(count: usize) -> Self {
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
    pub fn srun(&self) -> Command {
        self.slurm_command("srun")
    }

    /// A program of Slurm (`salloc`, `sbatch`, `scancel`, ...), from the first host.
    pub fn slurm_command(&self, program: &str) -> Command {
        self.slurm.as_ref().expect("hosts with Slurm").of(self[1].command(need(program)))
    }

    /// The value of `SLURM_CONF` that leads to it.
    pub fn slurm_settings(&self) -> &str {
        self.slurm.as_ref().expect("hosts with Slurm").settings()
    }

    /// No process of plumb is left on any of them, or will be in a moment.
    #[track_caller]
    pub fn are_left(&self) {
        for host in &self.all {
            until(&format!("no plumb on {}", host.name), || host.processes("plumb").is_empty());
        }
    }

    /// With their numbers, from 1.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Host)> {
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
    fn new(name: &str, bed: &Path, tmp: &str) -> Self {
        let (input, life) = std::io::pipe().expect("a pipe");
        let mut unshare = program(need("unshare"));
        unshare
            .args(["--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
            .args(["sh", "-c", INIT, name])
            .arg(bed)
            .arg(tmp)
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
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = unlaunched(need("nsenter"));
        command.arg(format!("--target={}", self.pid));
        command.args(["--net", "--uts", "--ipc", "--mount", "--pid"]).arg(program);
        command
    }

    /// A script that runs a program on this host, for those that start programs by their path. The process is the
    /// program itself: what ends it ends the program.
    pub fn wrapper(&self, program: impl AsRef<Path>, variables: &[(&str, &str)], script: &Path) {
        let nsenter = need("nsenter");
        let variables: Vec<String> =
            variables.iter().map(|(name, value)| format!("export {name}='{value}'\n")).collect();
        let variables = variables.concat();
        let text = format!(
            "#!/bin/sh\n{variables}exec {} --target={} --net --uts --ipc --mount {} \"$@\"\n",
            nsenter.display(),
            self.pid,
            program.as_ref().display()
        );
        fs::write(script, text).expect("a script");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(script, mode).expect("it is ours");
    }

    /// Runs a program with these words on this host, and returns what it printed. It must succeed.
    #[track_caller]
    pub fn run(&self, name: &str, words: &[&str]) -> String {
        run(self.command(name).args(words))
    }

    /// Runs `ip` with these words.
    #[track_caller]
    pub fn ip(&self, words: &str) -> String {
        self.in_its_network("ip", words)
    }

    /// A program in the network of this host, with the processes and files of this machine.
    #[track_caller]
    fn in_its_network(&self, name: &str, words: &str) -> String {
        let mut command = program(need("nsenter"));
        command.arg(format!("--target={}", self.pid)).arg("--net").arg(need(name)).args(words.split(' '));
        run(&mut command)
    }

    /// Bytes that have left through an interface.
    pub fn sent(&self, interface: &str) -> u64 {
        let text = self.ip(&format!("-j -s link show {interface}"));
        // `"tx":{"bytes":123,...}`
        let (_, sent) = text.split_once("\"tx\":{\"bytes\":").expect("JSON of ip");
        sent.split(',').next().and_then(|it| it.parse().ok()).expect("bytes")
    }

    /// The processes of this name, by their numbers outside.
    pub fn processes(&self, name: &str) -> Vec<u32> {
        let named =
            |pid: u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|it| it.trim_end() == name);
        self.all_processes().into_iter().filter(|it| named(*it)).collect()
    }

    /// All processes, by their numbers outside.
    pub fn all_processes(&self) -> Vec<u32> {
        let namespace = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let here = namespace(self.pid);
        assert!(here.is_some(), "the host {} is gone", self.name);
        let entries = fs::read_dir("/proc").expect("/proc").flatten();
        let pids = entries.filter_map(|it| it.file_name().to_str()?.parse().ok());
        pids.filter(|pid| namespace(*pid) == here).collect()
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
