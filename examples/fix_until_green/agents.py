"""Two agents on scripted models: one that can repair ``broken/``, and one that cannot."""

from untildone import Agent
from untildone.testing import ScriptedModel, SeenRequest, call, reply

ORDERS = "stock/orders.py"


def fixer() -> Agent:
    """Repairs the total, says it is done, is told that it is not, and repairs the discount."""
    script = [
        reply(None, [call("list_files"), call("read_file", path=ORDERS)]),
        reply(None, call("read_file", path="tests/test_orders.py")),
        reply(
            "The total ignores how many there are of each.",
            call(
                "edit_file",
                path=ORDERS,
                old="sum(line.price for line in lines)",
                new="sum(line.price * line.count for line in lines)",
            ),
        ),
        "The total is right now; all tests should pass.",
        reply(
            "The feedback says that the discount is given for 99 already.",
            call("search_files", text="DISCOUNT_FROM"),
        ),
        reply(
            None,
            call("edit_file", path=ORDERS, old="DISCOUNT_FROM = 99", new="DISCOUNT_FROM = 100"),
        ),
        "The total counts all pieces, and the discount begins at 100.",
    ]
    return Agent(
        "fixer", ScriptedModel(script, then="repeat"), system_prompt="You repair Python packages."
    )


def hopeless() -> Agent:
    """Rewrites a note again and again, and is sure each time."""

    def guess(seen: SeenRequest):
        if seen.index % 2 == 0:
            note = f"# Try {seen.index // 2 + 1}\n"
            return reply(None, call("write_file", path="NOTES.md", content=note))
        return f"Try {seen.index // 2 + 1}: it must work now."

    return Agent("hopeless", ScriptedModel(guess))
