//! What to do next, with the command for it.

use ::validate::Verdict;
use ::validate::live::{Asked, Engine, Links, Plan, Run};

use super::{Beside, Unfit, be, misses_gpus, out_of_fleet};
use crate::hosts::compact;
use crate::validate::Next;

/// What to do now.
pub(super) fn next(run: &Run, verdict: Verdict, blocked: &[&Unfit], beside: &Beside) -> Option<Next> {
    if verdict == Verdict::Inconclusive {
        let folder = beside.results.as_ref()?;
        if run.next().is_some() {
            let text = match &run.lost()[..] {
                [] => "continue where it stopped".to_owned(),
                lost => {
                    format!("continue when {} again, or validate the others", be(lost, "answers", "answer"))
                }
            };
            // What is spent is not there again.
            let late = run.is_late().then(|| format!(" --budget {}s", 2 * run.plan().budget_s));
            let command = format!("plumb validate --resume {}{}", quoted(folder), late.unwrap_or_default());
            return Some(Next { text, command });
        }
        let (plan, late) = (run.plan(), !run.late().is_empty());
        let without_gpus =
            run.validation().is_some_and(|it| it.verdict() == Verdict::Go) && misses_gpus(run, beside);
        return match plan.way.as_str() {
            "ssh" if late => Some(Next { text: "validate all of them".to_owned(), command: anew(plan) }),
            "ssh" if without_gpus => Some(Next {
                text: "if these machines have no GPUs".to_owned(),
                command: anew(&Plan { asked: Asked { gpus: Some(0), ..plan.asked.clone() }, ..plan.clone() }),
            }),
            _ => None,
        };
    }
    let chosen = run.chosen()?;
    let validation = run.validation()?;
    let fleet = validation.search().fleet();
    let fit: Vec<&str> = validation
        .rest()
        .into_iter()
        .map(|it| fleet.name(it))
        .filter(|it| !blocked.iter().any(|out| out.host == *it))
        .collect();
    let split = validation.split().filter(|_| out_of_fleet(validation).is_empty());
    let fit = match split.as_ref().and_then(|it| it.groups.first()) {
        Some(group) => {
            fit.into_iter().filter(|it| group.iter().any(|host| fleet.name(*host) == *it)).collect()
        }
        None => fit,
    };
    // What is slow lies between the machines.
    if verdict == Verdict::NoGo
        && blocked.is_empty()
        && split.is_none()
        && out_of_fleet(validation).is_empty()
    {
        let again =
            Next { text: "validate again when this is repaired".to_owned(), command: anew(run.plan()) };
        return (run.plan().way == "ssh").then_some(again);
    }
    let first = fit.first()?;
    let out: Vec<&str> = run.plan().hosts.iter().map(String::as_str).filter(|it| !fit.contains(it)).collect();
    let gpus = if chosen.engine == Engine::Nccl { chosen.ranks } else { 1 };
    let command = match run.plan().way.as_str() {
        "srun" => {
            let exclude =
                if out.is_empty() { String::new() } else { format!(" --exclude={}", out.join(",")) };
            format!("sbatch --nodes={}{exclude} train.sbatch", fit.len())
        }
        "kubectl" if !out.is_empty() => {
            format!("kubectl cordon {} && kubectl apply -f trainjob.yaml", out.join(" "))
        }
        "kubectl" => "kubectl apply -f trainjob.yaml".to_owned(),
        _ => format!(
            "torchrun --nnodes={} --nproc-per-node={gpus} --node-rank=RANK --master-addr={first} train.py",
            fit.len()
        ),
    };
    let text = match verdict {
        Verdict::Go => "stop benchmarking, start training".to_owned(),
        _ if split.is_some() => {
            format!(
                "check the uplinks between the groups; until then train inside one, here of {}",
                fit.len()
            )
        }
        _ if fit.len() == 1 => "start training on the one that is left".to_owned(),
        _ => format!("start training on the other {} while these are repaired", fit.len()),
    };
    Some(Next { text, command })
}

/// The command that validates the same machines in the same way.
fn anew(plan: &Plan) -> String {
    let Asked { ssh_config, net, engine, instance, gpus } = &plan.asked;
    let flags = [
        ("hosts", Some(compact(&plan.hosts).replace(", ", ","))),
        ("ssh-config", ssh_config.as_ref().map(|it| it.display().to_string())),
        ("net", net.clone()),
        (
            "engine",
            engine.map(|it| match it {
                Engine::Nccl => "nccl".to_owned(),
                Engine::Host => "host".to_owned(),
            }),
        ),
        ("instance", instance.clone()),
        ("gpus", gpus.map(|it| it.to_string())),
        ("least", plan.least.map(|it| it.to_string())),
        (
            "links",
            match plan.links {
                Links::Auto => None,
                Links::All => Some("all".to_owned()),
                Links::Few => Some("few".to_owned()),
            },
        ),
    ];
    let flags = flags.into_iter().filter_map(|(name, value)| Some(format!(" --{name} {}", quoted(&value?))));
    format!("plumb validate{}", flags.collect::<String>())
}

/// One word for a shell.
pub fn quoted(text: &str) -> String {
    let plain = |it: char| it.is_ascii_alphanumeric() || "/._-+,:@%=".contains(it);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}
