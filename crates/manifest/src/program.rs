//! How ranks are started: by torchrun or by MPI.

/// Words after torchrun's own options: `train.py --steps 100`, `-m package`, `--no-python ./program`.
pub(crate) fn torchrun(command: &[String]) -> Result<Vec<String>, String> {
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let owned = |words: &[&str]| words.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    let name = base(words.first().copied().unwrap_or_default());
    if is_python(name) && words.get(1) == Some(&"-m") {
        let module = words.get(2).copied().unwrap_or_default();
        if matches!(module, "torch.distributed.run" | "torch.distributed.launch") {
            return options(words.get(3..).unwrap_or_default())
                .map(|()| owned(words.get(3..).unwrap_or_default()));
        }
        return Ok(owned(words.get(1..).unwrap_or_default()));
    }
    if is_python(name) && words.get(1).is_some_and(|it| is_script(it)) {
        return Ok(owned(words.get(1..).unwrap_or_default()));
    }
    if name == "torchrun" {
        let rest = words.get(1..).unwrap_or_default();
        return options(rest).map(|()| owned(rest));
    }
    starts_ranks(&words)?;
    if is_script(words.first().copied().unwrap_or_default()) {
        return Ok(owned(&words));
    }
    let mut all = vec!["--no-python".to_owned()];
    all.extend(owned(&words));
    Ok(all)
}

/// Words for one rank of MPI or Slurm.
pub(crate) fn rank(command: &[String]) -> Result<Vec<String>, String> {
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    starts_ranks(&words)?;
    let script = words.first().is_some_and(|it| is_script(it));
    let python = script.then(|| "python3".to_owned());
    Ok(python.into_iter().chain(command.iter().cloned()).collect())
}

/// `all_reduce_perf` over sizes that fit into GPU memory of this many GiB: three buffers of the largest message.
pub(crate) fn nccl_tests(gpu_memory: Option<f64>) -> Vec<String> {
    let largest = match gpu_memory {
        Some(it) if it >= 128.0 => "16G",
        Some(it) if it >= 64.0 => "8G",
        Some(it) if it >= 40.0 => "4G",
        _ => "2G",
    };
    let words = [
        "/opt/nccl-tests/build/all_reduce_perf",
        "-b",
        "8",
        "-e",
        largest,
        "-f",
        "2",
        "-g",
        "1",
        "-c",
        "1",
        "-n",
        "50",
    ];
    words.map(str::to_owned).to_vec()
}

/// Options that plumb writes itself cannot be given.
fn options(words: &[&str]) -> Result<(), String> {
    let ours = ["nnodes", "nproc-per-node", "node-rank", "master-addr", "master-port", "standalone"];
    let own = words.iter().take_while(|it| !is_script(it));
    for word in own {
        let Some(option) = word.strip_prefix("--") else { continue };
        let option = option.split('=').next().unwrap_or_default().replace('_', "-");
        if ours.contains(&option.as_str()) || option.starts_with("rdzv-") {
            return Err(format!("remove --{option} from the command: the manifest sets it"));
        }
    }
    if words.is_empty() { Err("torchrun needs a program: -- train.py ...".to_owned()) } else { Ok(()) }
}

/// A launcher inside a launcher would start every rank several times.
fn starts_ranks(words: &[&str]) -> Result<(), String> {
    let launchers = ["torchrun", "mpirun", "mpiexec", "srun", "sbatch", "deepspeed", "accelerate"];
    let first = base(words.first().copied().unwrap_or_default());
    let shell = matches!(first, "sh" | "bash" | "dash" | "zsh" | "env");
    let inside = |it: &&&str| {
        it.split(|it: char| !it.is_ascii_alphanumeric() && !"/_-.".contains(it))
            .any(|it| launchers.contains(&base(it)))
    };
    let found = words.iter().take(if shell { words.len() } else { 1 }).find(inside);
    match found {
        Some(_) => Err("give only the program, as in -- train.py --steps 100: the manifest starts the ranks, and a second launcher would start them again in each rank"
            .to_owned()),
        None => Ok(()),
    }
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

fn is_script(word: &str) -> bool {
    word.strip_suffix(".py").is_some_and(|it| !it.is_empty() && !it.starts_with('-'))
}

fn is_python(name: &str) -> bool {
    name.strip_prefix("python").is_some_and(|it| it.bytes().all(|it| it == b'.' || it.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::{rank, torchrun};

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn torchrun_starts_what_was_meant() {
        for (given, want) in [
            ("train.py --steps 100", "train.py --steps 100"),
            ("python3 /a/train.py -x", "/a/train.py -x"),
            ("python -m package --a", "-m package --a"),
            ("torchrun train.py --nnodes=9", "train.py --nnodes=9"),
            ("/usr/bin/torchrun --max-restarts=3 train.py", "--max-restarts=3 train.py"),
            ("python -m torch.distributed.run train.py", "train.py"),
            ("python -u train.py", "--no-python python -u train.py"),
            ("./program -a", "--no-python ./program -a"),
            ("plumb bench all_reduce", "--no-python plumb bench all_reduce"),
        ] {
            assert_eq!(torchrun(&words(given)).unwrap().join(" "), want, "{given}");
        }
        for given in
            ["torchrun --nproc_per_node=4 train.py", "torchrun --rdzv-backend c10d train.py", "torchrun"]
        {
            torchrun(&words(given)).unwrap_err();
        }
    }

    #[test]
    fn a_launcher_inside_a_launcher_is_refused() {
        for given in [
            "deepspeed train.py",
            "accelerate launch train.py",
            "mpirun -np 8 x",
            "/opt/amazon/openmpi/bin/mpirun x",
        ] {
            assert!(torchrun(&words(given)).unwrap_err().contains("only the program"), "{given}");
            rank(&words(given)).unwrap_err();
        }
        let nested = ["bash", "-c", "cd /x && torchrun train.py"].map(str::to_owned);
        torchrun(&nested).unwrap_err();
        rank(&nested).unwrap_err();
        let plain = ["bash", "-c", "cd /x && ./run --deepspeed-config a.json"].map(str::to_owned);
        torchrun(&plain).unwrap();
        assert_eq!(rank(&words("train.py a")).unwrap().join(" "), "python3 train.py a");
    }
}
