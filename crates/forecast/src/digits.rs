//! How many digits of a number are kept, and how many are shown.

/// Four digits are all the precision there is.
pub fn rounded(number: f64) -> f64 {
    rounded_to(number, 4)
}

fn rounded_to(number: f64, digits: u8) -> f64 {
    if number == 0.0 || !number.is_finite() {
        return 0.0;
    }
    let digits = f64::from(digits) - 1.0 - number.abs().log10().floor();
    let scale = 10_f64.powf(digits);
    (number * scale).round() / scale
}

/// `437`, `43.7`, `4.37`, `0.00021`.
pub fn shown(number: f64) -> String {
    match number.abs() {
        it if it < 0.01 => rounded_to(number, 2).to_string(),
        it if it >= 100.0 => format!("{number:.0}"),
        it if it >= 10.0 => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}
