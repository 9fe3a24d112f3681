"""The fuzzer itself: what it makes can be read, what is planted is found and shrunk; and a short run of it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pyclient.broker_embedded.served_apis import SERVED
from pyclient.protocol import codec, framing
from pyclient.protocol.versions import API_KEYS, request_class
from pyclient.records import check_crc, read_header
from tests.fuzz.__main__ import main
from tests.fuzz.campaign import Campaign, Settings
from tests.fuzz.client_campaign import ClientCampaign
from tests.fuzz.messages import MessageGenerator
from tests.fuzz.mutators import mutate
from tests.fuzz.planted_defects import DEFECTS
from tests.fuzz.record_data import RecordDataGenerator
from tests.fuzz.replay import minimal
from tests.fuzz.state import State
from tests.fuzz.traffic import Sent

BUSY_MS = "400"
"""The CPU time of a slow step: on a busy machine the same work takes several times as much."""

FUZZER = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.xdist_group("fuzzer")]
"""A broker, its attacker and its good client share the machine with no second set of those."""

KINDS = [(name, version) for name, served in SERVED.items() for version in range(served.first, served.last + 1)]


@pytest.mark.parametrize("hostility", [0.0, 0.3, 1.0])
def test_generated_requests_are_decoded_in_every_version(hostility: float) -> None:
    rng = Random(1)
    generator = MessageGenerator(State(rng), rng)
    for name, version in KINDS * 3:
        request = generator.make(name, version, hostility)
        frame = memoryview(b"".join(framing.encode_request(request, version, 7, "fuzz")))[4:]
        header = framing.decode_request_header(frame)
        decoded = codec.decode(request_class(API_KEYS[name]), version, frame, header.body_offset)
        assert type(decoded) is type(request)


def test_valid_batches_have_a_crc_that_fits() -> None:
    rng = Random(2)
    state = State(rng)
    batches = RecordDataGenerator(state, rng)
    for _ in range(50):
        batch = memoryview(batches.valid("t", 0))
        check_crc(batch, 0, read_header(batch, 0))


def test_mutated_frames_differ_and_stay_frames() -> None:
    rng = Random(3)
    frame = b"\0\0\0\x10" + bytes(range(16))
    changed = [mutate(frame, rng, frame[::-1]) for _ in range(500)]
    assert sum(each != frame for each in changed) > 450
    assert sum(int.from_bytes(each[:4], "big") == len(each) - 4 for each in changed) > 450
    assert all(len(each) >= 4 for each in changed)


def test_same_seed_gives_the_same_requests() -> None:
    def frames(seed: int) -> list[bytes]:
        rng = Random(seed)
        generator = MessageGenerator(State(rng), rng)
        drawn = [generator.draw() for _ in range(50)]
        return [
            b"".join(framing.encode_request(generator.make(name, version, 0.2), version, 1, None))
            for name, version in drawn
        ]

    assert frames(5) == frames(5) != frames(6)


def test_sequence_is_shrunk_to_what_is_needed() -> None:
    inputs = [Sent(bytes([number]), 0) for number in range(100)]
    needed = {inputs[3].frame, inputs[97].frame}
    found = minimal(inputs, lambda some: needed <= {each.frame for each in some}, time.monotonic() + 60)
    assert {each.frame for each in found} == needed


def settings(directory: Path, **options: Any) -> Settings:
    return Settings(**{"directory": directory, "findings": directory / "findings", "shrink_seconds": 12.0} | options)


@pytest.mark.parametrize("defect", [pytest.param(defect, marks=FUZZER) for defect in DEFECTS])
def test_planted_defect_is_found(tmp_path: Path, defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYCLIENT_FUZZ_SLOW_MS", BUSY_MS)
    seconds = 24.0 if defect in ("leak", "no answer") else 12.0
    # At most so long: how many inputs there are in a second depends on what else the machine does
    options = {"seed": 1, "seconds": 10 * seconds, "round_seconds": seconds, "defect": defect, "stop_at": defect}
    if defect == "ended":  # the input is not known, only those that were sent last
        options["shrink_seconds"] = 300.0
    campaign = Campaign(settings(tmp_path, **options), print)
    outcome = campaign.run()
    _api, text, _mistake = DEFECTS[defect]
    found = [finding for finding in outcome.findings if finding.kind == defect and text in finding.text]
    assert found, outcome.lines()
    if defect in ("error", "slow", "ended"):
        [finding] = found
        assert finding.reproduced
        assert len(finding.frames) < 50
        path = tmp_path / "reproducer.json"
        path.write_text(json.dumps(finding.to_json()))
        assert main(["--replay", str(path), "--defect", defect]) == 1
        assert main(["--replay", str(path)]) == 0


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=FUZZER) for seed in (20_261_123, 61)])
def test_broker_withstands_the_fuzzer(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYCLIENT_FUZZ_SLOW_MS", BUSY_MS)
    outcome = Campaign(settings(tmp_path, seed=seed, seconds=90.0), print).run()
    assert not [finding for finding in outcome.findings if finding.certain], "\n".join(outcome.lines())
    assert outcome.inputs > 3_000
    assert set(SERVED) <= {line.split()[0] for line in outcome.table}


@pytest.mark.slow
@pytest.mark.xdist_group("fuzzer")
def test_clients_withstand_spoiled_answers() -> None:
    outcome = ClientCampaign(1, 60.0, print).run()
    assert not outcome.findings, "\n".join(outcome.lines())
    assert outcome.spoiled.total() > 50
