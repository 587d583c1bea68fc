//! Which communicator a line belongs to.
//!
//! Few lines name their communicator. Lines of one thread are gathered into
//! segments by what kind of line may follow which; [`crate::communicator`]
//! then finds the communicator of segments that never named one.

use std::collections::BTreeMap;

use crate::facts::{CommFacts, Connected, LINK_LIMIT, Link, RingSummary, Via, merge_links};
use crate::nccl::LinkLine;
use crate::source::{Quote, Seen, Spot};

/// What the lines of one thread say about one communicator.
///
/// Few lines name their communicator, so lines are gathered into segments by
/// what kind of line may follow which. Whether a line continues a segment
/// depends on what came before, which the reader of a region cannot see: it
/// makes a new segment wherever that could matter, and [`ThreadFacts::push`]
/// joins segments in the order of the input.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is one thing that was read, in any combination")]
pub(crate) struct Segment {
    /// The communicator's address, once a line names it.
    pub(crate) comm: Option<u64>,
    pub(crate) first: Spot,
    /// The setup, if lines of one were read.
    pub(crate) setup: Option<Box<CommFacts>>,
    pub(crate) connections: Connections,
    /// What the first line is about.
    about: About,
    /// `Init COMPLETE` was read: what follows belongs to another setup, or to connections made later.
    closed: bool,
    /// The communicator was destroyed: its address is free.
    ended: bool,
    /// A `Connected ...` line was read: further connections may be another communicator's.
    connected: bool,
    /// Connections made after a setup was complete.
    later: bool,
}

/// Which event in the life of its communicator a line reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// It begins: after an end, the same address is another communicator.
    Start,
    /// It is being set up.
    Setup,
    /// Its setup is over.
    Complete,
    /// It is destroyed.
    End,
}

/// What a line is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum About {
    /// The setup of a communicator that is not named yet.
    Setup,
    /// A communicator that the line names, and the event in its life.
    Named(u64, Life),
    /// Connections, and whether all are open now.
    Connections(bool),
    /// The times of a setup, printed after its end.
    Timings,
}

impl Segment {
    fn new(about: About, first: Spot) -> Self {
        Self {
            comm: None,
            first,
            setup: None,
            connections: Connections::default(),
            about,
            closed: false,
            ended: false,
            connected: false,
            later: false,
        }
    }

    /// Whether a line of this kind can be about the same communicator, given the same address.
    fn goes_on(&self, life: Life) -> bool {
        !(self.ended || life == Life::Start && self.closed)
    }

    fn absorb(&mut self, later: Self) {
        self.comm = self.comm.or(later.comm);
        self.closed |= later.closed;
        self.ended |= later.ended;
        self.connected |= later.connected;
        match (&mut self.setup, later.setup) {
            (Some(mine), Some(later)) => mine.merge(*later),
            (mine @ None, later) => *mine = later,
            (Some(_), None) => {}
        }
        self.connections.merge(later.connections);
    }

    /// Everything the segment says.
    pub(crate) fn into_facts(self) -> Box<CommFacts> {
        let mut facts = self.setup.unwrap_or_default();
        facts.connect(self.connections);
        facts
    }
}

/// How many segments one thread may have before equal ones are joined. No job has nearly as many.
const SEGMENT_LIMIT: usize = 4096;

/// What the lines of one thread say, in segments.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ThreadFacts {
    pub(crate) tid: u32,
    pub(crate) segments: Vec<Segment>,
    /// How many segments there may be before equal ones are joined.
    room: usize,
}

impl ThreadFacts {
    pub(crate) fn new(tid: u32) -> Self {
        Self { tid, segments: Vec::new(), room: SEGMENT_LIMIT }
    }

    /// A log that says the same again and again must not fill the memory: joins setups of one
    /// communicator, and connections that say nothing new. The last segment stays as it is.
    fn compact(&mut self) {
        let Some(last) = self.segments.pop() else { return };
        let mut kept: Vec<Segment> = Vec::new();
        let id = |it: &Segment| {
            it.setup.as_ref().and_then(|it| it.line.as_ref()).map(|it| (it.comm_id, it.parent))
        };
        let mut indices = BTreeMap::new();
        for segment in std::mem::take(&mut self.segments) {
            let key = (segment.comm, id(&segment));
            let known = indices.get(&key).and_then(|at: &usize| kept.get_mut(*at));
            match known {
                Some(mine) if segment.comm.is_some() || mine.connections.holds(&segment.connections) => {
                    mine.absorb(segment);
                }
                _ => {
                    indices.insert(key, kept.len());
                    kept.push(segment);
                }
            }
        }
        kept.push(last);
        self.room = (kept.len() * 2).max(SEGMENT_LIMIT);
        self.segments = kept;
    }

    /// The setup that a line adds to.
    pub(crate) fn setup(&mut self, about: About, spot: Spot) -> &mut CommFacts {
        self.segment(about, spot).setup.get_or_insert_default()
    }

    /// The connections that a line adds to.
    pub(crate) fn connections(&mut self, all_made: bool, spot: Spot) -> &mut Connections {
        &mut self.segment(About::Connections(all_made), spot).connections
    }

    fn segment(&mut self, about: About, spot: Spot) -> &mut Segment {
        let continues = self.segments.last().is_some_and(|last| match about {
            About::Named(comm, life) => {
                last.comm == Some(comm) && last.goes_on(life) || last.comm.is_none() && self.begins_setup()
            }
            About::Setup => !last.closed && matches!(last.about, About::Setup | About::Named(..)),
            About::Connections(_) => !last.closed && !last.connected && last.about != About::Timings,
            About::Timings => true,
        });
        if !continues {
            if self.segments.len() >= self.room {
                self.compact();
            }
            let mut segment = Segment::new(about, spot);
            // Whatever a region before this one says, these are connections made after a setup.
            segment.later = matches!(about, About::Connections(_))
                && self.segments.last().is_some_and(|it| it.closed || it.later && it.connected);
            make_room(&mut self.segments);
            self.segments.push(segment);
        }
        let last = self.segments.len() - 1;
        let segment = &mut self.segments[last];
        match about {
            About::Named(comm, life) => {
                segment.comm = Some(comm);
                segment.closed |= matches!(life, Life::Complete | Life::End);
                segment.ended |= life == Life::End;
            }
            About::Connections(all) => segment.connected |= all,
            About::Setup | About::Timings => {}
        }
        segment
    }

    /// Whether the last segment is certain to be the unnamed beginning of a setup: the one before it is over,
    /// whatever a region before this one says.
    fn begins_setup(&self) -> bool {
        let [.., before, last] = self.segments.as_slice() else { return false };
        last.about == About::Setup && !last.closed && !last.connected && (before.closed || before.later)
    }

    /// Adds what a later part of the input says.
    pub(crate) fn merge(&mut self, later: Self) {
        for segment in later.segments {
            self.push(segment);
        }
    }

    fn push(&mut self, mut segment: Segment) {
        let continues = self.segments.last().is_some_and(|last| match segment.about {
            About::Named(_, life) => {
                let same = last.comm == segment.comm && last.goes_on(life);
                same || (last.comm.is_none() && !last.later && !last.closed)
            }
            About::Setup => !last.later && !last.closed,
            About::Connections(_) => !(last.closed || last.later && last.connected),
            About::Timings => true,
        });
        match self.segments.last_mut() {
            Some(last) if continues => {
                last.absorb(segment);
            }
            last => {
                segment.later = last.is_some() && matches!(segment.about, About::Connections(_));
                make_room(&mut self.segments);
                self.segments.push(segment);
            }
        }
    }
}

/// Most have few, and there are many of them: space is for half as many more, not twice as many.
fn make_room<T>(list: &mut Vec<T>) {
    if list.len() == list.capacity() {
        list.reserve_exact(list.len() / 2 + 1);
    }
}

/// Connections, before their communicator is known.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Connections {
    pub(crate) links: Vec<Link>,
    pub(crate) rings: Option<Box<Seen<Option<RingSummary>>>>,
    pub(crate) connected: Connected,
}

impl Connections {
    pub(crate) fn link(
        &mut self,
        line: &LinkLine<'_>,
        via: impl FnOnce() -> Via,
        quote: impl FnOnce() -> Quote,
    ) {
        let bit = 1_u64 << line.channel.min(63);
        // Lines about one peer come together: the last link is the most likely.
        let same = |it: &&mut Link| {
            it.from == line.from
                && it.to == line.to
                && it.direction == line.direction
                && it.via.as_bytes() == line.via
        };
        if let Some(link) = self.links.iter_mut().rev().find(same) {
            link.channels |= bit;
            link.count += 1;
            link.point_to_point |= line.connection > 0;
        } else if self.links.len() < LINK_LIMIT {
            make_room(&mut self.links);
            let Via { text: via, transport } = via();
            self.links.push(Link {
                from: line.from,
                to: line.to,
                direction: line.direction,
                point_to_point: line.connection > 0,
                count: 1,
                channels: bit,
                via,
                transport,
                quote: quote(),
            });
        }
    }

    pub(crate) fn rings(&mut self, summary: Option<RingSummary>, quote: impl FnOnce() -> Quote) {
        match &mut self.rings {
            Some(seen) => seen.count += 1,
            None => self.rings = Some(Box::new(Seen { value: summary, count: 1, quote: quote() })),
        }
    }

    /// Whether `other` says nothing new.
    fn holds(&self, other: &Self) -> bool {
        self.rings.is_some() == other.rings.is_some()
            && self.connected.has(other.connected)
            && other.links.iter().all(|it| self.links.iter().any(|mine| mine.is(it)))
    }

    fn merge(&mut self, later: Self) {
        merge_links(&mut self.links, later.links);
        match (&mut self.rings, later.rings) {
            (Some(mine), Some(later)) => mine.count += later.count,
            (mine @ None, later) => *mine = later,
            (Some(_), None) => {}
        }
        self.connected.add(later.connected);
    }
}
