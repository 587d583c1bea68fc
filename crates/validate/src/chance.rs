//! How likely is it that chance alone made this many of these slow?

/// The probability of at least `hits` of `tries`, each with probability `share`.
pub(crate) fn at_least(hits: usize, tries: usize, share: f64) -> f64 {
    if hits == 0 {
        return 1.0;
    }
    if hits > tries || share <= 0.0 {
        return 0.0;
    }
    if share >= 1.0 {
        return 1.0;
    }
    let (log_share, log_rest) = (share.ln(), (1.0 - share).ln());
    tail(hits, tries, as_f64(tries) * log_rest, |_| log_share - log_rest)
}

/// A share that is known only from `hits` of `tries`, by a beta distribution, and at least so large.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counted {
    hits: f64,
    misses: f64,
    least: f64,
}

/// One in sixteen is assumed as long as nothing was counted.
const ASSUMED: Counted = Counted { hits: 0.5, misses: 7.5, least: 0.0 };

impl Counted {
    pub(crate) const fn new(hits: usize, tries: usize) -> Self {
        Self {
            hits: ASSUMED.hits + as_f64(hits),
            misses: ASSUMED.misses + as_f64(tries.saturating_sub(hits)),
            least: ASSUMED.least,
        }
    }

    /// Whatever was counted, it is not smaller than this.
    pub(crate) const fn or_more(self, least: f64) -> Self {
        Self { least, ..self }
    }

    pub(crate) const fn mean(self) -> f64 {
        (self.hits / (self.hits + self.misses)).max(self.least)
    }

    /// The probability of at least `hits` of `tries`: few counts leave room for a larger share, and so does this (beta-binomial).
    pub(crate) fn at_least(self, hits: usize, tries: usize) -> f64 {
        if hits == 0 {
            return 1.0;
        }
        if hits > tries {
            return 0.0;
        }
        let none: f64 =
            (0..tries).map(as_f64).map(|it| ((self.misses + it) / (self.hits + self.misses + it)).ln()).sum();
        let counted = tail(hits, tries, none, |k| {
            (self.hits + as_f64(k)).ln() - (self.misses + as_f64(tries - k - 1)).ln()
        });
        counted.max(at_least(hits, tries, self.least))
    }
}

/// The sum of a distribution from `hits` on, each term from the one before, by logarithms: factorials of hundreds do not fit a float.
fn tail(hits: usize, tries: usize, none: f64, factor: impl Fn(usize) -> f64) -> f64 {
    let mut log_term = none;
    let mut sum = 0.0;
    for k in 0..tries {
        log_term += (as_f64(tries - k) / as_f64(k + 1)).ln() + factor(k);
        if k + 1 >= hits {
            sum += log_term.exp();
        }
    }
    sum.min(1.0)
}

/// The probability that at least `hits` of `drawn` are among those, where `all_hits` of `all` are and chance draws (Fisher's exact test).
pub(crate) fn drawn_at_least(hits: usize, drawn: usize, all_hits: usize, all: usize) -> f64 {
    let choose = |of: usize, many: usize| -> f64 {
        (0..many).map(|it| (as_f64(of - it) / as_f64(many - it)).ln()).sum()
    };
    let misses = all.saturating_sub(all_hits);
    let ways = choose(all, drawn.min(all));
    let each = (hits..=drawn.min(all_hits)).filter(|it| drawn - it <= misses);
    each.map(|it| (choose(all_hits, it) + choose(misses, drawn - it) - ways).exp()).sum::<f64>().min(1.0)
}

/// The probability that a normal variable lies more than so many deviations above its mean (Abramowitz and Stegun 26.2.17).
pub(crate) fn above(deviations: f64) -> f64 {
    if deviations < 0.0 {
        return 1.0 - above(-deviations);
    }
    let t = 1.0 / 0.231_641_9_f64.mul_add(deviations, 1.0);
    let series = [1.330_274_429, -1.821_255_978, 1.781_477_937, -0.356_563_782, 0.319_381_530]
        .into_iter()
        .fold(0.0_f64, |sum, it| sum.mul_add(t, it));
    let density = (-deviations * deviations / 2.0).exp() / std::f64::consts::TAU.sqrt();
    density * series * t
}

#[expect(clippy::cast_precision_loss, reason = "counts of measurements are far below 2^52")]
pub(crate) const fn as_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::{Counted, above, at_least, drawn_at_least};

    #[test]
    fn equals_what_can_be_counted_by_hand() {
        let near = |left: f64, right: f64| assert!((left - right).abs() < 1e-12, "{left} {right}");
        near(at_least(0, 5, 0.3), 1.0);
        near(at_least(1, 2, 0.5), 0.75);
        near(at_least(2, 2, 0.1), 0.01);
        near(at_least(3, 3, 0.2), 0.008);
        near(at_least(4, 3, 0.2), 0.0);
        near(at_least(2, 4, 0.5), 11.0 / 16.0);
        near(drawn_at_least(4, 4, 4, 12), 1.0 / 495.0);
        near(drawn_at_least(1, 2, 2, 4), 5.0 / 6.0);
        near(drawn_at_least(0, 3, 1, 4), 1.0);
    }

    #[test]
    fn hundreds_do_not_overflow() {
        let it = at_least(500, 1000, 0.4);
        assert!(it > 0.0 && it < 1e-8, "{it}");
    }

    #[test]
    fn a_share_known_from_few_counts_is_uncertain() {
        // Beta(0.5, 7.5): the mean of p squared is 0.5 * 1.5 / (8 * 9).
        assert!((Counted::new(0, 0).at_least(2, 2) - 0.75 / 72.0).abs() < 1e-12);
        assert!((Counted::new(3, 10).mean() - 3.5 / 18.0).abs() < 1e-12);
        let (few, many) = (Counted::new(1, 10).at_least(3, 3), Counted::new(100, 1000).at_least(3, 3));
        assert!(few > many && many > 0.001, "{few} {many}");
        assert!((Counted::new(500, 5000).at_least(300, 1000)) < 1e-20);
        let scattered = Counted::new(0, 1000).or_more(0.3);
        assert!((scattered.at_least(2, 2) - 0.09).abs() < 1e-12 && (scattered.mean() - 0.3).abs() < 1e-12);
    }

    #[test]
    fn the_tail_of_a_normal_distribution() {
        for (deviations, share) in [(0.0, 0.5), (1.0, 0.158_655), (2.0, 0.022_750), (-1.0, 0.841_345)] {
            assert!((above(deviations) - share).abs() < 1e-6, "{deviations}");
        }
    }
}
