"""Text arrives whole, character by character, and adds up to the decoding of all ids."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tradewind.render.renderer import Renderer

ANY_BUDGET = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def pieces_of(renderer: Renderer, ids: list[int]) -> list[str]:
    stream = renderer.detokeniser()
    return [*(stream.push([token]) for token in ids), stream.flush()]


def test_streaming_never_shows_half_a_character(model):
    renderer = Renderer.open(model("chatml"))
    text = "aé€😀 日本 e\u0301"
    ids = [i for byte in text for i in renderer.encode(byte)]
    assert len(ids) > len(text)
    pieces = pieces_of(renderer, ids)
    assert "".join(pieces) == text
    assert not any("�" in piece for piece in pieces)


def test_stop_ids_have_no_text(model):
    renderer = Renderer.open(model("chatml"))
    ids = [*renderer.encode("hello"), *renderer.stop_ids]
    assert "".join(pieces_of(renderer, ids)) == "hello" == renderer.decode(ids)


def test_character_cut_off_by_the_length_is_marked_at_the_end_only(model):
    renderer = Renderer.open(model("chatml"))
    ids = list(renderer.encode("a😀"))[:-1]
    pieces = pieces_of(renderer, ids)
    assert "".join(pieces[:-1]) == "a"
    assert pieces[-1] == "�"


@ANY_BUDGET
@given(data=st.data())
def test_pieces_add_up_to_the_decoding_of_any_ids(model, data):
    renderer = Renderer.open(model("chatml"))
    ids = data.draw(st.lists(st.integers(0, renderer.vocab_size - 1), max_size=40))
    assert "".join(pieces_of(renderer, ids)) == renderer.decode(ids)


def test_pieces_add_up_with_a_sentencepiece_like_decoder():
    """Leading-space stripping and byte fallback: both depend on what came before."""
    from tokenizers import Tokenizer, decoders, models

    vocab = {"<unk>": 0, **{f"<0x{b:02X}>": b + 1 for b in range(256)}, "▁hi": 257, "▁there": 258}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    from tradewind.render.detokeniser import Detokeniser

    ids = [257, 258, *(b + 1 for b in "é€".encode()), 258]
    stream = Detokeniser(tokenizer)
    pieces = [*(stream.push([i]) for i in ids), stream.flush()]
    assert "".join(pieces) == tokenizer.decode(ids) == "hi thereé€ there"
    assert not any("�" in piece for piece in pieces)
