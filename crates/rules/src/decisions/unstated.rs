//! What a log may lack altogether: the release of NCCL, and the environment. Plausible values are tried; those with which every line is
//! as predicted count, and the answer names them.

use evidence::decided::DecidedKind;
use fabric::Version;

use super::open::Answer;
use super::{Compared, Given, Logged, LoggedCommunicator, Logs, Question};

/// The releases that are modelled, by the tags of NVIDIA/nccl; the newest first.
const RELEASES: [[u16; 3]; 31] = [
    [2, 30, 7],
    [2, 30, 4],
    [2, 30, 3],
    [2, 29, 7],
    [2, 29, 3],
    [2, 29, 2],
    [2, 28, 9],
    [2, 28, 7],
    [2, 28, 3],
    [2, 27, 7],
    [2, 27, 6],
    [2, 27, 5],
    [2, 27, 3],
    [2, 26, 6],
    [2, 26, 5],
    [2, 26, 3],
    [2, 26, 2],
    [2, 25, 1],
    [2, 24, 3],
    [2, 23, 4],
    [2, 22, 3],
    [2, 21, 5],
    [2, 20, 5],
    [2, 20, 3],
    [2, 19, 4],
    [2, 19, 3],
    [2, 19, 1],
    [2, 18, 6],
    [2, 18, 5],
    [2, 18, 3],
    [2, 18, 1],
];

/// Variables that people set and that change what NCCL decides, with the values that differ from the default.
const SETTINGS: [(&str, &[&str]); 11] = [
    ("NCCL_ALGO", &["Ring", "Tree", "^NVLS,NVLSTree"]),
    ("NCCL_CROSS_NIC", &["0", "1"]),
    ("NCCL_NET_GDR_LEVEL", &["LOC", "PIX", "PXB", "PHB", "SYS"]),
    ("NCCL_NET_GDR_READ", &["0", "1"]),
    ("NCCL_NVLS_ENABLE", &["0"]),
    ("NCCL_P2P_DISABLE", &["1"]),
    ("NCCL_P2P_LEVEL", &["LOC", "NVL", "PIX", "PXB", "PHB", "SYS"]),
    ("NCCL_PROTO", &["Simple", "LL", "LL128", "^LL128"]),
    ("NCCL_PXN_DISABLE", &["1"]),
    ("NCCL_SHM_DISABLE", &["1"]),
    ("NCCL_MNNVL_ENABLE", &["0"]),
];

/// How many variables are tried together.
const TOGETHER: usize = 2;

/// The question with the release that explains the lines of a log which does not name it, and what to say about that. `Err`: what is
/// missing.
pub(super) fn of_any_release(
    logs: &Logs<'_>,
    communicator: &LoggedCommunicator,
    given: &Given,
) -> Result<(Question, String), Vec<String>> {
    let tells = communicator.has(DecidedKind::Graph) || communicator.has(DecidedKind::Table);
    if !tells {
        return Question::new(logs, communicator, given).map(|it| (it, String::new()));
    }
    let logged = communicator.logged();
    let mut tried: Vec<(Version, usize, Question)> = Vec::new();
    for [major, minor, patch] in RELEASES {
        let version = Version::new(major, minor, patch);
        let question = Question::new(logs, communicator, &Given { nccl: Some(version), ..given.clone() })?;
        let Ok(prediction) = question.predict() else { continue };
        let different = Compared::new(&logged, &prediction).different();
        tried.push((version, different, question));
    }
    let least = tried.iter().map(|it| it.1).min().unwrap_or(0);
    let fits: Vec<Version> = tried.iter().filter(|it| it.1 == least).map(|it| it.0).collect();
    let (Some(newest), Some(oldest)) = (fits.first(), fits.last()) else {
        return Err(vec!["a release of NCCL with which this job can be predicted".to_owned()]);
    };
    let which = if newest == oldest { newest.to_string() } else { format!("{oldest} to {newest}") };
    let how = if least == 0 { "its lines fit" } else { "its lines are nearest to" };
    let note = format!("The log does not name the release of NCCL; {how} {which}.");
    let question = tried.into_iter().find(|it| it.1 == least).map(|it| it.2);
    question.map(|it| (it, note)).ok_or_else(Vec::new)
}

impl Question {
    /// The comparison with variables that are not in the log and explain every line of it, where it shows no environment.
    pub(super) fn with_settings(&self, logged: &[Logged<'_>], now: &Compared) -> Option<Answer> {
        if self.complete || now.different() == 0 {
            return None;
        }
        let mut best = (self.clone(), now.different(), Vec::new());
        for _ in 0..TOGETHER {
            let mut better: Option<(Self, usize, Vec<String>)> = None;
            for (name, value) in candidates(logged) {
                let (question, _, assumed) = &best;
                if question.settings.text(name).is_some() {
                    continue;
                }
                let mut other = question.clone();
                other.settings = other.settings.with(name, &value);
                let Ok(prediction) = other.predict() else { continue };
                let compared = Compared::new(logged, &prediction);
                let different = compared.different();
                let all: Vec<String> = assumed.iter().cloned().chain([format!("{name}={value}")]).collect();
                if different == 0 {
                    return Some(Answer { compared, settings: all, ..Answer::default() });
                }
                if different < better.as_ref().map_or(best.1, |it| it.1) {
                    better = Some((other, different, all));
                }
            }
            best = better?;
        }
        None
    }
}

/// The settings that are tried: those of the list, and limits that the lines themselves show.
fn candidates(logged: &[Logged<'_>]) -> Vec<(&'static str, String)> {
    let mut all: Vec<(&'static str, String)> = Vec::new();
    let line = |kind: DecidedKind| {
        let lines = logged.iter().flat_map(|it| &it.decided.lines);
        lines.filter(move |it| it.kind == kind).map(|it| it.text.as_str()).next()
    };
    if let Some(text) = line(DecidedKind::Counts) {
        let before =
            |what: &str| text.split(what).next().and_then(|it| it.rsplit(' ').next()).map(str::to_owned);
        let counts = [
            (" coll channels", ["NCCL_MAX_NCHANNELS", "NCCL_MIN_NCHANNELS"].as_slice()),
            (" p2p channels,", &["NCCL_MAX_P2P_NCHANNELS", "NCCL_MIN_P2P_NCHANNELS"]),
            (" p2p channels per peer", &["NCCL_NCHANNELS_PER_NET_PEER"]),
        ];
        for (what, names) in counts.into_iter().filter(|it| text.contains(it.0)) {
            let value = before(what).filter(|it| it.parse::<u32>().is_ok_and(|it| it > 0));
            all.extend(names.iter().filter_map(|it| Some((*it, value.clone()?))));
        }
    }
    if let Some(chunk) = line(DecidedKind::Chunk).and_then(|it| it.rsplit(' ').next()) {
        let names = ["NCCL_P2P_NET_CHUNKSIZE", "NCCL_P2P_PCI_CHUNKSIZE", "NCCL_P2P_NVL_CHUNKSIZE"];
        all.extend(names.map(|it| (it, chunk.to_owned())));
    }
    all.extend(SETTINGS.iter().flat_map(|(name, values)| values.iter().map(|it| (*name, (*it).to_owned()))));
    all
}
