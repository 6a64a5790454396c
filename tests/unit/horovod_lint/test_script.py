"""Untrusted scripts: bounded work, and errors that name file, line and problem."""

from __future__ import annotations

import pytest

from horovod_lint import MAX_DEPTH, MAX_SCRIPT_BYTES, ScriptError, lint_script

HVD = "import horovod.tensorflow as hvd\nhvd.init()\n"


def problem(content: bytes) -> str:
    """Return the error for a script that cannot be analysed."""
    with pytest.raises(ScriptError) as refused:
        lint_script(content, "mine.py")
    return str(refused.value)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a = 1\nprint 'hello'\n", "mine.py:2: not Python 3: Missing parentheses in call to 'print'"),
        (b"a = 1\nb = 0777\n", "mine.py:2: not Python 3: leading zeros in decimal integer literals"),
        (b"try:\n    pass\nexcept E, e:\n    pass\n", "mine.py:3: not Python 3: multiple exception types"),
        (b"def f(:\n", "mine.py:1: not Python 3: invalid syntax"),
        (b"a = 1\nreturn a\n", "mine.py:2: not Python 3: 'return' outside function"),
        (b"class A:\n    yield 1\n", "mine.py:2: not Python 3: 'yield' outside function"),
        (b"for a in b:\n    pass\nelse:\n    break\n", "mine.py:4: not Python 3: 'break' outside loop"),
        (b"while 1:\n    def f():\n        continue\n", "mine.py:3: not Python 3: 'continue' not properly in loop"),
        (b"await f()\n", "mine.py:1: not Python 3: 'await' outside function; put it into an async function"),
        (
            b"def f():\n    return [g(await a) for b in c], await a\n",
            "mine.py:2: not Python 3: 'await' outside async",
        ),
        (b"async with a:\n    pass\n", "mine.py:1: not Python 3: 'await' outside function"),
        (b"def f(a, a):\n    pass\n", "mine.py:1: not Python 3: duplicate argument 'a'"),
        (b"'x'\na = 1\nfrom __future__ import division\n", "mine.py:3: not Python 3: from __future__ imports must"),
        (b"a = 1\nb = '\0'\n", "mine.py:2: not Python source: it contains a null byte"),
        (b"\n\n# \xff\n", "mine.py:3: not text in utf-8: invalid byte 0xff"),
        (b"# \xff\n", "mine.py:1: cannot decode the script: invalid or missing encoding"),
        (b"# coding: ascii\n\n\na = '\xc3\xa4'\n", "mine.py:4: not text in ascii: invalid byte 0xc3"),
        (
            b"# coding: klingon\n",
            "mine.py:1: cannot decode the script: unknown encoding: klingon; declare its encoding",
        ),
        (b"# coding: rot13\n", "mine.py:1: cannot decode the script"),
        (b"\xef\xbb\xbf# coding: latin-1\n", "mine.py:1: cannot decode the script"),
        (b"x" * (MAX_SCRIPT_BYTES + 1), f"mine.py: the script is larger than {MAX_SCRIPT_BYTES} bytes"),
        (b"(" * 5000, "mine.py:1: n"),
        (b"-" * 50000 + b"1", "mine.py:1: n"),
        (b"a" + b".b" * 100000, "mine.py:1: nested more than"),
        (b"x = " + b"+".join([b"1"] * 50000), "mine.py:1: nested more than"),
        (b"\n" + b"f(" * 160 + b")" * 160, "mine.py:2: n"),
        (b"a = 1\n" + b"if x:\n    pass\nel" * 400 + b"se:\n    pass\n", "nested more than 150 levels"),
    ],
)
def test_an_unreadable_script_is_refused_with_the_place(content: bytes, expected: str) -> None:
    """The error names the file, the line and the problem."""
    assert expected in problem(content)


def test_an_unusual_but_valid_script_is_read() -> None:
    """Byte order marks, other encodings, line ends and an empty file are valid."""
    for content in (
        b"",
        b"\xef\xbb\xbfa = 1\n",
        b"# coding: latin-1\na = '\xe4'\n",
        b"a = 1\r\nb = '\\d'\r\n",
        b"\f\na = 1",
        b"'x'\nfrom __future__ import division\nfrom __future__ import annotations\n",
        b"def f():\n    for a in b:\n        if a:\n            break\n    else:\n        return (yield)\n",
        b"async def f():\n    async with a:\n        return [await b for b in c if await d]\n",
        b"x = lambda: (yield)\nwhile x:\n    try:\n        continue\n    finally:\n        break\n",
    ):
        assert () == lint_script(content, "mine.py").findings


def test_the_deepest_allowed_nesting_is_checked() -> None:
    """No check runs out of stack."""
    depth = MAX_DEPTH - 10
    deep = HVD + "x = " + "[" * 80 + "hvd.rank()" + "]" * 80 + "\n" + "\n".join(" " * n + "if x:" for n in range(60))
    assert depth > 60
    assert lint_script((deep + "\n" + " " * 60 + "pass\n").encode(), "mine.py").is_clean


@pytest.mark.parametrize(
    "knot",
    [
        "a = a\nb = a\nmodel.fit(a, epochs=a, callbacks=a)",
        "a, b = b, a\nfor a in b:\n    b = a\nmodel.fit(b, epochs=a // hvd.size(), callbacks=b)",
        "def f(x):\n    return g(x)\ndef g(x):\n    return f(x)\nm.compile(optimizer=f(1))\nm.fit(f(2), epochs=1)",
        "def f(x=f):\n    return f(x)\nif f():\n    model.save(f(f))",
        "class A(A):\n    def fit(self, x):\n        self.x = self.x.fit(self.x, epochs=self.x)\nA().fit(A)",
        "import tensorflow as tf\ntf = tf.tf = tf\ntf.fit(tf, epochs=tf, callbacks=[*tf])",
        "callbacks = callbacks + callbacks\ncallbacks.append(callbacks)\nmodel.fit(1, callbacks=callbacks)",
        "hvd = hvd if hvd.rank() else hvd\nwhile hvd.rank():\n    hvd.allreduce(hvd)",
        "match hvd:\n    case {'a': [x, *y]}:\n        x.fit(y, epochs=x)",
        "async def f():\n    async for x in f():\n        await x.fit(x, epochs=[i async for i in x])",
        "(lambda hvd: hvd.rank())(hvd)\nx = (y := x)\nx.fit(y, callbacks=y)",
        "from tensorflow import *\nfrom horovod.tensorflow import *\nfit(1, epochs=size() // size())",
    ],
)
def test_names_defined_by_each_other_are_followed_once(knot: str) -> None:
    """The lint ends, with or without findings."""
    assert lint_script(f"import keras\n{HVD}{knot}\n".encode(), "mine.py").num_more == 0


def test_a_script_that_takes_too_many_steps_is_refused() -> None:
    """The work is limited as well as the size."""
    many = "\n".join(f"x{n} = [{', '.join(f'x{m}' for m in range(400))}]" for n in range(100))
    fits = "\n".join(f"model.fit(x{n % 100}, epochs=x{n % 100}, steps_per_epoch=x{n})" for n in range(400))
    assert "too complex to analyse" in problem(f"import keras\n{HVD}{many}\n{fits}\n".encode())


def test_findings_are_bounded() -> None:
    """A report lists 100 findings and counts the rest."""
    writes = "".join(f"open('{n}', 'w')\n" for n in range(150))
    report = lint_script(f"{HVD}{writes}".encode(), "mine.py")
    assert (100, 50) == (len(report.findings), report.num_more)


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("model.fit(x, epochs=1)\n", marks=pytest.mark.slow),
        "if hvd.rank() == 0:\n    hvd.allreduce(a)\n",
    ],
)
def test_a_large_script_whose_lines_all_depend_on_each_other_is_refused(line: str) -> None:
    """It would take minutes otherwise."""
    content = (HVD + "import tensorflow as tf\n").encode() + line.encode() * (MAX_SCRIPT_BYTES // len(line) - 10)
    assert "too complex to analyse" in problem(content)


def test_comments_are_checked_in_linear_time() -> None:
    """A script of the maximum size may consist of comments only."""
    comment = b"# landfall: ignore[missing_init] why\n"
    num_comments = MAX_SCRIPT_BYTES // len(comment)
    report = lint_script(comment * num_comments, "mine.py")
    assert (num_comments, 100) == (len(report.findings) + report.num_more, len(report.findings))
