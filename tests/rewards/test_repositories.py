"""Tests that use a product over a wire: what honest ones may do, and what is refused."""

from __future__ import annotations

import re

import pytest
from boxes import need
from graded import a_task, opened, verdict

from tradewind.rewards.reference import BadReference
from tradewind.rewards.repositories import RepositoryReference, declared, modules_of
from tradewind.rewards.sandbox.level import Level

BANK = '''
class Empty(ValueError):
    """Not enough money."""

class Account:
    fee = 2
    def __init__(self, owner, balance=0):
        self.owner, self.balance, self.log = owner, balance, []
    @classmethod
    def rich(cls, owner): return cls(owner, 1000)
    def pay(self, amount):
        if amount > self.balance: raise Empty(amount)
        self.balance -= amount
        self.log.append(("pay", amount))
        return self
    def __eq__(self, other): return (self.owner, self.balance) == (other.owner, other.balance)
    def __lt__(self, other): return self.balance < other.balance
    def __add__(self, other): return Account(self.owner, self.balance + other.balance)
    def __iter__(self): return iter(self.log)
    def __len__(self): return len(self.log)
    def __enter__(self): return self
    def __exit__(self, *error): self.balance = 0

class Odd(int, Account):
    pass

class Saver(Account):
    pass

def make(n): return {"all": [Account("x", i) for i in range(n)]}
'''
TESTS = """
import pytest
from shop import bank
from shop.bank import Account, Empty, Saver

@pytest.fixture
def account(): return Account("ann", balance=10)

def test_objects(account):
    assert account.pay(3) is account
    assert account.balance == 7 and account.log == [("pay", 3)]
    account.balance = 5
    assert account.balance == 5 and bank.Account.fee == 2

def test_classes(account):
    assert isinstance(account, Account) and not isinstance(account, Saver)
    assert bank.Odd.fee == 2 and isinstance(Saver("bob"), Account)
    assert Account.rich("eve").balance == 1000

def test_exceptions(account):
    with pytest.raises(Empty) as caught: account.pay(11)
    assert caught.value.args == (11,) and isinstance(caught.value, ValueError)
    with pytest.raises(AttributeError): account.nothing

def test_containers(account):
    account.pay(1)
    assert list(account) == [("pay", 1)] and len(account) == 1 and ("pay", 1) in account
    assert [one.balance for one in bank.make(2)["all"]] == [0, 1]

def test_operators(account):
    assert account + account == Account("ann", 20) and account < Account("b", 11)
    assert account != None and {account: 1}[account] == 1
    with account as same: assert same.balance == 10
    assert account.balance == 0

@pytest.mark.parametrize("n", [1, 2])
def test_parameters(n): assert len(bank.make(n)["all"]) == n

def test_patching(monkeypatch, account):
    monkeypatch.setattr(bank, "LIMIT", 3, raising=False)
    assert bank.LIMIT == 3
"""
NAMES = (
    *("objects", "classes", "exceptions", "containers", "operators"),
    *("parameters[1]", "parameters[2]", "patching"),
)
REFERENCE = {
    "files": {"src/shop/__init__.py": "", "src/shop/bank.py": ""},
    "tests": {"tests/test_bank.py": TESTS},
    "expected": [f"tests/test_bank.py::test_{name}" for name in NAMES],
    "artefacts": ["src/shop/*.py", "src/data/*"],
    "roots": ["src"],
}


@pytest.fixture(scope="module")
def signal():
    opened_signal = opened("pytest")
    yield opened_signal
    opened_signal.close()


def expecting(test: str, **more: object):
    """A task with one test."""
    return REFERENCE | {
        "tests": {"test_one.py": f"from shop import bank\ndef test_one():\n    {test}\n"},
        "expected": ["test_one.py::test_one"],
        **more,
    }


@need(Level.L2)
def test_honest_tests_do_not_notice_the_wire(signal):
    said = verdict(signal, REFERENCE, files={"src/shop/bank.py": BANK, "README.md": "x"})
    assert said.value == 1.0, said
    assert said.evidence == {"tests": 8, "passed": 8, "ignored_files": ["README.md"]}


@need(Level.L2)
@pytest.mark.parametrize(
    ("test", "says"),
    [
        ("assert bank.Account('x') == 3", "not plain data"),
        ("assert abs(bank.Account('x') - 3) < 1e-6", "Account"),
        ("assert bank.make(print)", "cannot hand the product"),
        ("assert bank.missing", "missing"),
        ("import pytest; pytest.skip()", "skipped"),
    ],
)
def test_what_proves_nothing_does_not_pass(signal, test, says):
    said = verdict(signal, expecting(test), files={"src/shop/bank.py": BANK})
    assert said.value == 0.0 and says in said.cause, said


@need(Level.L2)
def test_an_expected_test_that_does_not_run_is_not_passed(signal):
    task = expecting("pass", expected=["test_one.py::test_one", "test_one.py::test_two"])
    said = verdict(signal, task, files={})
    assert (
        said.value == 0.0 and "1 of 2 tests pass; test_one.py::test_two did not run" in said.cause
    )


@need(Level.L2)
def test_a_products_data_files_and_prints_stay_with_it(signal):
    code = "import pathlib\nprint('noise')\ntext = pathlib.Path('src/data/a.txt').read_text()"
    files = {"src/shop/bank.py": code, "src/data/a.txt": "hello"}
    assert verdict(signal, expecting("assert bank.text == 'hello'"), files=files).value == 1.0


def test_only_declared_files_are_taken_and_never_configuration():
    reference = RepositoryReference.of(a_task(REFERENCE | {"artefacts": ["*"]}))
    changed = {
        "src/shop/bank.py": "",
        "src/conftest.py": "",
        "PyProject.toml": "",
        "tests/test_bank.py": "",
        "../x.py": "",
        "/x.py": "",
        "a.pth": "",
        "b.py": 7,
    }
    taken, ignored = declared(changed, reference)
    assert (list(taken), len(ignored)) == (["src/shop/bank.py"], 7)
    narrow = RepositoryReference.of(a_task(REFERENCE))
    assert declared({"src/other/bank.py": ""}, narrow) == ({}, ["src/other/bank.py"])


def test_names_of_modules_follow_the_roots():
    files = dict.fromkeys(["src/shop/__init__.py", "src/shop/a/b.py", "tool.py", "src/x.txt"], "")
    assert modules_of(files, ("src",)) == {"shop": True, "shop.a": True, "shop.a.b": False}
    assert modules_of(files, ("", "src"))["tool"] is False


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"expected": []}, "no 'expected'"),
        ({"expected": ["tests/test_bank.py"]}, "is in none of"),
        ({"expected": ["tests/test_other.py::test_x"]}, "is in none of"),
        ({"files": {"../x.py": ""}}, "leads out"),
        ({"artefacts": []}, "no 'artefacts'"),
    ],
)
def test_a_reference_that_is_not_whole_is_a_sentence(change, says):
    with pytest.raises(BadReference, match=re.escape(says)):
        RepositoryReference.of(a_task(REFERENCE | change))
