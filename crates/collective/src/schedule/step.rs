//! The steps of a schedule.

/// A memory that steps access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Space {
    /// The send buffer. Never written, although it may be a part of the receive buffer.
    Send,
    /// The receive buffer.
    Receive,
    /// Temporary memory of the executor.
    Scratch,
}

/// A byte offset in a memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) space: Space,
    pub(crate) offset: usize,
}

impl Location {
    pub(super) fn send(offset: usize) -> Self {
        Self { space: Space::Send, offset }
    }

    pub(super) fn receive(offset: usize) -> Self {
        Self { space: Space::Receive, offset }
    }

    pub(super) fn scratch(offset: usize) -> Self {
        Self { space: Space::Scratch, offset }
    }

    pub(super) fn plus(self, bytes: usize) -> Self {
        Self { offset: self.offset + bytes, ..self }
    }
}

/// How far a step may go: its byte `i` may be transferred when byte `ahead + i` of an earlier step has been.
///
/// So a rank forwards a long message while it still receives it, without cutting it into pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct After {
    pub(crate) step: u32,
    pub(crate) ahead: usize,
}

/// The result of a step that later steps can wait for. Nothing for a step without bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dependency(Option<After>);

impl Dependency {
    /// Nothing to wait for.
    pub(super) const NONE: Self = Self(None);

    /// The same result from this byte on.
    pub(super) fn ahead(self, bytes: usize) -> Self {
        Self(self.0.map(|it| After { ahead: it.ahead + bytes, ..it }))
    }
}

/// Which operand of a reduction the data of this rank is. Ranks that compute the same result use the same order of
/// operands, so that their results are equal to the last bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hand {
    Left,
    Right,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Send {
        peer: usize,
        from: Location,
    },
    Receive {
        peer: usize,
        into: Location,
    },
    /// Receives from a peer and reduces with `own`; `last` if the result is complete.
    Combine {
        peer: usize,
        into: Location,
        own: Location,
        hand: Hand,
        last: bool,
    },
    /// Copies within this rank.
    Copy {
        from: Location,
        into: Location,
    },
    /// Reduces `from` into `into` within this rank.
    Merge {
        from: Location,
        into: Location,
        last: bool,
    },
}

impl Action {
    /// The same action `bytes` later in each memory.
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

/// Where a reduction of received data gets its other operand from, and where the result goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operands {
    pub(super) into: Location,
    pub(super) own: Location,
}

/// An action on `len` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) action: Action,
    pub(crate) len: usize,
    pub(crate) after: Option<After>,
}

/// Collects the steps of a rank. Steps with the same peer and direction run in the order in which they were added.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
}

impl Plan {
    pub(super) fn send(&mut self, peer: usize, from: Location, len: usize, after: Dependency) -> Dependency {
        self.add(Action::Send { peer, from }, len, after)
    }

    pub(super) fn receive(
        &mut self,
        peer: usize,
        into: Location,
        len: usize,
        after: Dependency,
    ) -> Dependency {
        self.add(Action::Receive { peer, into }, len, after)
    }

    /// Receives and reduces with `own`, which is the left operand.
    pub(super) fn combine(
        &mut self,
        peer: usize,
        Operands { into, own }: Operands,
        len: usize,
        last: bool,
        after: Dependency,
    ) -> Dependency {
        self.add(Action::Combine { peer, into, own, hand: Hand::Left, last }, len, after)
    }

    /// Adds a step. If it continues the last step, that step is extended.
    pub(super) fn add(&mut self, action: Action, len: usize, after: Dependency) -> Dependency {
        if len == 0 {
            return Dependency::NONE;
        }
        let continues =
            |it: &Step| it.action.plus(it.len) == action && Dependency(it.after).ahead(it.len) == after;
        let ahead = match self.steps.last_mut().filter(|it| continues(it)) {
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
        Dependency(u32::try_from(self.steps.len() - 1).ok().map(|step| After { step, ahead }))
    }
}
