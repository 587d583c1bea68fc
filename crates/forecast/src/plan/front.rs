//! The trade of time against memory: layouts that no other beats in both.

use super::search::Candidate;

/// Layouts by memory, ascending; each is faster than all that need less.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Front(Vec<Candidate>);

impl Front {
    /// Adds a layout, unless another is as good in both.
    pub(super) fn add(&mut self, new: &Candidate) {
        // Layouts before this place need less memory.
        let place = self.0.partition_point(|it| it.memory.0 < new.memory.0);
        if place.checked_sub(1).and_then(|it| self.0.get(it)).is_some_and(|it| it.time.0 <= new.time.0) {
            return;
        }
        if let Some(same) = self.0.get(place).filter(|it| it.memory.0 <= new.memory.0)
            && same.compare(new).is_le()
        {
            return;
        }
        // Those that follow need more: they stay only if they are faster.
        let slower = self.0[place..].iter().take_while(|it| it.time.0 >= new.time.0).count();
        self.0.splice(place..place + slower, [*new]);
    }

    /// Joins two.
    pub(super) fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|it| self.add(it));
    }

    /// From the fastest to the one with the least memory.
    pub fn fastest_first(&self) -> impl Iterator<Item = &Candidate> {
        self.0.iter().rev()
    }

    /// This layout, and slower ones with at most this share of the memory of the one before, and the last one always.
    pub fn from<'a>(&'a self, first: &'a Candidate, share: f64) -> Vec<&'a Candidate> {
        let mut shown = vec![first];
        for it in self.fastest_first().filter(|it| it.time.0 > first.time.0) {
            if shown.last().is_none_or(|last| it.memory.0 <= share * last.memory.0) {
                shown.push(it);
            }
        }
        if let (Some(least), Some(last)) = (self.0.first(), shown.last().copied())
            && least.memory.0 < last.memory.0
            && least.time.0 > last.time.0
        {
            shown.push(least);
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::Front;
    use crate::plan::search::Candidate;
    use crate::training::{Job, Seconds};
    use fabric::units::Gibibytes;

    fn candidate(time: f64, memory: f64) -> Candidate {
        let job = Job::read("[model]\nname = 'llama-3-8b'\n[cluster]\ninstance = 'p5.48xlarge'\n").unwrap();
        Candidate { run: job.run, time: Seconds(time), memory: Gibibytes(memory) }
    }

    #[test]
    fn only_what_nothing_beats_remains() {
        let points = [
            (5.0, 10.0),
            (4.0, 20.0),
            (6.0, 15.0),
            (3.0, 30.0),
            (3.5, 30.0),
            (3.0, 40.0),
            (9.0, 1.0),
            (4.0, 18.0),
        ];
        let mut forward = Front::default();
        let mut backward = Front::default();
        for it in &points {
            forward.add(&candidate(it.0, it.1));
        }
        points.iter().rev().for_each(|it| backward.add(&candidate(it.0, it.1)));
        assert_eq!(forward, backward);
        let shown: Vec<(f64, f64)> = forward.fastest_first().map(|it| (it.time.0, it.memory.0)).collect();
        assert_eq!(shown, [(3.0, 30.0), (4.0, 18.0), (5.0, 10.0), (9.0, 1.0)]);
        let from = |it: &_| -> Vec<f64> { forward.from(it, 0.5).iter().map(|it| it.memory.0).collect() };
        assert_eq!(from(&candidate(3.0, 30.0)), [30.0, 10.0, 1.0]);
        // One that is a little slower than another with less memory.
        assert_eq!(from(&candidate(4.1, 21.0)), [21.0, 10.0, 1.0]);
    }
}
