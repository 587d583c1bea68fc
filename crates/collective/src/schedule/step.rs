//! What a schedule is made of.

/// A memory that steps read and write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Space {
    /// What the caller sends. Never written, though it may be a part of the next.
    Send,
    /// What the caller receives.
    Receive,
    /// Memory of the executor.
    Scratch,
}

/// An offset in bytes in a memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) space: Space,
    pub(crate) offset: usize,
}

impl Place {
    /// In what is sent.
    pub(super) fn send(offset: usize) -> Self {
        Self { space: Space::Send, offset }
    }

    /// In what is received.
    pub(super) fn receive(offset: usize) -> Self {
        Self { space: Space::Receive, offset }
    }

    /// In the executor's memory.
    pub(super) fn scratch(offset: usize) -> Self {
        Self { space: Space::Scratch, offset }
    }

    /// So many bytes further.
    pub(super) fn plus(self, bytes: usize) -> Self {
        Self { offset: self.offset + bytes, ..self }
    }
}

/// How far a step may go: its byte `i` moves when byte `ahead + i` of an earlier step has moved.
///
/// So long messages flow through a rank while they still arrive, and no message is cut into pieces for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct After {
    pub(crate) step: u32,
    pub(crate) ahead: usize,
}

/// Where a step's result can be waited for. Nothing, for a step without bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark(Option<After>);

impl Mark {
    /// Nothing to wait for.
    pub(super) const NONE: Self = Self(None);

    /// The same result from this byte on.
    pub(super) fn ahead(self, bytes: usize) -> Self {
        Self(self.0.map(|it| After { ahead: it.ahead + bytes, ..it }))
    }
}

/// Which operand of a combination this rank's own data is. The same on all ranks that compute the same result, so that
/// theirs are alike to the last bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hand {
    Left,
    Right,
}

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Sends to a peer.
    Send { peer: usize, from: Place },
    /// Receives from a peer.
    Receive { peer: usize, into: Place },
    /// Receives from a peer and combines with `own`; `last` when the result is complete.
    Combine { peer: usize, into: Place, own: Place, hand: Hand, last: bool },
    /// Copies in this rank's memory.
    Copy { from: Place, into: Place },
    /// Combines in this rank's memory: `into` with `from`.
    Merge { from: Place, into: Place, last: bool },
}

impl Action {
    /// The same so many bytes further.
    pub(super) fn plus(self, bytes: usize) -> Self {
        match self {
            Self::Send { peer, from } => Self::Send { peer, from: from.plus(bytes) },
            Self::Receive { peer, into } => Self::Receive { peer, into: into.plus(bytes) },
            Self::Combine { peer, into, own, hand, last } => {
                Self::Combine { peer, into: into.plus(bytes), own: own.plus(bytes), hand, last }
            }
            Self::Copy { from, into } => Self::Copy { from: from.plus(bytes), into: into.plus(bytes) },
            Self::Merge { from, into, last } => {
                Self::Merge { from: from.plus(bytes), into: into.plus(bytes), last }
            }
        }
    }
}

/// One step: an action on so many bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) action: Action,
    pub(crate) len: usize,
    pub(crate) after: Option<After>,
}

/// Collects the steps of a rank. What goes to one peer goes in the order it was added, and so does what comes from one.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
}

impl Plan {
    /// Sends.
    pub(super) fn send(&mut self, peer: usize, from: Place, len: usize, after: Mark) -> Mark {
        self.add(Action::Send { peer, from }, len, after)
    }

    /// Receives.
    pub(super) fn receive(&mut self, peer: usize, into: Place, len: usize, after: Mark) -> Mark {
        self.add(Action::Receive { peer, into }, len, after)
    }

    /// Receives and combines with this rank's own, which stands left.
    pub(super) fn combine(
        &mut self,
        peer: usize,
        (into, own): (Place, Place),
        len: usize,
        last: bool,
        after: Mark,
    ) -> Mark {
        self.add(Action::Combine { peer, into, own, hand: Hand::Left, last }, len, after)
    }

    /// Any step. One that goes on where the last one ends becomes a part of it.
    pub(super) fn add(&mut self, action: Action, len: usize, after: Mark) -> Mark {
        if len == 0 {
            return Mark::NONE;
        }
        let goes_on = |it: &Step| it.action.plus(it.len) == action && Mark(it.after).ahead(it.len) == after;
        let ahead = match self.steps.last_mut().filter(|it| goes_on(it)) {
            Some(last) => {
                last.len += len;
                last.len - len
            }
            None => {
                self.steps.push(Step { action, len, after: after.0 });
                0
            }
        };
        // More steps than 2^32 would not fit into memory.
        Mark(u32::try_from(self.steps.len() - 1).ok().map(|step| After { step, ahead }))
    }
}
