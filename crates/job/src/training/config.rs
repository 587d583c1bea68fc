//! `config.json` of Hugging Face: the shape of a model.
//!
//! Names of keys and their defaults: transformers, `src/transformers/models/*/configuration_*.py`.

use evidence::yaml::{NodeId, Tree};

use super::draft::{Draft, Place, Weight};

/// Whether the feed-forward part of a type has a gate, and whether its embedding is the head where the file does not say so.
struct Type {
    name: &'static str,
    gated: bool,
    tied: bool,
}

const fn of(name: &'static str, gated: bool, tied: bool) -> Type {
    Type { name, gated, tied }
}

static TYPES: &[Type] = &[
    of("llama", true, false),
    of("llama4_text", true, false),
    of("mistral", true, false),
    of("ministral", true, false),
    of("mistral3", true, false),
    of("mixtral", true, false),
    of("qwen", true, false),
    of("qwen2", true, false),
    of("qwen3", true, false),
    of("qwen2_moe", true, false),
    of("qwen3_moe", true, false),
    of("deepseek", true, false),
    of("deepseek_v2", true, false),
    of("deepseek_v3", true, false),
    of("kimi_k2", true, false),
    of("gemma", true, true),
    of("gemma2", true, true),
    of("gemma3_text", true, true),
    of("gemma3", true, true),
    of("phi3", true, false),
    of("phimoe", true, false),
    of("phi4", true, false),
    of("olmo", true, false),
    of("olmo2", true, false),
    of("olmoe", true, false),
    of("internlm", true, false),
    of("internlm2", true, false),
    of("baichuan", true, false),
    of("yi", true, false),
    of("cohere", true, true),
    of("stablelm", true, false),
    of("granite", true, false),
    of("glm", true, false),
    of("glm4", true, false),
    of("chatglm", true, false),
    of("dbrx", true, false),
    of("gpt_oss", true, false),
    of("smollm3", true, true),
    of("gpt2", false, true),
    of("gpt_neo", false, true),
    of("gpt_neox", false, false),
    of("gptj", false, false),
    of("codegen", false, false),
    of("gpt_bigcode", false, true),
    of("starcoder2", false, true),
    of("phi", false, false),
    of("opt", false, true),
    of("bloom", false, true),
    of("falcon", false, true),
    of("RefinedWeb", false, true),
    of("RefinedWebModel", false, true),
    of("mpt", false, true),
    of("nemotron", false, false),
];

/// Whether a document is such a configuration.
pub(super) fn is_config(tree: &Tree, root: NodeId) -> bool {
    let has = |name: &str| tree.get(root, name).is_some();
    has("model_type")
        || has("architectures")
        || (has("vocab_size") && (has("hidden_size") || has("n_embd") || has("d_model")))
}

struct Reader<'a> {
    tree: &'a Tree,
    node: NodeId,
    file: &'a str,
}

/// Parts in which some files keep what others write beside the rest.
const PARTS: [&str; 2] = ["attn_config", "ffn_config"];

impl Reader<'_> {
    /// The first of these names that has a whole number; `null` is none.
    fn number(&self, names: &[&str]) -> Option<(u64, Place)> {
        names.iter().find_map(|name| {
            let node = self.given(name)?;
            let value = self.tree.text(node)?.trim().replace('_', "").parse().ok()?;
            Some((value, Place::new(self.file, self.tree.node(node).span.line)))
        })
    }

    /// What a name has, unless it is `null`.
    fn given(&self, name: &str) -> Option<NodeId> {
        let parts = PARTS.iter().filter_map(|it| self.tree.get(self.node, it));
        std::iter::once(self.node)
            .chain(parts)
            .find_map(|it| self.tree.get(it, name).filter(|it| !self.tree.is_null(*it)))
    }

    /// The first of these names that the file has must have a whole number.
    fn sound(&self, names: &[&str]) -> Result<(), String> {
        let Some((name, node)) = names.iter().find_map(|it| Some((it, self.given(it)?))) else {
            return Ok(());
        };
        if self.number(&[name]).is_some() {
            return Ok(());
        }
        let (line, text) = (self.tree.node(node).span.line, self.tree.text(node).unwrap_or("a list"));
        Err(format!("{}:{line}: `{name}` is {text}, which is not a number above 0", self.file))
    }

    fn count(&self, name: &str) -> Option<u64> {
        self.number(&[name]).map(|it| it.0)
    }

    fn flag(&self, name: &str) -> Option<bool> {
        self.tree.bool(self.tree.get(self.node, name)?)
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.tree.text(self.tree.get(self.node, name)?)
    }
}

/// Reads a configuration into the keys of `[model]`.
pub(super) fn read(
    tree: &Tree,
    root: NodeId,
    file: &str,
    weight: Weight,
    draft: &mut Draft,
) -> Result<(), String> {
    // Models with images keep the language model in a part of their own.
    let inner =
        ["text_config", "llm_config", "language_config"].into_iter().find_map(|it| tree.get(root, it));
    let node = inner.filter(|it| !tree.entries(*it).is_empty()).unwrap_or(root);
    let reader = Reader { tree, node, file };
    let kind =
        reader.text("model_type").or_else(|| tree.text(tree.get(root, "model_type")?)).unwrap_or_default();
    if reader.flag("is_encoder_decoder") == Some(true)
        || reader.number(&["num_decoder_layers"]).is_some()
        || ["t5", "mt5", "bart", "bert", "roberta", "vit", "whisper", "clip", "mamba", "mamba2", "rwkv"]
            .contains(&kind)
    {
        let kind = if kind.is_empty() { "an encoder and decoder" } else { kind };
        return Err(format!("{file}: is {kind}: plumb models decoders of transformer layers only"));
    }
    let recurrent = [
        "ssm_state_size",
        "mamba_num_heads",
        "mamba_d_state",
        "layers_block_type",
        "hybrid_override_pattern",
        "attn_layer_period",
        "block_types",
    ];
    let hybrid =
        ["jamba", "recurrent_gemma", "granitemoehybrid", "bamba", "falcon_h1", "zamba", "nemotron_h"];
    if hybrid.iter().any(|it| kind.starts_with(it)) {
        return Err(format!(
            "{file}: is {kind}, with recurrent layers: plumb models decoders of transformer layers only"
        ));
    }
    if recurrent.iter().any(|it| tree.get(node, it).is_some_and(|it| !tree.is_null(it))) {
        return Err(format!("{file}: has Mamba layers: plumb models decoders of transformer layers only"));
    }
    if node != root {
        draft
            .notes
            .push(format!("{file}: the language model is counted, encoders of images or sound are not"));
    }
    let exact = TYPES.iter().find(|it| it.name.eq_ignore_ascii_case(kind));
    // A later generation is like the one whose name it continues.
    let family = || TYPES.iter().filter(|it| kind.starts_with(it.name)).max_by_key(|it| it.name.len());
    let known = exact.or_else(family);
    let whole = Place::new(file, 1);
    let mut need = |key: &str, names: &[&str]| -> Result<u64, String> {
        let Some((value, place)) = reader.number(names) else {
            let other = names.iter().find_map(|it| Some((it, tree.get(node, it)?)));
            if let Some((name, at)) = other {
                let (line, text) = (tree.node(at).span.line, tree.text(at).unwrap_or("a list"));
                return Err(format!("{file}:{line}: `{name}` is {text}, which is not a number"));
            }
            return Err(format!(
                "{file}: has no `{}`: a Hugging Face configuration of a model has it",
                names[0]
            ));
        };
        draft.set(key, value, names.first().copied().unwrap_or(key), &place, weight);
        Ok(value)
    };
    let layers = need("model.layers", &["num_hidden_layers", "n_layer", "num_layers", "n_layers"])?;
    let hidden = need("model.hidden", &["hidden_size", "n_embd", "n_embed", "d_model"])?;
    let heads = need("model.heads", &["num_attention_heads", "n_head", "num_heads", "n_heads"])?;
    need("model.vocab", &["vocab_size", "padded_vocab_size"])?;
    if heads == 0 || layers == 0 || hidden == 0 {
        return Err(format!("{file}: layers, heads and width must be above 0"));
    }
    let mut set = |key: &str, value: u64, place: &Place| draft.set(key, value, key, place, weight);

    reader.sound(&WIDTHS)?;
    let (ffn, place) = reader
        .number(&WIDTHS)
        .or_else(|| Some((hidden.saturating_mul(reader.count("expansion_ratio")?), whole.clone())))
        .unwrap_or((hidden.saturating_mul(4), whole.clone()));
    // Qwen of the first generation counts gate and values together.
    let ffn = if kind == "qwen" { ffn / 2 } else { ffn };
    set("model.ffn", ffn, &place);

    let latent = reader.number(&["kv_lora_rank"]);
    let queries =
        reader.flag("multi_query") == Some(true) && reader.flag("new_decoder_architecture") != Some(true);
    if latent.is_none() {
        let kv = if queries {
            Some((1, whole.clone()))
        } else {
            reader.number(&[
                "num_key_value_heads",
                "num_kv_heads",
                "n_head_kv",
                "multi_query_group_num",
                "kv_n_heads",
            ])
        };
        if let Some((kv, place)) = kv {
            set("model.kv_heads", kv, &place);
        }
        if let Some((width, place)) = reader.number(&["head_dim", "kv_channels"]) {
            set("model.head_width", width, &place);
        } else if hidden % heads != 0 {
            set("model.head_width", hidden.div_ceil(heads), &whole);
        }
    } else if let Some(note) = latent_attention(&reader, heads, hidden, layers, &mut set) {
        draft.notes.push(format!("{file}: {note}"));
    }

    let act = reader.text("hidden_act").or(reader.text("activation_function")).unwrap_or_default();
    // Models with these norms, or with experts, have a gate.
    let usual = reader.text("rms_norm_eps").is_some() || reader.number(&EXPERTS).is_some();
    let gated = known.map_or(usual || matches!(act, "silu" | "swiglu" | "swish"), |it| it.gated);
    if exact.is_none() {
        draft.notes.push(format!(
            "{file}: plumb does not know the model type `{kind}`: the feed-forward part is taken {} a gate",
            if gated { "with" } else { "without" }
        ));
    }
    layers_of_other_kinds(&reader, draft);
    draft.set("model.gated_mlp", gated, "model_type", &whole, weight);
    let tied =
        reader.flag("tie_word_embeddings").or_else(|| tree.bool(tree.get(root, "tie_word_embeddings")?));
    let tied = tied.unwrap_or_else(|| known.is_none_or(|it| it.tied));
    draft.set("model.tied_embeddings", tied, "tie_word_embeddings", &whole, weight);
    experts(&reader, kind, layers, ffn, weight, draft);
    if draft.title.is_none() {
        let name = tree.get(root, "_name_or_path").and_then(|it| tree.text(it)).filter(|it| !it.is_empty());
        let last = |it: &str| it.trim_end_matches('/').rsplit('/').next().unwrap_or(it).to_owned();
        draft.title = Some(name.map_or_else(|| format!("{kind} of {}", last(file)), last));
    }
    Ok(())
}

/// Multi-head latent attention of `DeepSeek`, as attention with as many parameters as its matrices have together.
fn latent_attention(
    reader: &Reader<'_>,
    heads: u64,
    hidden: u64,
    layers: u64,
    set: &mut impl FnMut(&str, u64, &Place),
) -> Option<String> {
    let (rank, place) = reader.number(&["kv_lora_rank"])?;
    let nope = reader.count("qk_nope_head_dim").unwrap_or(128);
    let rope = reader.count("qk_rope_head_dim").unwrap_or(64);
    let width = reader.count("v_head_dim").unwrap_or(128);
    let both = nope.checked_add(rope)?;
    let product = |a: u64, b: u64| a.saturating_mul(b);
    let queries = match reader.count("q_lora_rank") {
        Some(rank) => product(hidden, rank).saturating_add(product(rank, product(heads, both))),
        None => product(hidden, product(heads, both)),
    };
    let keys = product(hidden, rank.saturating_add(rope))
        .saturating_add(product(rank, product(heads, nope.saturating_add(width))));
    let real = queries.saturating_add(keys).saturating_add(product(product(heads, width), hidden));
    // The number of key heads, a divisor of the heads, with which attention has as many parameters as possible of these.
    let taken = |kv: u64| product(2, product(hidden, product(width, heads.saturating_add(kv))));
    let best = (1..=heads.min(1024))
        .filter(|kv| heads.is_multiple_of(*kv))
        .min_by_key(|kv| taken(*kv).abs_diff(real))?;
    set("model.kv_heads", best, &place);
    set("model.head_width", width, &place);
    #[allow(clippy::cast_precision_loss, reason = "shown with one digit")]
    let billions = |each: u64| product(each, layers) as f64 / 1e9;
    Some(format!(
        "multi-head latent attention is approximated by {heads} heads of {width} with {best} key heads: {:.1} billion parameters instead of {:.1}",
        billions(taken(best)),
        billions(real)
    ))
}

/// How files call the width of the feed-forward part; where some layers have experts, first that of the others.
const WIDTHS: [&str; 7] = [
    "intermediate_size_mlp",
    "intermediate_size",
    "n_inner",
    "ffn_dim",
    "ffn_hidden_size",
    "d_ff",
    "feed_forward_proj_dim",
];

/// How files call the number of experts.
const EXPERTS: [&str; 4] = ["num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"];

/// Names what is not like the other layers.
fn layers_of_other_kinds(reader: &Reader<'_>, draft: &mut Draft) {
    let types =
        reader.tree.get(reader.node, "layer_types").map(|it| reader.tree.items(it)).unwrap_or_default();
    let has = |name: &str| types.iter().any(|it| reader.tree.text(*it) == Some(name));
    // Every so many layers have attention, the others a linear form of it.
    let every = reader.count("full_attention_interval").is_some_and(|it| it > 1);
    if has("linear_attention") || every {
        draft.not_modelled("layers of linear attention (taken as attention)");
    }
    if has("sliding_attention") || has("chunked_attention") {
        draft.not_modelled("attention windows (attention is taken over the whole sequence)");
    }
    if reader.number(&["num_nextn_predict_layers", "mtp_num_hidden_layers"]).is_some_and(|it| it.0 > 0) {
        draft.not_modelled("layers that predict further tokens (MTP)");
    }
}

fn experts(reader: &Reader<'_>, kind: &str, layers: u64, ffn: u64, weight: Weight, draft: &mut Draft) {
    let Some((count, place)) = reader.number(&EXPERTS) else {
        return;
    };
    if count < 2 {
        return;
    }
    let mut set = |key: &str, value: u64| draft.set(key, value, key, &place, weight);
    set("model.experts", count);
    let used = reader.number(&[
        "num_experts_per_tok",
        "num_experts_per_token",
        "moe_topk",
        "moe_top_k",
        "top_k_experts",
    ]);
    set("model.experts_per_token", used.map_or(2, |it| it.0).max(1));
    // Llama 4 calls the width of layers without experts `intermediate_size_mlp`, that of experts `intermediate_size`.
    let own = || reader.given("intermediate_size_mlp").and_then(|_| reader.count("intermediate_size"));
    let width = reader.count("moe_intermediate_size").or_else(own).unwrap_or(ffn).max(1);
    set("model.moe_ffn", width);
    let dense = reader.count("first_k_dense_replace").unwrap_or(0).min(layers);
    let every = reader
        .number(&["decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step"])
        .map_or(1, |it| it.0.max(1));
    let without =
        reader.tree.get(reader.node, "mlp_only_layers").map_or(0, |it| reader.tree.items(it).len() as u64);
    // Some list every layer: 1 for one with experts.
    let listed = reader.tree.get(reader.node, "moe_layer_freq").map_or(0, |it| {
        reader.tree.items(it).iter().filter(|it| reader.tree.text(**it) == Some("1")).count() as u64
    });
    // Others name the layers that have experts.
    let named = reader.given("moe_layers").map_or(0, |it| reader.tree.items(it).len() as u64);
    let counted = ((layers - dense) / every).saturating_sub(without);
    set(
        "model.moe_layers",
        if named > 0 {
            named
        } else if listed > 0 {
            listed
        } else {
            counted
        }
        .max(1),
    );
    let shared = reader
        .count("n_shared_experts")
        .or_else(|| Some(reader.count("shared_expert_intermediate_size")?.div_ceil(width)));
    // One expert that all tokens use, of the width of the others.
    let shared = shared.or((kind == "llama4_text").then_some(1));
    set("model.shared_experts", shared.unwrap_or(0));
}
