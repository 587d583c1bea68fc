//! Arguments and settings of a training job, as frameworks print them: one name and one value on a line.
//!
//! ```text
//!   hidden_size ..................................... 4096        Megatron's block of arguments, DeepSpeed's settings
//!   "num_hidden_layers": 32,                                      a model's configuration of Hugging Face, a DeepSpeed file
//! per_device_train_batch_size=4,                                  TrainingArguments of Hugging Face
//! ```

use crate::facts::Assignment;

/// The names that say how long a step takes, sorted.
static NAMES: &[&str] = &[
    "bf16",
    "bfloat16_enabled",
    "context_parallel_size",
    "device",
    "enabled",
    "expert_model_parallel_size",
    "ffn_hidden_size",
    "fp16",
    "fp8",
    "global_batch_size",
    "gradient_accumulation_steps",
    "gradient_checkpointing",
    "group_query_attention",
    "head_dim",
    "hidden_size",
    "intermediate_size",
    "kv_channels",
    "max_seq_length",
    "max_steps",
    "micro_batch_size",
    "model_type",
    "moe_ffn_hidden_size",
    "moe_intermediate_size",
    "moe_router_topk",
    "n_embd",
    "n_head",
    "n_layer",
    "num_attention_heads",
    "num_experts",
    "num_experts_per_tok",
    "num_hidden_layers",
    "num_key_value_heads",
    "num_layers",
    "num_local_experts",
    "num_query_groups",
    "offload_optimizer",
    "offload_param",
    "overlap_grad_reduce",
    "padded_vocab_size",
    "per_device_train_batch_size",
    "pipeline_model_parallel_size",
    "recompute_activations",
    "recompute_granularity",
    "seq_length",
    "sequence_parallel",
    "stage",
    "swiglu",
    "tensor_model_parallel_size",
    "tie_word_embeddings",
    "train_batch_size",
    "train_iters",
    "train_micro_batch_size_per_gpu",
    "transformer_impl",
    "untie_embeddings_and_output_weights",
    "use_distributed_optimizer",
    "use_flash_attn",
    "virtual_pipeline_model_parallel_size",
    "vocab_size",
    "world_size",
    "zero_optimization_stage",
];

/// Values are short; anything longer is a text that happens to begin like one.
const LONGEST: usize = 200;

/// Whether a line has a name of interest and a value.
pub(super) fn is_line(inner: &[u8]) -> bool {
    split(inner).is_some()
}

/// The arguments of a line. An object on one line, `"bf16": { "enabled": true }`, gives its members after its own name.
pub(super) fn read(inner: &[u8]) -> Vec<Assignment> {
    let Some((name, value)) = split(inner) else { return Vec::new() };
    let assignment = |name: &str, value: &str| Assignment { name: name.into(), value: value.into() };
    let value = value.trim().trim_end_matches(',').trim_end();
    let Some(object) = value.strip_prefix('{') else {
        return vec![assignment(name, value.trim_matches(['"', '\'']))];
    };
    let mut found = vec![assignment(name, "{")];
    for member in object.trim_end_matches('}').split(',') {
        let (key, value) = member.split_once(':').unwrap_or_default();
        let (key, value) = (key.trim().trim_matches('"'), value.trim().trim_matches('"'));
        if NAMES.binary_search(&key).is_ok() && !value.is_empty() {
            found.push(assignment(key, value));
        }
    }
    found
}

/// The name and the value of a line.
fn split(inner: &[u8]) -> Option<(&str, &str)> {
    if inner.len() > LONGEST {
        return None;
    }
    let first = *inner.first()?;
    if first == b'"' {
        let text = str::from_utf8(inner).ok()?;
        let (name, value) = text.get(1..)?.split_once('"')?;
        let value = value.trim_start().strip_prefix(':')?;
        return known(name, value);
    }
    if !first.is_ascii_lowercase() {
        return None;
    }
    let end = inner.iter().position(|it| !it.is_ascii_alphanumeric() && *it != b'_')?;
    let name = str::from_utf8(inner.get(..end)?).ok()?;
    let rest = str::from_utf8(inner.get(end..)?).ok()?;
    // `name=value,` without blanks, and `name .... value` with some dots.
    if let Some(value) = rest.strip_prefix('=') {
        let value = value.split(" #").next().unwrap_or_default().trim_end();
        return known(name, value.strip_suffix(',')?).filter(|it| !it.1.contains(char::is_whitespace));
    }
    let dots = rest.strip_prefix(' ')?;
    let value = dots.trim_start_matches('.');
    known(name, value).filter(|_| dots.len() - value.len() >= 2)
}

fn known<'a>(name: &'a str, value: &'a str) -> Option<(&'a str, &'a str)> {
    (NAMES.binary_search(&name).is_ok() && !value.trim().is_empty()).then_some((name, value))
}

#[cfg(test)]
mod tests {
    use super::{NAMES, read};

    fn pairs(line: &str) -> Vec<(String, String)> {
        read(line.trim_start().as_bytes())
            .iter()
            .map(|it| (it.name.to_string(), it.value.to_string()))
            .collect()
    }

    #[test]
    fn names_are_sorted() {
        assert!(NAMES.is_sorted());
    }

    #[test]
    fn reads_what_frameworks_print() {
        for (line, name, value) in [
            ("  hidden_size ..................................... 4096", "hidden_size", "4096"),
            ("  recompute_granularity ........................... None", "recompute_granularity", "None"),
            ("  \"num_hidden_layers\": 32,", "num_hidden_layers", "32"),
            ("  \"model_type\": \"llama\",", "model_type", "llama"),
            ("per_device_train_batch_size=4,", "per_device_train_batch_size", "4"),
            ("max_steps=50,                  # stops after 50 steps", "max_steps", "50"),
            ("zero_optimization_stage ...... 3", "zero_optimization_stage", "3"),
        ] {
            assert_eq!(pairs(line), [(name.to_owned(), value.to_owned())], "{line}");
        }
    }

    #[test]
    fn objects_on_one_line_have_members() {
        let of =
            |line: &str| pairs(line).into_iter().map(|it| format!("{}={}", it.0, it.1)).collect::<Vec<_>>();
        assert_eq!(
            of("\"offload_param\": { \"device\": \"cpu\", \"pin_memory\": true },"),
            ["offload_param={", "device=cpu"]
        );
        assert_eq!(of("\"bf16\": { \"enabled\": true },"), ["bf16={", "enabled=true"]);
        assert_eq!(of("\"bf16\": {"), ["bf16={"]);
    }

    #[test]
    fn other_lines_have_none() {
        for line in [
            "hidden_size",
            "hidden_size of 4096 ... is large",
            "device = cuda",
            "stage one ... done",
            "bf16=True when it is set, and more",
            "\"hidden_size\"",
            "fp16",
            "",
        ] {
            assert!(pairs(line).is_empty(), "{line}");
        }
    }
}
