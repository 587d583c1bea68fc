//! `plumb topo --check`: what a log says NCCL decided, compared line by line with what is predicted. Schema `plumb.check/1`.

use evidence::decided::DecidedKind;
use rules::decisions::{CheckedCommunicator, Compared, Difference};
use serde::Serialize;

/// What was compared, and what differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    /// `plumb.check/1`.
    pub schema: &'static str,
    /// `same`, `different`, `undecided`.
    pub verdict: Verdict,
    /// Where the machine of the largest communicator comes from.
    pub source: Option<String>,
    /// The release of NCCL.
    pub nccl: Option<String>,
    /// Ranks of the largest communicator.
    pub ranks: Option<u32>,
    /// Ranks whose lines were compared, of all communicators.
    pub ranks_compared: usize,
    /// Lines that were compared.
    pub compared: usize,
    /// Lines that are not as predicted.
    pub different: usize,
    /// By what the lines are about.
    pub kinds: Vec<KindCount>,
    /// The communicators, the largest first.
    pub communicators: Vec<CommunicatorCheck>,
    /// The differences, what the others follow from first; at most [`Compared::MOST`].
    pub differences: Vec<Difference>,
    /// What there must be to compare the largest communicator.
    pub missing: Vec<String>,
    /// Variables that the log does not show and with which every line is as predicted.
    pub settings: Vec<String>,
    /// What was assumed.
    pub notes: Vec<String>,
}

/// One communicator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CommunicatorCheck {
    /// `commId`, in hexadecimal.
    pub id: Option<String>,
    /// How many ranks it has.
    pub ranks: Option<u32>,
    /// `same`, `different`, `undecided`.
    pub verdict: Verdict,
    /// Lines that were compared.
    pub compared: usize,
    /// Lines that are not as predicted.
    pub different: usize,
    /// What there must be to compare it.
    pub missing: Vec<String>,
}

/// The result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Every line is as predicted.
    Same,
    /// Some lines are not.
    Different,
    /// There is not enough in the log.
    Undecided,
}

/// How many lines of one kind were compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct KindCount {
    /// `search result`.
    pub kind: &'static str,
    /// Lines that were compared.
    pub compared: usize,
    /// Lines that are not as predicted.
    pub different: usize,
}

impl Verdict {
    fn of(compared: Option<&Compared>) -> Self {
        match compared.map(|it| (it.compared(), it.different())) {
            None | Some((0, _)) => Self::Undecided,
            Some((_, 0)) => Self::Same,
            Some(_) => Self::Different,
        }
    }
}

impl Check {
    /// Puts the answer together. The log decides nothing if its largest communicator could not be compared and no other differs.
    pub fn new(nccl: Option<fabric::Version>, checked: Vec<CheckedCommunicator>) -> Self {
        let communicators: Vec<CommunicatorCheck> = checked.iter().map(CommunicatorCheck::new).collect();
        let first = communicators.first();
        let (ranks, largest) = (first.and_then(|it| it.ranks), first.map(|it| it.verdict));
        let mut check = Self {
            schema: "plumb.check/1",
            verdict: largest.unwrap_or(Verdict::Undecided),
            source: None,
            nccl: nccl.map(|it| it.to_string()),
            ranks,
            ranks_compared: 0,
            compared: 0,
            different: 0,
            kinds: Vec::new(),
            communicators,
            differences: Vec::new(),
            missing: Vec::new(),
            settings: Vec::new(),
            notes: Vec::new(),
        };
        if checked.is_empty() {
            check.missing =
                vec!["the lines about channels (`Trees`, `coll channels`): subsystem INIT".to_owned()];
        }
        let mut all = Compared::default();
        for (number, it) in checked.into_iter().enumerate() {
            if number == 0 {
                (check.source, check.missing) = (it.source, it.missing);
                check.nccl = it.nccl.map(|it| it.to_string()).or(check.nccl);
            }
            let new = it.settings.into_iter().filter(|it| !check.settings.contains(it)).collect::<Vec<_>>();
            check.settings.extend(new);
            let new = it.notes.into_iter().filter(|it| !check.notes.contains(it)).collect::<Vec<_>>();
            check.notes.extend(new);
            all.add(it.compared.unwrap_or_default());
        }
        check.notes.extend(not_compared(&check.communicators));
        let kind = |(kind, it): (&DecidedKind, &(usize, usize))| KindCount {
            kind: kind.name(),
            compared: it.0,
            different: it.1,
        };
        check.kinds = all.kinds.iter().map(kind).collect();
        (check.compared, check.different, check.ranks_compared) =
            (all.compared(), all.different(), all.ranks);
        check.differences = all.differences;
        if check.different > 0 {
            check.verdict = Verdict::Different;
        }
        check
    }
}

impl CommunicatorCheck {
    fn new(it: &CheckedCommunicator) -> Self {
        let compared = it.compared.as_ref();
        Self {
            id: it.id.map(|it| format!("{it:#x}")),
            ranks: it.ranks,
            verdict: Verdict::of(compared),
            compared: compared.map_or(0, Compared::compared),
            different: compared.map_or(0, Compared::different),
            missing: it.missing.clone(),
        }
    }
}

/// What is said of smaller communicators that could not be compared.
fn not_compared(all: &[CommunicatorCheck]) -> Option<String> {
    let left = || all.iter().skip(1).filter(|it| it.verdict == Verdict::Undecided);
    let first = left().find_map(|it| it.missing.first())?;
    let count = left().count();
    let what = if count == 1 {
        "1 smaller communicator is".to_owned()
    } else {
        format!("{count} smaller communicators are")
    };
    Some(format!("{what} not compared; missing: {first}."))
}
