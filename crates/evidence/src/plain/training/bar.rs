//! Progress bars.
//!
//! ```text
//! 12/50 [08:12<26:01, 41.1s/it]                                                    the same without the bar
//!  10%|#         | 5/50 [03:51<34:39, 46.21s/it]                                    tqdm, as the Trainer of Hugging Face has it
//! Epoch 0:  50%|#####     | 10/20 [00:05<00:05,  1.90it/s, v_num=0]                 Lightning, torchtune, llama-recipes
//! Epoch 1/1  ━━━━━━━━━━━━━━━━━ 40/40 0:00:03 • 0:00:00 10.12it/s train_loss: 1.135  Lightning with rich
//! ```

use std::collections::BTreeMap;

use super::track::Track;

/// What a progress bar says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bar {
    /// Steps that are done.
    pub done: u64,
    /// All steps.
    pub total: u64,
    /// What they took in seconds, without fractions.
    pub seconds: u64,
    /// Seconds of a step, as the bar shows it: smoothed over the last ones.
    pub each: Option<f64>,
}

/// What bars before which a name stands count: training steps, and not files, rows or batches of an evaluation.
const NAMES: [&str; 4] = ["epoch", "train", "step", "iter"];
const OTHERS: [&str; 4] = ["valid", "eval", "test", "sanity"];

/// A bar of this many totals is kept: an evaluation may have one, too.
const MOST_TOTALS: usize = 64;

/// The bars of a log, by their totals.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Bars {
    by_total: BTreeMap<u64, Updates>,
}

/// The updates of one bar.
#[derive(Debug, Clone, PartialEq)]
pub struct Updates {
    /// The last one.
    pub last: Bar,
    /// Seconds of a step by the steps that are done, as shown.
    pub each: Track,
}

impl Bar {
    /// A bar in a line, or in a part of a line between carriage returns.
    pub(super) fn read(line: &str) -> Option<Self> {
        let line = line.trim_end();
        let bar = match line.find("%|") {
            Some(at) => Self::tqdm(line.get(..at)?, line.get(at + 2..)?)?,
            None if line.contains('\u{2501}') => Self::rich(line)?,
            None => Self::counted(line)?,
        };
        (bar.done > 0 && bar.done <= bar.total && (bar.seconds > 0 || bar.each.is_some())).then_some(bar)
    }

    fn tqdm(before: &str, rest: &str) -> Option<Self> {
        let digits = before.len() - before.trim_end_matches(|it: char| it.is_ascii_digit()).len();
        let name = before.get(..before.len() - digits)?;
        if digits == 0 || digits > 3 || !is_of_steps(name) {
            return None;
        }
        Self::counted(rest.split_once("| ")?.1)
    }

    /// `12/50 [08:12<26:01, 41.1s/it]`
    fn counted(text: &str) -> Option<Self> {
        let (counts, times) = text.trim_start().split_once(" [")?;
        let (done, total) = counts.split_once('/')?;
        let (elapsed, rest) = times.split_once('<')?;
        let rate = rest.split_once(',')?.1.trim_start();
        let rate = rate.split([',', ']']).next()?.trim();
        Some(Self {
            done: done.trim().parse().ok()?,
            total: total.trim().parse().ok()?,
            seconds: seconds(elapsed)?,
            each: Some(per_step(rate)?),
        })
    }

    fn rich(line: &str) -> Option<Self> {
        if !is_of_steps(line.split('\u{2501}').next()?) {
            return None;
        }
        let rest = line.rsplit(['\u{2501}', '\u{2578}', '\u{257a}']).next()?;
        let mut words = rest.split_whitespace();
        let (done, total) = words.next()?.split_once('/')?;
        let elapsed = words.next()?;
        let rate = words.find(|it| it.ends_with("it/s"))?;
        Some(Self {
            done: done.parse().ok()?,
            total: total.parse().ok()?,
            seconds: seconds(elapsed)?,
            each: per_step(rate),
        })
    }
}

impl Bars {
    pub(super) fn push(&mut self, bar: Bar) {
        if self.by_total.len() >= MOST_TOTALS && !self.by_total.contains_key(&bar.total) {
            return;
        }
        let updates =
            self.by_total.entry(bar.total).or_insert_with(|| Updates { last: bar, each: Track::default() });
        updates.each.push(Some(bar.done), bar.each);
        updates.last = bar;
    }

    pub(super) fn merge(&mut self, later: Self) {
        for (total, it) in later.by_total {
            if let Some(mine) = self.by_total.get_mut(&total) {
                mine.last = it.last;
                mine.each.merge(it.each);
            } else if self.by_total.len() < MOST_TOTALS {
                self.by_total.insert(total, it);
            }
        }
    }

    /// The bar of a run of so many steps; where that is not known, the one that took longest.
    pub fn of_steps(&self, steps: Option<u64>) -> Option<&Updates> {
        match steps {
            Some(steps) => self.by_total.get(&steps),
            None => self.by_total.values().max_by_key(|it| it.last.seconds),
        }
    }
}

/// Whether what stands before a bar is nothing, or a name of training steps.
fn is_of_steps(name: &str) -> bool {
    let name = name.trim().to_ascii_lowercase();
    // torchtune writes `1|25|Loss: 1.03`.
    let numbered = name.split('|').count() == 3 && name.starts_with(|it: char| it.is_ascii_digit());
    let named = numbered || NAMES.iter().any(|it| name.starts_with(it));
    name.is_empty() || named && !OTHERS.iter().any(|it| name.contains(it))
}

/// `1:38:28`
fn seconds(text: &str) -> Option<u64> {
    let mut parts = text.trim().split(':').map(|it| it.parse::<u64>().ok());
    parts.try_fold(0_u64, |sum, it| sum.checked_mul(60)?.checked_add(it?))
}

/// `46.21s/it`, `1.48it/s`
fn per_step(rate: &str) -> Option<f64> {
    let value = match rate.strip_suffix("s/it") {
        Some(seconds) => seconds.trim().parse::<f64>().ok()?,
        None => 1.0 / rate.strip_suffix("it/s")?.trim().parse::<f64>().ok()?,
    };
    Some(value).filter(|it| it.is_finite() && *it > 0.0)
}

#[cfg(test)]
mod tests {
    use super::{Bar, Bars};

    fn bar(line: &str) -> Option<(u64, u64, u64)> {
        Bar::read(line).map(|it| (it.done, it.total, it.seconds))
    }

    #[test]
    fn bars_of_steps() {
        for (line, want) in [
            ("12/50 [08:12<26:01, 41.1s/it]", (12, 50, 492)),
            ("100%|####| 50/50 [1:38:28<00:00, 46.17s/it]", (50, 50, 5908)),
            ("Epoch 0:  50%|#####     | 10/20 [00:05<00:05,  1.90it/s, v_num=0]", (10, 20, 5)),
            ("1|25|Loss: 1.03:  10%|#  | 25/250 [00:40<06:00,  1.60s/it]", (25, 250, 40)),
            (
                "Training Epoch: 1/3, step 9/388 completed (loss: 1.2):   3%|   | 10/388 [01:02<39:00,  6.19s/it]",
                (10, 388, 62),
            ),
            (
                "Epoch 1/1  \u{2501}\u{2501}\u{2501} 40/40 0:00:03 \u{2022} 0:00:00 10.12it/s train_loss: 1",
                (40, 40, 3),
            ),
        ] {
            assert_eq!(bar(line), Some(want), "{line}");
        }
        assert_eq!(Bar::read(" 10%|#| 5/50 [03:51<34:39, 46.21s/it]").unwrap().each, Some(46.21));
    }

    #[test]
    fn bars_with_another_name_count_something_else() {
        for line in [
            "Loading checkpoint shards: 100%|####| 4/4 [00:03<00:00,  1.2it/s]",
            "Validation DataLoader 0: 100%|####| 4/4 [00:03<00:00,  1.2it/s]",
            "Epoch 0, validation: 100%|####| 4/4 [00:03<00:00,  1.2it/s]",
            "  0%|          | 0/50 [00:00<?, ?it/s]",
            "100%|####| 36718/36718 [00:10<00:00, 3500 examples/s]",
            "%|",
            "\u{2501}",
            "Epoch \u{2501}\u{2501} 40/40",
        ] {
            assert_eq!(bar(line), None, "{line}");
        }
    }

    #[test]
    fn the_mean_at_the_end_is_not_an_update() {
        let mut bars = Bars::default();
        for line in [
            "50%|#| 1/2 [00:10<00:10, 10.00s/it]",
            "100%|#| 2/2 [00:21<00:00, 11.00s/it]",
            "100%|#| 2/2 [00:21<00:00, 10.50s/it]",
            "100%|#| 9/9 [00:01<00:00, 1.00it/s]",
        ] {
            bars.push(Bar::read(line).unwrap());
        }
        let it = bars.of_steps(Some(2)).unwrap();
        // It is drawn once more at the end, with the mean of all steps.
        assert_eq!(it.each.first_by_step(), [(1, 10.0), (2, 11.0)]);
        assert_eq!(bars.of_steps(None).unwrap().last.total, 2);
        assert!(bars.of_steps(Some(7)).is_none());
    }
}
