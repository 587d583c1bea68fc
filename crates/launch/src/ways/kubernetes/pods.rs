//! What `kubectl get pods` says, and why a pod does not run.

use crate::{Obstacle, ObstacleKind};

/// The fields of a pod, separated by tabs, one pod per line.
pub(super) const TEMPLATE: &str = concat!(
    r#"jsonpath={range .items[*]}"#,
    r#"{.metadata.name}{"\t"}"#,
    r#"{.metadata.annotations.batch\.kubernetes\.io/job-completion-index}{"\t"}"#,
    r#"{.status.phase}{"\t"}"#,
    r#"{.spec.nodeName}{"\t"}"#,
    r#"{.status.podIP}{"\t"}"#,
    r#"{.status.containerStatuses[0].state.waiting.reason}{"\t"}"#,
    r#"{.status.conditions[?(@.type=="PodScheduled")].reason}{"\t"}"#,
    r#"{.status.conditions[?(@.type=="PodScheduled")].message}{"\n"}"#,
    r#"{end}"#
);

/// A pod of the Indexed Job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pod {
    pub(super) name: String,
    pub(super) index: usize,
    pub(super) phase: String,
    pub(super) node: Option<String>,
    pub(super) address: Option<String>,
    /// Why it waits: `ImagePullBackOff`, `Unschedulable`.
    pub(super) reason: Option<String>,
    pub(super) message: String,
}

/// The pods of an answer, by index; the newest of each, if one was replaced, is the one that runs. Lines of another form
/// are ignored.
pub(super) fn read(answer: &str) -> Vec<Pod> {
    let mut pods: Vec<Pod> = answer.lines().filter_map(pod).collect();
    pods.sort_by_key(|it| (it.index, it.phase != "Running", it.phase != "Pending"));
    pods.dedup_by_key(|it| it.index);
    pods
}

fn pod(line: &str) -> Option<Pod> {
    let mut fields = line.splitn(8, '\t').map(str::trim);
    let mut next = || fields.next().map(str::to_owned);
    let filled = |it: Option<String>| it.filter(|it| !it.is_empty() && it != "<none>");
    let name = filled(next())?;
    let index = next()?.parse().ok()?;
    let phase = filled(next())?;
    let (node, address, waiting, scheduled) =
        (filled(next()), filled(next()), filled(next()), filled(next()));
    Some(Pod {
        name,
        index,
        phase,
        node,
        address,
        reason: waiting.or(scheduled),
        message: next().unwrap_or_default(),
    })
}

impl Pod {
    /// It will not run by itself.
    pub(super) fn obstacle(&self) -> Option<Obstacle> {
        let reason = self.reason.as_deref().unwrap_or_default();
        let kind = match (self.phase.as_str(), reason) {
            ("Running", _) => return None,
            ("Failed" | "Succeeded", _) => ObstacleKind::Other,
            (_, "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull") => {
                ObstacleKind::NoProgram
            }
            (
                _,
                "CreateContainerConfigError"
                | "CreateContainerError"
                | "CrashLoopBackOff"
                | "RunContainerError",
            ) => ObstacleKind::Other,
            _ => return None,
        };
        Some(Obstacle::new(kind, &self.describe()))
    }

    /// `Pending, Unschedulable: 0/16 nodes are available`.
    pub(super) fn describe(&self) -> String {
        let reason = self.reason.as_ref().map_or_else(String::new, |it| format!(", {it}"));
        let message = if self.message.is_empty() { String::new() } else { format!(": {}", self.message) };
        format!("pod {} is {}{reason}{message}", self.name, self.phase)
    }
}

/// Why `kubectl exec` led to no shell (kubectl and the API server, 1.20 to 1.32).
pub(super) fn obstacle(printed: &str) -> Obstacle {
    const TEXTS: &[(&str, ObstacleKind)] = &[
        ("(Forbidden)", ObstacleKind::Denied),
        ("Unauthorized", ObstacleKind::Denied),
        ("(NotFound)", ObstacleKind::NameUnknown),
        ("container not found", ObstacleKind::NoAnswer),
        ("executable file not found", ObstacleKind::NoShell),
        ("no such file or directory", ObstacleKind::NoShell),
        ("Unable to connect to the server", ObstacleKind::Launcher),
        ("connection to the server", ObstacleKind::Launcher),
        ("error dialing backend", ObstacleKind::NoAnswer),
        ("i/o timeout", ObstacleKind::NoAnswer),
        ("no route to host", ObstacleKind::NoRoute),
        ("connection refused", ObstacleKind::Refused),
    ];
    for (text, kind) in TEXTS {
        if let Some(line) = printed.lines().find(|it| it.contains(text)) {
            return Obstacle::new(*kind, line);
        }
    }
    let last = printed.lines().rev().find(|it| !it.trim().is_empty()).unwrap_or_default();
    Obstacle::new(ObstacleKind::Launcher, last)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pods_of_a_job() {
        let answer = "fleet-1-x8k2p\t1\tPending\t\t\t\tUnschedulable\t0/4 nodes are available: 4 Insufficient nvidia.com/gpu.\n\
                      fleet-0-b9qtr\t0\tRunning\tip-10-0-0-7\t10.1.2.3\t\t\t\n\
                      fleet-2-zzzzz\t2\tPending\tip-10-0-0-8\t\tImagePullBackOff\t\t\n\
                      something else\n";
        let pods = read(answer);
        assert_eq!(pods.iter().map(|it| it.index).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(
            (pods[0].node.as_deref(), pods[0].address.as_deref()),
            (Some("ip-10-0-0-7"), Some("10.1.2.3"))
        );
        assert_eq!(
            pods.iter().map(|it| it.obstacle().map(|it| it.kind)).collect::<Vec<_>>(),
            [None, None, Some(ObstacleKind::NoProgram)]
        );
        assert!(pods[1].describe().contains("Unschedulable: 0/4 nodes"), "{}", pods[1].describe());
    }

    #[test]
    fn a_pod_that_was_replaced() {
        let pods = read("a-0-old\t0\tFailed\tn1\t\t\t\t\na-0-new\t0\tRunning\tn2\t10.0.0.1\t\t\t\n");
        assert_eq!(pods.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["a-0-new"]);
    }

    #[test]
    fn what_kubectl_prints() {
        let forbidden = "Error from server (Forbidden): pods \"fleet-0-b9qtr\" is forbidden: User \"me\" cannot create resource \
                         \"pods/exec\" in API group \"\" in the namespace \"default\"";
        assert_eq!(obstacle(forbidden).kind, ObstacleKind::Denied);
        assert_eq!(
            obstacle("Error from server (NotFound): pods \"x\" not found").kind,
            ObstacleKind::NameUnknown
        );
        assert_eq!(
            obstacle("Unable to connect to the server: dial tcp: lookup x: no such host").kind,
            ObstacleKind::Launcher
        );
        assert_eq!(obstacle("error: something").kind, ObstacleKind::Launcher);
    }

    proptest! {
        #[test]
        fn any_answer_is_read(answer in "([a-z0-9<>-]{0,6}[\t\n]){0,40}|.{0,80}") {
            for pod in read(&answer) {
                let _ = (pod.obstacle(), pod.describe());
            }
        }
    }
}
