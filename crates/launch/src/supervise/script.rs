//! The scripts for a POSIX shell on the host of a task.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use crate::quote::{is_name, quoted};
use crate::{Error, Task};

/// How long after SIGTERM a task is killed.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// How long after its limit a task ends by itself if nobody is there to end it.
const FORGOTTEN: Duration = Duration::from_secs(30);

/// Seconds to wait for the connection to be closed after the last mark.
const CONFIRM: u32 = 20;

/// Variables that make a process a rank of the launcher that started this one, or its supervisor. A task is none.
const LAUNCHERS: &str = "PLUMB_RANK PLUMB_SIZE PLUMB_RANKS_HERE PLUMB_LOCAL_RANK PLUMB_LOCAL_SIZE PLUMB_RENDEZVOUS \
    PLUMB_MEETING PLUMB_TOKEN PLUMB_TERMINAL TORCHELASTIC_RUN_ID RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR \
    MASTER_PORT OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE PMI_RANK PMI_ID PMI_FD PMI_PORT PMI_SIZE PMIX_RANK \
    PMIX_NAMESPACE PET_NNODES PET_NODE_RANK JOB_COMPLETION_INDEX SLURM_STEP_ID SLURM_STEPID SLURM_PROCID";

/// A POSIX shell on a host, which reads its script from the pipe.
pub(crate) struct Shell<'a> {
    /// What its lines begin with that are no output of a task.
    pub(crate) mark: &'a str,
    pub(crate) script: Vec<u8>,
}

impl Shell<'_> {
    /// What a login shell of any kind can give to `sh -c`.
    pub(crate) fn bootstrap(&self) -> String {
        format!("eval \"$(head -c {})\"", self.script.len())
    }
}

/// Runs a task: marks, input, command, exit code.
///
/// All processes share the process group of the shell, so that `kill 0` reaches them. The left side of the pipe passes the
/// input on and then waits for the connection to end; the right side runs the command. After the last mark it waits until
/// the connection is closed, which tells that the output has arrived: slurmstepd drops what a task wrote just before it is
/// killed.
pub(crate) fn task(task: &Task, program: &OsStr, mark: &str, limit: Duration) -> Result<Vec<u8>, Error> {
    let input = task.input.as_ref().map_or(0, Vec::len);
    let forgotten = (limit + FORGOTTEN).as_secs();
    let grace = GRACE.as_secs();
    let mut script = format!(
        "exec 3<&0 </dev/null\n\
         m={mark}\n\
         printf '\\n%s begin\\n' $m >&2\n\
         printf '\\n%s begin\\n' $m\n\
         unset {LAUNCHERS}\n\
         (trap '' TERM; sleep {forgotten}; kill -s KILL 0) </dev/null >/dev/null 2>&1 3<&- &\n"
    )
    .into_bytes();
    for (name, value) in &task.variables {
        if !is_name(name) {
            return Err(Error::Start { detail: format!("{name:?} is not the name of a variable") });
        }
        script.extend_from_slice(format!("export {name}=").as_bytes());
        push(&mut script, value)?;
        script.push(b'\n');
    }
    let (pass_on, stdin) =
        if input > 0 { (format!("head -c {input} <&3; "), "") } else { (String::new(), " </dev/null") };
    script.extend_from_slice(
        format!(
            "{{ {pass_on}exec >/dev/null 2>&1; trap '' TERM; while read -r x <&3; do :; done; kill -s TERM 0; sleep \
             {grace}; kill -s KILL 0; }} |\n{{ exec 3<&-\np="
        )
        .as_bytes(),
    );
    push(&mut script, program)?;
    script.extend_from_slice(b"\nif command -v \"$p\" >/dev/null 2>&1; then (exec \"$p\"");
    for argument in &task.arguments {
        script.push(b' ');
        push(&mut script, argument)?;
    }
    script.extend_from_slice(
        format!(
            "){stdin}; c=$?; else c=missing; fi\n\
             printf '\\n%s end %s\\n' $m $c >&2\n\
             trap 'kill -s KILL 0' TERM\n\
             printf '\\n%s end %s\\n' $m $c\n\
             sleep {CONFIRM} </dev/null >/dev/null 2>&1 & wait $!\nkill -s KILL 0; }}\n"
        )
        .as_bytes(),
    );
    Ok(script)
}

/// Keeps a folder as long as the connection lasts. It says what it knows of its host, then takes orders, one per line:
///
/// - `folder N`: makes a folder at the Nth place that may have room; answers `folder PATH` or `refused WHY`.
/// - `copy BYTES`: takes as many bytes as the file; answers `placed PATH` or `refused WHY`.
/// - `clock`: answers `clock SECONDS`.
/// - `bye`: removes the folder; answers `gone`.
///
/// A static plumb can load neither NCCL nor NVML: on a host with the NVIDIA driver it gives way to an installed plumb of its version.
pub(crate) fn keeper(path: &OsStr, sum: &str, is_static: bool, mark: &str) -> Result<Vec<u8>, Error> {
    let other = if is_static { concat!("plumb ", env!("CARGO_PKG_VERSION")) } else { "" };
    let mut script = format!("m={mark}\ns='{sum}'\nv='{other}'\nf=\ni=\no=").into_bytes();
    push(&mut script, path)?;
    script.extend_from_slice(
        r#"
umask 077
gone() { [ -z "$f" ] || rm -rf "$f"; f=; }
trap 'gone; exit 1' HUP INT TERM
printf '\n%s begin\n' $m >&2
printf '\n%s begin\n' $m
printf 'hostname %s\n' "$(hostname 2>/dev/null || uname -n)"
printf 'machine %s\n' "$(uname -m)"
printf 'connection %s\n' "$SSH_CONNECTION"
if command -v plumb >/dev/null 2>&1; then i=$(timeout 10 plumb --version </dev/null 2>/dev/null | head -n 1); printf 'installed %s\n' "$i"; fi
if [ -x "$o" ] && [ "$(cksum <"$o" 2>/dev/null)" = "$s" ]; then printf 'same\n'; fi
if [ -n "$v" ] && [ "$i" = "$v" ] && [ -e /proc/driver/nvidia/version ]; then printf 'prefer %s\n' "$(command -v plumb)"; fi
printf 'ready\n'
while read -r v a; do case $v in
folder)
  gone
  d=
  case $a in 0) d=$TMPDIR;; 1) d=/tmp;; 2) d=/var/tmp;; 3) d=/dev/shm;; *) printf 'refused last\n'; continue;; esac
  if [ -z "$d" ]; then printf 'refused unset\n'; continue; fi
  if e=$(LC_ALL=C mktemp -d "$d/plumb.XXXXXXXX" 2>&1 </dev/null); then f=$e; printf 'folder %s\n' "$f"; else printf 'refused %s\n' "$e"; fi;;
copy)
  e=$(head -c "$a" | { LC_ALL=C cat 2>&1 >"$f/plumb" || cat >/dev/null; })
  if [ -z "$e" ]; then
    chmod 700 "$f/plumb"
    if [ "$(cksum <"$f/plumb")" != "$s" ]; then e="the copy differs from the original"
    elif e=$(LC_ALL=C timeout 20 "$f/plumb" --version 2>&1 </dev/null); then printf 'placed %s/plumb\n' "$f"; continue
    else e="cannot run: $e"; fi
  fi
  gone
  printf 'refused %s\n' "$e" | head -n 1;;
clock) printf 'clock %s\n' "$(date +%s.%N </dev/null)";;
bye) gone; printf 'gone\n'; exit 0;;
esac; done
gone
"#
        .as_bytes(),
    );
    Ok(script)
}

fn push(script: &mut Vec<u8>, word: &OsStr) -> Result<(), Error> {
    if word.as_bytes().contains(&0) {
        return Err(Error::Start { detail: "an argument or a variable has a zero byte".to_owned() });
    }
    script.extend(quoted(word.as_bytes()));
    Ok(())
}
