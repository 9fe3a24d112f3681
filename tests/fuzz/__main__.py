"""`python -m tests.fuzz`: attack a broker with generated and mutated requests; exit status 1 if anything is found.

make fuzz FUZZ_SECONDS=600 FUZZ_SEED=7
python -m tests.fuzz --replay findings/X.json
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from random import Random, SystemRandom

from tests.fuzz.campaign import Campaign, Settings
from tests.fuzz.client_campaign import ClientCampaign
from tests.fuzz.findings import Finding
from tests.fuzz.replay import Reproducer


def main(arguments: list[str] | None = None) -> int:
    """Read the command line and run. Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, help="the seed of the random numbers; a random one if not given")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long inputs are sent")
    parser.add_argument("--inputs", type=int, help="no further round begins after so many inputs")
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings"), help="where reproducers are written")
    parser.add_argument("--round-seconds", type=float, default=40.0, help="seconds of inputs between two kill -9")
    parser.add_argument("--shrink-seconds", type=float, default=60.0, help="how long one finding is shrunk")
    parser.add_argument("--defect", default="none", help="a planted defect, to test the fuzzer")
    parser.add_argument("--clients", action="store_true", help="spoil answers to clients, in place of requests")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="send a reproducer's inputs to a fresh broker")
    options = parser.parse_args(arguments)
    directory = Path(tempfile.mkdtemp(prefix="pyclient-fuzz-"))
    try:
        if options.replay is not None:
            return _replay(options.replay, directory, options.defect)
        seed = options.seed if options.seed is not None else SystemRandom().randrange(1 << 32)
        _say(f"seed {seed}, {options.seconds:g} s")
        if options.clients:
            clients = ClientCampaign(seed, options.seconds, _say).run()
            _say("\n".join(clients.lines()))
            return 1 if clients.findings else 0
        settings = Settings(
            seed=seed,
            seconds=options.seconds,
            directory=directory,
            findings=options.findings,
            round_seconds=options.round_seconds,
            shrink_seconds=options.shrink_seconds,
            inputs=options.inputs,
            defect=options.defect,
        )
        outcome = Campaign(settings, _say).run()
        _say("\n".join(outcome.lines()))
        return 1 if outcome.findings else 0
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _replay(path: Path, directory: Path, defect: str) -> int:
    finding = Finding.from_json(json.loads(path.read_text()))
    shown = Reproducer(directory, Random(0), 600.0, defect).shows(finding, finding.frames)
    _say(f"{finding.kind}: {finding.key}: {'comes again' if shown else 'does not come again'}")
    return 1 if shown else 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
