//! A transformer, as far as its cost depends on it.

/// A decoder of equal layers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Model {
    /// Layers.
    pub layers: u32,
    /// Width of the residual stream.
    pub hidden: u32,
    /// Query heads.
    pub heads: u32,
    /// Key and value heads; as many as query heads without grouped queries.
    pub kv_heads: u32,
    /// Width of one head.
    pub head_width: u32,
    /// Width of the feed-forward part.
    pub ffn: u32,
    /// Whether the feed-forward part has a gate: three matrices instead of two.
    pub gated: bool,
    /// Entries of the vocabulary.
    pub vocab: u32,
    /// Whether the embedding is also the head.
    pub tied: bool,
    /// Experts, in a mixture of them.
    pub experts: Option<Experts>,
}

/// The experts of a mixture.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Experts {
    /// Experts of a layer.
    pub count: u32,
    /// How many of them each token uses.
    pub per_token: u32,
    /// Width of one expert.
    pub ffn: u32,
    /// Layers that have experts; the others have a feed-forward part of [`Model::ffn`].
    pub layers: u32,
    /// Experts that every token uses besides.
    pub shared: u32,
}

impl Model {
    /// Width of all query heads.
    pub(crate) fn queries(&self) -> f64 {
        f64::from(self.heads) * f64::from(self.head_width)
    }

    /// Width of all keys; values are as wide.
    pub(crate) fn keys(&self) -> f64 {
        f64::from(self.kv_heads) * f64::from(self.head_width)
    }

    /// Matrices of a feed-forward part of width 1.
    pub(crate) fn matrices(&self) -> f64 {
        if self.gated { 3.0 } else { 2.0 }
    }

    /// Parameters of the attention of one layer.
    pub(crate) fn attention_parameters(&self) -> f64 {
        2.0 * f64::from(self.hidden) * (self.queries() + self.keys())
    }

    /// Parameters of one feed-forward part of this width.
    pub(crate) fn ffn_parameters(&self, width: f64) -> f64 {
        self.matrices() * f64::from(self.hidden) * width
    }

    /// Parameters of the embedding; the head has as many.
    pub(crate) fn embedding_parameters(&self) -> f64 {
        f64::from(self.vocab) * f64::from(self.hidden)
    }

    /// The share of layers that have experts.
    pub(crate) fn expert_share(&self) -> f64 {
        self.experts.map_or(0.0, |it| f64::from(it.layers.min(self.layers)) / f64::from(self.layers.max(1)))
    }

    /// Parameters of an average layer outside of its experts: attention, norms, router, dense or shared feed-forward parts.
    pub(crate) fn layer_parameters(&self) -> f64 {
        let share = self.expert_share();
        let hidden = f64::from(self.hidden);
        let dense = self.ffn_parameters(f64::from(self.ffn)) * (1.0 - share);
        let mixed = self.experts.map_or(0.0, |it| {
            share
                * (self.ffn_parameters(f64::from(it.ffn)) * f64::from(it.shared)
                    + hidden * f64::from(it.count))
        });
        self.attention_parameters() + 4.0 * hidden + dense + mixed
    }

    /// Parameters of the experts of an average layer.
    pub(crate) fn expert_parameters(&self) -> f64 {
        self.experts.map_or(0.0, |it| {
            self.expert_share() * f64::from(it.count) * self.ffn_parameters(f64::from(it.ffn))
        })
    }

    /// All parameters.
    pub fn parameters(&self) -> f64 {
        let embeddings = self.embedding_parameters() * if self.tied { 1.0 } else { 2.0 };
        f64::from(self.layers) * (self.layer_parameters() + self.expert_parameters()) + embeddings
    }

    /// Operations of the forward and backward passes for one token, without recomputation.
    ///
    /// Six for each parameter that a token meets, the embedding's look-up left out, and the products of the attention over the
    /// whole sequence, causal or not: the count of `PaLM` and of Megatron.
    pub fn flops_per_token(&self, seq: u32) -> f64 {
        let active = self.experts.map_or(0.0, |it| {
            self.expert_share() * f64::from(it.per_token) * self.ffn_parameters(f64::from(it.ffn))
        });
        let layers = f64::from(self.layers) * (self.layer_parameters() + active);
        let attention = 12.0 * f64::from(self.layers) * self.queries() * f64::from(seq);
        6.0 * (layers + self.embedding_parameters()) + attention
    }
}
