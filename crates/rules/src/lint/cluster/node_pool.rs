//! Node pools of Karpenter, as far as they say which machines they start.

use evidence::submission::{Object, Submission};
use evidence::yaml::{NodeId, Span};
use fabric::catalogue::{self, Model};
use job::submitted::{PodTemplate, Submitted};

use super::spread_over_zones::is_zone;

/// A `NodePool`.
pub(super) struct NodePool<'a> {
    /// The file.
    pub(super) file: usize,
    /// Its name.
    pub(super) name: &'a str,
    /// The machines it may start; empty if it does not restrict them.
    pub(super) types: Option<Vec<&'static Model>>,
    /// Where it restricts them.
    pub(super) span: Option<Span>,
    /// The zones it is limited to, and where that is written.
    pub(super) zones: Option<(Vec<&'a str>, Span)>,
    /// The `EC2NodeClass` it refers to.
    pub(super) class: Option<&'a str>,
}

/// Subnets that an `EC2NodeClass` lists: the file, the subnets, where they are listed.
pub(super) fn subnets<'a>(submitted: &Submitted<'a>, class: &str) -> Option<(usize, Vec<&'a str>, Span)> {
    submitted.files.iter().enumerate().find_map(|(file, submission)| {
        let wanted = |it: &&Object| &*it.kind == "EC2NodeClass" && it.name.as_deref() == Some(class);
        let object = submission.objects.iter().find(wanted)?;
        let tree = &submission.tree;
        let terms = tree.at(object.root, &["spec", "subnetSelectorTerms"])?;
        let ids = tree.items(terms).iter().filter_map(|it| tree.text(tree.get(*it, "id")?)).collect();
        Some((file, ids, tree.node(terms).span.clone()))
    })
}

/// All node pools of the files.
pub(super) fn node_pools<'a>(submitted: &Submitted<'a>) -> Vec<NodePool<'a>> {
    let mut all = Vec::new();
    for (file, submission) in submitted.files.iter().enumerate() {
        let pools = submission.objects.iter().filter(|it| matches!(&*it.kind, "NodePool" | "Provisioner"));
        for object in pools {
            let name = object.name.as_deref().unwrap_or_default();
            all.push(read(file, submission, object.root, name));
        }
    }
    all
}

fn read<'a>(file: usize, submission: &'a Submission, root: NodeId, name: &'a str) -> NodePool<'a> {
    let tree = &submission.tree;
    let class =
        tree.at(root, &["spec", "template", "spec", "nodeClassRef", "name"]).and_then(|it| tree.text(it));
    let mut pool = NodePool { file, name, types: None, span: None, zones: None, class };
    let list = tree
        .at(root, &["spec", "template", "spec", "requirements"])
        .or_else(|| tree.at(root, &["spec", "requirements"]));
    let mut unknown = false;
    for item in list.map(|it| tree.items(it)).unwrap_or_default() {
        let text = |name: &str| tree.get(*item, name).and_then(|it| tree.text(it));
        let (Some(key), Some("In")) = (text("key"), text("operator")) else { continue };
        let Some(node) = tree.get(*item, "values") else { continue };
        let values: Vec<&str> = tree.items(node).iter().filter_map(|it| tree.text(*it)).collect();
        let span = tree.node(node).span.clone();
        let named = key.ends_with("kubernetes.io/instance-type");
        let family = matches!(key, "karpenter.k8s.aws/instance-family" | "eks.amazonaws.com/instance-family");
        if is_zone(key) {
            pool.zones = Some((values, span));
        } else if named || family {
            let mut types: Vec<&'static Model> = Vec::new();
            for value in &values {
                let before = types.len();
                let same = |it: &&Model| {
                    if named { it.name == *value } else { it.name.split('.').next() == Some(value) }
                };
                types.extend(catalogue::all().iter().filter(same));
                unknown |= types.len() == before;
            }
            // Two requirements apply together.
            pool.types = Some(match pool.types.take() {
                Some(before) => {
                    before.into_iter().filter(|it| types.iter().any(|other| other.name == it.name)).collect()
                }
                None => types,
            });
            pool.span = Some(span);
        }
    }
    if unknown || pool.types.as_ref().is_some_and(Vec::is_empty) {
        pool.types = None;
    }
    pool
}

/// The pools that a job can use: the one it names, otherwise all.
pub(super) fn of_job<'p, 'a>(pod: &PodTemplate<'_>, pools: &'p [NodePool<'a>]) -> Vec<&'p NodePool<'a>> {
    let selectors = pod.whole().map(|it| it.selectors.as_slice()).unwrap_or_default();
    let chosen = selectors.iter().find(|it| &*it.key == "karpenter.sh/nodepool");
    match chosen {
        Some(selector) => {
            pools.iter().filter(|it| selector.values.iter().any(|name| &**name == it.name)).collect()
        }
        None => pools.iter().collect(),
    }
}
