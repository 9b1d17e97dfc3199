"""Settings: flag > environment > file > default, and one line for whatever can't be."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcsampler.errors import UsageError
from hpcsampler.settings import Settings, load


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
