"""The order desk: a small product with a real database, and an agent that works in it.

    python examples/orderdesk/build.py --out DIR --seed 7
    -> DIR/orderdesk.sqlite   the product's database            (product.py)
       DIR/tasks.jsonl        questions with their references   (kinds.py, questions.py)
       DIR/corpus.jsonl       documents for mid-training        (corpus.py)

`agent.py` is the customer's agent, `env.py` is the one function that Tradewind calls, `users.py`
is a trickle of ordinary product users. Nothing here knows how the model is trained.
"""
