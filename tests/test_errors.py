import copy
import inspect
import pickle
import subprocess
import sys
import traceback

import pytest

from pyclient import errors

CLASSES = [getattr(errors, name) for name in errors.__all__ if inspect.isclass(getattr(errors, name))]
CODES = [cls for cls in CLASSES if issubclass(cls, errors.BrokerError) and cls.code not in (0, errors.BrokerError.code)]
CODES += [errors.UnknownServerError]


def test_each_kafka_error_code_has_one_class():
    assert sorted(cls.code for cls in CODES) == [-1, *range(1, 134)]
    for cls in CODES:
        assert errors.for_code(cls.code) is cls


@pytest.mark.parametrize("code", [0, 134, 999, -2])
def test_unknown_error_code_keeps_its_number(code):
    assert errors.for_code(code) is errors.UnknownErrorCode
    error = errors.from_code(code, "asking")
    assert (error.code, str(error)) == (code, f"asking: unknown error code {code}")
    assert pickle.loads(pickle.dumps(error)).code == code


def test_every_class_is_named_and_pickled_by_its_public_module():
    for cls in CLASSES:
        assert cls.__module__ == "pyclient.errors"
        assert repr(cls) == f"<class 'pyclient.errors.{cls.__name__}'>"
        assert pickle.loads(pickle.dumps(cls)) is cls
        assert cls.__doc__


def test_every_error_of_broker_survives_pickling_and_copying():
    for cls in CODES:
        error = errors.from_code(cls.code, "creating t")
        error.maybe_persisted = True
        error.results = {"t": cls("inner")}
        for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
            assert type(twin) is cls
            assert repr(twin) == repr(error) == f"{cls.__name__}('creating t')"
            assert (twin.code, twin.retriable, twin.maybe_persisted) == (cls.code, cls.retriable, True)
            assert repr(twin.results) == repr(error.results)


def test_errors_with_fields_survive_pickling():
    poison = errors.CorruptBatch("a batch of t-0 is damaged", "t", 0, 17, 20)
    failed = errors.DeliveryFailed(2, errors.MessageTooLarge("too large"))
    for error in (poison, failed):
        twin = pickle.loads(pickle.dumps(error))
        assert type(twin) is type(error)
        assert str(twin) == str(error)
    assert pickle.loads(pickle.dumps(poison)).next_offset == 20
    assert str(poison) == "a batch of t-0 is damaged; seek(('t', 0), offset=20) skips it"
    assert isinstance(pickle.loads(pickle.dumps(failed)).first_error, errors.MessageTooLarge)


def test_traceback_names_error_by_its_import_path():
    [line] = traceback.format_exception_only(errors.NotCoordinator("asking node 1"))
    assert line == "pyclient.errors.NotCoordinator: asking node 1\n"


def test_errors_import_only_types():
    program = (
        "import sys, pyclient.errors;"
        "print(*sorted(n for n in sys.modules if n.startswith('pyclient') and not n.startswith('pyclient.errors')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["pyclient", "pyclient.lazy_names", "pyclient.types", "pyclient.version"]
