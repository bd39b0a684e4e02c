"""A trainer of another kind behind the oracle: bytes, a table of bigram logits, Adam in NumPy.

    bigram.py train --config FILE --root DIR --out DIR --nonce TEXT      (S-26)

The logits of the byte after `x` are row `x` of a (V, V) table, V = 256. A step is one example.
"""

import numpy as np
from trace_writer import TraceWriter, digest

V, NAME = 256, "bigram.weight"
writer = TraceWriter()
config, opt = writer.config, writer.config["optimizer"]
rate, beta1, beta2, epsilon = (opt[key] for key in ("learning_rate", "beta1", "beta2", "epsilon"))


def encode(messages):
    """Return the text of a conversation and its bytes as ids; all of them are targets."""
    text = "\n".join(message["content"] for message in messages)
    return text, list(text.encode())


train = writer.tokens(encode, config["data"]["max_length"])
theta, m, v = (np.zeros((V, V)) for _ in range(3))
# A bigram table has no layers: the sizes that it lacks are 1.
sizes = ("intermediate_size", "num_layers", "num_heads", "num_kv_heads", "head_dim")
model = dict.fromkeys(sizes, 1) | {"hidden_size": V, "vocab_size": V, "tied": True}
writer.header("bigram", NAME, theta, model | {"rope_base": 0, "rms_norm_eps": 0})
for t in range(config["train"]["num_steps"]):
    epoch, place = divmod(t, len(train))
    if place == 0:  # S-08
        train.sort(key=lambda row: digest(f"{config['seed']}:{epoch}:{row['id']}".encode()))
    ids, before = np.array(train[place]["ids"]), theta.copy()
    x, y, at = ids[:-1], ids[1:], np.arange(len(ids) - 1)
    p = np.exp(theta[x])  # (T, V)
    p /= p.sum(axis=1, keepdims=True)
    loss, grad = float(-np.log(p[at, y]).mean()), np.zeros_like(theta)
    p[at, y] -= 1
    np.add.at(grad, x, p / len(y))
    m, v = beta1 * m + (1 - beta1) * grad, beta2 * v + (1 - beta2) * grad**2
    m_hat, v_hat = m / (1 - beta1 ** (t + 1)), v / (1 - beta2 ** (t + 1))
    theta = theta - rate * m_hat / (np.sqrt(v_hat) + epsilon)
    writer.tensors(t, NAME, grad=grad, m=m, v=v, update=theta - before, param=theta)
    norms = {"grad_norm": float(np.linalg.norm(grad)), "param_norm": float(np.linalg.norm(theta))}
    writer.step(t, epoch, train[place], y, {"loss": loss, "lr": rate, "clip_factor": 1.0} | norms)
writer.done(NAME, params=theta, m=m, v=v)
