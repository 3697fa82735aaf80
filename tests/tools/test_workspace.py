"""The workspace tools: useful inside the directory, and no way out of it."""

import asyncio
import os
import socket
import stat
import subprocess
import sys
import threading
import tracemalloc
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from untildone import Agent, ConfigError, ToolError, run_agent
from untildone.domain.tools import output_text
from untildone.testing import ScriptedModel, call, reply
from untildone.tools import as_tool, confined
from untildone.tools import workspace as workspace_module
from untildone.tools.workspace import MAX_LISTED, MAX_MATCHES, MAX_READ_CHARS, Workspace

SECRET = "the secret outside"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The workspace, beside a secret."""
    (tmp_path / "secret.txt").write_text(SECRET)
    inside = tmp_path / "inside"
    (inside / "src").mkdir(parents=True)
    (inside / "src" / "main.py").write_text("a = 1\nb = 2\nc = a + b\n")
    (inside / "README.md").write_text("# Readme\n")
    return inside


@pytest.fixture
def workspace(root: Path) -> Workspace:
    return Workspace(root)


def names_of(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


# ── Inside ───────────────────────────────────────────────────────────────────────────────────────


def test_listing_shows_everything_below_with_sizes(workspace: Workspace):
    assert workspace.list_files() == "README.md  9\nsrc/\nsrc/main.py  22"
    assert workspace.list_files("src") == "src/main.py  22"


def test_listing_an_empty_directory_says_so(workspace: Workspace, root: Path):
    (root / "empty").mkdir()
    assert workspace.list_files("empty") == "(empty)"


def test_listing_names_but_does_not_enter_what_is_nobodys_work(workspace: Workspace, root: Path):
    for name in ("__pycache__", "node_modules", ".venv"):
        (root / name).mkdir()
        (root / name / "x").touch()
    assert "__pycache__/\n" in workspace.list_files()
    assert "/x" not in workspace.list_files()
    assert workspace.list_files("node_modules") == "node_modules/x  0"


def test_listing_ends_at_a_bound_and_says_so(workspace: Workspace, root: Path):
    for number in range(MAX_LISTED + 5):
        (root / f"{number}.txt").touch()
    lines = workspace.list_files().splitlines()
    assert len(lines) == MAX_LISTED + 1
    assert lines[-1] == f"[more than {MAX_LISTED} entries; list a directory below]"


def test_reading_gives_the_file_verbatim(workspace: Workspace, root: Path):
    for text in ("no newline at the end", "a\r\nb\r\n", "\ufeffmark", "ü\x0c\u2028x\n", "\n"):
        (root / "x").write_bytes(text.encode())
        assert workspace.read_file("x") == text
    (root / "x").write_text("")
    assert workspace.read_file("x") == "(empty)"


def test_reading_a_part_says_which(workspace: Workspace):
    assert workspace.read_file("src/main.py", 2, 1) == "[lines 2 to 2 of 3]\nb = 2\n"
    assert workspace.read_file("./src//main.py", first_line=3) == "[lines 3 to 3 of 3]\nc = a + b\n"
    with pytest.raises(ToolError, match=r"src/main.py has only 3 lines"):
        workspace.read_file("src/main.py", 4)
    with pytest.raises(ToolError, match="must be 1 or more"):
        workspace.read_file("src/main.py", 0)


def test_reading_a_long_file_gives_as_many_lines_as_fit(workspace: Workspace, root: Path):
    (root / "long").write_text("0123456789\n" * 10_000)
    text = workspace.read_file("long", max_lines=10_000)
    assert len(text) <= MAX_READ_CHARS + 40
    head, first = text.splitlines()[:2]
    assert head.startswith("[lines 1 to 3")
    assert first == "0123456789"


def test_reading_one_endless_line_gives_its_beginning(workspace: Workspace, root: Path):
    (root / "long").write_text("x" * 100_000)
    text = workspace.read_file("long")
    assert text.startswith("[line 1 of 1: the first 40,000 of 100,000 characters]\nxxx")
    assert len(text) < MAX_READ_CHARS + 100


def test_writing_makes_directories_and_says_what_it_did(workspace: Workspace, root: Path):
    assert workspace.write_file("a/b/c.txt", "one\ntwo") == "made a/b/c.txt: 2 lines, 7 bytes"
    assert (root / "a/b/c.txt").read_text() == "one\ntwo"
    assert workspace.write_file("a/b/c.txt", "") == "replaced a/b/c.txt: 0 lines, 0 bytes"
    assert names_of(root / "a/b") == ["c.txt"]


def test_writing_keeps_the_rights_of_a_file(workspace: Workspace, root: Path):
    script = root / "run.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o750)
    workspace.write_file("run.sh", "#!/bin/sh\necho\n")
    assert stat.S_IMODE(script.stat().st_mode) == 0o750


def test_a_change_of_equal_size_is_seen_by_those_who_look_at_seconds(workspace, root: Path):
    file = root / "src" / "main.py"
    before = file.stat()
    workspace.edit_file("src/main.py", "a + b", "a - b")
    after = file.stat()
    assert after.st_size == before.st_size
    assert int(after.st_mtime) > int(before.st_mtime)


def test_editing_replaces_the_one_place(workspace: Workspace, root: Path):
    assert workspace.edit_file("src/main.py", "a + b", "a * b") == "replaced 1 place in src/main.py"
    assert (root / "src/main.py").read_text() == "a = 1\nb = 2\nc = a * b\n"


def test_editing_every_place_has_to_be_asked_for(workspace: Workspace, root: Path):
    with pytest.raises(ToolError, match=r"old stands 3 times .* set replace_all"):
        workspace.edit_file("src/main.py", " = ", "=")
    done = workspace.edit_file("src/main.py", " = ", "=", replace_all=True)
    assert done == "replaced 3 places in src/main.py"
    assert (root / "src/main.py").read_text() == "a=1\nb=2\nc=a + b\n"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("nowhere", "x", "old does not stand in src/main.py; read the file"),
        ("", "x", "old is empty"),
        ("a", "a", "nothing would change"),
    ],
)
def test_an_edit_that_cannot_be_made_says_why(workspace: Workspace, old, new, said: str):
    with pytest.raises(ToolError, match=said):
        workspace.edit_file("src/main.py", old, new)


def test_editing_keeps_the_line_ends_of_windows(workspace: Workspace, root: Path):
    (root / "win.txt").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    workspace.edit_file("win.txt", "one\ntwo\n", "1\n2\n")
    assert (root / "win.txt").read_bytes() == b"1\r\n2\r\nthree\r\n"


def test_searching_names_file_and_line(workspace: Workspace):
    assert workspace.search_files("= ") == (
        "src/main.py:1: a = 1\nsrc/main.py:2: b = 2\nsrc/main.py:3: c = a + b"
    )
    assert workspace.search_files("readme", ignore_case=True) == "README.md:1: # Readme"
    assert workspace.search_files("= 2", "src/main.py") == "src/main.py:2: b = 2"
    assert workspace.search_files("(.*)+$") == "no line has it"


def test_searching_ends_at_a_bound_and_says_what_it_left_out(workspace: Workspace, root: Path):
    (root / "many.txt").write_text("needle\n" * 500)
    (root / "binary").write_bytes(b"needle\0needle")
    lines = workspace.search_files("needle").splitlines()
    assert len(lines) == MAX_MATCHES + 2
    assert lines[-2].startswith(f"[more than {MAX_MATCHES} lines")
    assert lines[-1] == "[1 binary, large or unreadable files were left out]"
    for text in ("", "a\nb"):
        with pytest.raises(ToolError, match="a part of one line"):
            workspace.search_files(text)


def test_edits_of_one_file_at_once_lose_nothing(workspace: Workspace, root: Path):
    (root / "list").write_text("".join(f"[{number}]" for number in range(50)))

    def edit(number: int) -> None:
        workspace.edit_file("list", f"[{number}]", f"<{number}>")

    threads = [threading.Thread(target=edit, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (root / "list").read_text() == "".join(f"<{number}>" for number in range(50))


async def test_an_agent_works_with_them(workspace: Workspace, root: Path):
    script = [
        reply(None, [call("list_files"), call("read_file", path="src/main.py")]),
        reply(None, call("edit_file", path="src/main.py", old="a + b", new="a * b")),
        reply(None, call("read_file", path="../secret.txt")),
        "done",
    ]
    agent = Agent("ada", ScriptedModel(script), tools=workspace.tools)
    result = await run_agent(agent, [{"role": "user", "content": "multiply"}])
    assert (root / "src/main.py").read_text().endswith("c = a * b\n")
    assert [made["is_error"] for made in result.tool_calls] == [False, False, False, True]
    assert SECRET not in str(result.messages)


def test_read_only_leaves_out_what_writes(root: Path):
    def names(workspace: Workspace) -> list[str]:
        return [as_tool(function).spec.name for function in workspace.tools]

    reading = ["list_files", "read_file", "search_files"]
    assert names(Workspace(root, read_only=True)) == reading
    assert names(Workspace(root)) == [*reading, "write_file", "edit_file"]


@pytest.mark.parametrize("where", ["missing", "README.md", "bad\0name", "x" * 300])
def test_a_workspace_that_is_none_is_refused(root: Path, where: str):
    with pytest.raises(ConfigError, match=r"the workspace .* cannot be used"):
        Workspace(root / where)


def test_where_nothing_can_be_confined_there_is_no_workspace(root, monkeypatch):
    monkeypatch.setattr(confined, "_SUPPORTED", False)
    with pytest.raises(ConfigError, match="leave it out here"):
        Workspace(root)


# ── Attacks ──────────────────────────────────────────────────────────────────────────────────────


def attempts(workspace: Workspace, path: str) -> list[str]:
    """What each tool says when it is given a path; none may succeed."""
    calls = [
        lambda: workspace.read_file(path),
        lambda: workspace.write_file(path, "owned"),
        lambda: workspace.edit_file(path, "secret", "owned"),
        lambda: workspace.list_files(path),
        lambda: workspace.search_files("secret", path),
    ]
    said: list[str] = []
    for attempt in calls:
        with pytest.raises(ToolError) as refused:
            attempt()
        said.append(str(refused.value))
    return said


@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../secret.txt",
        "src/../../secret.txt",
        "./../secret.txt",
        "src/..",
        "/etc/passwd",
        "//etc/passwd",
        "..\\secret.txt",
        "C:\\Windows\\win.ini",
        "a\0b",
        "a\nb",
        "\ud800",
        "x/" * 100,
        ".git/hooks/pre-commit",
        ".GIT/config",
        "src/.git/config",
        ".g\u200cit/config",
        ".git./config",
        "GIT~1/config",
    ],
)
def test_paths_that_lead_out_are_refused_before_anything_is_opened(workspace, path: str):
    assert all("cannot be used" in text for text in attempts(workspace, path))


def test_an_absolute_path_to_the_workspace_itself_is_refused_with_advice(workspace, root: Path):
    said = attempts(workspace, f"{root}/README.md")
    assert all(
        "paths are relative to the workspace, such as 'src/main.py'" in text for text in said
    )


def test_links_are_not_followed_wherever_they_point(workspace: Workspace, root: Path):
    outside = root.parent
    (root / "file").symlink_to(outside / "secret.txt")
    (root / "dir").symlink_to(outside)
    (root / "self").symlink_to(root)
    (root / "loop").symlink_to("loop")
    (root / "inner").symlink_to("README.md")
    for path in ("file", "loop", "inner", "dir/secret.txt", "self/README.md"):
        for said in attempts(workspace, path):
            assert "is a link (links are not followed)" in said
    for directory in ("dir", "self"):
        assert all("is a link" in said for said in attempts(workspace, directory))
    assert "file  [a link (links are not followed)]" in workspace.list_files()
    assert SECRET not in workspace.search_files("secret")
    assert (outside / "secret.txt").read_text() == SECRET
    assert (root / "file").is_symlink()


def test_making_directories_does_not_go_through_a_link(workspace: Workspace, root: Path):
    (root / "dir").symlink_to(root.parent)
    with pytest.raises(ToolError, match="is a link"):
        workspace.write_file("dir/new/file.txt", "owned")
    assert not (root.parent / "new").exists()


def test_a_workspace_that_is_itself_a_link_is_the_place_it_points_at(root: Path):
    link = root.parent / "link"
    link.symlink_to(root)
    workspace = Workspace(link)
    link.unlink()
    link.symlink_to(root.parent)
    assert workspace.read_file("README.md") == "# Readme\n"
    with pytest.raises(ToolError, match="does not exist"):
        workspace.read_file("secret.txt")


def test_a_hard_link_is_replaced_and_what_it_led_to_stays(workspace: Workspace, root: Path):
    os.link(root.parent / "secret.txt", root / "hard")
    workspace.write_file("hard", "mine")
    assert (root.parent / "secret.txt").read_text() == SECRET


def test_pipes_never_block_and_are_neither_read_nor_written(workspace: Workspace, root: Path):
    os.mkfifo(root / "pipe")
    for said in attempts(workspace, "pipe"):
        assert "is a pipe" in said
    assert "pipe  [a pipe]" in workspace.list_files()
    assert stat.S_ISFIFO((root / "pipe").lstat().st_mode)


def test_sockets_are_named_as_what_they_are(workspace: Workspace, root: Path, monkeypatch):
    monkeypatch.chdir(root)  # the path of a socket has little room
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("s")
        with pytest.raises(ToolError, match="s is a socket"):
            workspace.read_file("s")


def test_devices_are_not_opened(workspace: Workspace, root: Path):
    try:
        os.mknod(root / "zero", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    except PermissionError:
        if "CI" in os.environ and os.geteuid() == 0:
            raise
        pytest.skip("this system does not let us make a device")
    for said in attempts(workspace, "zero"):
        assert "is a device" in said


def test_a_file_that_is_swapped_for_a_pipe_or_a_link_while_it_is_opened(
    workspace, root, monkeypatch
):
    real_open = os.open
    swaps = {
        "pipe": os.mkfifo,
        "link": lambda path: path.symlink_to(root.parent / "secret.txt"),
        "directory": lambda path: path.mkdir(),
    }
    for kind, swap in swaps.items():
        file = root / f"swapped-{kind}"
        file.write_text("x")

        def swapping(name, flags, *args, file=file, swap=swap, **settings):
            if name == file.name and file.is_file() and not file.is_symlink():
                file.unlink()
                swap(file)
            return real_open(name, flags, *args, **settings)

        monkeypatch.setattr(os, "open", swapping)
        with pytest.raises(ToolError, match=f"swapped-{kind} is a "):
            workspace.read_file(file.name)
        monkeypatch.setattr(os, "open", real_open)


def test_a_directory_that_is_swapped_for_a_link_again_and_again_never_leads_out(workspace, root):
    outside, junk = root.parent / "outside", count()
    outside.mkdir()
    (outside / "file").write_text(SECRET)
    (root / "dir").mkdir()
    (root / "dir" / "file").write_text("inside")
    ending = threading.Event()

    def swap() -> None:
        place = root / "dir"
        for number in count():
            if ending.is_set():
                return
            held = place.rename(root / f"held{number}")
            with suppress(OSError):  # a tool may have made a directory of this name meanwhile
                place.symlink_to(outside)
            while held.exists():
                with suppress(OSError):
                    place.rename(root / f"junk{number}-{next(junk)}")
                with suppress(OSError):
                    held.rename(place)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for number in range(2000):
            for attempt in (
                lambda: workspace.read_file("dir/file"),
                lambda number=number: workspace.write_file(f"dir/new{number % 3}", "x"),
                lambda: workspace.search_files("secret", "dir"),
                lambda: workspace.list_files("dir"),
            ):
                try:
                    assert SECRET not in attempt()
                except ToolError:
                    continue
    finally:
        ending.set()
        swapping.join()
    assert names_of(outside) == ["file"]
    assert (outside / "file").read_text() == SECRET


def test_a_workspace_that_is_moved_away_is_not_searched_for_by_name(workspace, root: Path):
    root.rename(root.parent / "moved")
    root.symlink_to(root.parent)
    assert workspace.read_file("README.md") == "# Readme\n"
    with pytest.raises(ToolError, match="does not exist"):
        workspace.read_file("secret.txt")


def test_huge_files_are_refused_without_being_read(workspace: Workspace, root: Path):
    with (root / "huge").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(ToolError, match=r"huge has 1,099,511,627,776 bytes; files of more than"):
        workspace.read_file("huge")
    assert "[1 binary, large or unreadable files were left out]" in workspace.search_files("zzz")
    with pytest.raises(ToolError, match="are too many"):
        workspace.write_file("big", "x" * 10_000_001)
    assert not (root / "big").exists()


def test_a_file_that_grows_while_it_is_read_is_given_up(workspace, root, monkeypatch):
    monkeypatch.setattr(confined, "MAX_FILE_BYTES", 100)
    real_read = os.read

    def growing(descriptor: int, size: int) -> bytes:
        return real_read(descriptor, size) + b"x" * 60

    monkeypatch.setattr(os, "read", growing)
    with pytest.raises(ToolError, match="are not read"):
        workspace.read_file("README.md")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0", "is binary: 10 bytes"),
        (b"a" * 2_000_000 + b"\0" + b"a" * 2_000_000, "is binary: 4,000,001 bytes"),
        (b"caf\xe9", "is no UTF-8 text: 4 bytes, the first odd one at 3"),
        ("text".encode("utf-16"), "is binary"),
    ],
)
def test_what_is_no_text_is_refused_and_left_as_it_is(workspace, root: Path, data, said: str):
    (root / "data").write_bytes(data)
    with pytest.raises(ToolError, match=said):
        workspace.read_file("data")
    with pytest.raises(ToolError, match=said):
        workspace.edit_file("data", "a", "b")
    assert (root / "data").read_bytes() == data


def test_half_a_character_is_refused_and_leaves_nothing_behind(workspace, root: Path):
    with pytest.raises(ToolError, match="half a character"):
        workspace.write_file("x", "a\ud800")
    assert names_of(root) == ["README.md", "src"]


def test_an_edit_that_would_make_too_much_is_refused_before_it_is_made(workspace, root: Path):
    (root / "g").write_text("aä" * 250_000)
    tracemalloc.start()
    try:
        with pytest.raises(ToolError, match=r"the file would have 750,750,000 bytes; at most"):
            workspace.edit_file("g", "a", "b" * 3_001, replace_all=True)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20_000_000
    assert (root / "g").read_text() == "aä" * 250_000
    with pytest.raises(ToolError, match="half a character"):
        workspace.edit_file("README.md", "Readme", "\ud800")


def test_a_search_reads_little_of_binary_files(workspace, root: Path, monkeypatch):
    for number in range(20):
        with (root / f"image{number}").open("wb") as file:
            file.write(b"\x89PNG\r\n\x1a\n\0\0")
            file.truncate(10_000_000)
    read = count_bytes_read(monkeypatch)
    assert workspace.search_files("c = a") == (
        "src/main.py:3: c = a + b\n[20 binary, large or unreadable files were left out]"
    )
    assert sum(read) < 1_000_000


def test_a_search_counts_all_that_it_reads(workspace, root: Path, monkeypatch):
    for number in range(20):
        (root / f"latin{number:02}").write_bytes(b"caf\xe9" * 1_000)
    monkeypatch.setattr(workspace_module, "MAX_SEARCHED_BYTES", 20_000)
    read = count_bytes_read(monkeypatch)
    assert workspace.search_files("zzz") == (
        "no line has it\n[there is more than one search reads; search a directory below]\n"
        "[5 binary, large or unreadable files were left out]"
    )
    assert sum(read) == len("# Readme\n") + 5 * 4_000


def count_bytes_read(monkeypatch) -> list[int]:
    sizes: list[int] = []
    real_read = os.read

    def counting(descriptor: int, size: int) -> bytes:
        data = real_read(descriptor, size)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(os, "read", counting)
    return sizes


AS_A_PLAIN_USER = """
import os, sys
from untildone import ToolError
from untildone.tools.workspace import Workspace

workspace = Workspace(sys.argv[1])
if os.geteuid() == 0:
    for path in (sys.argv[1], f"{sys.argv[1]}/README.md"):
        os.chown(path, 65534, 65534)
    os.setuid(65534)
for change in (workspace.write_file, workspace.edit_file):
    try:
        change("README.md", "Readme", *(["new"] if change == workspace.edit_file else []))
    except ToolError as error:
        print(error)
print(workspace.write_file("other", "new"))
"""


def test_a_read_only_file_stays_as_it_is(root: Path):
    (root / "README.md").chmod(0o444)
    command = [sys.executable, "-c", AS_A_PLAIN_USER, str(root)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    refused = "README.md is read-only; leave it as it is, or write another file"
    assert ended.stdout.splitlines() == [refused, refused, "made other: 1 line, 3 bytes"]
    assert (root / "README.md").read_text() == "# Readme\n"
    assert names_of(root) == ["README.md", "other", "src"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(workspace, root, monkeypatch):
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(ToolError, match=r"README.md: No space left on device"):
        workspace.write_file("README.md", "new")
    assert (root / "README.md").read_text() == "# Readme\n"
    assert names_of(root) == ["README.md", "src"]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("", "is the workspace itself"),
        (".", "is the workspace itself"),
        ("src", "src is a directory, not a file"),
        ("README.md/x", "README.md is a file, not a directory"),
        ("missing/x", "missing does not exist"),
        ("x" * 300, "File name too long"),
    ],
)
def test_what_cannot_be_read_is_told_in_words(workspace: Workspace, path: str, said: str):
    with pytest.raises(ToolError, match=said):
        workspace.read_file(path)


def test_what_may_not_be_read_is_told_in_words(workspace, root: Path, monkeypatch):
    def refused(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(ToolError, match=r"README.md: Permission denied"):
        workspace.read_file("README.md")


def test_names_that_would_steer_a_terminal_are_written_out(workspace: Workspace, root: Path):
    (root / "\x1b[2J").touch()
    (root / os.fsdecode(b"caf\xe9")).touch()
    listed = workspace.list_files()
    assert "'\\x1b[2J'  0" in listed
    assert "'caf\\udce9'  0" in listed


def test_git_is_not_there(workspace: Workspace, root: Path):
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("token = 1")
    (root / ".gitignore").write_text("dist\n")
    assert workspace.list_files().splitlines()[:2] == [".gitignore  5", "README.md  9"]
    assert workspace.search_files("token") == "no line has it"


def test_a_tree_without_an_end_is_walked_to_a_bound(workspace, root: Path, monkeypatch):
    deep = root
    for _ in range(60):
        deep /= "d"
        deep.mkdir()
    assert workspace.list_files("d").count("\n") < 40
    monkeypatch.setattr(confined, "MAX_ENTRIES", 10)
    for number in range(50):
        (root / "src" / f"{number}").touch()
    assert len(workspace.list_files("src").splitlines()) == 10


def test_no_descriptor_is_left_open(root: Path):
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("descriptors are not listed here")
    before = len(names_of(Path("/proc/self/fd")))
    workspace = Workspace(root)
    for _ in range(50):
        workspace.list_files()
        workspace.read_file("src/main.py")
        workspace.write_file("new/x", "x")
        for path in ("..", "missing", "src/missing/x", "README.md/x"):
            with pytest.raises(ToolError):
                workspace.read_file(path)
    del workspace
    assert len(names_of(Path("/proc/self/fd"))) == before


async def test_calls_in_threads_do_not_stop_each_other(workspace: Workspace):
    tool = as_tool(workspace.read_file)

    async def read() -> str:
        return output_text(await tool.run({"path": "README.md"}, asyncio.to_thread))

    assert set(await asyncio.gather(*[read() for _ in range(50)])) == {"# Readme\n"}
