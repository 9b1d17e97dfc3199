"""Settings: flag > environment > file > default, and one line for whatever can't be."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcsampler.errors import UsageError
from hpcsampler.settings import Settings, as_flag, load, unknown_variables


@pytest.fixture
def file(tmp_path):
    def write(text: str) -> dict[str, str]:
        path = tmp_path / "config.toml"
        path.write_text(text)
        return {"HPCSAMPLER_CONFIG": str(path)}

    return write


def test_without_anything_the_defaults_hold(tmp_path):
    assert load({"HOME": str(tmp_path)}) == Settings()


def test_a_flag_wins_over_the_environment_over_the_file(file):
    environ = file('job = "file"\nrank = 1\nflush_ms = 50')
    assert load(environ).job == "file"
    environ |= {"HPCSAMPLER_JOB": "environ", "HPCSAMPLER_RANK": "2"}
    settings = load(environ, job="flag")
    assert (settings.job, settings.rank, settings.flush_ms) == ("flag", 2, 50.0)


@pytest.mark.parametrize(
    ("environ", "flags", "said"),
    [
        ({"RANK": "2", "WORLD_SIZE": "2"}, {}, "HPCSAMPLER_RANK is 2, but HPCSAMPLER_WORLD_SIZE is 2"),
        ({"RANK": "1"}, {"world_size": 1}, "HPCSAMPLER_RANK is 1, but world_size= is 1"),
        ({"RANK": "0"}, {"rank": 5, "world_size": 2}, "rank= is 5, but world_size= is 2: write a rank from 0 to 1"),
    ],
)
def test_a_rank_beyond_the_world_is_refused_with_both_places(tmp_path, environ, flags, said):
    environ = {f"HPCSAMPLER_{name}": value for name, value in environ.items()}
    with pytest.raises(UsageError) as caught:
        load({"HOME": str(tmp_path), **environ}, **flags)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(("rank", "size"), [(0, 1), (1, 2), (None, 2), (5, None)])
def test_a_rank_within_the_world_or_without_one_is_taken(tmp_path, rank, size):
    settings = load({"HOME": str(tmp_path)}, rank=rank, world_size=size)
    assert (settings.rank, settings.world_size) == (rank, size)


def test_a_flag_is_named_as_its_user_wrote_it():
    with pytest.raises(UsageError, match="--flush-ms is 'soon'"):
        load({"HOME": "/nowhere"}, as_flag, flush_ms="soon")


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("RNAK", "RANK"), ("WORLDSIZE", "WORLD_SIZE"), ("RUNTIMEDIR", "RUNTIME_DIR"), ("CONF", "CONFIG"), ("rank", "")],
)
def test_a_variable_that_means_nothing_has_a_nearest(name, nearest):
    (said,) = unknown_variables({f"HPCSAMPLER_{name}": "1", "PATH": "/bin"})
    assert f"HPCSAMPLER_{name}" in said
    assert said.rpartition("HPCSAMPLER_")[2].startswith(nearest)


def test_a_strange_variable_is_one_line():
    (said,) = unknown_variables({"HPCSAMPLER_a\nb\udcff" + "x" * 9999: "1"})
    assert len(said.encode().splitlines()) == 1
    assert len(said) < 500


def test_every_variable_that_the_code_reads_is_known():
    """Else whoever sets it is told that it means nothing."""
    source = Path(__file__).parents[2] / "src"
    texts = [path.read_text(encoding="utf-8") for path in source.rglob("*.py*") if path.suffix in {".py", ".pyx"}]
    names = {name for text in texts for name in re.findall(r"\bHPCSAMPLER_[A-Z]\w*", text)}
    assert "HPCSAMPLER_RUNTIME_DIR" in names
    assert unknown_variables(dict.fromkeys(names, "1")) == []


def test_the_file_is_found_where_the_user_keeps_settings(tmp_path):
    folder = tmp_path / ".config" / "hpcsampler"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text('daemon = "never"')
    assert load({"HOME": str(tmp_path)}).daemon == "never"
    assert load({"HOME": "/nowhere", "XDG_CONFIG_HOME": str(tmp_path / ".config")}).daemon == "never"


def test_an_empty_variable_is_no_setting(tmp_path):
    assert load({"HOME": str(tmp_path), "HPCSAMPLER_RANK": ""}).rank is None


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("ENABLED", "maybe", "write 1 or 0"),
        ("DAEMON", "always", "write auto, never or an address"),
        ("DAEMON", "tcp://10.0.0.1:5555", "would need keys"),
        ("JOB", "x" * 300, "1 to 256 printable characters"),
        ("RANK", "-1", "a whole number from 0"),
        ("RANK", "1.5", "a whole number from 0"),
        ("RANK", "9" * 30, "a whole number below"),
        ("WORLD_SIZE", "9" * 30, "a whole number below"),
        ("DAEMON", "ipc://", "write auto, never or an address"),
        ("DAEMON", f"ipc:///{'x' * 200}", "write auto, never or an address"),
        ("WORLD_SIZE", "0", "a whole number from 1"),
        ("FLUSH_MS", "nan", "a number from 10 to 10000"),
        ("FLUSH_MS", "1e9", "a number from 10 to 10000"),
        ("RING_EVENTS", "1000", "a power of two from 64"),
        ("RING_EVENTS", str(1 << 30), "a power of two from 64"),
        ("PUBLISH_MS", "soon", "a number from 20"),
        ("GPU_MS", "0", "a number from 50"),
        ("LINGER_S", "-1", "a number from 0"),
    ],
)
def test_what_can_not_be_is_said_in_one_line_with_its_place(tmp_path, name, value, said):
    with pytest.raises(UsageError) as caught:
        load({"HOME": str(tmp_path), f"HPCSAMPLER_{name}": value})
    text = str(caught.value)
    assert text.startswith(f"HPCSAMPLER_{name} is ")
    assert said in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rank = ", "not valid TOML"),
        ("colour = 1", "unknown setting 'colour': known are daemon, enabled"),
        ("rank = true", "rank is True"),
        ("rank = 1.5", "rank is 1.5"),
        ("flush_ms = [1]", "flush_ms is [1]"),
        ("job = {a = 1}", "job is \"{'a': 1}\""),
        ('job = "\\u001b[2J"', "job is '\\x1b[2J'"),
    ],
)
def test_a_wrong_file_is_named(file, text, said):
    environ = file(text)
    with pytest.raises(UsageError) as caught:
        load(environ)
    assert environ["HPCSAMPLER_CONFIG"] in str(caught.value)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_was_asked_for_must_be_there():
    with pytest.raises(UsageError, match="can't read the settings file /no/such/file: No such file"):
        load({"HPCSAMPLER_CONFIG": "/no/such/file"})


def test_a_file_that_is_no_text_is_named(tmp_path):
    (tmp_path / "f").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="is not valid TOML"):
        load({"HPCSAMPLER_CONFIG": str(tmp_path / "f")})


@given(name=st.sampled_from([field.name for field in fields(Settings)]), value=st.text(max_size=300))
def test_any_text_is_either_a_setting_or_one_line(name, value):
    try:
        load({"HOME": "/nowhere", f"HPCSAMPLER_{name.upper()}": value})
    except UsageError as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017 - most texts, but not all, are errors
