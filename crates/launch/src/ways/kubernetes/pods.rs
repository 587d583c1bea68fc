//! What `kubectl get pods` says, and why a pod does not run.

use crate::ways::{first_of, last_line};
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
    // A pod that was evicted or reached its deadline has a reason itself; one that was not scheduled has it in this condition.
    r#"{.status.reason}{.status.conditions[?(@.type=="PodScheduled")].reason}{"\t"}"#,
    r#"{.status.message}{.status.conditions[?(@.type=="PodScheduled")].message}{"\n"}"#,
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
            // ErrImagePull may be a registry that is busy: it becomes ImagePullBackOff, or goes away.
            (_, "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull") => ObstacleKind::NoProgram,
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
        ("upgrade connection: Forbidden", ObstacleKind::Denied),
        ("pod does not exist", ObstacleKind::NameUnknown),
        ("container not found", ObstacleKind::NoAnswer),
        ("container is not created or running", ObstacleKind::NoAnswer),
        ("does not have a host assigned", ObstacleKind::NoAnswer),
        ("in a completed pod", ObstacleKind::NoAnswer),
        ("executable file not found", ObstacleKind::NoShell),
        ("no such file or directory", ObstacleKind::NoShell),
        ("Unable to connect to the server", ObstacleKind::Launcher),
        ("connection to the server", ObstacleKind::Launcher),
        ("error dialing backend", ObstacleKind::NoAnswer),
        ("i/o timeout", ObstacleKind::NoAnswer),
        ("no route to host", ObstacleKind::NoRoute),
        ("connection refused", ObstacleKind::Refused),
    ];
    first_of(TEXTS, &printed.lines()).unwrap_or_else(|| last_line(ObstacleKind::Launcher, printed))
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

    /// A pod whose image was not pulled at the first try may still run; one that was evicted will not.
    #[test]
    fn pods_that_may_run_and_pods_that_will_not() {
        let pods = read(
            "a-0-x\t0\tPending\tn1\t\tErrImagePull\t\t\n\
             a-1-x\t1\tPending\tn2\t\tContainerCreating\t\t\n\
             a-2-x\t2\tFailed\tn3\t\t\tEvicted\tThe node was low on resource: memory.\n",
        );
        let stopped: Vec<Option<String>> =
            pods.iter().map(|it| it.obstacle().map(|it| it.to_string())).collect();
        assert_eq!((&stopped[0], &stopped[1]), (&None, &None));
        let evicted = stopped[2].as_deref().unwrap_or_default();
        assert!(evicted.contains("Failed, Evicted: The node was low on resource: memory"), "{evicted}");
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
        for (printed, kind) in [
            ("error: unable to upgrade connection: pod does not exist", ObstacleKind::NameUnknown),
            ("error: unable to upgrade connection: container not found (\"node\")", ObstacleKind::NoAnswer),
            (
                "error: unable to upgrade connection: Forbidden (user=apiserver, verb=create, resource=nodes, subresource=proxy)",
                ObstacleKind::Denied,
            ),
            (
                "error: cannot exec into a container in a completed pod; current phase is Succeeded",
                ObstacleKind::NoAnswer,
            ),
            (
                "Error from server: error dialing backend: dial tcp 172.18.10.229:10250: getsockopt: connection refused",
                ObstacleKind::NoAnswer,
            ),
            (
                "error: Internal error occurred: error executing command in container: container is not created or running",
                ObstacleKind::NoAnswer,
            ),
            ("error: something", ObstacleKind::Launcher),
        ] {
            assert_eq!(obstacle(printed).kind, kind, "{printed}");
        }
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
