//! Questions about dropped files, and their answers.

use std::io::{self, Read as _};

use answer::compare::{self, Given};
use answer::context::{self, Line};
use answer::decide;
use answer::topo::Rings;
use answer::{Files as _, doctor, expect, lint, read, topo};
use evidence::yaml::Trouble;
use fabric::Collective;
use job::{Description, LayoutFlags};
use report::html::{DecidePage, TopoPage};
use report::lint::Unread;
use report::{Redactor, Style};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::dropped::{Beside, Bytes, Dropped};
use crate::flags::Flags;
use crate::pages;

/// How wide the text answer is.
pub(crate) const WIDTH: usize = 100;

/// A question.
#[derive(Debug, Deserialize)]
pub struct Question {
    /// All dropped files, by their numbers.
    pub files: Vec<File>,
    /// What is asked.
    #[serde(flatten)]
    pub what: What,
}

/// A dropped file.
#[derive(Debug, Deserialize)]
pub struct File {
    /// With the folders it was dropped in: `job/rank0.log`.
    pub name: String,
    /// In bytes.
    pub size: u64,
    /// Dropped by itself, not in a folder: it is read whatever its name is.
    pub named: bool,
}

/// A command and what it needs.
#[derive(Debug, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase")]
pub enum What {
    /// `plumb doctor` on all files.
    Doctor { flags: Flags },
    /// `plumb lint` on all manifests and scripts.
    Lint { flags: Flags },
    /// `plumb topo` of one file, or of a machine by its name.
    Topo { file: Option<String>, flags: Flags },
    /// `plumb expect`.
    Expect { flags: Flags },
    /// `plumb explain`.
    Explain { text: String },
    /// `plumb compare` of what was dropped separately.
    Compare { baseline: Option<String>, flags: Flags },
    /// The names of machines that fields offer.
    Machines {},
    /// Lines of a file around one; `near` is a line and the byte it begins at.
    Context { file: String, line: u64, around: u64, near: Option<(u64, u64)> },
    /// Lines that contain a text.
    Search { text: String, most: usize },
}

/// An answer.
#[derive(Debug, Default, Serialize)]
pub struct Reply {
    /// Why there is no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What the command says beside its answer.
    pub notes: Vec<String>,
    /// The answer as `--format json` writes it.
    pub json: String,
    /// The answer as text.
    pub text: String,
    /// The answer as `--format html` writes it; empty where a command has none.
    pub html: String,
    /// For files, some lines and the bytes they begin at.
    pub landmarks: Value,
    /// Lines of files: file, number, text.
    pub lines: Vec<(String, u64, String)>,
    /// Names to choose from.
    pub names: Vec<String>,
}

impl Reply {
    /// A question without an answer.
    pub fn refused(error: String) -> Self {
        Self { error: Some(error), ..Self::default() }
    }
}

/// Answers a question.
pub fn answer(question: &Question, bytes: &dyn Bytes) -> Reply {
    let files = Dropped::new(bytes, question.files.iter().map(|it| (it.name.as_str(), it.size)));
    let reply = match &question.what {
        What::Doctor { .. } | What::Lint { .. } | What::Compare { .. }
            if let Some(reply) = pages::shown(question, &files) =>
        {
            reply
        }
        What::Doctor { flags } => diagnosed(question, &files, flags),
        What::Lint { flags } => checked(question, &files, flags),
        What::Topo { file, flags } => wired(&files, file.as_deref(), flags),
        What::Expect { flags } => expected(flags),
        What::Explain { text } => explained(text),
        What::Compare { baseline, flags } => compared(question, &files, baseline.as_deref(), flags),
        What::Machines {} => {
            let names = fabric::catalogue::all().iter().map(|it| it.name.to_owned()).collect();
            Ok(Reply { names, ..Reply::default() })
        }
        What::Context { file, line, around, near } => {
            let lines = context::around(&files, file, *line, *around, *near);
            lines.map_err(|error| format!("{file}: {error}")).map(|lines| {
                let line = |Line { number, text }| (file.clone(), number, text);
                Reply { lines: lines.into_iter().map(line).collect(), ..Reply::default() }
            })
        }
        What::Search { text, most } => Ok(searched(question, &files, text, *most)),
    };
    reply.unwrap_or_else(Reply::refused)
}

/// Texts written by `report`.
fn written(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> Result<String, String> {
    let mut bytes = Vec::new();
    write(&mut bytes).map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|error| error.to_string())
}

const fn style() -> Style {
    Style { colour: false, width: WIDTH, verbose: false }
}

/// The files that `doctor` reads, in the order in which the command finds them.
fn logs<'a>(files: impl IntoIterator<Item = &'a File>) -> Vec<String> {
    let beside = |it: &File| it.name.split('/').skip(1).any(read::is_beside_the_point);
    let mut all: Vec<&File> = files.into_iter().filter(|it| it.named || !beside(it)).collect();
    all.sort_by(|one, other| one.name.split('/').cmp(other.name.split('/')));
    all.into_iter().map(|it| it.name.clone()).collect()
}

fn diagnosed(question: &Question, files: &Dropped<'_>, flags: &Flags) -> Result<Reply, String> {
    let inputs = read::all(files, &logs(&question.files));
    let asked = doctor::Asked { hardware: flags.hardware()?, excerpts: true, ..doctor::Asked::default() };
    let answer = doctor::answer(inputs, asked, files, rules::diagnose);
    let doctor = &answer.doctor;
    let text = written(|out| report::text(doctor, style(), out))?;
    let json = written(|out| report::json(doctor, out))?;
    let landmarks = answer.landmarks.iter().map(|(file, lines)| {
        (file.clone(), lines.iter().map(|(line, byte)| serde_json::json!([line, byte])).collect::<Value>())
    });
    Ok(Reply {
        notes: remarks(&answer),
        html: written(|out| report::html::write(doctor, out))?,
        json,
        text,
        landmarks: Value::Object(landmarks.collect()),
        ..Reply::default()
    })
}

/// What is wrong with inputs.
fn remarks(answer: &doctor::Answer) -> Vec<String> {
    let mut all: Vec<String> =
        answer.unreadable.iter().map(|it| format!("{}: {}", it.name, it.reason)).collect();
    for it in &answer.doctor.inputs {
        match &it.problem {
            Some(problem) => all.push(format!("{}: {problem}", it.file)),
            None if it.lines == 0 => all.push(format!("{}: is empty", it.file)),
            None if answer.understood == 0 => {
                all.push(format!("{}: plumb understood no line of it", it.file))
            }
            None => {}
        }
    }
    if answer.understood == 0 {
        all.push("plumb reads output of PyTorch, DeepSpeed, nccl-tests and NCCL_DEBUG=INFO".to_owned());
    }
    all
}

fn checked(question: &Question, files: &Dropped<'_>, flags: &Flags) -> Result<Reply, String> {
    let given = rules::lint::Given {
        instance: flags.instance()?,
        gpu: flags.gpu()?,
        nccl: flags.nccl()?,
        ..rules::lint::Given::default()
    };
    let hidden = |it: &File| it.name.split('/').skip(1).any(|it| it.starts_with('.'));
    let wanted = question.files.iter().filter(|it| it.named || (lint::is_submitted(&it.name) && !hidden(it)));
    let mut wanted: Vec<&str> = wanted.map(|it| it.name.as_str()).collect();
    wanted.sort_by(|one, other| one.split('/').cmp(other.split('/')));
    if wanted.is_empty() {
        return Err("there is no manifest or script among the files".to_owned());
    }
    let (mut read, mut unread) = (Vec::new(), Vec::new());
    for name in wanted {
        let source = files.open(name).map_err(|error| format!("{name}: {error}"))?;
        match lint::read(name, Box::new(source)) {
            Ok(file) => read.push(file),
            Err((name, trouble)) => unread.push(Unread { position: read.len(), name, trouble }),
        }
    }
    let mut names = Redactor::secrets().of_files(&read);
    let lint = lint::answer(&read, &unread, &given, &Value::Null, &mut Beside(files), &mut names);
    let notes = unread.iter().map(|it| {
        let Trouble { line, column, text } = &it.trouble;
        format!("{}:{line}:{column}: {text}", it.name)
    });
    Ok(Reply {
        notes: notes.collect(),
        html: written(|out| report::html::write(&lint, out))?,
        json: written(|out| lint.json(out))?,
        text: written(|out| report::lint::text(&lint, style(), out))?,
        ..Reply::default()
    })
}

fn wired(files: &Dropped<'_>, file: Option<&str>, flags: &Flags) -> Result<Reply, String> {
    let env = flags.env()?;
    let pods = flags.pods()?.map(|(pods, gpus)| fabric::Layout::new(pods, gpus));
    let asked = topo::Asked {
        instance: flags.instance()?,
        gpu: flags.gpu()?,
        nic_gbps: flags.nic_gbps()?,
        layout: LayoutFlags { nodes: flags.nodes()?, pods, ..LayoutFlags::default() },
        nccl: flags.nccl()?,
        env: &env,
        collective: flags.collective()?,
        ..topo::Asked::default()
    };
    let what_if = flags.what_if()?;
    let mut text = Vec::new();
    let described = match (file, asked.instance) {
        (Some(name), _) => {
            let named = |error: io::Error| format!("{name}: {error}");
            let source = files.open(name).and_then(|it| answer::whole(Box::new(it))).map_err(named)?;
            source.take(topo::MOST).read_to_end(&mut text).map_err(named)?;
            asked.of_text(name, &text)?
        }
        (None, Some(model)) => Description::of_flag(model),
        (None, None) => {
            return Err("give a file that describes a machine, or a machine by its name".to_owned());
        }
    };
    let described = asked.complete(described);
    if !what_if.is_empty() {
        return tried(&asked, described, file, &what_if);
    }
    let Rings { overlays, about } = asked.rings(&described, file.map(|it| (it, text.as_slice())), None);
    let topo = asked.answer(described, file, None)?;
    let page = TopoPage { topo: &topo, overlays: &overlays, about: &about };
    Ok(Reply {
        html: written(|out| report::html::write(&page, out))?,
        json: written(|out| report::topo::json(&topo, out))?,
        text: written(|out| report::topo::text(&topo, style(), out))?,
        ..Reply::default()
    })
}

/// What other settings change.
fn tried(
    asked: &topo::Asked<'_>,
    described: Description,
    file: Option<&str>,
    what_if: &[(String, String)],
) -> Result<Reply, String> {
    let job = asked.job(&described)?;
    let decisions = decide::Asked::new(&job, &described, None, file.map(str::to_owned))?;
    let decide = decisions.answer(decide::Question { rank: 0, what_if, collective: asked.collective })?;
    let overlays = decisions.drawn(what_if).unwrap_or_default();
    let topo = asked.answer(described, file, None).ok();
    let page = DecidePage { decide: &decide, topo: topo.as_ref(), overlays: &overlays };
    Ok(Reply {
        html: written(|out| report::html::write(&page, out))?,
        json: written(|out| report::decide::json(&decide, out))?,
        text: written(|out| report::decide::what_if_text(&decide, style(), out))?,
        ..Reply::default()
    })
}

fn expected(flags: &Flags) -> Result<Reply, String> {
    let env = flags.env()?;
    let asked = expect::Asked {
        collective: flags.collective()?.unwrap_or(Collective::AllReduce),
        size: flags.size()?.unwrap_or(1 << 30),
        measured: flags.measured()?,
        group: None,
        nccl: flags.nccl()?,
        plugin: None,
        env: &env,
    };
    let model = flags.instance()?.ok_or("give the machine by its name")?;
    let described = Description::of_flag(model);
    let cluster = expect::cluster(&described, flags.nodes()?, flags.pods()?, &asked.settings());
    let expect = asked.answer(cluster.map_err(|error| error.to_string())?)?;
    Ok(Reply {
        html: written(|out| report::html::write(&expect, out))?,
        json: written(|out| expect.json(out))?,
        text: written(|out| expect.text(style(), out))?,
        ..Reply::default()
    })
}

fn explained(text: &str) -> Result<Reply, String> {
    let what = text.trim();
    let found = explain::explain(what);
    if !found.is_empty() {
        let text = written(|out| report::explanations(&found, WIDTH, out))?;
        return Ok(Reply { text, ..Reply::default() });
    }
    let similar = explain::similar(what);
    let hint =
        if similar.is_empty() { String::new() } else { format!("; did you mean {}?", similar.join(", ")) };
    Err(format!("plumb knows no rule, variable, term, machine, GPU or log line `{what}`{hint}"))
}

/// What was dropped separately is a run each: a folder, or a file.
fn compared(
    question: &Question,
    files: &Dropped<'_>,
    baseline: Option<&str>,
    flags: &Flags,
) -> Result<Reply, String> {
    let run = |it: &File| it.name.split('/').next().unwrap_or_default().to_owned();
    let mut runs: Vec<String> = Vec::new();
    let job = flags.job();
    for name in question.files.iter().filter(|it| Some(it.name.as_str()) != job).map(run) {
        if !runs.contains(&name) {
            runs.push(name);
        }
    }
    if runs.len() < 2 {
        return Err("give two runs or more, each as a file or a folder".to_owned());
    }
    let baseline = baseline.and_then(|it| runs.iter().position(|run| run == it)).unwrap_or(0);
    let hardware = flags.hardware()?;
    let names = compare::names(&runs);
    let is = |at: usize, name: &str| runs.get(at).is_some_and(|it| it == name);
    let took = compare::took(flags.took(), &names, is).map_err(|reason| format!("times: {reason}"))?;
    let job_file = job.map(|it| job_file(files, it)).transpose()?.unwrap_or_default();
    let mut given = Vec::new();
    for (name, called) in runs.iter().zip(&names) {
        let of_run = question.files.iter().filter(|it| run(it) == *name && Some(it.name.as_str()) != job);
        let read = Given::read(files, called, &logs(of_run), &hardware);
        given.push(read.map_err(|it| format!("{}: {}", it.name, it.reason))?);
    }
    let compare = compare::answer(&names, &given, &took, &job_file, baseline);
    Ok(Reply {
        html: written(|out| report::html::write(&compare, out))?,
        json: written(|out| compare.json(out))?,
        text: written(|out| compare.text(style(), out))?,
        notes: compare.not_comparable.iter().cloned().collect(),
        ..Reply::default()
    })
}

/// The tables of a job file.
fn job_file(files: &Dropped<'_>, name: &str) -> Result<Value, String> {
    let named = |reason: String| format!("{name}: {reason}");
    let source = files.open(name).map_err(|error| named(error.to_string()))?;
    let text = answer::text(Box::new(source), expect::LONGEST).map_err(named)?;
    forecast::training::Job::tables(&text).map_err(|error| named(error.to_string()))
}

fn searched(question: &Question, files: &Dropped<'_>, text: &str, most: usize) -> Reply {
    let text = text.to_lowercase();
    let mut reply = Reply::default();
    for name in logs(&question.files) {
        let left = most.saturating_sub(reply.lines.len());
        if left == 0 {
            break;
        }
        match context::search(files, &name, &text, left) {
            Ok(found) => {
                reply.lines.extend(found.into_iter().map(|it| (it.file, it.line.number, it.line.text)));
            }
            Err(error) => reply.notes.push(format!("{name}: {error}")),
        }
    }
    reply
}
