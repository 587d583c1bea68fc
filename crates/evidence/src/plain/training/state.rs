//! The file in which the Trainer of Hugging Face keeps its state, `trainer_state.json`.

use serde::Deserialize;

/// What it says about time and speed. Numbers that are missing or of another kind are none.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    /// Steps that were done.
    pub steps: u64,
    /// Steps that were planned.
    pub planned: Option<u64>,
    /// Sequences of a micro-batch on one GPU.
    pub micro_batch: Option<u64>,
    /// Seconds of the training.
    pub runtime: Option<f64>,
    /// Samples per second of all ranks, over the whole training.
    pub samples_per_s: Option<f64>,
    /// Tokens of all ranks.
    pub tokens: Option<f64>,
    /// How many losses it lists.
    pub losses: u64,
    /// Seconds since training began by step, where it counts tokens.
    pub elapsed: Vec<(u64, f64)>,
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    global_step: u64,
    max_steps: Option<u64>,
    train_batch_size: Option<u64>,
    num_input_tokens_seen: Option<f64>,
    #[serde(default)]
    log_history: Vec<serde_json::Map<String, serde_json::Value>>,
}

impl State {
    /// From the whole text of the file.
    pub(in crate::plain) fn read(text: &str) -> Result<Self, String> {
        let file: File = serde_json::from_str(text).map_err(|it| it.to_string())?;
        let positive = |it: &f64| it.is_finite() && *it > 0.0;
        let mut state = Self {
            steps: file.global_step,
            planned: file.max_steps.filter(|it| *it > 0),
            micro_batch: file.train_batch_size.filter(|it| *it > 0),
            tokens: file.num_input_tokens_seen.filter(positive),
            ..Self::default()
        };
        for entry in &file.log_history {
            let number = |name: &str| entry.get(name)?.as_f64().filter(positive);
            let step = entry.get("step").and_then(serde_json::Value::as_u64);
            state.losses += u64::from(entry.contains_key("loss"));
            // The last entry is of the whole training, and has the mean of all losses.
            if entry.contains_key("train_loss") {
                state.runtime = number("train_runtime");
                state.samples_per_s = number("train_samples_per_second");
            } else if let (Some(step), Some(elapsed)) = (step, number("train_runtime")) {
                state.elapsed.push((step, elapsed));
            }
        }
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use super::State;

    #[test]
    fn a_run_that_counts_tokens() {
        let it = State::read(
            r#"{"global_step": 20, "max_steps": 20, "train_batch_size": 2, "num_input_tokens_seen": 8192, "log_history": [
                {"loss": 7.1, "step": 10, "train_runtime": 4.0}, {"eval_loss": 1.0, "step": 10},
                {"loss": 6.9, "step": 20, "train_runtime": 7.0},
                {"train_loss": 7.0, "train_runtime": 7.5, "train_samples_per_second": 24.6, "step": 20, "total_flos": 1e12}]}"#,
        )
        .unwrap();
        assert_eq!((it.steps, it.planned, it.micro_batch, it.losses), (20, Some(20), Some(2), 2));
        assert_eq!((it.runtime, it.samples_per_s, it.tokens), (Some(7.5), Some(24.6), Some(8192.0)));
        assert_eq!(it.elapsed, [(10, 4.0), (20, 7.0)]);
    }

    #[test]
    fn what_is_missing_or_wrong() {
        assert_eq!(State::read("{}"), Ok(State::default()));
        let it = State::read(r#"{"log_history": [{"train_loss": 1, "train_runtime": "x"}, {"step": -1}]}"#)
            .unwrap();
        assert_eq!(it, State::default());
        assert!(State::read("{\"log_history\": 3}").is_err());
    }
}
