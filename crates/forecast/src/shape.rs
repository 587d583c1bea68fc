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
    decided: Option<Arc<Option<Decided>>>,
    choices: RefCell<BTreeMap<(Collective, u64), Option<Choice>>>,
}

impl<'a> Shape<'a> {
    /// Prepares a cluster.
    pub fn new(cluster: &'a Cluster) -> Self {
        Self {
            cluster,
            rings: cluster.mesh_rings(),
            decided: Decided::new(cluster),
            choices: RefCell::default(),
        }
    }

    /// What NCCL chooses for a call, where that can be predicted.
    pub(crate) fn choice(&self, collective: Collective, bytes: u64) -> Option<Choice> {
        let decided = self.decided()?;
        let mut choices = self.choices.borrow_mut();
        *choices.entry((collective, bytes)).or_insert_with(|| decided.choose(collective, bytes))
    }

    pub(crate) fn decided(&self) -> Option<&Decided> {
        self.decided.as_ref()?.as_ref().as_ref()
    }
}
