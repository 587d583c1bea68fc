//! A line of NCCL or its plugin, and what it says of its process.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{QUOTED_LIMIT, RawProcess, Reader, SHAPED_AFTER_LINES, is};
use crate::catalogue;
use crate::facts::{AdapterGpuDirect, Assignment, Connected, Via};
use crate::nccl::{self, Message, Phase, PluginEvent};
use crate::plugin::Known;
use crate::prefix::{self, Level, Line};
use crate::scan::{number, text};
use crate::segment::{About, Life, ThreadFacts};
use crate::shape::Repeated;
use crate::source::{Quote, Spot};

impl Reader {
    /// A line of a known process. Returns whether it was understood.
    pub(super) fn info(&mut self, line: &[u8], it: Line<'_>, process: usize, spot: Spot) -> bool {
        let Some(owner) = self.facts.processes.get_mut(process) else { return false };
        // Every rank has such lines: beyond a limit their texts are not kept, only their positions.
        let quoted = &mut self.quoted;
        let quote = || {
            *quoted += line.len();
            if *quoted < QUOTED_LIMIT { Quote::new(spot, line) } else { Quote { spot, text: Box::default() } }
        };
        if it.level == Level::Warn {
            let entry = catalogue::entry_of(&it).map(|it| it.entry);
            owner.facts.warnings.note(prefix::time(it.before), entry, || Quote::new(spot, line));
            let id = owner.id();
            let is_last_error = self.facts.last_errors.last() == Some(&spot);
            let signal = self.signals(line, it.before, id.as_ref(), !is_last_error, spot);
            return signal.is_some() || entry.is_some();
        }
        let message = nccl::parse(it.message);
        let RawProcess { facts, threads, recent, .. } = &mut *owner;
        let known = &mut self.threads;
        let thread = Author { threads, recent, known, process, name: it.thread };
        match message {
            Message::Routine | Message::Choice(_) => {}
            Message::HostMemory => facts.host_memory.note((), quote),
            Message::Link(mut found) => {
                // The transport is compared as it is kept.
                let readable;
                if !found.via.is_ascii() && str::from_utf8(found.via).is_err() {
                    readable = String::from_utf8_lossy(found.via).into_owned();
                    found.via = readable.as_bytes();
                }
                let vias = &mut self.vias;
                let via = || vias.entry(found.via.into()).or_insert_with(|| Via::new(found.via)).clone();
                thread.find().connections(false, spot).link(&found, via, quote);
            }
            Message::Ring(ring) => thread.find().setup(About::Setup, spot).ring(ring, quote),
            Message::Trees(nodes) => thread.find().setup(About::Setup, spot).trees(nodes, quote),
            Message::Comm(found) => {
                let stage = match found.phase {
                    Phase::Start => Life::Start,
                    Phase::Named => Life::Setup,
                    Phase::Complete => Life::Complete,
                    Phase::End => Life::End,
                };
                thread.find().setup(About::Named(found.comm, stage), spot).comm(found, quote);
            }
            Message::Layout(found) => {
                thread.find().setup(About::Named(found.comm, Life::Setup), spot).layout(found, quote);
            }
            Message::ChannelCounts(it) => thread.find().setup(About::Setup, spot).channels(it, quote),
            Message::RingsConnected { summary } => {
                thread.find().connections(true, spot).rings(summary, quote);
            }
            Message::Connected(what) => {
                thread.find().connections(true, spot).connected.add(Connected::read(what));
            }
            Message::Network(name) => {
                let known = self.networks.iter().find(|it| is(it, name)).cloned();
                let name = known.unwrap_or_else(|| {
                    let name: Arc<str> = Arc::from(&*text(name));
                    self.networks.push(Arc::clone(&name));
                    name
                });
                facts.networks.note(Arc::clone(&name), || Quote::new(spot, line));
                thread.find().setup(About::Setup, spot).network(name, quote);
            }
            Message::BootstrapTimings(it) => {
                thread.find().setup(About::Setup, spot).bootstrap_timings(it, quote);
            }
            Message::InitTimings(it) => thread.find().setup(About::Timings, spot).init_timings(it, quote),
            Message::Version(it) => facts.version.note_if_new(|old| is(old, it), || text(it), quote),
            Message::CudaDriver(it) => facts.cuda_driver.note(it, quote),
            Message::Environment { name, value } => {
                let same = |old: &Assignment| is(&old.name, name) && is(&old.value, value);
                let new = || Assignment { name: text(name), value: text(value) };
                facts.environment.note_if_new(same, new, quote);
            }
            Message::CommConfig(it) => facts.comm_config.note_if_new(|old| is(old, it), || text(it), quote),
            Message::Bootstrap(it) => facts.bootstrap.note(it, quote),
            Message::Sockets(it) => facts.sockets.note(it, quote),
            Message::Hcas(it) => facts.hcas.note(it, quote),
            Message::NoIbDevice => facts.no_ib_device.note((), quote),
            Message::HcaGpuDirect { enabled, hca } => {
                let same = |old: &AdapterGpuDirect| old.enabled == enabled && is(&old.adapter, hca);
                let new = || AdapterGpuDirect { adapter: text(hca), enabled };
                facts.hca_gpudirect.note_if_new(same, new, quote);
            }
            Message::GpuDirectByDistance { enabled } => facts.gpudirect_by_distance.note(enabled, quote),
            Message::Nvls(it) => facts.nvls.note(it, quote),
            Message::DmaBuf => facts.dmabuf.note((), quote),
            Message::Ras(it) => facts.ras.note_if_new(|old| is(old, it), || text(it), quote),
            Message::Tuner(it) => facts.tuner.note_if_new(|old| is(old, it), || text(it), quote),
            Message::TopologyFile(it) => facts.topology_file.note(text(it), quote),
            Message::Propagated { code } => facts.propagated.note(code, quote),
            Message::Plugin(event) => {
                let failed = matches!(event, PluginEvent::NotFound { .. });
                facts.plugins.note(event, quote);
                if failed {
                    // Signals report why a plugin could not be loaded.
                    let id = owner.id();
                    self.signals(line, it.before, id.as_ref(), false, spot);
                }
            }
            Message::PluginLine { plugin, text: rest } => {
                let mut quote = quote;
                let known =
                    (plugin.read)(&mut facts.plugin, String::from_utf8_lossy(rest).trim(), &mut quote);
                if known == Known::Routine {
                    return true;
                }
                let id = owner.id();
                let signal = self.signals(line, it.before, id.as_ref(), false, spot);
                return signal.is_some()
                    || known == Known::Telling
                    || self.listed(process, line, &it, spot) != Listed::No;
            }
            Message::Unknown => {
                let plain = it.before.is_empty() && it.location.is_empty();
                let plain = plain && self.lines >= SHAPED_AFTER_LINES;
                let shape = if plain { self.idle.of(it.message) } else { None };
                if let Some(known) = shape.and_then(|it| self.idle.recall(it)) {
                    return known.listed;
                }
                let id = owner.id();
                let signal = self.signals(line, it.before, id.as_ref(), false, spot);
                let listed = self.listed(process, line, &it, spot);
                if let Some(shape) = shape
                    && signal.is_none()
                    && (listed == Listed::Harmless || !catalogue::words_trouble(it.message))
                {
                    let listed = listed != Listed::No;
                    self.idle.remember(shape, it.message, Repeated { listed, ..Repeated::default() });
                }
                return listed != Listed::No || signal.is_some();
            }
        }
        true
    }

    /// Whether NCCL or its plugin is known to print this ordinary line. One that words a trouble is kept.
    fn listed(&mut self, process: usize, line: &[u8], it: &Line<'_>, spot: Spot) -> Listed {
        let Some(entry) = catalogue::entry_of(it).map(|it| it.entry) else { return Listed::No };
        if catalogue::words_trouble(it.message)
            && !catalogue::is_harmless(entry)
            && let Some(owner) = self.facts.processes.get_mut(process)
        {
            owner.facts.troubles.note(prefix::time(it.before), Some(entry), || Quote::new(spot, line));
            return Listed::Kept;
        }
        Listed::Harmless
    }
}

/// What the catalogue knows of an ordinary line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listed {
    No,
    /// It says nothing to keep.
    Harmless,
    /// It was kept.
    Kept,
}

/// The thread that wrote a line: looked up only for lines about a communicator.
struct Author<'a, 'n> {
    threads: &'a mut Vec<ThreadFacts>,
    recent: &'a mut (u32, u32),
    known: &'a mut FxHashMap<(u32, u32), u32>,
    process: usize,
    /// `HOST:PID:TID`
    name: &'n [u8],
}

impl<'a> Author<'a, '_> {
    fn find(self) -> &'a mut ThreadFacts {
        let Self { threads, recent, known, process, name } = self;
        let tid = memchr::memrchr(b':', name).and_then(|at| number(name.get(at + 1..)?)).map_or(0, |it| it.0);
        if threads.is_empty() || recent.0 != tid {
            let next = u32::try_from(threads.len()).unwrap_or(u32::MAX);
            let key = (u32::try_from(process).unwrap_or(u32::MAX), tid);
            let index = *known.entry(key).or_insert(next);
            if index == next {
                // Most processes have few.
                if threads.len() == threads.capacity() {
                    threads.reserve_exact(threads.len() / 2 + 1);
                }
                threads.push(ThreadFacts::new(tid));
            }
            *recent = (tid, index);
        }
        let last = threads.len() - 1;
        &mut threads[last.min(recent.1 as usize)]
    }
}
