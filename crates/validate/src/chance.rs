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
    // Terms of the binomial distribution, each from the one before, by logarithms: factorials of hundreds do not fit a float.
    let (log_share, log_rest) = (share.ln(), (1.0 - share).ln());
    let mut log_ways = 0.0;
    let mut sum = 0.0;
    for k in 0..=tries {
        if k > 0 {
            log_ways += (as_f64(tries - k + 1) / as_f64(k)).ln();
        }
        if k >= hits {
            sum += (log_ways + as_f64(k) * log_share + as_f64(tries - k) * log_rest).exp();
        }
    }
    sum.min(1.0)
}

#[expect(clippy::cast_precision_loss, reason = "counts of measurements are far below 2^52")]
pub(crate) const fn as_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::at_least;

    #[test]
    fn equals_what_can_be_counted_by_hand() {
        let near = |left: f64, right: f64| assert!((left - right).abs() < 1e-12, "{left} {right}");
        near(at_least(0, 5, 0.3), 1.0);
        near(at_least(1, 2, 0.5), 0.75);
        near(at_least(2, 2, 0.1), 0.01);
        near(at_least(3, 3, 0.2), 0.008);
        near(at_least(4, 3, 0.2), 0.0);
        near(at_least(2, 4, 0.5), 11.0 / 16.0);
    }

    #[test]
    fn hundreds_do_not_overflow() {
        let it = at_least(500, 1000, 0.4);
        assert!(it > 0.0 && it < 1e-8, "{it}");
    }
}
