//! An `MPIJob`: a launcher without GPUs, and workers that run ssh servers, over which mpirun starts the ranks.

use crate::plan::Plan;
use crate::pod::{self, Shape};
use crate::program;
use crate::text::{indent, list, yaml};

pub(crate) fn write(plan: &Plan) -> Result<String, String> {
    let Plan { name, nodes, gpus, .. } = plan;
    let worker =
        Shape { container: "worker", command: &[], subdomain: None, restart: None, environment: false };
    Ok(format!(
        "{head}{domain}apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata:\n{metadata}{queue}spec:\n  slotsPerWorker: {gpus}\n  \
         launcherCreationPolicy: WaitForWorkersReady\n  runPolicy:\n    cleanPodPolicy: Running\n    backoffLimit: 0\n  \
         mpiReplicaSpecs:\n    Launcher:\n      replicas: 1\n      restartPolicy: Never\n      template:\n{launcher}    Worker:\n      \
         replicas: {nodes}\n      restartPolicy: Never\n      template:\n{worker}",
        head = plan.head(),
        domain = pod::domain(plan),
        metadata = pod::metadata(plan, name),
        queue = pod::queue(plan),
        launcher = indent(&launcher(plan)?, 8),
        worker = indent(&pod::template(plan, worker), 8),
    ))
}

fn launcher(plan: &Plan) -> Result<String, String> {
    let ranks = plan.ranks().to_string();
    let each = plan.gpus.to_string();
    let own = [
        ("", vec!["mpirun", "--allow-run-as-root", "--tag-output"]),
        ("# One rank per GPU.", vec!["-np", &ranks, "-N", &each, "--bind-to", "none"]),
        ("# ssh does not pass on the environment of the image.", vec!["-x", "PATH", "-x", "LD_LIBRARY_PATH"]),
        ("# To check transports and NICs with plumb doctor:\n# - -x\n# - NCCL_DEBUG=INFO", vec![]),
        (
            "# MPI only starts the ranks, over TCP; NCCL uses the fast network.",
            vec![
                "--mca",
                "pml",
                "ob1",
                "--mca",
                "btl",
                "tcp,self",
                "--mca",
                "btl_tcp_if_exclude",
                "lo,docker0",
            ],
        ),
    ];
    let mut words = String::new();
    for (comment, part) in own {
        if !comment.is_empty() {
            words.push_str(comment);
            words.push('\n');
        }
        words.push_str(&list(&part));
    }
    words.push_str(&list(&pod::literal(&program::rank(&plan.command)?)));
    // The image is built for one CPU architecture.
    let arch = if plan.hardware.arm { "nodeSelector:\n  kubernetes.io/arch: arm64\n" } else { "" };
    let spec = format!(
        "{arch}{}containers:\n- name: launcher\n  image: {}\n  command:\n{}  resources:\n    requests:\n      cpu: 1\n      memory: 2Gi\n    \
         limits:\n      memory: 2Gi\n",
        pod::tolerations(plan),
        yaml(plan.image()),
        indent(&words, 2)
    );
    Ok(format!("spec:\n{}", indent(&spec, 2)))
}
