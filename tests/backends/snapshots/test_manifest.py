from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backends.signature import DATATYPES, TensorSpec
from backends.snapshots.manifest import (
    ARCHITECTURES,
    DTYPES,
    FileEntry,
    LlmManifest,
    Manifest,
    ManifestInvalid,
    MindirManifest,
    digest_of,
    is_name,
    parse,
    render,
)

ALPHABET = "aZ9._-"
names = st.builds(str.__add__, st.sampled_from("aZ9"), st.text(ALPHABET, max_size=20)).filter(
    lambda name: ".." not in name
)
checksums = st.integers(0, 16**64 - 1).map(lambda number: f"{number:064x}")
counts = st.integers(min_value=1, max_value=2**63 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)

files = st.lists(
    st.builds(FileEntry, names, st.integers(0, 2**63 - 1), checksums),
    min_size=1,
    max_size=4,
    unique_by=lambda entry: entry.name,
).map(tuple)

llm_manifests = st.builds(
    LlmManifest,
    model=names,
    version=names,
    engine=st.just("llm"),
    architecture=st.sampled_from(ARCHITECTURES),
    dtype=st.sampled_from(sorted(DTYPES)),
    max_seq_len=counts,
    slots=counts,
    kv_policy=st.just("preallocated"),
    memory_needed_bytes=counts,
    source=texts,
    created=st.just("2026-01-02T03:04:05+00:00"),
    files=files,
)


def tensor_specs(batched: bool) -> st.SearchStrategy[tuple[TensorSpec, ...]]:
    first = (-1,) if batched else ()
    shapes = st.lists(st.integers(-1, 2**40), max_size=3).map(lambda rest: (*first, *rest))
    specs = st.builds(TensorSpec, texts, st.sampled_from(sorted(DATATYPES)), shapes)
    return st.lists(specs, min_size=1, max_size=3, unique_by=lambda spec: spec.name).map(tuple)


@st.composite
def mindir_manifests(draw: st.DrawFn) -> MindirManifest:
    max_batch = draw(st.integers(0, 64))
    return MindirManifest(
        model=draw(names),
        version=draw(names),
        engine="mindir",
        memory_needed_bytes=draw(counts),
        source=draw(texts),
        created="2026-01-02T03:04:05+00:00",
        files=draw(files),
        max_batch=max_batch,
        max_delay_ms=draw(st.floats(0, 60_000)),
        graph_rows=draw(st.integers(0, 64)),
        inputs=draw(tensor_specs(max_batch > 0)),
        outputs=draw(tensor_specs(max_batch > 0)),
    )


manifests = llm_manifests | mindir_manifests()

EXAMPLE = LlmManifest(
    model="tiny",
    version="1",
    engine="llm",
    architecture="llama",
    dtype="float32",
    max_seq_len=128,
    slots=2,
    kv_policy="preallocated",
    memory_needed_bytes=1000,
    source="folder tiny sha256:00",
    created="2026-01-02T03:04:05+00:00",
    files=(FileEntry("model.safetensors", 10, "a" * 64), FileEntry("config.json", 2, "b" * 64)),
)

GRAPH = MindirManifest(
    model="mnist",
    version="1",
    engine="mindir",
    memory_needed_bytes=1000,
    source="mindir mnist.mindir sha256:00",
    created="2026-01-02T03:04:05+00:00",
    files=(FileEntry("model.mindir", 10, "a" * 64),),
    max_batch=8,
    max_delay_ms=2.0,
    graph_rows=0,
    inputs=(TensorSpec("x", "FP32", (-1, 64)),),
    outputs=(TensorSpec("y", "FP32", (-1, 10)), TensorSpec("best", "INT32", (-1,))),
)


@given(manifests)
@example(replace(EXAMPLE, source='a "quoted" \\ \n \t \x00 \x7f 昇思'))
def test_what_is_rendered_is_read_back_equal(manifest: Manifest) -> None:
    assert parse(render(manifest)) == manifest


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("format = 1", "format = 2", "format: must be 1"),
        ("format = 1", "format = true", "format: must be 1"),
        ('model = "tiny"', 'model = "../tiny"', "model: must be 1 to 128 letters"),
        ('version = "1"', "version = 1", "version: must be 1 to 128 letters"),
        ('engine = "llm"', 'engine = "x"', 'engine: must be "llm" or "mindir", not'),
        ('"llama"', '"gpt"', 'architecture: must be "llama" or "qwen2" or "qwen3", not'),
        ('dtype = "float32"', "dtype = []", "dtype: must be"),
        ("slots = 2", "slots = 0", "slots: must be a whole number of at least 1, not 0"),
        ("slots = 2", "slots = true", "slots: must be"),
        ("max_seq_len = 128", "", "max_seq_len: is missing"),
        ("kv_policy =", "kv_polisy =", "kv_polisy: is not a key"),
        ("+00:00", "+01:00", "created: must be a time in ISO 8601"),
        ("2026-01-02T03", "yesterday", "created: must be a time in ISO 8601"),
        ("bytes = 10", "bytes = -1", "files[0].bytes: must be"),
        ('"config.json"', '"sub/config.json"', "files[1].name: must be"),
        ('"config.json"', '"model.safetensors"', "files[1].name: must be a name of its own"),
        ('"config.json"', '"manifest.toml"', "files[1].name: must be a name of its own"),
        ("a" * 64, "A" * 64, "files[0].sha256: must be 64 lower-case"),
        ("format = 1", "format = ", "manifest.toml: must be TOML"),
    ],
)
def test_each_rule_names_its_path(old: str, new: str, problem: str) -> None:
    text = render(EXAMPLE)
    assert old in text
    with pytest.raises(ManifestInvalid) as caught:
        parse(text.replace(old, new))
    assert any(found.startswith(problem) for found in caught.value.problems), caught.value.problems


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("max_batch = 8", "max_batch = -1", "max_batch: must be a whole number of at least 0"),
        ("max_delay_ms = 2.0", "max_delay_ms = nan", "max_delay_ms: must be a number from 0 to"),
        ("max_delay_ms = 2.0", "max_delay_ms = true", "max_delay_ms: must be a number from 0 to"),
        ("max_delay_ms = 2.0", "max_delay_ms = 60001", "max_delay_ms: must be a number from 0 to"),
        ("graph_rows = 0", "", "graph_rows: is missing"),
        ("graph_rows = 0", "graph_rows = 0\nslots = 4", "slots: is not a key of a manifest"),
        ('"INT32"', '"BYTES"', 'outputs[1].datatype: must be "BOOL" or'),
        ('name = "x"', 'name = ""', "inputs[0].name: must be a text"),
        ('name = "best"', 'name = "y"', "outputs[1].name: must be a name of its own, not 'y'"),
        ("shape = [-1, 64]", "shape = [-1, -2]", "inputs[0].shape: must be a list of sizes"),
        ("shape = [-1, 64]", "shape = [8, 64]", "inputs[0].shape: must begin with -1"),
        ("shape = [-1]", "shape = []", "outputs[1].shape: must begin with -1"),
        ("[[inputs]]", "[[inputz]]", "inputs: is missing"),
    ],
)
def test_each_rule_of_a_graph_names_its_path(old: str, new: str, problem: str) -> None:
    text = render(GRAPH)
    assert old in text
    with pytest.raises(ManifestInvalid) as caught:
        parse(text.replace(old, new))
    assert any(found.startswith(problem) for found in caught.value.problems), caught.value.problems


def test_every_problem_is_listed_at_once() -> None:
    with pytest.raises(ManifestInvalid) as caught:
        parse('model = ""\nslots = "four"\nfiles = [1, {name = "..", bytes = 1}]\nextra = 1\n')
    paths = {problem.split(":")[0] for problem in caught.value.problems}
    assert {"model", "slots", "files[0]", "files[1].name", "files[1].sha256", "extra"} <= paths
    assert {"format", "created", "dtype"} <= paths


def test_files_must_be_a_list_that_is_not_empty() -> None:
    for files in ("files = []", 'files = "all"'):
        with pytest.raises(ManifestInvalid, match="files: must be a list of at least one table"):
            parse(files)


@given(manifests)
def test_the_digest_knows_files_and_nothing_else(manifest: Manifest) -> None:
    renamed = replace(manifest, model="other", source="another", files=manifest.files[::-1])
    assert renamed.digest == manifest.digest
    grown = replace(manifest, files=(*manifest.files, FileEntry("another..", 1, "c" * 64)))
    assert grown.digest != manifest.digest


def test_swapping_the_bytes_of_two_files_changes_the_digest() -> None:
    assert digest_of({"a": "1", "b": "2"}) != digest_of({"a": "2", "b": "1"})


@pytest.mark.parametrize("name", ["a", "SmolLM2-135M", "1", "v1.0_rc-2", "a" * 128])
def test_ordinary_names_are_names(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        ".hidden",
        "-x",
        "_x",
        "a/b",
        "a\\b",
        "a..b",
        "a b",
        "a\n",
        "é",
        "a\0",
        "a" * 129,
    ],
)
def test_what_could_leave_or_hide_in_the_folder_is_no_name(name: str) -> None:
    assert not is_name(name)
