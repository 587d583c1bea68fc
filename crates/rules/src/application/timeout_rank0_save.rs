//! Rank 0 writes a checkpoint for longer than the timeout of the other ranks.

use evidence::signals::application::{SAVE_FRAME, SAVING};
use evidence::signals::collectives::{GLOO_TIMEOUT, STORE_TIMEOUT, TIMEOUT_STATUS, WATCHDOG_TIMEOUT};
use evidence::{Sighting, Source};

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "timeout-rank0-save",
    title: "ranks time out while a checkpoint is written",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "One rank gathers and writes the whole model while the others are already in the next collective. Writing counts against \
          the process group's timeout (10 minutes by default), and a large model on slow storage takes longer.",
    fix: "Raise the timeout (`ddp_timeout`, `init_process_group(timeout=timedelta(hours=1))`), save sharded or asynchronously \
          (torch.distributed.checkpoint `async_save`, FSDP SHARDED_STATE_DICT, DeepSpeed without \
          `stage3_gather_16bit_weights_on_model_save`), or write to local disk first. If a longer timeout does not help, some rank \
          does not enter the collective inside the save: all ranks must call it.",
    references: &[
        "https://github.com/meta-pytorch/torchtune/issues/2093",
        "https://github.com/huggingface/accelerate/issues/3512",
    ],
    checks: &[Check::Log(check)],
};

/// How many lines may be between the last line about saving and the first about a timeout.
const NEAR: u64 = 60;

fn check(log: &Log) -> Checked {
    let saving = log.find_signals(&[&SAVING, &SAVE_FRAME], Source::JobOutput)?;
    let Some(timeout) =
        log.case.first_of(&[&WATCHDOG_TIMEOUT, &TIMEOUT_STATUS, &STORE_TIMEOUT, &GLOO_TIMEOUT])
    else {
        return Ok(Vec::new());
    };
    let frame = saving.iter().copied().find(|it| *it.signal == SAVE_FRAME);
    let last = saving.iter().copied().rfind(|it| *it.signal == SAVING && it.quote.spot <= timeout.quote.spot);
    let near = last.filter(|it| is_near(log, it, timeout));
    let Some(chosen) = near.or(frame).or(last) else { return Ok(Vec::new()) };
    let (confidence, message) = if near.is_some() {
        (Confidence::Likely, "a checkpoint was being written when other ranks timed out")
    } else if frame.is_some() {
        (Confidence::Likely, "a rank was inside the code that saves when collectives timed out")
    } else {
        return Ok(Vec::new());
    };
    Ok(vec![Finding::new(confidence, message).seen(&chosen.quote).seen(&timeout.quote)])
}

fn is_near(log: &Log, saving: &Sighting, timeout: &Sighting) -> bool {
    let (file, line) = log.case.locate(&saving.quote);
    let (other, end) = log.case.locate(&timeout.quote);
    file == other && end.saturating_sub(line) <= NEAR
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    const TIMEOUT: &str = "[rank6]:[E ProcessGroupNCCL.cpp:523] [Rank 6] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12029440, OpType=_ALLGATHER_BASE, NumelIn=512, NumelOut=4096, Timeout(ms)=1800000) ran for 1808499 milliseconds before timing out.\n";

    #[test]
    fn a_checkpoint_just_before() {
        for line in [
            "[torch_checkpoint_engine.py:33:commit] [Torch] Checkpoint global_step5000 is ready now!\n",
            "Saving model checkpoint to /out/checkpoint-500\n",
            "saving checkpoint at iteration    5000 to /ckpt in torch format\n",
        ] {
            assert_eq!(findings(&RULE, &format!("{line}{TIMEOUT}")).len(), 1, "{line}");
        }
    }

    #[test]
    fn a_traceback_through_the_save() {
        let text = format!("{TIMEOUT}  File \"/x/trainer.py\", line 2, in _save_checkpoint\n");
        assert_eq!(findings(&RULE, &text).len(), 1);
    }

    #[test]
    fn quiet_long_after_or_without_a_timeout() {
        quiet(&RULE, "Saving model checkpoint to /out/checkpoint-500\n");
        quiet(&RULE, TIMEOUT);
        let steps = "{'loss': 1.2}\n".repeat(100);
        quiet(&RULE, &format!("Saving model checkpoint to /out/checkpoint-500\n{steps}{TIMEOUT}"));
    }

    #[test]
    fn the_words_of_accelerate() {
        let line = "INFO - accelerate.accelerator - Saving current state to out/checkpoint-490\n";
        assert_eq!(findings(&RULE, &format!("{line}{TIMEOUT}")).len(), 1);
    }
}
