//! Public models by name: `data/models.toml`, from their published configurations.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::Deserialize;

use super::model::{Experts, Model};

/// Widths of latent attention (MLA), as configurations name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latent {
    /// What queries are compressed to.
    pub q_lora_rank: u32,
    /// What keys and values are compressed to.
    pub kv_lora_rank: u32,
    /// The part of a key's width without a position.
    pub qk_nope_head_dim: u32,
    /// The part of a key's width with its position.
    pub qk_rope_head_dim: u32,
    /// A value's width.
    pub v_head_dim: u32,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    layers: u32,
    hidden: u32,
    heads: u32,
    kv_heads: u32,
    head_width: Option<u32>,
    ffn: u32,
    gated: bool,
    vocab: u32,
    tied: bool,
    /// Count, used by each token, width, layers, shared.
    experts: Option<[u32; 5]>,
    latent: Option<Latent>,
    #[cfg_attr(not(test), expect(dead_code, reason = "a test compares it"))]
    billions: f64,
}

impl Row {
    fn model(&self) -> Model {
        Model {
            layers: self.layers,
            hidden: self.hidden,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_width: self.head_width.unwrap_or(self.hidden / self.heads.max(1)),
            ffn: self.ffn,
            gated: self.gated,
            vocab: self.vocab,
            tied: self.tied,
            experts: self.experts.map(|[count, per_token, ffn, layers, shared]| Experts {
                count,
                per_token,
                ffn,
                layers,
                shared,
            }),
        }
    }
}

fn all() -> &'static BTreeMap<String, Row> {
    static ALL: OnceLock<BTreeMap<String, Row>> = OnceLock::new();
    // The data is part of the binary, and a test reads it.
    ALL.get_or_init(|| toml::from_str(include_str!("../../data/models.toml")).unwrap_or_default())
}

/// The names of all models.
pub fn names() -> impl Iterator<Item = &'static str> {
    all().keys().map(String::as_str)
}

/// The name as the catalogue writes it. Hugging Face puts the publisher before it.
fn plain(name: &str) -> String {
    let name = name.trim().to_ascii_lowercase();
    name.rsplit('/').next().unwrap_or_default().to_owned()
}

/// The widths of the model of this name, if its attention is latent: [`Model`] approximates it.
pub fn latent(name: &str) -> Option<Latent> {
    all().get(&plain(name))?.latent
}

/// The model of this name, in any case; the error names similar ones.
pub fn find(name: &str) -> Result<Model, String> {
    let wanted = plain(name);
    let wanted = wanted.as_str();
    if let Some(row) = all().get(wanted) {
        return Ok(row.model());
    }
    let distance = |it: &str| strsim::damerau_levenshtein(it, wanted);
    // Another release of the same size is more likely meant than another size.
    let size = |it: &str| it.rsplit('-').next().map(ToOwned::to_owned);
    let near = names()
        .filter(|it| 3 * distance(it) <= it.len())
        .min_by_key(|it| (size(it) != size(wanted), distance(it)));
    let hint = match near {
        Some(it) => format!("did you mean `{it}`?"),
        None => format!(
            "it knows {}; of others give config.json of Hugging Face, or their shape in [model]",
            names().collect::<Vec<_>>().join(", ")
        ),
    };
    Err(format!("plumb knows no model `{name}`: {hint}"))
}

#[cfg(test)]
mod tests {
    use super::{all, find};

    #[test]
    fn sizes_are_those_published() {
        assert!(all().len() > 10);
        for (name, row) in all() {
            let billions = row.model().parameters() / 1e9;
            assert!((billions / row.billions - 1.0).abs() < 0.03, "{name}: {billions}");
        }
    }

    #[test]
    fn unknown_names_get_a_suggestion() {
        assert_eq!(find("Llama-3-8b"), find("meta-llama/llama-3-8b"));
        assert_eq!(
            find("llama-3-9b").unwrap_err(),
            "plumb knows no model `llama-3-9b`: did you mean `llama-3-8b`?"
        );
        assert!(find("llama-3-405b").unwrap_err().contains("`llama-3.1-405b`"));
        let far = find("something-else").unwrap_err();
        assert!(!far.contains("did you mean") && far.contains("config.json"), "{far}");
    }
}
