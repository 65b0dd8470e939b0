//! The build command of a project: runs in a shell, and ends with this process.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::AsyncReadExt;
use tokio::process::Command;

/// How much of the end of the output is kept.
const OUTPUT_MAX: usize = 64 << 10;

/// How a build ended.
#[derive(Debug)]
pub(super) enum BuildResult {
    /// It succeeded, in this time.
    Built(Duration),
    /// It failed: the exit status, and the end of its output.
    Failed(String, String),
}

/// A build and all processes that it has started; dropping it ends them.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        // The group may have ended already.
        let _gone = self
            .0
            .is_some_and(|group| killpg(group, Signal::SIGTERM).is_err());
    }
}

/// Run a build in this folder to its end.
pub(super) async fn build(command: &str, folder: &Path) -> BuildResult {
    let began = Instant::now();
    let failed = |error: std::io::Error| BuildResult::Failed(error.to_string(), String::new());
    let spawned = Command::new("sh")
        // stderr goes where stdout goes, in order.
        .args(["-c", &format!("exec 2>&1\n{command}")])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => return failed(error),
    };
    let leader = child.id().and_then(|id| i32::try_from(id).ok());
    let mut group = Group(leader.map(Pid::from_raw));
    let mut output = Vec::new();
    if let Some(mut pipe) = child.stdout.take() {
        let mut chunk = vec![0; 8 << 10];
        loop {
            match pipe.read(&mut chunk).await {
                Ok(0) => break,
                Ok(read) => keep_end(&mut output, &chunk[..read]),
                Err(error) => return failed(error),
            }
        }
    }
    let ended = child.wait().await;
    group.0 = None;
    match ended {
        Ok(status) if status.success() => BuildResult::Built(began.elapsed()),
        Ok(status) => BuildResult::Failed(
            status.to_string(),
            String::from_utf8_lossy(&output).into_owned(),
        ),
        Err(error) => failed(error),
    }
}

fn keep_end(output: &mut Vec<u8>, more: &[u8]) {
    output.extend_from_slice(more);
    if output.len() > 2 * OUTPUT_MAX {
        output.drain(..output.len() - OUTPUT_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> &'static Path {
        Path::new(".")
    }

    #[tokio::test]
    async fn a_failed_build_has_a_status_and_output() {
        assert!(matches!(build("true", here()).await, BuildResult::Built(_)));
        match build("echo one; echo two >&2; exit 3", here()).await {
            BuildResult::Failed(how, output) => {
                assert_eq!(how, "exit status: 3");
                assert_eq!(output, "one\ntwo\n");
            }
            built => panic!("{built:?}"),
        }
    }

    #[tokio::test]
    async fn only_the_end_of_a_long_output_is_kept() {
        let command =
            "i=0; while [ $i -lt 9000 ]; do echo line number $i of many; i=$((i+1)); done; false";
        match build(command, here()).await {
            BuildResult::Failed(_, output) => {
                assert!(output.len() <= 2 * OUTPUT_MAX, "{}", output.len());
                assert!(output.ends_with("line number 8999 of many\n"));
            }
            built => panic!("{built:?}"),
        }
    }

    #[tokio::test]
    async fn a_cancelled_build_ends_with_all_its_processes() {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        let command = format!("sleep 1000 & echo $! > {}; wait", pid.display());
        let written = async {
            loop {
                let text = std::fs::read_to_string(&pid).unwrap_or_default();
                if text.ends_with('\n') {
                    return text.trim().parse::<i32>().unwrap();
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let sleeper = tokio::select! {
            built = build(&command, here()) => panic!("{built:?}"),
            pid = written => Pid::from_raw(pid),
        };
        // A zombie counts as dead: no process may be there to reap it.
        let is_alive = || {
            let stat = std::fs::read_to_string(format!("/proc/{sleeper}/stat")).unwrap_or_default();
            stat.rsplit_once(") ")
                .is_some_and(|(_, rest)| !rest.starts_with('Z'))
        };
        let began = Instant::now();
        while is_alive() {
            assert!(began.elapsed() < Duration::from_secs(60), "it still runs");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
