//! What `plumb manifest` writes, before the schemas of Kubernetes.

mod request;

use std::fmt::Write as _;
use std::fs;

use evidence::submission::Submission;
use fabric::Layout;
use manifest::bind::{Binding, Launcher};
use manifest::{Kind, write};
use request::{request, scratch};
use testbed::{need, output, program};

/// Its answer, and how many objects passed.
fn validate(name: &str, text: &str) -> (bool, usize, String) {
    let path = scratch("manifests").join(name);
    fs::write(&path, text).expect("a file under target");
    let output = output(program(need("kubernetes-validate")).arg("--strict").arg(&path));
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.success(), said.matches(" passed for resource ").count(), said)
}

/// Built-in objects, and the pods of every other kind as templates of their own.
fn built_in(kind: Kind, instance: &str, nodes: u32) -> Vec<String> {
    let request = request(kind, instance, nodes);
    let text = write(&request).unwrap_or_else(|it| panic!("{request:?}: {it}"));
    if kind == Kind::Job {
        let own = |it: &&str| !it.contains("kind: ComputeDomain");
        return text.split("\n---\n").filter(own).map(str::to_owned).collect();
    }
    let it = Submission::read("job.yaml", &text).unwrap_or_else(|it| panic!("{it:?}\n{text}"));
    // What a TrainJob changes of its runtime is no pod of its own.
    let templates = it.pods().filter_map(|it| it.1.template);
    let alone = |template| {
        let range = &it.tree.node(template).span.range;
        let start = text[..range.start].rfind('\n').map_or(0, |it| it + 1);
        let margin = range.start - start;
        let inside = |line: &&str| line.trim().is_empty() || line.len() - line.trim_start().len() >= margin;
        let lines: Vec<&str> = text[start..].lines().take_while(inside).collect();
        format!("apiVersion: v1\nkind: PodTemplate\nmetadata:\n  name: a\ntemplate:\n{}\n", lines.join("\n"))
    };
    let all: Vec<String> = templates.map(alone).collect();
    assert_eq!(all.len(), if kind == Kind::MpiJob { 2 } else { 1 }, "{text}");
    all
}

#[test]
fn kubernetes_accepts_pods_that_wait() {
    for (instance, nodes) in [("p5.48xlarge", 1), ("p5.48xlarge", 100), ("g6e.12xlarge", 4)] {
        let text = manifest::write_waiting(&request(Kind::Job, instance, nodes), 3600).expect("a manifest");
        let (fine, passed, said) = validate("waiting.yaml", &text);
        assert!(fine && passed == if nodes > 1 { 2 } else { 1 }, "{said}\n{text}");
        assert!(text.contains("- sleep\n") && text.contains("activeDeadlineSeconds: 3600"), "{text}");
    }
}

#[test]
fn kubernetes_accepts_every_pod_on_every_machine() {
    let mut all = String::new();
    let mut count = 0;
    for instance in fabric::catalogue::names() {
        for kind in Kind::ALL.into_iter().filter(|it| *it != Kind::Sbatch) {
            // One node is the same for every type but for its numbers.
            for nodes in if instance == "p5.48xlarge" { vec![1, 4] } else { vec![4] } {
                for document in built_in(kind, instance, nodes) {
                    count += 1;
                    write!(all, "{document}\n---\n").expect("a text can be written");
                }
            }
        }
    }
    let (good, passed, said) = validate("all.yaml", all.trim_end_matches("---\n"));
    assert!(good && passed == count, "{passed} of {count} passed\n{said}");

    // It would say so: one wrong letter.
    let (good, _, said) = validate(
        "wrong.yaml",
        &built_in(Kind::Job, "p5.48xlarge", 4).join("\n---\n").replace("subdomain:", "subdomian:"),
    );
    assert!(!good && said.contains("subdomian"), "{said}");
}

#[test]
fn kubernetes_accepts_the_resources_of_a_binding() {
    let machine = fabric::catalogue::machine("p4d.24xlarge").expect("a machine");
    for layout in [Layout::whole(&machine), Layout::new(8, 1)] {
        let blocks = Binding::new(&machine, &layout).blocks(Launcher::Kubernetes);
        let resources = blocks.iter().find(|it| it.text.starts_with("resources:\n")).expect("resources");
        let inside =
            format!("    {}", resources.text.trim_end().replace("MEMORY", "64Gi").replace('\n', "\n    "));
        let pod = format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\nspec:\n  containers:\n  - name: a\n    image: a\n{inside}\n"
        );
        let (good, passed, said) = validate(&format!("bind-{layout}.yaml"), &pod);
        assert!(good && passed == 1, "{said}\n{pod}");
    }
}
