//! What plumb writes harms nobody: not the shell that evaluates it, not the terminal that shows it, not the files it was made from,
//! and with `--redact` not those whose names are in them.

#[expect(dead_code, reason = "other tests use the rest")]
mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use common::{Answer, command, finish, folder, plumb, recordings, root};

/// Title, colour, clear screen, and the same by C1 control characters; a change of direction.
const HOSTILE: &str = "\u{1b}]0;owned\u{7}\u{1b}[31m\u{1b}[2J\u{1b}P1$r\u{1b}\\\u{9b}2J\u{9d}0;x\u{9c}\u{90}\u{8}\r\u{7f}\u{85}\u{202e}\u{2028}x";

fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).expect("a file can be written");
    path
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// A pod whose variables have these names, each with this value.
fn pod(names: &[&str], value: &str) -> String {
    let env: Vec<_> = names.iter().map(|it| serde_json::json!({ "name": it, "value": value })).collect();
    let container = serde_json::json!({
        "name": "a", "image": format!("x:1{value}"), "env": env, "resources": { "limits": { "nvidia.com/gpu": 8 } },
    });
    serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": value }, "spec": { "containers": [container] },
    })
    .to_string()
}

/// Evaluates a text in an empty folder, as `eval "$(plumb env --format sh)"` does; returns the files that came of it.
fn evaluated(folder: &Path, script: &str) -> Vec<String> {
    let place = folder.join("evaluated");
    let _ = fs::remove_dir_all(&place);
    fs::create_dir(&place).expect("a folder can be made");
    let status = testbed::output(testbed::program("sh").args(["-c", script]).current_dir(&place));
    assert!(status.stderr.is_empty(), "{}: {script}", String::from_utf8_lossy(&status.stderr));
    fs::read_dir(place)
        .expect("a folder")
        .map(|it| it.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect()
}

#[test]
fn no_name_of_a_variable_runs_a_command() {
    let names = [
        "NCCL_A;touch 1",
        "NCCL_B\ntouch 2\n",
        "NCCL_C$(touch 3)",
        "NCCL_D`touch 4`",
        "NCCL_E\u{2028}touch 5",
        "NCCL_F&touch 6",
        "NCCL_G[$(touch 7)]",
        "NCCL_H|touch 8",
        "NCCL_I' ; touch 9; '",
        "NCCL_J\rtouch 10",
        "NCCL_K>11",
        "NCCL_P2P_DISABLE",
    ];
    let folder = folder("env-names");
    // The same text does run commands where nothing is done about it.
    assert_eq!(evaluated(&folder, "unset A;touch 1"), ["1"]);
    let job = write(&folder, "pod.json", &pod(&names, "1\n'; touch 12; '\u{1b}[2J"));
    for arguments in [&[][..], &["--instance", "p5.48xlarge", "--plugin", "1.5.0"]] {
        let answer = plumb(["env", "--job", text(&job), "--format", "sh"].iter().chain(arguments));
        assert_eq!(answer.code, Some(0), "{answer:?}");
        assert_eq!(evaluated(&folder, &answer.stdout), [""; 0], "{}", answer.stdout);
        assert!(answer.stdout.contains("\nunset NCCL_P2P_DISABLE\n"), "{}", answer.stdout);
        assert!(
            answer.stdout.contains("\n# left out: `NCCL_A;touch 1` is not the name"),
            "{}",
            answer.stdout
        );
        for format in ["yaml", "dockerfile"] {
            let answer = plumb(["env", "--job", text(&job), "--format", format].iter().chain(arguments));
            let code = |it: &&str| !it.starts_with('#');
            let code: Vec<&str> = answer.stdout.lines().filter(code).collect();
            assert!(code.iter().all(|it| !it.contains("touch")), "{format}: {code:?}");
        }
    }
}

#[track_caller]
fn check_harmless(what: &str, answer: &Answer) {
    let obeyed = |it: char| {
        (it.is_control() && !matches!(it, '\n' | '\t'))
            || matches!(it, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    for text in [&answer.stdout, &answer.stderr] {
        let line = text.lines().find(|it| it.contains(obeyed));
        assert_eq!(line, None, "{what}");
    }
    assert!(!answer.stdout.is_empty() || !answer.stderr.is_empty(), "{what} says nothing");
}

#[test]
fn no_log_commands_the_terminal() {
    let folder = folder("hostile-logs");
    for name in recordings() {
        for file in common::files(&name)
            .iter()
            .filter(|it| Path::new(it).extension().is_some_and(|it| it == "log" || it == "txt"))
        {
            let bytes = fs::read(root().join(file)).expect("a recording");
            let log = String::from_utf8_lossy(&bytes);
            // At the end, and before the last word.
            let spoilt: String = log
                .lines()
                .take(2000)
                .enumerate()
                .map(|(number, line)| match line.rsplit_once(' ').filter(|_| number % 2 == 0) {
                    Some((begin, last)) => format!("{begin} {HOSTILE}{last}\n"),
                    None => format!("{line}{HOSTILE}\n"),
                })
                .collect();
            write(&folder, &file.replace('/', "-"), &spoilt);
        }
    }
    for arguments in [
        &["--verbose"][..],
        &["--format", "json"],
        &["--format", "sarif"],
        &["--format", "junit"],
        &["--redact"],
    ] {
        let answer = plumb(["doctor", text(&folder), "--matrix"].iter().chain(arguments));
        assert!(answer.stdout.len() > 5_000, "{arguments:?}: {}", answer.stdout);
        check_harmless(&format!("doctor {arguments:?}"), &answer);
    }
}

#[test]
fn no_manifest_commands_the_terminal() {
    let folder = folder("hostile-manifests");
    let names = [format!("NCCL_{HOSTILE}"), "NCCL_P2P_DISABLE".to_owned(), "NCCL_DEBUG".to_owned()];
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let files = [
        write(&folder, "pod.json", &pod(&names, HOSTILE)),
        write(
            &folder,
            "a.env",
            &format!("NCCL_DEBUG={HOSTILE}\nNCCL_X{HOSTILE}=1\nNCCL_P2P_DISABLE=1 # {HOSTILE}\n"),
        ),
        write(
            &folder,
            "a.sh",
            &format!("export NCCL_P2P_DISABLE=1{HOSTILE}\nsrun -N 2 torchrun --nnodes=4 '{HOSTILE}'\n"),
        ),
        write(&folder, "a.yaml", &format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: \"{HOSTILE}\"}}\n")),
        write(&folder, "broken.yaml", &format!("a: [{HOSTILE}\n")),
    ];
    for file in &files {
        for format in ["text", "json", "sarif", "junit"] {
            let answer = plumb(["lint", text(file), "--format", format]);
            check_harmless(&format!("lint {} {format}", file.display()), &answer);
        }
    }
    for format in ["text", "sh", "yaml", "dockerfile", "json"] {
        let answer = plumb(["env", "--verbose", "--job", text(&files[0]), "--format", format]);
        check_harmless(&format!("env {format}"), &answer);
    }
}

#[test]
fn nothing_else_commands_the_terminal() {
    let folder = folder("hostile-others");
    let log = fs::read_to_string(root().join("cases/healthy-2-nodes/job.log")).expect("a recording");
    let named = write(&folder, &format!("a{}.log", HOSTILE.replace(['/', '\n'], "")), &log);
    let matrix = fs::read_to_string(root().join("cases/h200-topo/topo.txt")).expect("a recording");
    let matrix = write(
        &folder,
        "topo.txt",
        &matrix.replace("NIC0", &format!("NIC0{HOSTILE}")).replace("mlx5", &format!("{HOSTILE}mlx5")),
    );
    let value = HOSTILE.chars().fold(String::new(), |all, it| all + &format!("\\u{:04x}", u32::from(it)));
    let cluster = write(
        &folder,
        "cluster.toml",
        &format!(
            "[cluster]\nname = \"{value}\"\ngpu = \"H100{value}\"\ngpus_per_node = 8\nnodes = 4\nintra = \"{value}\"\n"
        ),
    );
    let broken = write(
        &folder,
        "bench.json",
        &format!("{{\"schema\": \"plumb.bench/1\", \"collective\": \"{value}\"}}"),
    );
    let result = plumb([
        "bench",
        "all_reduce",
        "-b",
        "1K",
        "-e",
        "1K",
        "--ranks",
        "2",
        "--engine",
        "host",
        "--format",
        "json",
    ]);
    let result = ["float\"", "sum\"", "host memory\"", "shared memory\""]
        .iter()
        .fold(result.stdout, |text, it| text.replace(it, &format!("{}{value}\"", it.trim_end_matches('"'))));
    assert!(result.contains(&value), "{result}");
    let result = write(&folder, "result.json", &result);
    let xml = fs::read_to_string(root().join("fuzz/seeds/topology_xml/h200")).expect("a seed");
    let xml = write(&folder, "topo.xml", &xml.replace("name=\"", "name=\"\u{9b}31m\u{202e}"));
    assert!(fs::read_to_string(&xml).expect("a file").contains('\u{9b}'));
    let missing = folder.join(format!("missing{HOSTILE}"));
    let [named, matrix, xml, cluster, broken, result, missing] =
        [&named, &matrix, &xml, &cluster, &broken, &result, &missing].map(|it| text(it));
    for arguments in [
        &["doctor", named][..],
        &["doctor", missing],
        &["doctor", named, "-o", missing, "-o", "b"],
        &["lint", missing],
        &["lint", named],
        &["env", "--job", missing],
        &["env", "--instance", HOSTILE],
        &["topo", matrix],
        &["topo", matrix, "--format", "json"],
        &["topo", named],
        &["topo", missing],
        &["topo", "--cluster", cluster],
        &["topo", "--instance", HOSTILE],
        &["expect", "all_reduce", "1G", "--cluster", cluster],
        &["expect", "all_reduce", "1G", "--cluster", missing],
        &["topo", xml],
        &["topo", xml, "--format", "json"],
        &["bench", "--compare", result, result],
        &["bench", "--compare", result, result, "--format", "json"],
        &["bench", "--compare", broken, result],
        &["bench", "--compare", missing, result],
        &["explain", HOSTILE],
        &["explain", &format!("NCCL_DEBUG{HOSTILE}")],
        &["manifest", "job", "--instance", HOSTILE, "--nodes", "2"],
        &["manifest", "job", "--instance", "p5.48xlarge", "--nodes", "2", "--name", HOSTILE],
    ] {
        check_harmless(&format!("{arguments:?}"), &plumb(arguments));
    }
}

/// Refused with exit code 2, and the input is as it was.
#[track_caller]
fn check_refused(arguments: &[&str], input: &Path) {
    let before = fs::read(input).expect("the input");
    let answer = plumb(arguments);
    assert_eq!((answer.code, answer.stdout.as_str()), (Some(2), ""), "{arguments:?}: {answer:?}");
    assert!(answer.stderr.contains("does not overwrite its input"), "{arguments:?}: {answer:?}");
    assert_eq!(fs::read(input).expect("the input"), before, "{arguments:?}");
}

#[test]
fn no_input_is_overwritten() {
    let folder = folder("own-input");
    fs::create_dir(folder.join("logs")).unwrap();
    let log = folder.join("logs/job.log");
    fs::copy(root().join("cases/duplicate-gpu/job.log"), &log).unwrap();
    symlink("logs/job.log", folder.join("link")).unwrap();
    fs::hard_link(&log, folder.join("hard")).unwrap();
    let at = |name: &str| text(&folder).to_owned() + "/" + name;
    for output in ["logs/job.log", "./logs/../logs/job.log", "link", "hard"] {
        check_refused(&["doctor", &at("logs/job.log"), "-o", &at(output)], &log);
    }
    check_refused(&["doctor", &at("link"), "-o", &at("hard")], &log);
    check_refused(&["doctor", &at("logs"), "--format", "json", "-o", &at("logs/job.log")], &log);
    // The second of two outputs: the first is not written either.
    check_refused(
        &["doctor", &at("logs"), "-f", "json", "-o", &at("first"), "-f", "text", "-o", &at("link")],
        &log,
    );
    assert!(!folder.join("first").exists());
    let mut piped = command(["doctor", "-", "-o", &at("link")]);
    piped.stdin(fs::File::open(&log).unwrap());
    let answer = finish(piped);
    assert_eq!(answer.code, Some(2), "{answer:?}");

    let answer = plumb(["doctor", "--redact", &at("logs"), "-o", &at("link")]);
    assert!(answer.code == Some(2) && !answer.stderr.contains("logs"), "{answer:?}");
    // What is not read can be written.
    let answer = plumb(["doctor", &at("logs"), "-o", &at("answer")]);
    assert_eq!(answer.code, Some(1), "{answer:?}");

    let manifest = folder.join("pod.yaml");
    fs::copy(root().join("crates/cli/tests/manifests/bad/pod-p4d.yaml"), &manifest).unwrap();
    symlink("pod.yaml", folder.join("same.sarif")).unwrap();
    check_refused(&["lint", text(&manifest), "-o", &at("same.sarif")], &manifest);
    let topology = folder.join("topo.txt");
    fs::copy(root().join("cases/h200-topo/topo.txt"), &topology).unwrap();
    check_refused(&["topo", text(&topology), "--svg", text(&topology)], &topology);
    let cluster = folder.join("cluster.svg");
    fs::copy(root().join("fuzz/seeds/cluster/h100"), &cluster).unwrap();
    check_refused(&["topo", "--cluster", text(&cluster), "--svg", text(&cluster)], &cluster);
    for option in ["--plot", "--output", "--log"] {
        check_refused(
            &["bench", "all_reduce", "--cluster", text(&cluster), option, text(&cluster)],
            &cluster,
        );
    }
}

#[test]
fn a_fix_keeps_the_mode_and_the_link() {
    let folder = folder("fix-mode");
    let pod = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\nspec:\n  containers:\n  - name: a\n    image: x:1\n    \
               resources:\n      limits:\n        nvidia.com/gpus: 8\n";
    let file = write(&folder, "a.yaml", pod);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let link = folder.join("link.yaml");
    symlink("a.yaml", &link).unwrap();
    let answer = plumb(["lint", "--fix", text(&link)]);
    assert!(fs::read_to_string(&file).unwrap().contains("nvidia.com/gpu: 8"), "{answer:?}");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
}

#[test]
fn a_fifo_and_standard_output_are_written_to() {
    let folder = folder("output-fifo");
    let log = text(&root().join("cases/duplicate-gpu/job.log")).to_owned();
    let direct = plumb(["doctor", &log, "--format", "json"]);
    let answer = plumb(["doctor", &log, "--format", "json", "-o", "/dev/stdout"]);
    assert_eq!(answer.stdout, direct.stdout);
    let pipe = folder.join("pipe");
    let made = rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    );
    made.expect("a FIFO can be made");
    let reader = {
        let pipe = pipe.clone();
        std::thread::spawn(move || fs::read_to_string(pipe))
    };
    plumb(["doctor", &log, "--format", "json", "-o", text(&pipe)]);
    assert_eq!(reader.join().unwrap().unwrap(), direct.stdout);
}

#[test]
fn standard_error_is_redacted_too() {
    let folder = folder("zelda-project");
    let log = format!(
        "hyrule:1:2 [0] NCCL INFO NCCL version 2.27.3+cuda12.4\n{}",
        "hyrule:1:2 [0] x.cc:1 NCCL WARN lost hyrule\n"
    );
    write(&folder, "hyrule.log", &log);
    write(&folder, "empty-hyrule.log", "");
    symlink("gone", folder.join("dangling-hyrule.log")).unwrap();
    let missing = folder.join("missing of zelda.log");
    let output = folder.join("none/zelda.json");
    for arguments in [
        &["doctor", "--redact", text(&folder), text(&missing)][..],
        &["doctor", "--redact", text(&folder), "-f", "json", "-o", text(&output)],
        &["doctor", "--redact", text(&missing)],
        &["doctor", "--redact", text(&folder.join("empty-hyrule.log"))],
    ] {
        let mut command = command(arguments);
        command.current_dir(&folder);
        let answer = finish(command);
        assert!(answer.stderr.contains("error: ") || answer.stderr.contains("warning: "), "{answer:?}");
        for name in ["zelda", "hyrule", "/target/"] {
            assert!(!answer.stderr.contains(name) && !answer.stdout.contains(name), "{name}: {answer:?}");
        }
    }
}

/// Values that a manifest, a script or a log may hold, and that no output shows.
const SECRETS: [&str; 6] = [
    "hf_AbCdEfGhIjKlMnOpQrStUvWxYz0123456",
    "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "0123456789abcdef0123456789abcdef01234567",
    "AKIAIOSFODNN7EXAMPLE",
    "swordfish",
    "correct-horse",
];

#[test]
fn secrets_are_in_no_output() {
    let folder = folder("secrets");
    let [hf, aws, wandb, id, password, login] = SECRETS;
    let pod = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec:\n  containers:\n  - name: a\n    image: b\n    \
         env: [{{name: HF_TOKEN, value: {hf}}}, {{name: AWS_SECRET_ACCESS_KEY, value: {aws}}}, {{name: NCCL_DEBUG, value: INFOO}}, {{name: DB_PASSWORD, value: {password}}}, {{name: AWS_ACCESS_KEY_ID, value: {id}}}]\n    \
         resources: {{limits: {{nvidia.com/gpu: 8}}}}\n    command: [torchrun, --nproc_per_node=8, train.py, --wandb_key, {wandb}, --url, 'https://me:{login}@git.example/x']\n"
    );
    let pod = write(&folder, "pod.yaml", &pod);
    let script = write(
        &folder,
        "job.sh",
        &format!(
            "export HF_TOKEN={hf} NCCL_DEBUG=INFOO PASSWORD={password} NCCL_ALGO=Rong\ntorchrun --nproc_per_node=8 x.py --hub_token={login}\n"
        ),
    );
    let log = write(
        &folder,
        "job.log",
        &format!(
            "+ export HF_TOKEN={hf}\n+ export AWS_SECRET_ACCESS_KEY={aws}\n+ wandb login {wandb}\n\
             host:1:1 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\n\
             host:1:1 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-abc to 33030532 bytes\n\
             RuntimeError: 401 for https://me:{login}@git.example/x with {id}, password: {password}\n"
        ),
    );
    let files = [text(&pod), text(&script)];
    let mut commands: Vec<Vec<&str>> = Vec::new();
    for redact in [&[][..], &["--redact"]] {
        for format in ["text", "json", "sarif", "junit", "html"] {
            commands.push([&["lint", "-f", format], &files[..], redact].concat());
            commands.push([&["doctor", "-f", format, text(&log), files[0]][..], redact].concat());
        }
        commands.push([&["lint", "--diff"], &files[..], redact].concat());
    }
    commands.push(vec!["doctor", "-v", text(&log)]);
    commands.extend(
        ["text", "json", "html"].map(|it| vec!["env", "--job", files[0], "--job", files[1], "-f", it]),
    );
    for arguments in commands {
        let answer = plumb(&arguments);
        assert!(
            !answer.stdout.is_empty() || arguments.contains(&"--diff"),
            "{arguments:?}: {}",
            answer.stderr
        );
        for secret in SECRETS {
            for text in [&answer.stdout, &answer.stderr] {
                assert!(!text.contains(secret), "{arguments:?} shows {secret}: {text}");
            }
        }
    }
    let page = plumb(["doctor", "-f", "html", text(&log)]).stdout;
    assert!(page.contains("export HF_TOKEN=secret-"), "the lines around a finding are shown");
}

/// A topology or a manifest alone is for another command, which the answer names.
#[test]
fn an_input_of_another_command_names_it() {
    let next = |path: &str| {
        let said = plumb(["doctor", path]).stdout.replace('\n', " ");
        said.split("next: ").nth(1).unwrap_or_else(|| panic!("{said}")).to_owned()
    };
    assert!(
        next("cases/h200-topo")
            .starts_with("`plumb topo FILE` shows the machine; for a diagnosis give plumb")
    );
    let folder = folder("other-command");
    let file = folder.join("pod.yaml");
    let pod =
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - {name: a, image: b}\n";
    std::fs::write(&file, pod).expect("a file");
    let path = file.display().to_string();
    assert!(
        next(&path).starts_with("`plumb lint FILE` checks the manifest; for a diagnosis"),
        "{}",
        next(&path)
    );
    // Beside a log, they describe its machine and its job.
    std::fs::write(folder.join("job.log"), "a:1:1 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\n")
        .expect("a file");
    assert!(next(&folder.display().to_string()).starts_with("give plumb the log"));
}
