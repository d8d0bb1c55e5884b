#!/usr/bin/env python3
"""The jobs that `plan --manifest` writes: a real Slurm array gives the shards of `convert`, and Kubernetes takes the Job.

    python3 scripts/checks/cluster_check.py --shardify target/release/shardify [--rounds 1] [--only slurm]

Slurm: slurmctld and slurmd of this machine, with a configuration, ports and state of their own (Debian: slurm-wlm; needs root). Each
round submits the script and waits for the commit: as it is, and with every third task killed in the middle by a requeue of its job.
Kubernetes: the manifests pass `kubernetes-validate`, strictly, and so that they cannot pass if a field is misspelt; no cluster runs
them. What is not installed is named. Exit code 1 if something differs.
"""

import argparse
import contextlib
import importlib.util
import os
import pathlib
import random
import shutil
import socket
import subprocess
import tempfile
import time

from harness import Failure, expect, finish, not_run, objects, run

FORMATS = ("parquet", "tar", "tfrecord")
FILES, ROWS = 9, 4000
OPTIONS = ["--id", "id", "--subject", "who", "--task-size", "100KB", "--target-shard", "64KiB"]
PATIENCE = 240

CONFIGURATION = """
ClusterName=check
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
# Jobs that were requeued begin again after so many seconds.
AuthInfo=cred_expire=5
SlurmctldPort={port}
SlurmdPort={other}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,batch_sched_delay=0,defer_batch
ReturnToService=2
KillWait=1
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=4000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""

# Stands for the program in jobs: the first attempt of every third task starts, and then its job is put back into the queue.
KILLER = """#!/bin/sh
case "$*" in *"run-task"*)
  if [ $((${{SLURM_ARRAY_TASK_ID:-1}} % 3)) = 0 ] && mkdir "{killed}/$SLURM_ARRAY_TASK_ID" 2>/dev/null; then
    "{program}" "$@" & sleep 0.0$((SLURM_ARRAY_TASK_ID % 10)); scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID"; sleep 60
  fi;;
esac
exec "{program}" "$@"
"""


class Slurm:
    """A cluster of one node, as a context."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "state").mkdir(parents=True)
        (folder / "spool").mkdir()
        ports = {"port": random.randrange(20000, 25000), "other": random.randrange(25001, 30000)}
        configuration = folder / "slurm.conf"
        configuration.write_text(CONFIGURATION.format(host=socket.gethostname().partition(".")[0], folder=folder, **ports))
        self.settings = {**os.environ, "SLURM_CONF": str(configuration)}
        self.daemons = []

    def __enter__(self):
        for words in (["slurmctld", "-D", "-c"], ["slurmd", "-D", "-c"]):
            log = open(self.folder / f"{words[0]}.out", "wb")
            self.daemons.append(subprocess.Popen(words, env=self.settings, stdout=log, stderr=log, start_new_session=True))
        self.wait_for("a node that is idle", lambda: "idle" in self.ask("sinfo", "-h", "-o", "%t"))
        return self

    def __exit__(self, *_):
        with contextlib.suppress(Failure):
            self.ask("scancel", "--user=root")
        for daemon in reversed(self.daemons):
            daemon.terminate()
            try:
                daemon.wait(timeout=20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def ask(self, *words):
        done = subprocess.run(words, env=self.settings, capture_output=True, text=True, timeout=60)
        return done.stdout if done.returncode == 0 else ""

    def wait_for(self, what, holds):
        deadline = time.monotonic() + PATIENCE
        while not holds():
            if time.monotonic() > deadline:
                logs = "".join(path.read_text(errors="replace")[-1500:] for path in self.folder.glob("*.log"))
                raise Failure(f"expected {what} within {PATIENCE} s, found\n{self.ask('squeue', '-r')}\n{logs}")
            time.sleep(0.3)

    def submit(self, script, program):
        """Runs what `--manifest slurm` has written, with this program as `shardify`; returns when no job is left."""
        bin = script.parent / f"{script.stem}-bin"
        bin.mkdir()
        (bin / "shardify").symlink_to(program)
        settings = {**self.settings, "PATH": f"{bin}:{os.environ['PATH']}", "SHARDIFY_CPUS": "1"}
        done = subprocess.run(["sh", script], env=settings, capture_output=True, text=True, cwd=script.parent, timeout=60)
        if done.returncode != 0:
            raise Failure(f"the script for Slurm ended with {done.returncode}: {done.stderr}")
        self.wait_for("an empty queue", lambda: not self.ask("squeue", "-h", "-t", "all", "-o", "%T").replace("COMPLETED\n", "").strip())


def shards(program, dataset):
    listed = [one for one in objects(program, "manifest", dataset, "--list") if one["type"] == "shard"]
    return [(one["records"], one["bytes"], one["blake3"]) for one in listed]


def write_inputs(raw):
    raw.mkdir()
    for file in range(FILES):
        rows = (f"{file}-{row},PAT-{row % 50},{'x' * (row % 30)}\n" for row in range(ROWS))
        (raw / f"{file:02}.csv").write_text("id,who,text\n" + "".join(rows))


def slurm_round(slurm, program, folder, number, form, wanted):
    for fault in (False, True):
        name = f"{form}-{number}-{'killed' if fault else 'plain'}"
        script = folder / f"{name}.sh"
        script.write_bytes(run(program, "plan", "convert", folder / "raw", "--out", folder / name, "--to", form, *OPTIONS, "--manifest", "slurm"))
        stand_in = program
        if fault:
            killed = folder / f"{name}-tasks"
            killed.mkdir()
            stand_in = folder / f"{name}-program"
            stand_in.write_text(KILLER.format(killed=killed, program=program))
            stand_in.chmod(0o755)
        slurm.submit(script, stand_in)
        if fault:
            expect("tasks that were put back into the queue", len(list(killed.iterdir())), FILES // 3)
        versions = [one for one in objects(program, "manifest", folder / name, "--history") if one["type"] == "version"]
        expect(f"versions after the array of Slurm, {name}", len(versions), 1)
        expect(f"shards by Slurm, {name}", shards(program, folder / name), wanted[form])
        run(program, "verify", folder / name, "--read-data")
        shutil.rmtree(folder / name)


def by_slurm(program, folder, rounds):
    missing = [tool for tool in ("slurmctld", "slurmd", "sbatch") if shutil.which(tool) is None]
    if missing:
        not_run("cluster_check: slurm", f"{missing[0]} is not installed (Debian: slurm-wlm)")
        return
    if os.geteuid() != 0:
        not_run("cluster_check: slurm", "slurmd needs root")
        return
    wanted = {}
    for form in FORMATS:
        run(program, "convert", folder / "raw", "--out", folder / f"plain-{form}", "--to", form, *OPTIONS)
        wanted[form] = shards(program, folder / f"plain-{form}")
    with Slurm(folder / "slurm") as slurm:
        for number in range(rounds):
            form = FORMATS[number % len(FORMATS)]
            slurm_round(slurm, program, folder, number, form, wanted)
            print(f"ok    slurm, round {number + 1} of {rounds}: {form}, {FILES} tasks, {FILES // 3} of them killed", flush=True)


def by_commands_of_pods(program, folder, job, commit):
    """Runs what the containers run: the commit waits for the tasks, which run one after the other."""
    bin = folder / "pods"
    bin.mkdir(exist_ok=True)
    (bin / "sleep").write_text("#!/bin/sh\nexec /bin/sleep 0.2\n")
    (bin / "sleep").chmod(0o755)
    if not (bin / "shardify").exists():
        (bin / "shardify").symlink_to(program)
    settings = {**os.environ, "PATH": f"{bin}:{os.environ['PATH']}"}
    command = lambda one: one["spec"]["template"]["spec"]["containers"][0]["command"]  # noqa: E731
    waiting = subprocess.Popen(command(commit), env=settings, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    for task in range(FILES):
        words = [word.replace("$(JOB_COMPLETION_INDEX)", str(task)) for word in command(job)]
        subprocess.run(words, env=settings, capture_output=True, check=True, timeout=PATIENCE)
    said, _ = waiting.communicate(timeout=PATIENCE)
    expect("end of the commit's pod", (waiting.returncode, "v1" in said), (0, True))


def by_kubernetes(program, folder):
    if importlib.util.find_spec("kubernetes_validate") is None:
        not_run("cluster_check: kubernetes", "kubernetes-validate is not installed")
        return
    import kubernetes_validate
    import yaml

    latest = kubernetes_validate.latest_version()
    for form in FORMATS:
        words = ["plan", "convert", folder / "raw", "--out", folder / f"job-{form}", "--to", form, *OPTIONS, "--manifest", "k8s"]
        job, commit = yaml.safe_load_all(run(program, *words))
        for one in (job, commit):
            kubernetes_validate.validate(one, latest, strict=True)
        expect("completions", job["spec"]["completions"], FILES)
        by_commands_of_pods(program, folder, job, commit)
    for place in ("spec", "metadata"):
        spoilt = {**job, place: {**job[place], "completionsMode": "Indexed"}}
        try:
            kubernetes_validate.validate(spoilt, latest, strict=True)
        except kubernetes_validate.ValidationError:
            continue
        raise Failure(f"expected kubernetes-validate to refuse a misspelt field of {place}")
    print(f"ok    kubernetes: the jobs are valid for {latest}, and their commands commit", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shardify", required=True, help="the program under test")
    parser.add_argument("--only", nargs="+", choices=("slurm", "kubernetes"), default=("slurm", "kubernetes"))
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    program = pathlib.Path(options.shardify).resolve()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        write_inputs(folder / "raw")
        if "kubernetes" in options.only:
            by_kubernetes(program, folder)
        if "slurm" in options.only:
            by_slurm(program, folder, options.rounds)
    return 0


if __name__ == "__main__":
    finish(main)
