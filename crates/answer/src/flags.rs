//! Values as flags of the command and fields of the page give them.

/// Bytes with K, M, G or T, which are powers of two as in nccl-tests.
pub fn size(text: &str) -> Result<u64, String> {
    let plain = text.trim().trim_end_matches(['b', 'B']).trim_end_matches(['i', 'I']);
    let digits = plain.trim_end_matches(|it: char| it.is_ascii_alphabetic());
    let shift = match plain.get(digits.len()..).unwrap_or_default() {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        "t" | "T" => 40,
        _ => return Err(format!("`{text}` is not a size; write for example 8, 4K, 1M or 1G")),
    };
    let number: u64 =
        digits.parse().map_err(|_| format!("`{text}` is not a size; write for example 8, 4K, 1M or 1G"))?;
    number.checked_mul(1 << shift).filter(|it| *it < 1 << 50).ok_or_else(|| format!("`{text}` is too large"))
}

/// A bandwidth in GB/s.
pub fn bandwidth(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches("GB/s").trim_end().parse::<f64>();
    number
        .ok()
        .filter(|it| (0.0..=1e6).contains(it))
        .ok_or_else(|| format!("`{text}` is not a bandwidth in GB/s"))
}
