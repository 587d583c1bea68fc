//! Scripts and command lines: which command trains, what starts it, and its options.

use evidence::shell::{self, Commands, Spelled};
use evidence::submission::{Directives, Launch, Launcher, Submission, Word};

use super::draft::{Place, Weight};
use super::options::{Options, Setting, place_in};
use super::{Inputs, Kind, Text, accelerate, arguments, deepspeed, megatron, unset, variable};

/// Whether a text is a script or a command line.
pub(super) fn is_script(name: &str, text: &str) -> bool {
    let extension = name.rsplit('.').next().unwrap_or_default();
    let first = text.trim_start();
    if first.starts_with("#!")
        || first.starts_with("--")
        || matches!(extension, "sh" | "bash" | "slurm" | "sbatch")
    {
        return true;
    }
    let object = |it: &str| it.starts_with("apiVersion:") || it.starts_with("kind:");
    if first.starts_with(['{', '[']) || text.lines().any(object) {
        return false;
    }
    let starts = [
        "torchrun ",
        "deepspeed ",
        "accelerate ",
        "srun ",
        "mpirun ",
        "python ",
        "python3 ",
        "bash ",
        "#SBATCH",
    ];
    text.lines().any(|line| starts.iter().any(|it| line.trim_start().starts_with(it)))
        || Launch::pasted(first.lines().next().unwrap_or_default()).is_some()
}

/// A command that may train.
struct Command {
    words: Vec<Spelled>,
    options: Options,
    /// How many of its options a trainer is known by.
    score: usize,
    megatron: bool,
}

impl Command {
    fn new(words: &[Spelled], commands: &Commands) -> Self {
        let options = Options::of_words(words, |it| place_in(commands, it));
        let (one, other) = (options.count(&megatron::OWN), options.count(&arguments::OWN));
        let more = usize::from(options.get(&["num_layers", "hidden_size"]).is_some() && one > 0);
        Self { words: words.to_vec(), score: one.max(other) + more, megatron: one > other, options }
    }

    /// The program: the first word that ends with `.py`, or the module after `-m`.
    fn program(&self) -> &str {
        let named = self.words.iter().find(|it| it.text.rsplit_once('.').is_some_and(|it| it.1 == "py"));
        let module = || {
            let at = self.words.iter().position(|it| it.text == "-m")?;
            self.words.get(at + 1).filter(|it| !it.text.starts_with("torch.distributed"))
        };
        named.or_else(module).map(|it| it.text.as_str()).unwrap_or_default()
    }
}

pub(super) fn read(inputs: &mut Inputs<'_>, text: &Text) -> Result<(), String> {
    let directives =
        Submission::read(&text.name, &text.text).ok().map(|it| it.directives).unwrap_or_default();
    let mut variables = slurm(&directives);
    variables.extend(inputs.variables.iter().cloned());
    let commands = follow(inputs, text, &variables)?;
    let directed = |count: Option<evidence::submission::Count>| {
        count.map(|it| (it.value, Place::new(&text.name, it.span.line)))
    };
    if let Some((nodes, place)) = directed(directives.nodes()) {
        inputs.draft.set("cluster.nodes", nodes, "#SBATCH --nodes", &place, Weight::Follows);
    }
    if let Some((gpus, place)) = directed(directives.gpus_per_node()) {
        inputs.draft.set("launch.per_node", gpus, "#SBATCH --gpus-per-node", &place, Weight::Follows);
    }
    take(inputs, &commands, &text.name)
}

fn follow(inputs: &mut Inputs<'_>, text: &Text, variables: &[(String, String)]) -> Result<Commands, String> {
    let files = &mut *inputs.files;
    // A line of options alone is a command too; lines of a pasted one may lack their backslashes.
    let body = if text.text.trim_start().starts_with("--") {
        let one_line =
            ["\\\r\n", "\\\n", "\n"].iter().fold(text.text.trim().to_owned(), |it, end| it.replace(end, " "));
        format!("megatron {one_line}")
    } else {
        text.text.clone()
    };
    let mut sourced = |from: &str, path: &str| files.read(from, path).ok().map(|it| (it.name, it.text));
    shell::follow(&text.name, &body, variables, &mut sourced)
        .map_err(|error| format!("{}:{}: {}", error.file, error.trouble.line, error.trouble.text))
}

/// What Slurm sets, from the options of the script.
fn slurm(directives: &Directives) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut set = |names: &[&str], value: u64| {
        all.extend(names.iter().map(|it| ((*it).to_owned(), value.to_string())));
    };
    let nodes = directives.nodes().map(|it| it.value);
    if let Some(nodes) = nodes {
        set(&["SLURM_NNODES", "SLURM_JOB_NUM_NODES"], nodes);
    }
    if let Some(gpus) = directives.gpus_per_node() {
        set(&["SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"], gpus.value);
    }
    if let Some(tasks) = directives.number("ntasks-per-node") {
        set(&["SLURM_NTASKS_PER_NODE"], tasks.value);
        if let Some(nodes) = nodes {
            set(&["SLURM_NTASKS", "SLURM_NPROCS"], nodes.saturating_mul(tasks.value));
        }
    }
    all
}

/// Reads the command that trains among those of a script or of a container.
pub(super) fn take(inputs: &mut Inputs<'_>, commands: &Commands, name: &str) -> Result<(), String> {
    let mut all: Vec<Command> = commands.commands.iter().map(|it| Command::new(it, commands)).collect();
    // A file of variables with options, which another script sources.
    if all.iter().all(|it| it.score == 0) && !commands.options.is_empty() {
        all.push(Command::new(&commands.options, commands));
    }
    let best = all.iter().map(|it| it.score).max().unwrap_or(0);
    let launches = |it: &Command| !launch(&it.words).is_empty();
    let at =
        if best > 0 { all.iter().position(|it| it.score == best) } else { all.iter().position(launches) };
    let Some(at) = at else {
        return Err(format!(
            "{name}: starts no training that plumb knows: it has no torchrun, deepspeed, srun or mpirun, and no options of Megatron or of the Hugging Face Trainer"
        ));
    };
    let others = all.iter().filter(|it| it.score == best && it.score > 0).count();
    let command = all.swap_remove(at);
    let place = command.words.first().map_or_else(|| Place::new(name, 1), |it| place_in(commands, it));
    if others > 1 && best > 1 && all.iter().any(|it| it.score == best && it.options != command.options) {
        inputs
            .draft
            .notes
            .push(format!("{name} trains {others} times: the command of line {} is read", place.line));
    }
    refuse(&command, &place)?;
    launched(inputs, &command, commands);
    if let Some(threads) = commands.variables.get("OMP_NUM_THREADS").and_then(|it| it.parse::<u64>().ok()) {
        inputs.draft.set("run.omp_threads", threads, "OMP_NUM_THREADS", &place, Weight::Follows);
    }
    settings(inputs, &command, commands, &place)?;
    let read = if command.megatron {
        megatron::read(&command.options, &place, &mut inputs.draft).map_err(|open| left_open(&open, commands))
    } else if command.score > 0 {
        inputs.arguments(&command.options, &place)
    } else {
        Ok(())
    };
    read?;
    // What a script leaves open may change what was read.
    for it in commands.undecided.iter().take(2) {
        let file = commands.files.get(it.file).map(String::as_str).unwrap_or_default();
        let given = variable(&it.on).map(|it| format!(": give --define {it}=...")).unwrap_or_default();
        inputs.draft.notes.push(format!(
            "{file}:{}: a condition depends on {}, which the script does not set, and is left out{given}",
            it.line, it.on
        ));
    }
    Ok(())
}

/// Programs that do not train a decoder.
fn refuse(command: &Command, place: &Place) -> Result<(), String> {
    let program = command.program();
    let file = program.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|it| file.contains(it));
    if has(&[
        "text_generation",
        "evaluat",
        "inference",
        "eval_",
        "generate",
        "convert",
        "preprocess",
        "server",
    ]) {
        return Err(format!("{place}: {program} does not train: there is no step to predict"));
    }
    if has(&["t5", "bert", "vit", "vision", "ict", "retro", "biencoder", "mamba", "dino"]) {
        return Err(format!(
            "{place}: {program} does not train a decoder of transformer layers, which is what plumb models"
        ));
    }
    Ok(())
}

/// Says what a script gets from outside, and how to give it.
fn left_open(open: &[Setting], commands: &Commands) -> String {
    let all: Vec<String> = open.iter().filter_map(|it| variable(it.text())).collect();
    let (arguments, others): (Vec<String>, Vec<String>) =
        all.into_iter().partition(|it| it.bytes().all(|it| it.is_ascii_digit()));
    let branches = commands.undecided.iter().filter_map(|it| variable(&it.on));
    // What branches set comes last: it may need no value of its own.
    let names: Vec<String> = arguments.into_iter().chain(branches).chain(others).collect();
    let mut text = unset(open, &names);
    if let Some(it) = commands.undecided.first() {
        let file = commands.files.get(it.file).map(String::as_str).unwrap_or_default();
        text.push_str(&format!("; branches depend on them too, the first at {file}:{}", it.line));
    }
    text
}

/// The launcher of a command, and the one that it starts.
fn launch(words: &[Spelled]) -> Vec<Launch> {
    let words: Vec<Word> = words
        .iter()
        .enumerate()
        .map(|(at, it)| Word { text: it.text.as_str().into(), range: at..at })
        .collect();
    Launch::of_words(&words)
}

/// Nodes and ranks, from what starts the command.
fn launched(inputs: &mut Inputs<'_>, command: &Command, commands: &Commands) {
    let mut all = launch(&command.words);
    // A launcher of another command may start this one: `srun bash -c "torchrun ..."`.
    if all.is_empty() {
        all = commands.commands.iter().flat_map(|it| launch(it)).collect();
    }
    let draft = &mut inputs.draft;
    for it in &all {
        let nested = it.launcher == Launcher::Srun && all.len() > 1;
        let place =
            |at: usize| command.words.get(at).map_or_else(|| Place::new("", 0), |it| place_in(commands, it));
        let weight = if nested { Weight::Follows } else { Weight::Stated };
        if let Some(nodes) = it.nodes() {
            let at = place(nodes.word.range.start);
            match nodes.number() {
                Some(count) => draft.set("cluster.nodes", count, "nodes of the launcher", &at, weight),
                None => {
                    draft.set("launch.open_nodes", nodes.text, "nodes of the launcher", &at, Weight::Follows);
                }
            }
        }
        let each = it.processes_per_node().filter(|_| !nested);
        if let Some(each) = each
            && let Some(count) = each.number()
        {
            draft.set("launch.per_node", count, "processes of a node", &place(each.word.range.start), weight);
        }
        let total = it.processes().filter(|_| !nested);
        if let Some(total) = total
            && let Some(count) = total.number()
        {
            draft.set("launch.processes", count, "processes", &place(total.word.range.start), weight);
        }
    }
}

/// Files of settings that the command names: of `DeepSpeed`, of accelerate.
fn settings(
    inputs: &mut Inputs<'_>,
    command: &Command,
    commands: &Commands,
    at: &Place,
) -> Result<(), String> {
    let accelerate = command.options.get(&["config_file"]).filter(|it| it.open().is_none());
    if let Some(file) = accelerate
        && let Ok(text) = inputs.files.read(&file.place.file, file.text())
    {
        inputs.enter(&text.name, &file.place)?;
        let read = inputs.read(&text, Kind::Accelerate);
        inputs.open.pop();
        read?;
    }
    if launch(&command.words).iter().any(|it| it.launcher == Launcher::Accelerate) {
        accelerate::launched(inputs, &command.options, at)?;
    }
    if !command.megatron {
        // The Trainer's options name it; they are read with the others.
        let Some(name) = command.options.get(&["deepspeed_config"]) else { return Ok(()) };
        let (path, place) = (name.text().to_owned(), name.place.clone());
        return inputs.deepspeed_file(&path, &place);
    }
    let Some(config) = command.options.get(&["deepspeed_config"]) else { return Ok(()) };
    if inputs.draft.has("deepspeed.given") {
        return Ok(());
    }
    // The script may write the file itself.
    let written = commands.written.iter().rev().find(|it| it.name == config.text());
    if let Some(written) = written {
        let file = commands.files.get(written.file).map_or(&*at.file, String::as_str).to_owned();
        let tree = evidence::yaml::Tree::read(&written.text)
            .map_err(|it| format!("{file}:{}: {}", written.line + it.line - 1, it.text))?;
        let Some(root) = tree.documents.first() else { return Ok(()) };
        return deepspeed::read(&tree, *root, &file, written.line, &mut inputs.draft);
    }
    let (path, place) = (config.text().to_owned(), config.place.clone());
    inputs.deepspeed_file(&path, &place)
}
