//! Megatron's `--pipeline-model-parallel-layout`: which layers each pipeline stage has.
//!
//! `E` is the embedding, `t` a transformer layer, `m` a layer for multi-token prediction, `L` the loss, and `|` ends a stage; `*n` repeats
//! a layer or a group in parentheses. Megatron-LM, `megatron/core/transformer/pipeline_parallel_layer_layout.py`.

/// A layout that names more layers and stages than this is not read.
const MOST: usize = 1 << 16;

/// Transformer layers of each stage; none if the text is not a layout, or has more than the embedding first and the loss last besides.
pub(super) fn stages_of_layout(text: &str) -> Option<Vec<u64>> {
    let layers = spelled_out(text)?;
    let layers = layers.strip_prefix('E')?.strip_suffix('L')?;
    let stages =
        layers.split('|').map(|stage| stage.bytes().all(|it| it == b't').then_some(stage.len() as u64));
    stages.collect()
}

/// The layout without parentheses, repetitions and what is there for the eye alone.
fn spelled_out(text: &str) -> Option<String> {
    // Open groups, each with where its last item begins: what `*n` repeats.
    let mut groups = vec![(String::new(), 0)];
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let (group, item) = groups.last_mut()?;
        match letter {
            'E' | 'L' | 't' | 'm' | '|' => {
                *item = group.len();
                group.push(letter);
            }
            '(' => groups.push((String::new(), 0)),
            ')' => {
                let (inner, _) = groups.pop()?;
                let (group, item) = groups.last_mut()?;
                *item = group.len();
                group.push_str(&inner);
            }
            '*' => {
                let mut count = String::new();
                while let Some(digit) = letters.next_if(char::is_ascii_digit) {
                    count.push(digit);
                }
                let repeated = group.split_off(*item);
                let count: usize =
                    count.parse().ok().filter(|it| repeated.len().saturating_mul(*it) <= MOST)?;
                group.push_str(&repeated.repeat(count));
            }
            ',' | ' ' => {}
            _ => return None,
        }
        if groups.last().is_some_and(|it| it.0.len() > MOST) {
            return None;
        }
    }
    match groups.as_slice() {
        [(all, _)] => Some(all.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::stages_of_layout;

    #[test]
    fn layouts_are_spelled_out() {
        assert_eq!(stages_of_layout("Et*4|(t*4|)*2t*3L"), Some(vec![4, 4, 4, 3]));
        assert_eq!(stages_of_layout("E|(tt|)*2, t|L"), Some(vec![0, 2, 2, 1, 0]));
        assert_eq!(stages_of_layout("Et|((t|)*2t|)*2L"), Some(vec![1, 1, 1, 1, 1, 1, 1, 0]));
        assert_eq!(stages_of_layout("EtL"), Some(vec![1]));
        // A layer for multi-token prediction, no loss, and what is not a layout.
        for text in
            ["Ett|tmL", "Ett|tt", "E(t|L", "Et)|L", "Et*|L", "Et*99999999L", "E((t|)*999)*999L", "16", ""]
        {
            assert_eq!(stages_of_layout(text), None, "{text}");
        }
    }
}
