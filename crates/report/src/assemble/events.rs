//! The course of every rank: setup, first work, waiting, failure, end.

use std::collections::BTreeMap;

use evidence::ending::Kind;
use evidence::{Case, Quote, prefix};

use crate::{Event, Moment};

/// How many lines that say that a rank waits or fails are kept of each.
const ENDINGS: usize = 3;

/// By rank: those of the largest communicator, and others whose lines say how they ended.
pub(super) fn of_ranks(case: &Case) -> BTreeMap<u32, Vec<Event>> {
    let mut all: BTreeMap<u32, Vec<Event>> = BTreeMap::new();
    for (rank, member) in case.world().into_iter().flat_map(|it| &it.members) {
        let facts = &member.facts;
        let known = [
            (Moment::SetupBegins, facts.start.as_ref()),
            (Moment::SetupComplete, facts.complete.as_ref()),
            (Moment::FirstWork, facts.rings_connected.as_ref().map(|it| &it.quote)),
            (Moment::Ends, facts.end.as_ref()),
        ];
        let known = known.into_iter().filter_map(|(what, quote)| Some(event(case, what, "", quote?)));
        all.insert(*rank, known.collect());
    }
    for ending in &case.endings {
        let Some(rank) = ending.rank else { continue };
        let what = match ending.kind {
            Kind::Hang => Moment::Waits,
            Kind::Finished => Moment::Ends,
            Kind::Trouble => continue,
            _ => Moment::Fails,
        };
        let events = all.entry(rank).or_default();
        if events.iter().filter(|it| it.what == what).count() < ENDINGS {
            let mut event = event(case, what, &ending.text, &ending.quote);
            event.time = ending.time.as_deref().map(str::to_owned).or(event.time);
            events.push(event);
        }
    }
    for events in all.values_mut() {
        events.sort_by_key(|it| it.what);
    }
    all
}

fn event(case: &Case, what: Moment, text: &str, quote: &Quote) -> Event {
    let (file, line) = case.locate(quote);
    let time = prefix::time(quote.text.as_bytes()).map(str::to_owned);
    Event { what, time, text: text.to_owned(), file: file.to_owned(), line }
}
