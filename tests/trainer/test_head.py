import pytest
import torch

from tradewind.trainer import head


@pytest.mark.parametrize("kept_rows", [0, 5, 1000])
@pytest.mark.parametrize("chunk_rows", [1, 4, 1000])
def test_chunked_head_differs_from_log_softmax(monkeypatch, chunk_rows, kept_rows):
    monkeypatch.setattr(head, "CHUNK_BYTES", chunk_rows * 4 * 50)
    monkeypatch.setattr(head, "KEPT_BYTES", kept_rows * 4 * 50)
    torch.manual_seed(0)
    hidden = torch.randn(11, 8, dtype=torch.float64).float().requires_grad_()
    weight = torch.randn(50, 8).requires_grad_()
    temperature = torch.linspace(0.5, 1.5, 11)
    row = torch.tensor([0, 0, 3, 3, 10, 7, 7])
    target = torch.tensor([1, 1, 2, 49, 0, 5, 6])
    seed = torch.randn(7)

    logp, entropy = head.ChunkedLogProbs.apply(hidden, weight, temperature, row, target)
    ours = torch.autograd.grad((logp * seed).sum(), (hidden, weight))
    full = (hidden @ weight.t() / temperature[:, None]).log_softmax(-1)
    theirs = torch.autograd.grad((full[row, target] * seed).sum(), (hidden, weight))

    torch.testing.assert_close(logp, full[row, target])
    torch.testing.assert_close(entropy, -(full.exp() * full).sum(-1))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
