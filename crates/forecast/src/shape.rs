//! A cluster with what follows from it once: the rings of its NVLinks and what NCCL decides.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use fabric::Collective;

use crate::cluster::Cluster;
use crate::decided::{Choice, Decided};
use crate::rings::Rings;

/// A cluster, prepared for many questions.
#[derive(Debug, Clone)]
pub struct Shape<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) rings: Rings,
    /// By release, oldest first; empty where nothing can be predicted.
    decided: Arc<Vec<Decided>>,
    choices: RefCell<BTreeMap<Call, Arc<[Choice]>>>,
}

/// A collective and its bytes.
type Call = (Collective, u64);

impl<'a> Shape<'a> {
    /// Prepares a cluster.
    pub fn new(cluster: &'a Cluster) -> Self {
        let decided = Decided::new(cluster);
        Self { cluster, rings: cluster.mesh_rings(), decided, choices: RefCell::default() }
    }

    /// What possible releases choose for a call, oldest first, without repetitions; empty where nothing can be predicted.
    pub(crate) fn choices(&self, collective: Collective, bytes: u64) -> Arc<[Choice]> {
        let choose = || {
            let mut found: Vec<Choice> = Vec::new();
            for choice in self.decided.iter().map(|it| it.choose(collective, bytes)) {
                // The newest stays last.
                found.retain(|it| *it != choice);
                found.push(choice);
            }
            found.into()
        };
        Arc::clone(self.choices.borrow_mut().entry((collective, bytes)).or_insert_with(choose))
    }
}
