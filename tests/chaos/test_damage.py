"""Each kind of damage harms the files that it names, in directories that a broker has written, and no others."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from pyclient import Admin, NewTopic, Producer
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.log.checkpoints import parse_offsets
from pyclient.errors import CorruptRecord, ProtocolError
from pyclient.records import check_crc, iter_batches
from tests.chaos import damage
from tests.chaos.damage import Damage

SEEDS = range(20)
LAST_SEGMENT = 4
Tree = dict[str, bytes]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the data directory of a broker that was stopped, with one partition in several segments."""
    data_dir = tmp_path_factory.mktemp("written")
    config = {"internal.log.segment.bytes": 4_000, "log.index.interval.bytes": 100}
    with EmbeddedCluster(1, data_dir=data_dir, config=config) as cluster:
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("busy", 1, 1)])
        with Producer(cluster.bootstrap_servers, enable_idempotence=True) as producer:
            for number in range(60):
                producer.send("busy", b"%04d" % number * 50, partition=0).result()
    return data_dir


@pytest.fixture
def data_dir(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "copy"))


def tree(directory: Path) -> Tree:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def segments(found: Tree) -> list[str]:
    return sorted(name for name in found if re.fullmatch(r"busy-0/\d{20}\.log", name))


def harmed(data_dir: Path, do: Damage, within: str) -> Iterator[tuple[Tree, Tree, set[str]]]:
    """Do some damage with several seeds. Yield the files before and after it, and the names of those that differ."""
    before = tree(data_dir)
    for seed in SEEDS:
        do(data_dir / within, random.Random(seed))
        after = tree(data_dir)
        changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        yield before, after, changed
        for name in changed:
            (data_dir / name).unlink(missing_ok=True)
            if name in before:
                (data_dir / name).write_bytes(before[name])


def is_sound(content: bytes) -> bool:
    """Return True if a segment has whole batches with the right checksums."""
    end = 0
    try:
        for position, header in iter_batches(content):
            check_crc(content, position, header)
            end = position + header.size
    except (CorruptRecord, ProtocolError):
        return False
    return end == len(content)


def flipped_bits(before: bytes, after: bytes) -> list[int]:
    """Return the positions of the bytes that differ, once for each bit."""
    assert len(before) == len(after)
    return [at for at, (a, b) in enumerate(zip(before, after, strict=True)) for _ in range((a ^ b).bit_count())]


def test_cut_tail_removes_the_end_of_the_last_segment(data_dir: Path) -> None:
    sizes = set()
    for before, after, changed in harmed(data_dir, damage.cut_tail, "busy-0"):
        last = segments(before)[-1]
        assert changed == {last}
        assert before[last].startswith(after[last])
        sizes.add(len(after[last]))
    assert len(sizes) > 10


def test_tear_tail_leaves_zeros_or_half_a_batch(data_dir: Path) -> None:
    kinds = set()
    for before, after, changed in harmed(data_dir, damage.tear_tail, "busy-0"):
        last = segments(before)[-1]
        assert changed == {last}
        assert not is_sound(after[last])
        kinds.add(len(after[last]) == len(before[last]))
    assert kinds == {True, False}


def test_halve_index_cuts_indexes_of_both_kinds(data_dir: Path) -> None:
    kinds = set()
    for before, after, changed in harmed(data_dir, damage.halve_index, "busy-0"):
        (name,) = changed
        assert len(after[name]) == len(before[name]) // 2
        kinds.add(name.rpartition(".")[2])
    assert kinds == {"index", "timeindex"}


def test_empty_leader_epochs_has_no_bytes_left(data_dir: Path) -> None:
    for _before, after, changed in harmed(data_dir, damage.empty_leader_epochs, "busy-0"):
        assert changed == {"busy-0/leader-epoch-checkpoint"}
        assert after["busy-0/leader-epoch-checkpoint"] == b""


def test_remove_small_file_removes_each_kind(data_dir: Path) -> None:
    kinds = set()
    for _before, after, changed in harmed(data_dir, damage.remove_small_file, "busy-0"):
        (name,) = changed
        assert name not in after
        kinds.add(re.sub(r"\d{20}", "", name))
    assert kinds == {"busy-0/leader-epoch-checkpoint", "busy-0/partition.metadata", "busy-0/.snapshot"}


def test_temporary_files_have_the_names_of_interrupted_operations(data_dir: Path) -> None:
    suffixes = set()
    for before, _after, changed in harmed(data_dir, damage.leave_temporary_files, "busy-0"):
        assert not changed & before.keys()
        suffixes |= {name.rpartition(".")[2] for name in changed}
    assert suffixes == {"tmp", "deleted", "cleaned", "swap"}


@pytest.mark.parametrize("do", [damage.lower_offsets, damage.remove_checkpoint])
def test_damage_to_checkpoints_lowers_or_removes_one(data_dir: Path, do: Damage) -> None:
    names = set()
    for before, after, changed in harmed(data_dir, do, "."):
        assert len(changed) <= 1  # a random offset may be the present one
        for name in changed:
            names.add(name)
            if do is damage.remove_checkpoint:
                assert name not in after
                continue
            now = parse_offsets(after[name], name)
            for at, offset in parse_offsets(before[name], name).items():
                assert 0 <= now[at] <= offset
    assert names >= {"recovery-point-offset-checkpoint", "replication-offset-checkpoint"}


def test_checkpoint_that_is_corrupt_already_is_not_lowered(data_dir: Path) -> None:
    for path in data_dir.glob("*-checkpoint"):
        path.write_bytes(b"nonsense")
    assert not any(changed for _before, _after, changed in harmed(data_dir, damage.lower_offsets, "."))


@pytest.mark.parametrize("do", [damage.lower_offsets, damage.halve_checkpoint, damage.remove_checkpoint])
def test_damage_to_a_named_checkpoint_spares_the_others(data_dir: Path, do: Callable[..., None]) -> None:
    name = "log-start-offset-checkpoint"
    (data_dir / name).write_bytes(b"0\n1\nbusy 0 1000000\n")
    found = [changed for _before, _after, changed in harmed(data_dir, partial(do, names=[name]), ".")]
    assert found == [{name}] * len(SEEDS)


def test_temporary_checkpoints_are_new_files(data_dir: Path) -> None:
    for before, _after, changed in harmed(data_dir, damage.leave_temporary_checkpoints, "."):
        assert "recovery-point-offset-checkpoint.tmp" in changed
        assert not changed & before.keys()


def test_flipped_bit_of_a_segment_is_in_the_one_that_is_named(data_dir: Path) -> None:
    chosen: dict[Callable[..., None], set[str]] = {}
    for do in (damage.flip_tail, damage.flip_last_segment, damage.flip_closed_segment):
        for before, after, changed in harmed(data_dir, do, "busy-0"):
            (name,) = changed
            assert len(flipped_bits(before[name], after[name])) == 1
            chosen.setdefault(do, set()).add(name)
    names = segments(tree(data_dir))
    assert len(names) > LAST_SEGMENT
    assert chosen[damage.flip_tail] == chosen[damage.flip_last_segment] == {names[-1]}
    assert {*names[:2]} < chosen[damage.flip_closed_segment] <= {*names[:-1]}


@pytest.mark.parametrize(
    ("do", "within", "kinds"),
    [
        (damage.flip_index, "busy-0", {"index", "timeindex"}),
        (damage.flip_snapshot, "busy-0", {"snapshot"}),
        (damage.flip_leader_epochs, "busy-0", {"leader-epoch-checkpoint"}),
        (damage.flip_high_watermarks, ".", {"replication-offset-checkpoint"}),
        (damage.flip_recovery_points, ".", {"recovery-point-offset-checkpoint"}),
    ],
)
def test_flipped_bit_of_a_small_file_is_in_each_kind(data_dir: Path, do: Damage, within: str, kinds: set[str]) -> None:
    found, positions = set(), set()
    for before, after, changed in harmed(data_dir, do, within):
        (name,) = changed
        positions.update(flipped_bits(before[name], after[name]))
        found.add(re.split(r"[/.]", name)[-1])
    assert found == kinds
    assert len(positions) > 3


def test_halved_checkpoint_is_empty_or_half(data_dir: Path) -> None:
    names, shares = set(), set()
    for before, after, changed in harmed(data_dir, damage.halve_checkpoint, "."):
        (name,) = changed
        assert before[name].startswith(after[name])
        names.add(name)
        shares.add(len(after[name]) * 2 // len(before[name]))
    assert names >= {"recovery-point-offset-checkpoint", "replication-offset-checkpoint"}
    assert shares == {0, 1}


@pytest.mark.parametrize("do", [damage.flip_closed_index, damage.halve_closed_index])
def test_damage_to_closed_indexes_spares_the_last_segment(data_dir: Path, do: Damage) -> None:
    last = segments(tree(data_dir))[-1].removesuffix(".log")
    found = set()
    for before, after, changed in harmed(data_dir, do, "busy-0"):
        (name,) = changed
        found.add(name)
        if do is damage.flip_closed_index:
            assert len(flipped_bits(before[name], after[name])) == 1
        else:
            assert len(after[name]) == len(before[name]) // 2
    assert {name.rpartition(".")[2] for name in found} == {"index", "timeindex"}
    assert not any(name.startswith(last) for name in found)


def test_harm_names_the_files_that_differ(data_dir: Path) -> None:
    directory, chosen = data_dir / "busy-0", random.Random(1)
    assert damage.harm(directory, lambda _directory, _chosen: None, chosen) == []
    assert damage.harm(directory, damage.empty_leader_epochs, chosen) == ["leader-epoch-checkpoint"]
    assert damage.harm(directory, damage.empty_leader_epochs, chosen) == []
    (removed,) = damage.harm(directory, lambda path, _chosen: next(path.glob("*.log")).unlink(), chosen)
    assert removed.endswith(".log")


def test_segments_of_a_log_are_closed_but_for_the_last(data_dir: Path) -> None:
    directory, names = data_dir / "busy-0", segments(tree(data_dir))
    assert [f"busy-0/{path.name}" for path in damage.closed_segments(directory)] == names[:-1]
    assert [f"busy-0/{base:020d}.log" for base in damage.bases(directory)] == names


def test_files_that_a_repair_kept_aside_are_found(data_dir: Path) -> None:
    directory = data_dir / "busy-0"
    assert damage.kept_aside(directory) == {}
    path = directory / f"{0:020d}.log.damaged"
    path.write_bytes(b"damaged")
    assert damage.kept_aside(directory) == {path.name: path.stat().st_mtime_ns}


def test_damage_of_an_empty_directory_does_nothing(tmp_path: Path) -> None:
    kinds = [
        getattr(damage, name) for name in vars(damage) if re.match("(cut|tear|halve|empty|remove|lower|flip)_", name)
    ]
    assert len(kinds) > 10
    for do in kinds:
        do(tmp_path, random.Random(1))
    assert tree(tmp_path) == {}


def test_logs_of_topics_are_the_directories_of_their_partitions(written: Path) -> None:
    assert [path.name for path in damage.logs_of(written, ["busy", "other"])] == ["busy-0"]
    assert not damage.logs_of(written, ["bus", "__cluster"])
